//! `alloc.wait`: answered when an alloc is in the state that its reader waits for.
//!
//! **Promises** that a change of anything else wakes no reader, and that the answer is the
//! leader's.

use berth_contract::code::Code;
use berth_contract::message::alloc::{AllocQuery, AllocStatus, Wait, WaitUntil, Waited};
use berth_contract::message::query::LongPoll;
use berth_contract::problem::Problem;
use berth_domain::alloc::Alloc;
use berth_domain::volume::{Claim, NodeMountState, State as ClaimState};
use berth_domain::{AllocId, Namespace, VolumeKey};

use super::Reader;
use crate::caller::Caller;
use crate::store::state::{State, StateInner};

/// Waits until the alloc is in that state, until it can never be, or until the wait is over.
pub async fn wait_for_alloc(
    state: &State,
    namespace: &Namespace,
    query: Wait,
    caller: &Caller,
) -> Result<Waited, Problem> {
    let (deadline, anyone) = (caller.deadline, Caller { actor: None, ..caller.clone() });
    let Wait { id, until, wait_ms } = query;
    // An alloc that was just registered may be missing in this mirror, and does not count as ended.
    let read = super::alloc_status(state, namespace, AllocQuery::current(id.clone()), &anyone);
    if let Some(answer) = answer(read.await, until)? {
        return Ok(answer);
    }
    let reader = Reader::new(LongPoll { than: Some(0), wait_ms }, deadline);
    state.wait_for_alloc_change(reader, |_| state.is_decided(namespace, &id, until)).await?;
    let last = super::alloc_status(state, namespace, AllocQuery::current(id), &anyone).await;
    let alloc = last.clone();
    Ok(match answer(last, until)? {
        Some(answer) => answer,
        None => Waited { reached: false, alloc: alloc.ok() },
    })
}

/// The answer, if there is nothing to wait for.
fn answer(read: Result<AllocStatus, Problem>, until: WaitUntil) -> Result<Option<Waited>, Problem> {
    let alloc = match read {
        Ok(alloc) => alloc,
        Err(problem) if problem.code == Code::NoSuchAlloc => {
            return Ok(Some(Waited { reached: until != WaitUntil::Mounted, alloc: None }));
        }
        Err(problem) => return Err(problem),
    };
    let has_ended = alloc.state.is_terminal();
    let is_mounted = |claim: &berth_contract::message::claim::ClaimStatus| {
        claim.state == ClaimState::Taken
            && claim.mount.as_ref().is_some_and(|mount| mount.state == NodeMountState::Mounted)
    };
    let requested = berth_domain::alloc::each_volume(&alloc.volumes, alloc.index);
    let reached = match until {
        WaitUntil::Mounted => {
            let mounted =
                |id| alloc.claims.iter().any(|claim| claim.volume == id && is_mounted(claim));
            !has_ended && requested.into_iter().all(|(volume, _)| mounted(volume))
        }
        WaitUntil::Ended => has_ended,
        WaitUntil::Free => has_ended && alloc.claims.is_empty() && alloc.unreadable.is_empty(),
    };
    let never = until == WaitUntil::Mounted && has_ended;
    Ok((reached || never).then_some(Waited { reached, alloc: Some(alloc) }))
}

impl StateInner {
    /// Whether the wait has an answer, as far as this replica knows.
    fn is_decided(&self, namespace: &Namespace, id: &AllocId, until: WaitUntil) -> bool {
        self.allocs.mirror.read(|allocs| {
            if allocs.unreadable_of(namespace, id).is_some() {
                return false;
            }
            let Some((_, alloc)) = allocs.get(namespace, id) else { return true };
            match until {
                WaitUntil::Ended => alloc.state.is_terminal(),
                WaitUntil::Mounted => {
                    alloc.state.is_terminal()
                        || self.every_claim(namespace, id, alloc, |claim| {
                            let mount = claim.and_then(|claim| claim.mount.as_ref());
                            mount.is_some_and(|mount| mount.state == NodeMountState::Mounted)
                        })
                }
                WaitUntil::Free => {
                    alloc.state.is_terminal()
                        && self.every_claim(namespace, id, alloc, |claim| claim.is_none())
                }
            }
        })
    }

    fn every_claim(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        alloc: &Alloc,
        is_so: impl Fn(Option<&Claim>) -> bool,
    ) -> bool {
        self.volumes.mirror.read(|volumes| {
            alloc.requests().all(|(volume, _)| {
                let subtree = volumes.get(&VolumeKey::new(namespace.clone(), volume));
                is_so(subtree.and_then(|subtree| subtree.volume.claims.get(id)))
            })
        })
    }
}
