//! `berth gc`

use std::time::Duration;

use berth_contract::message::collect::Force;
use berth_contract::verb;

use crate::args::Gc;
use crate::failure::Failure;
use crate::session::Session;
use crate::show;

/// A sweep reads everything, and sends one request after the other.
const SWEEP_PATIENCE: Duration = Duration::from_secs(60);

/// Runs a sweep now, and prints its result.
pub async fn gc(args: &Gc, session: &Session) -> Result<(), Failure> {
    let ms = |grace: Duration| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
    let body = Force { kinds: args.kinds(), grace_ms: args.grace.map(ms) };
    let patience = session.patience(SWEEP_PATIENCE);
    let reply = session.pursue::<verb::GcForce>(&(), &body, patience);
    let swept = reply.await?;
    session.output.reply(&swept, show::sweep);
    Ok(())
}
