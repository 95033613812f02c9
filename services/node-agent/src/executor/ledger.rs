//! The works under way in an executor, and those that failed, for the status of the node.
//!
//! **Promises** that work is listed until it has really ended, even if its caller no longer waits.
//! A failure is listed until work succeeds for the same alloc and volume.
//!
//! **Never** grows without bound: the oldest failures are dropped. Decides nothing but that work
//! which ends the plugin's process is not tried again at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_contract::code::Code;
use berth_contract::message::agent::{FailureStatus, StorageCallStatus, WorkStatus};
use berth_contract::message::call::StorageCall;
use berth_contract::problem::Problem;
use berth_domain::limits::{CRASH_RETRY_MAX, RETRY_FIRST};
use berth_domain::retry::Schedule;
use berth_domain::volume::CallFailure;
use berth_domain::{AllocId, Timestamp, VolumeKey};

use crate::plugins::call_log::PluginCallLog;

/// Largest number of failures that are kept.
const FAILURES_MAX: usize = 1024;
/// Longest error text that is kept, in characters.
const ERROR_CHARS_MAX: usize = 1024;
/// Pauses between tries of work under which the plugin's process ends.
const CRASH_RETRY: Schedule = Schedule { first: RETRY_FIRST, max: CRASH_RETRY_MAX };

/// Describes work to the status of the node.
#[derive(Debug, Clone)]
pub struct ExecutorWork {
    /// The volume.
    pub volume: VolumeKey,
    /// The alloc that the work is for.
    pub alloc: AllocId,
    /// The claim of the alloc. `None` if the work is for several claims.
    pub epoch: Option<u64>,
    /// The verb, such as `agent.detach`.
    pub step: &'static str,
    /// The plugin calls of this work, if it makes any.
    pub calls: Option<PluginCallLog>,
}

/// How work is listed while it is under way.
#[derive(Debug, Clone)]
pub enum ShownWork {
    /// With its alloc.
    OfAlloc(ExecutorWork),
    /// A call of the storage: its volumes and its name.
    OfStorage(Vec<VolumeKey>, &'static str),
}

impl From<ExecutorWork> for ShownWork {
    fn from(work: ExecutorWork) -> Self {
        Self::OfAlloc(work)
    }
}

impl From<&StorageCall> for ShownWork {
    fn from(call: &StorageCall) -> Self {
        Self::OfStorage(call.volumes(), call.call.as_str())
    }
}

/// Cheap to clone.
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
    work: ShownWork,
    since: Timestamp,
    deadline: Timestamp,
}

/// Work under way; ended when dropped.
#[derive(Debug)]
pub(super) struct LedgerEntry {
    ledger: WorkLedger,
    at: u64,
}

impl Drop for LedgerEntry {
    fn drop(&mut self) {
        self.ledger.lock().under_way.remove(&self.at);
    }
}

impl WorkLedger {
    /// Lists work until the returned entry is dropped.
    pub(super) fn start_work(
        &self,
        work: ShownWork,
        deadline: Timestamp,
        now: Timestamp,
    ) -> LedgerEntry {
        let mut pages = self.lock();
        pages.begun += 1;
        let at = pages.begun;
        pages.under_way.insert(at, WorkUnderWay { work, since: now, deadline });
        LedgerEntry { ledger: self.clone(), at }
    }

    /// Drops the alloc's failure with the volume.
    pub(super) fn record_success(&self, work: &ExecutorWork) {
        self.lock().failures.remove(&(work.volume.clone(), work.alloc.clone()));
    }

