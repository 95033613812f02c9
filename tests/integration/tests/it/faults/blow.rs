//! What happens at a point of a flow, to whoever stands there.

use std::pin::pin;
use std::time::Duration;

use berth_harness::proxy::{Passed, Proxy};
use berth_integration::{Part, System};
use tokio::time::timeout;

/// How long others are waited for before the one that was hurt comes back.
pub const ALONE: Duration = Duration::from_secs(5);

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// The process that sent the message is killed and starts again.
    Kill,
    /// It is killed, and starts again only when the others are done without it, or cannot be.
    KillLong,
    /// It stands still until the others are done without it, or cannot be. Then it goes on where it
    /// was: what it was about to send is sent, late.
    Pause,
    /// Its connection breaks.
    Cut,
    /// Its connection goes deaf: both ends keep it open, and nothing passes any more.
    Lose,
    /// The bus is killed and starts again; of three, whichever leads the volumes.
    KillBus,
}

/// Runs a flow, with the blow when the wire trips; what tripped it, if anything did.
pub async fn strike(system: &System, blow: Blow, flow: impl Future<Output = ()>) -> Option<Passed> {
    let mut flow = pin!(flow);
    let passed = tokio::select! {
        () = &mut flow => None,
        passed = system.wire.tripped() => Some(passed),
    };
    let (passed, mut done) = match passed {
        Some(passed) => (passed, false),
        // The last message of a flow may end it before its sender is struck.
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
            done = done || timeout(ALONE, &mut flow).await.is_ok();
            system.restart(part);
        }
        Blow::Pause => {
            system.daemon(part).pause();
            done = done || timeout(ALONE, &mut flow).await.is_ok();
            for cable in system.cables(part) {
                cable.heal();
            }
            system.daemon(part).resume();
        }
        Blow::Cut => system.cables(part).iter().for_each(Proxy::snap),
        Blow::Lose => system.cables(part).iter().for_each(Proxy::lose),
        Blow::KillBus => kill_bus(system, part).await,
    }
    if !done {
        flow.await;
    }
    Some(passed)
}

async fn kill_bus(system: &System, sender: Part) {
    let leader = match system.cluster() {
        Some(cluster) => cluster.leader_of("KV_berth-volumes").await,
        None => 0,
    };
    let server = &system.servers()[leader];
    server.kill9();
    system.cables(sender).iter().for_each(Proxy::snap);
    server.restart().await;
}
