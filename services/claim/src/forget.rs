//! `alloc.forget`: the record of an alloc that has ended and holds nothing goes (F2).
//!
//! **Promises** that an alloc which lives, ended too recently or has a claim left stays: looked for
//! at the leader, and deleted under the guard of the revision that was looked at.
//!
//! A claim that is asked for by a replica which has not heard of the alloc's end yet may be made
//! just after the look. It is then a claim of an alloc that does not exist, and released as such.

use berth_bus::{Change, CommitError, Guard, Write};
use berth_contract::code::Code;
use berth_contract::event::{Event, EventName};
use berth_contract::key;
use berth_contract::message::alloc::{Forget, Forgotten};
use berth_contract::problem::Problem;
use berth_contract::service::CLAIM;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::alloc::Alloc;
use berth_domain::{AllocId, Namespace, Timestamp, VolumeKey};
use berth_service::projection::Volumes;
use berth_service::{clock, deadline};
use tokio::time::Instant;

use crate::state::State;

const STEP: &str = verb::AllocForget::STEP;
/// Races lost in a row before the caller is told.
const RACES_MAX: u32 = 3;

/// Removes the alloc's record, unless it is still needed. One that is not there is forgotten.
pub async fn forget(
    state: &State,
    namespace: Namespace,
    request: Forget,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Forgotten, Problem> {
    let Forget { id, before } = request;
    let key = key::alloc(&namespace, &id);
    for _ in 0..RACES_MAX {
        let (revision, known) = state.read_alloc(&namespace, &id, STEP).await?;
        let Some(alloc) = known else {
            if state.is_surely_absent(&key, revision, STEP, trace).await? {
                return Ok(Forgotten { known: false });
            }
            continue;
        };
        over(&id, &alloc, before)?;
        state.all_volumes(deadline).await?;
        state.volume_mirror.read(|volumes| unclaimed(volumes, &namespace, &id, &alloc))?;
        deadline::check(deadline)?;
        let stored = state
            .allocs
            .commit(Write {
                key: &key,
                change: Change::Delete,
                guard: Guard { filter: &key, revision },
                operation: clock::new_attempt().as_str(),
                trace,
            })
            .await;
        match stored {
            Ok(revision) => {
                state.alloc_mirror.delete(&key, revision).await;
                tell(state, &namespace, &id, &alloc, trace);
                return Ok(Forgotten { known: true });
            }
            Err(CommitError::Conflict { .. }) => {}
            Err(error) => return Err(error.into_problem(STEP)),
        }
    }
    Err(Problem::new(Code::Overloaded, format!("alloc {id} changes too fast")).retryable())
}

/// Refuses unless the alloc ended before.
fn over(id: &AllocId, alloc: &Alloc, before: Timestamp) -> Result<(), Problem> {
    let said = match (alloc.state.is_terminal(), alloc.since < before) {
        (false, _) => format!("alloc {id} is live"),
        (true, false) => format!("alloc {id} ended at {}, not before {before}", alloc.since),
        (true, true) => return Ok(()),
    };
    Err(Problem::new(Code::AllocKept, said))
}

/// Refuses while there is a claim of the alloc's on any volume that it asked for; no other takes it
/// in. A record that cannot be read is one.
fn unclaimed(
    volumes: &Volumes,
    namespace: &Namespace,
    id: &AllocId,
    alloc: &Alloc,
) -> Result<(), Problem> {
    for (volume, _) in alloc.requests() {
        let volume = VolumeKey::new(namespace.clone(), volume);
        let Some(subtree) = volumes.get(&volume) else { continue };
        let unreadable = subtree.unreadable.contains_key(&key::claim(&volume, id));
        if unreadable || subtree.volume.claims.contains_key(id) {
            let said = format!("alloc {id} has a claim on volume {volume}");
            return Err(Problem::new(Code::AllocKept, said).volume(&volume));
        }
    }
    Ok(())
}

fn tell(state: &State, namespace: &Namespace, id: &AllocId, alloc: &Alloc, trace: TraceContext) {
    let event = Event {
        namespace: Some(namespace.clone()),
        alloc: Some(id.clone()),
        node: Some(alloc.node.clone()),
        detail: Some(format!("{} since {}", alloc.state, alloc.since)),
        trace: Some(trace.trace_id()),
        ..Event::new(EventName::AllocForgotten, clock::now(), CLAIM)
    };
    state.events.publish(&event.subject(), &event, trace);
}

impl State {
    /// Waits until all that was stored of any volume is known here.
    async fn all_volumes(&self, deadline: Instant) -> Result<(), Problem> {
        let newest = self.volumes.newest().await.map_err(|error| error.into_problem(STEP))?;
        let reached = self.volume_mirror.reach(newest, deadline).await;
        reached.map_err(|error| error.into_problem(STEP))
    }
}

#[cfg(test)]
mod tests {
    use berth_bus::Fold as _;
    use berth_domain::alloc::{AllocState, VolumeRequest};
    use berth_domain::{NodeId, VolumeId};

    use super::*;

    fn alloc(state: AllocState, since: u64) -> Alloc {
        Alloc {
            state,
            node: NodeId::new("n1").unwrap(),
            index: None,
            volumes: vec![VolumeRequest::of(VolumeId::new("data").unwrap())],
            since: Timestamp::from_unix_ms(since),
            note: None,
        }
    }

    #[test]
    fn only_an_alloc_that_ended_before_is_over() {
        let id = AllocId::new("a").unwrap();
        for (state, since, before, over) in [
            (AllocState::Live, 1, 9, false),
            (AllocState::Complete, 8, 9, true),
            (AllocState::Failed, 9, 9, false),
            (AllocState::Stopped, 10, 9, false),
        ] {
            let alloc = alloc(state, since);
            let said = super::over(&id, &alloc, Timestamp::from_unix_ms(before));
            assert_eq!(said.is_ok(), over, "{state} since {since}, before {before}: {said:?}");
        }
    }

    #[test]
    fn a_claim_keeps_it_also_one_that_cannot_be_read() {
        let id = AllocId::new("a").unwrap();
        let claim = br#"{"state":"node-detached","node":"n1","mode":"read","schema":1,
            "since":"2026-01-01T00:00:00Z","access":"single-node-writer",
            "attachment":"file-system","controller":true}"#;
        for (key, value, free) in [
            ("default.data.claim.b", &claim[..], true),
            ("default.data.claim.a", claim, false),
            ("default.data.claim.a", br#"{"schema":9}"#, false),
            ("default.data.spec", br#"{"schema":9}"#, true),
            ("other.data.claim.a", claim, true),
        ] {
            let mut volumes = Volumes::default();
            volumes.put(key, 1, value);
            let alloc = alloc(AllocState::Complete, 1);
            let said = unclaimed(&volumes, &Namespace::default(), &id, &alloc);
            assert_eq!(said.is_ok(), free, "{key}: {said:?}");
        }
    }
}