    /// Lists a failure, or that the caller stopped waiting.
    pub(super) fn record_failure(&self, work: &ExecutorWork, problem: &Problem, now: Timestamp) {
        let mut pages = self.lock();
        let key = (work.volume.clone(), work.alloc.clone());
        let is_same = |known: &&FailureStatus| known.step == work.step && known.epoch == work.epoch;
        let known = pages.failures.get(&key).filter(is_same);
        let tries = known.map_or(0, |known| known.tries).saturating_add(1);
        let since = known.map_or(now, |known| known.since);
        let message = problem.message.chars().take(ERROR_CHARS_MAX).collect();
        let mut facts = problem.failure_facts();
        if let Some(known) = known {
            facts.add_crashes(&known.failure.facts);
        }
        let failure = FailureStatus {
            namespace: work.volume.namespace.clone(),
            volume: work.volume.volume.clone(),
            alloc: work.alloc.clone(),
            epoch: work.epoch,
            step: work.step.to_owned(),
            tries,
            since,
            failure: CallFailure { message, facts },
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

    /// Why work is not done yet that seems to be the reason why the plugin's process ends: it would
    /// also end the calls for other volumes. Its caller sends it again.
    pub(super) fn hold_back(&self, work: &ExecutorWork, now: Timestamp) -> Option<Problem> {
        let pages = self.lock();
        let known = pages.failures.get(&(work.volume.clone(), work.alloc.clone()))?;
        let FailureStatus { step, at, failure, .. } = known;
        let crashes = failure.facts.crashes;
        // A clock may have been set back.
        let longest = CRASH_RETRY.longest(crashes);
        let until = at.after(longest).min(now.after(longest));
        if step != work.step || !failure.facts.ends_plugin() || until <= now {
            return None;
        }
        let message = format!(
            "the plugin's process ended {crashes} times at it, so it is not tried again before \
             {until}: {failure}"
        );
        let problem = Problem::new(Code::PluginFailed, message).retryable();
        Some(Problem { rpc: failure.facts.rpc.clone(), crashes, ..problem })
    }

    /// The works of allocs under way, the oldest first.
    pub(super) fn under_way(&self, now: Timestamp) -> Vec<WorkStatus> {
        let pages = self.lock();
        let shown =
            pages.under_way.values().filter_map(|WorkUnderWay { work, since, deadline }| {
                let ShownWork::OfAlloc(work) = work else { return None };
                let waits = work.calls.as_ref().and_then(PluginCallLog::unanswered_call);
                Some(WorkStatus {
                    namespace: work.volume.namespace.clone(),
                    volume: work.volume.volume.clone(),
                    alloc: work.alloc.clone(),
                    epoch: work.epoch,
                    step: work.step.to_owned(),
                    since: *since,
                    rpc: waits.map(|(rpc, _)| rpc.name().to_owned()),
                    rpc_since: waits.map(|(_, since)| since),
                    hung: *deadline < now,
                })
            });
        shown.collect()
    }

    /// The calls of the storage under way, for each of their volumes, the oldest first.
    pub(super) fn storage_under_way(&self, now: Timestamp) -> Vec<StorageCallStatus> {
        let mut shown = Vec::new();
        for WorkUnderWay { work, since, deadline } in self.lock().under_way.values() {
            let ShownWork::OfStorage(volumes, step) = work else { continue };
            shown.extend(volumes.iter().map(|volume| StorageCallStatus {
                namespace: volume.namespace.clone(),
                volume: volume.volume.clone(),
                step: (*step).to_owned(),
                since: *since,
                hung: *deadline < now,
            }));
        }
        shown
    }

    /// The works whose last try failed.
    pub(super) fn failures(&self) -> Vec<FailureStatus> {
        self.lock().failures.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, LedgerPages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::{Namespace, VolumeId};

    use super::*;

    fn work(alloc: &str, step: &'static str) -> ExecutorWork {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
        ExecutorWork {
            volume,
            alloc: AllocId::new(alloc).unwrap(),
            epoch: Some(7),
            step,
            calls: None,
        }
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    #[test]
    fn work_is_listed_until_it_has_ended_and_as_hung_past_its_deadline() {
        let ledger = WorkLedger::default();
        let entry = ledger.start_work(work("a", "agent.detach").into(), at(10), at(1));
        let shown = ledger.under_way(at(10));
        assert_eq!((shown.len(), shown[0].hung, shown[0].since), (1, false, at(1)));
        assert!(ledger.under_way(at(11))[0].hung);
        assert!(ledger.storage_under_way(at(11)).is_empty(), "it is no call of the storage");
        drop(entry);
        assert!(ledger.under_way(at(11)).is_empty());
    }

    #[test]
    fn work_that_ends_the_plugin_each_time_is_held_back_longer_and_longer() {
        let (ledger, work) = (WorkLedger::default(), work("a", "agent.mount"));
        let crash = Problem { crashes: 1, ..Problem::new(Code::PluginFailed, "it broke") };
        let held_at = |ms| ledger.hold_back(&work, at(ms)).is_some();
        ledger.record_failure(&work, &crash, at(0));
        assert!(!held_at(1), "it may be another call's crash");
        ledger.record_failure(&work, &crash, at(0));
        assert!(held_at(1_999) && !held_at(2_000));
        ledger.record_failure(&work, &crash, at(0));
        assert!(held_at(3_999) && !held_at(4_000));
        let detach = ExecutorWork { step: "agent.detach", ..work.clone() };
        assert!(ledger.hold_back(&detach, at(1)).is_none());
        ledger.record_success(&work);
        assert!(!held_at(1));
    }

    #[test]
    fn a_call_of_the_storage_is_listed_for_each_of_its_volumes() {
        let (ledger, volume) = (WorkLedger::default(), work("a", "agent.detach").volume);
        let other = VolumeKey::new(Namespace::default(), VolumeId::new("more").unwrap());
        let call = ShownWork::OfStorage(vec![volume, other], "controller.snapshot");
        let entry = ledger.start_work(call, at(10), at(1));
        let listed = |now| {
            let shown = ledger.storage_under_way(at(now)).into_iter();
            shown.map(|one| (one.volume.to_string(), one.hung)).collect::<Vec<_>>()
        };
        assert_eq!(listed(10), [("data".to_owned(), false), ("more".to_owned(), false)]);
        assert_eq!(listed(11), [("data".to_owned(), true), ("more".to_owned(), true)]);
        assert!(ledger.under_way(at(11)).is_empty(), "it is for no alloc");
        drop(entry);
        assert!(listed(11).is_empty());
    }

    #[test]
    fn failures_are_counted_until_it_succeeds_and_the_oldest_go() {
        let (ledger, no) = (WorkLedger::default(), Problem::new(Code::PluginFailed, "no"));
        for ms in 1..=3 {
            ledger.record_failure(&work("a", "agent.detach"), &no, at(ms));
        }
        let failures = ledger.failures();
        assert_eq!((failures.len(), failures[0].tries, failures[0].at), (1, 3, at(3)));
        assert_eq!(failures[0].since, at(1));
        ledger.record_failure(
            &ExecutorWork { epoch: Some(8), ..work("a", "agent.detach") },
            &no,
            at(4),
        );
        assert_eq!((ledger.failures()[0].tries, ledger.failures()[0].since), (1, at(4)));
        ledger.record_success(&work("a", "agent.detach"));
        assert!(ledger.failures().is_empty());
        for other in 0..=FAILURES_MAX {
            let ms = 10 + u64::try_from(other).unwrap();
            ledger.record_failure(&work(&format!("a{other}"), "agent.mount"), &no, at(ms));
        }
        let kept = ledger.failures();
        assert_eq!(kept.len(), FAILURES_MAX);
        assert!(kept.iter().all(|failure| failure.alloc.as_str() != "a0"));
    }
}
