//! What is under way in the lanes, and what did not succeed: for whoever asks, never to decide by.
//!
//! **Promises** that work is listed until it has really ended, also when nobody waits for it any
//! more; and that a failure is listed until the same work succeeds for the same alloc, or the alloc
//! is gone.
//!
//! **Never** grows without bound: of failures the oldest go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_contract::message::agent::{FailureStatus, WorkStatus};
use berth_contract::problem::Problem;
use berth_domain::{AllocId, Timestamp, VolumeKey};

use crate::call_log::PluginCallLog;

/// Failures kept at once.
const FAILURES_MAX: usize = 1024;
/// How much is kept of what a failure said, in characters.
const ERROR_CHARS_MAX: usize = 1024;

/// What is done in a turn, for whom.
#[derive(Debug, Clone)]
pub struct LaneWork {
    /// The volume.
    pub volume: VolumeKey,
    /// For whom.
    pub alloc: AllocId,
    /// Which claim of the alloc; none when it is for several.
    pub epoch: Option<u64>,
    /// What, such as `agent.detach`.
    pub step: &'static str,
    /// The plugin calls of this work, if it makes any.
    pub calls: Option<PluginCallLog>,
}

/// The ledger of some lanes. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkLedger {
    pages: Arc<Mutex<LedgerPages>>,
}

#[derive(Debug, Default)]
struct LedgerPages {
    begun: u64,
    under_way: BTreeMap<u64, WorkUnderWay>,
    failures: BTreeMap<(VolumeKey, AllocId), FailureStatus>,
}

#[derive(Debug)]
struct WorkUnderWay {
    work: LaneWork,
    since: Timestamp,
    deadline: Timestamp,
}

/// Work under way; ended when dropped.
#[derive(Debug)]
pub(super) struct LedgerEntry {
    ledger: WorkLedger,
    at: Option<u64>,
}

impl Drop for LedgerEntry {
    fn drop(&mut self) {
        if let Some(at) = self.at {
            self.ledger.lock().under_way.remove(&at);
        }
    }
}

impl WorkLedger {
    /// Work begins.
    pub(super) fn begin(
        &self,
        work: Option<LaneWork>,
        deadline: Timestamp,
        now: Timestamp,
    ) -> LedgerEntry {
        let at = work.map(|work| {
            let mut pages = self.lock();
            pages.begun += 1;
            let at = pages.begun;
            pages.under_way.insert(at, WorkUnderWay { work, since: now, deadline });
            at
        });
        LedgerEntry { ledger: self.clone(), at }
    }

    /// It succeeded: nothing is wrong between the alloc and the volume any more.
    pub(super) fn succeeded(&self, work: &LaneWork) {
        self.lock().failures.remove(&(work.volume.clone(), work.alloc.clone()));
    }

    /// It did not, or its caller stopped waiting.
    pub(super) fn failed(&self, work: &LaneWork, problem: &Problem, now: Timestamp) {
        let mut pages = self.lock();
        let key = (work.volume.clone(), work.alloc.clone());
        let is_same = |known: &&FailureStatus| known.step == work.step && known.epoch == work.epoch;
        let known = pages.failures.get(&key).filter(is_same);
        let tries = known.map_or(0, |known| known.tries).saturating_add(1);
        let since = known.map_or(now, |known| known.since);
        let failure = FailureStatus {
            namespace: work.volume.namespace.clone(),
            volume: work.volume.volume.clone(),
            alloc: work.alloc.clone(),
            epoch: work.epoch,
            step: work.step.to_owned(),
            tries,
            since,
            error: problem.message.chars().take(ERROR_CHARS_MAX).collect(),
            at: now,
        };
        pages.failures.insert(key, failure);
        if pages.failures.len() > FAILURES_MAX {
            let oldest = pages.failures.iter().min_by_key(|(_, failure)| failure.at);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                pages.failures.remove(&oldest);
            }
        }
    }

    /// What is under way, the oldest first.
    pub(super) fn under_way(&self, now: Timestamp) -> Vec<WorkStatus> {
        let pages = self.lock();
        let shown = pages.under_way.values().map(|WorkUnderWay { work, since, deadline }| {
            let waits = work.calls.as_ref().and_then(PluginCallLog::unanswered_call);
            WorkStatus {
                namespace: work.volume.namespace.clone(),
                volume: work.volume.volume.clone(),
                alloc: work.alloc.clone(),
                epoch: work.epoch,
                step: work.step.to_owned(),
                since: *since,
                rpc: waits.map(|(rpc, _)| rpc.name().to_owned()),
                rpc_since: waits.map(|(_, since)| since),
                hung: *deadline < now,
            }
        });
        shown.collect()
    }

    /// What did not succeed when it was tried last.
    pub(super) fn failures(&self) -> Vec<FailureStatus> {
        self.lock().failures.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, LedgerPages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use berth_contract::code::Code;
    use berth_domain::{Namespace, VolumeId};

    use super::*;

    fn work(alloc: &str, step: &'static str) -> LaneWork {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
        LaneWork { volume, alloc: AllocId::new(alloc).unwrap(), epoch: Some(7), step, calls: None }
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    #[test]
    fn work_is_listed_until_it_has_ended_and_as_hung_past_its_deadline() {
        let ledger = WorkLedger::default();
        let entry = ledger.begin(Some(work("a", "agent.detach")), at(10), at(1));
        let unnamed = ledger.begin(None, at(10), at(1));
        let shown = ledger.under_way(at(10));
        assert_eq!((shown.len(), shown[0].hung, shown[0].since), (1, false, at(1)));
        assert!(ledger.under_way(at(11))[0].hung);
        drop((entry, unnamed));
        assert!(ledger.under_way(at(11)).is_empty());
    }

    #[test]
    fn failures_are_counted_until_it_succeeds_and_the_oldest_go() {
        let (ledger, no) = (WorkLedger::default(), Problem::new(Code::PluginFailed, "no"));
        for ms in 1..=3 {
            ledger.failed(&work("a", "agent.detach"), &no, at(ms));
        }
        let failures = ledger.failures();
        assert_eq!((failures.len(), failures[0].tries, failures[0].at), (1, 3, at(3)));
        assert_eq!(failures[0].since, at(1));
        ledger.failed(&LaneWork { epoch: Some(8), ..work("a", "agent.detach") }, &no, at(4));
        assert_eq!((ledger.failures()[0].tries, ledger.failures()[0].since), (1, at(4)));
        ledger.succeeded(&work("a", "agent.detach"));
        assert!(ledger.failures().is_empty());
        for other in 0..=FAILURES_MAX {
            let ms = 10 + u64::try_from(other).unwrap();
            ledger.failed(&work(&format!("a{other}"), "agent.mount"), &no, at(ms));
        }
        let kept = ledger.failures();
        assert_eq!(kept.len(), FAILURES_MAX);
        assert!(kept.iter().all(|failure| failure.alloc.as_str() != "a0"));
    }
}
