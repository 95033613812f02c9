//! Faults that hit a process at a point of a flow.

use std::pin::pin;
use std::time::Duration;

use berth_contract::bucket;
use berth_harness::proxy::{Passed, Proxy};
use berth_integration::{Part, System};
use tokio::time::timeout;

/// How long the other replica has to finish a flow. Requests to the stopped replica are repeated,
/// and half of the retries go there again.
const ALONE: Duration = Duration::from_secs(90);

/// How long an agent is killed or stopped. No other process replaces it.
const AWAY: Duration = Duration::from_secs(5);

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// The sender of the message is killed and restarts.
    Kill,
    /// The sender is killed. It restarts when the other replica has finished the flow; an agent
    /// restarts after [`AWAY`].
    KillLong,
    /// The sender is stopped until the other replica has finished the flow; an agent for [`AWAY`].
    /// Then it continues, and sends its message late.
    Pause,
    /// The sender's connection breaks.
    Cut,
    /// The sender's connection stays open at both ends, and passes nothing.
    Lose,
    /// The bus is killed and restarts. Of three servers: the leader of the bucket that is written,
    /// or at a call the leader of the volumes' bucket.
    KillBus,
}

/// Runs a flow, with the fault when the wire trips. Returns the message that tripped it, if any.
pub async fn strike(system: &System, blow: Blow, flow: impl Future<Output = ()>) -> Option<Passed> {
    let mut flow = pin!(flow);
    let passed = tokio::select! {
        () = &mut flow => None,
        passed = system.wire.tripped() => Some(passed),
    };
    let (passed, mut done) = match passed {
        Some(passed) => (passed, false),
        // The last message of a flow may end it before the fault hits its sender.
        None if system.wire.is_tripped() => (system.wire.tripped().await, true),
        None => return None,
    };
    let part = system.part_of(&passed.cable);
    match blow {
        Blow::Kill => {
            system.kill9(part);
            system.restart(part);
        }
        Blow::KillLong => {
            system.kill9(part);
            done = done || ends_without(part, &mut flow).await;
            system.restart(part);
        }
        Blow::Pause => {
            system.daemon(part).pause();
            done = done || ends_without(part, &mut flow).await;
            for cable in system.cables(part) {
                cable.heal();
            }
            system.daemon(part).resume();
        }
        Blow::Cut => system.cables(part).iter().for_each(Proxy::snap),
        Blow::Lose => system.cables(part).iter().for_each(Proxy::lose),
        Blow::KillBus => kill_bus(system, part, &passed.subject).await,
    }
    if !done {
        flow.await;
    }
    Some(passed)
}

/// Whether the flow ends without this process. For a service, its other replica must finish it.
async fn ends_without(part: Part, flow: impl Future<Output = ()>) -> bool {
    let is_agent = matches!(part, Part::Agent(_));
    let done = timeout(if is_agent { AWAY } else { ALONE }, flow).await.is_ok();
    assert!(done || is_agent, "without {part:?} the flow did not end within {ALONE:?}");
    done
}

async fn kill_bus(system: &System, sender: Part, subject: &str) {
    let written = subject.strip_prefix("$KV.").and_then(|key| key.split('.').next());
    let stream = format!("KV_{}", written.unwrap_or(bucket::VOLUMES.name));
    let server = &system.servers()[system.nats.leader_of(&stream).await];
    server.kill9();
    system.cables(sender).iter().for_each(Proxy::snap);
    server.restart().await;
}
