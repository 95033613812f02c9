//! Brings a node back that counted as gone (rule 12).
//!
//! **Owns** the order: the gate stays closed ([`Gate`]), everything in the journal is undone, and
//! the registry is told so. Only then the registry clears the proof, and the node becomes ready.
//!
//! **Promises** that *everything* is undone, even if its claim still exists. While the proof is on
//! record, any claim of this node may be released by it at any moment, so a claim is no reason to
//! keep a mount. The allocs are ended, too, because they have lost their volumes.
//!
//! **Never** relies on what an earlier agent process has undone: a killed agent starts again, and
//! each step may be repeated.

use std::sync::Arc;
use std::time::Duration;

use berth_domain::proof::{Proof, ProofKind};
use berth_domain::retry::Schedule;
use berth_service::clock;
use berth_service::shutdown::Shutdown;
use tokio::time::sleep;

use crate::fleet::gate::Gate;
use crate::mounts::Unmounting;

/// Pauses between tries to undo everything.
const RETRY: Schedule =
    Schedule { first: Duration::from_millis(500), max: Duration::from_secs(10) };

/// Says what keeps the node from coming back. The cached writes of a mount behind a fence wait for
/// the fence to be lifted, and would overwrite what the next node has written.
fn describe_obstacle(proof: &Proof, why: &str) -> String {
    match proof.kind {
        ProofKind::StorageFenced => {
            format!("keep the fence until no mount is left here, or reboot the host: {why}")
        }
        ProofKind::PoweredOff | ProofKind::Confirmed => why.to_owned(),
    }
}

/// Undoes everything each time that the node learns that it counts as gone.
pub async fn undo_when_gone(unmounting: Arc<Unmounting>, gate: Gate, shutdown: Shutdown) {
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
        while let Err(problem) = unmounting.undo_all(&proof).await {
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
