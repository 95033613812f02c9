//! The position in the queue of a run that waits for a volume.
//!
//! **Promises** that the position is printed within a second, and again when it changes. The
//! agent's answer contains it too, but only when the request for the mount times out.

use std::convert::Infallible;
use std::time::Duration;

use berth_contract::message::claim::{ClaimStatus, ListClaims};
use berth_contract::verb;
use berth_domain::VolumeId;
use berth_domain::volume::State;
use tokio::time::{Instant, sleep};

use super::plan::Plan;
use crate::output::print_note;
use crate::session::Session;
use crate::span;
use crate::table::plain;

/// How long the mount may take before the claim's position is read.
const FIRST_READ_AFTER: Duration = Duration::from_millis(400);
/// Interval at which the position is read.
const POSITION_POLL: Duration = Duration::from_secs(1);
/// How long one request may take.
const REQUEST_MAX: Duration = Duration::from_secs(2);

/// Prints the claim's position in the queue when it changes, until this future is dropped.
pub async fn print_queue_position(session: &Session, plan: &Plan, volume: &VolumeId) -> Infallible {
    let started = Instant::now();
    let body = ListClaims {
        volume: Some(volume.clone()),
        alloc: Some(plan.alloc.clone()),
        ..ListClaims::default()
    };
    let mut printed = None;
    sleep(FIRST_READ_AFTER).await;
    loop {
        // A failure is not printed: the request for the mount prints the reason.
        let until = Instant::now() + REQUEST_MAX;
        let claims = session.once::<verb::ClaimStatus>(&session.namespace, &body, until).await;
        let position =
            claims.ok().and_then(|claims| claims.claims.first().and_then(describe_position));
        if let Some(position) = position.filter(|position| printed.as_ref() != Some(position)) {
            print_note(format_args!("  {}: {position}", span::short(started.elapsed())));
            printed = Some(position);
        }
        sleep(POSITION_POLL).await;
    }
}

/// `data: in line, 2 before it; waits for its turn, after web-0 on n1 (taken)`
fn describe_position(claim: &ClaimStatus) -> Option<String> {
    if claim.state != State::Waiting {
        return None;
    }
    let position = match claim.position.unwrap_or_default() {
        0 => "first in line".to_owned(),
        position => format!("in line, {position} before it"),
    };
    let waits_for = claim.waits_for.as_deref().map(plain);
    let waits_for = waits_for.map(|cause| format!("; waits for {cause}")).unwrap_or_default();
    Some(format!("{}: {position}{waits_for}", claim.volume))
}
