//! `berth gc`

use std::time::Duration;

use berth_contract::message::collect::{Force, Sweep};
use berth_contract::subject::Global;

use crate::args::Gc;
use crate::failure::Failure;
use crate::session::{Question, Session};
use crate::show;

/// A sweep looks at everything, and asks for one thing after the other.
const SWEEP_PATIENCE: Duration = Duration::from_secs(60);

/// Collects now, and tells what came of it.
pub async fn gc(args: &Gc, session: &Session) -> Result<(), Failure> {
    let ms = |grace: Duration| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
    let body = Force { kinds: args.kinds(), grace_ms: args.grace.map(ms) };
    let question = Question::global(Global::GcForce);
    let patience = session.patience(SWEEP_PATIENCE);
    let asked = session.pursue(&question, &body, patience, |problem| problem.retryable);
    let swept: Sweep = asked.await?;
    session.output.reply(&swept, show::sweep);
    Ok(())
}
