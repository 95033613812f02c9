//! Telling a run that waits for a volume where it stands in line.
//!
//! **Promises** that its place is told within the first second, and again when it changes. The
//! agent's own answer says it too, but only when the request for the mount runs out.

use std::convert::Infallible;
use std::time::Duration;

use berth_contract::message::claim::{ClaimStatus, Status};
use berth_contract::verb;
use berth_domain::VolumeId;
use berth_domain::volume::State;
use tokio::time::{Instant, sleep};

use super::plan::Plan;
use crate::output::say;
use crate::session::Session;
use crate::span;
use crate::table::plain;

/// How long a mount that needs no waiting may take without a question.
const FIRST: Duration = Duration::from_millis(400);
/// How often the place is asked for then.
const AGAIN: Duration = Duration::from_secs(1);
/// How long one question may take.
const ASK: Duration = Duration::from_secs(2);

/// Tells the place of the claim in line, until this is dropped.
pub async fn tell(session: &Session, plan: &Plan, volume: &VolumeId) -> Infallible {
    let started = Instant::now();
    let body = Status {
        volume: Some(volume.clone()),
        alloc: Some(plan.alloc.clone()),
        ..Status::default()
    };
    let mut told = None;
    sleep(FIRST).await;
    loop {
        // Who does not answer is asked again; the request for the mount says what is wrong.
        let until = Instant::now() + ASK;
        let claims = session.once::<verb::ClaimStatus>(&session.namespace, &body, until).await;
        let place = claims.ok().and_then(|claims| claims.claims.first().and_then(place_in_line));
        if let Some(place) = place.filter(|place| told.as_ref() != Some(place)) {
            say(format_args!("  {}: {place}", span::short(started.elapsed())));
            told = Some(place);
        }
        sleep(AGAIN).await;
    }
}

/// `data: in line, 2 before it; waits for its turn, after web-0 on n1 (taken)`
fn place_in_line(claim: &ClaimStatus) -> Option<String> {
    if claim.state != State::Waiting {
        return None;
    }
    let before = match claim.position.unwrap_or_default() {
        0 => "first in line".to_owned(),
        before => format!("in line, {before} before it"),
    };
    let waits_for = claim.waits_for.as_deref().map(plain);
    let waits_for = waits_for.map(|what| format!("; waits for {what}")).unwrap_or_default();
    Some(format!("{}: {before}{waits_for}", claim.volume))
}
