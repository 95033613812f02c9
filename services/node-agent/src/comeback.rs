//! What a node does that comes back after it counted as gone (rule 12).
//!
//! **Owns** the way back: nothing new is let in ([`Gate`]), all that the journal knows is undone,
//! and the registry is told so. It clears the proof only then, and the node gets ready.
//!
//! **Promises** that *everything* is undone, whether its claim still stands or not. While the proof
//! is on record any claim of this node may be released by it the next moment, and what a claim
//! service says of one now is no more than that; a mount that rested on it would be one too many.
//! Their allocs are ended, too, so that nobody counts as running what has lost its volumes.
//!
//! **Never** counts on what an earlier process of this agent has undone: a kill at any point starts
//! it again, and each step is harmless when repeated.

use std::time::Duration;

use berth_domain::proof::{Proof, ProofKind};
use berth_domain::retry::Schedule;
use berth_service::clock;
use berth_service::shutdown::Shutdown;
use tokio::time::sleep;

use crate::gate::Gate;
use crate::node::Mounter;

/// When what could not be undone is tried again.
const RETRY: Schedule =
    Schedule { first: Duration::from_millis(500), max: Duration::from_secs(10) };

/// What keeps the node from coming back. As long as a mount is left behind a fence, its cached
/// writes wait for the fence to be lifted, and would go over what the next node has written.
fn describe_obstacle(proof: &Proof, why: &str) -> String {
    match proof.kind {
        ProofKind::StorageFenced => {
            format!("keep the fence until no mount is left here, or reboot the host: {why}")
        }
        ProofKind::PoweredOff | ProofKind::Confirmed => why.to_owned(),
    }
}

/// Undoes what is mounted here, each time that the node learns that it counts as gone.
pub async fn undo_when_gone(mounter: Mounter, gate: Gate, shutdown: Shutdown) {
    let mut done = None;
    loop {
        let proof = tokio::select! {
            proof = gate.wait_gone(done) => proof,
            () = shutdown.requested() => return,
        };
        tracing::warn!(%proof, "this node counts as gone; what it has mounted is undone first");
        gate.record_obstacle(describe_obstacle(&proof, "what is mounted here is being undone"));
        gate.wait_entered().await;
        let mut tries = 0;
        while let Err(problem) = mounter.undo_all(&proof).await {
            tries += 1;
            let trace = problem.trace.as_deref();
            tracing::warn!(trace, %problem, tries, "not all is undone; nothing new is taken yet");
            gate.record_obstacle(describe_obstacle(&proof, &problem.to_string()));
            tokio::select! {
                () = sleep(RETRY.wait(tries, clock::jitter())) => {}
                () = shutdown.requested() => return,
            }
        }
        tracing::info!(%proof, "all that was mounted here is undone; a fence may be lifted");
        gate.record_undone(proof.at);
        done = Some(proof.at);
    }
}
