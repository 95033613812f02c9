//! One plugin call at a time for each volume, and none that comes too late.
//!
//! **Owns** the rules of an executor (rule 4; safety rules 4 and 8). Controller calls and node
//! calls follow the same rules, with a [`VolumeExecutor`] each.
//!
//! **Promises** that work starts only
//! - before its deadline;
//! - if no newer call was seen for its volume;
//! - if it was requested after this process started;
//! - while no other work for that volume is under way, even if that work's caller has given up;
//! - once for an attempt ([`Attempts`]).
//!
//! Each caller gets an answer by its deadline.
//!
//! **Never** ends work that has started: only the plugin knows when it has ended.

mod attempts;
mod ledger;

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use berth_contract::code::Code;
use berth_contract::message::agent::{FailureStatus, StorageCallStatus, WorkStatus};
use berth_contract::message::call::{Called, StorageCall};
use berth_contract::problem::Problem;
use berth_domain::limits::{CALL_TIMEOUT_MAX, CLOCK_MARGIN};
use berth_domain::{PluginId, Timestamp, VolumeKey};
use berth_service::clock;
use berth_service::locks::{KeyGuard, KeyedLocks};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::fleet::start_revision::StartRevision;
pub use ledger::{ExecutorWork, ShownWork};

use attempts::Attempts;
use ledger::WorkLedger;

/// Largest number of works that are under way or wait for their volume.
const WORKS_MAX: u32 = 1024;
/// Time before its deadline at which a caller is answered that the plugin has not. The caller's own
/// timeout could not name the plugin and the node.
pub const ANSWER_BEFORE_DEADLINE: Duration = Duration::from_millis(250);
/// How long calls are compared with the start revision. Calls issued before the start have expired
/// by then. Forgetting the start revision lets the executor accept calls after the bucket was
/// restored and its revisions start again at 1.
const START_REVISION_TTL: Duration =
    CALL_TIMEOUT_MAX.saturating_add(CLOCK_MARGIN.saturating_mul(2));
/// Largest number of volumes whose newest revision is remembered.
const REVISIONS_MAX: usize = 16_384;

/// A volume as its plugin knows it. CSI asks for one call per volume at a time, and two of our
/// volumes may be one volume of the plugin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginVolume {
    /// The plugin.
    pub plugin: PluginId,
    /// The plugin's id for the volume.
    pub external_id: String,
}

impl PluginVolume {
    /// The plugin's volume of this id.
    pub fn new(plugin: &PluginId, external_id: &str) -> Self {
        Self { plugin: plugin.clone(), external_id: external_id.to_owned() }
    }
}

/// The volumes that work must lock, and when the work may start.
#[derive(Debug, Clone)]
pub struct WorkTurn {
    /// The volumes that are locked: several only for a group.
    volumes: BTreeSet<PluginVolume>,
    order: Option<WorkOrder>,
    /// The work does not start after this, and its caller no longer waits.
    pub deadline: Timestamp,
}

/// Our volumes, and the revision of the write that requested the work. The revisions of all volumes
/// are of one sequence, so the one of a group's first volume compares with those of the others.
#[derive(Debug, Clone)]
struct WorkOrder {
    volumes: Vec<VolumeKey>,
    revision: u64,
}

impl WorkTurn {
    /// The turn of work that no attempt names.
    pub fn new(volume: PluginVolume, deadline: Timestamp) -> Self {
        Self { volumes: BTreeSet::from([volume]), order: None, deadline }
    }

    /// The turn of work that the write of this revision requested.
    #[must_use]
    pub fn in_order(self, volume: VolumeKey, revision: u64) -> Self {
        Self { order: Some(WorkOrder { volumes: vec![volume], revision }), ..self }
    }

    /// The turn of a call of the storage.
    pub fn of_storage(call: &StorageCall, deadline: Timestamp) -> Self {
        let volumes = call.external_ids().map(|id| PluginVolume::new(&call.plugin, id));
        let order = WorkOrder { volumes: call.volumes(), revision: call.revision };
        Self { volumes: volumes.collect(), order: Some(order), deadline }
    }

    /// Its volumes, in words.
    fn described(&self) -> String {
        let each = self.volumes.iter().map(|volume| volume.external_id.as_str());
        each.collect::<Vec<_>>().join(", ")
    }

    fn plugin(&self) -> &str {
        self.volumes.first().map_or("", |volume| volume.plugin.as_str())
    }
}

/// Runs one work at a time for each volume. Cheap to clone.
#[derive(Debug, Clone)]
pub struct VolumeExecutor {
    started_at: (StartRevision, Instant),
    locks: KeyedLocks<PluginVolume>,
    newest: Arc<Mutex<NewestRevisions>>,
    free: Arc<Semaphore>,
    ledger: WorkLedger,
    /// The attempts that came to it.
    pub attempts: Attempts<Called>,
}

impl VolumeExecutor {
    /// Refuses calls up to this revision: only an earlier process can know what followed them.
    pub fn new(started_at: StartRevision) -> Self {
        Self {
            started_at: (started_at, Instant::now()),
            locks: KeyedLocks::default(),
            newest: Arc::default(),
            free: Arc::new(Semaphore::new(WORKS_MAX as usize)),
            ledger: WorkLedger::default(),
            attempts: Attempts::default(),
        }
    }

    /// Runs the work when it may start. Returns its result, or an error at the deadline.
    pub async fn run<T: Send + 'static>(
        &self,
        turn: WorkTurn,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        // Boxed, so that the future is not copied into each future around it.
        self.take_turn(turn, None, Box::pin(work)).await
    }

    /// As [`Self::run`], and lists the work while it is under way.
    pub async fn run_shown<T: Send + 'static>(
        &self,
        turn: WorkTurn,
        shown: impl Into<ShownWork>,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        self.take_turn(turn, Some(shown.into()), Box::pin(work)).await
    }

    /// As [`Self::run_shown`], and lists the work's failure.
    pub async fn run_recorded<T: Send + 'static>(
        &self,
        turn: WorkTurn,
        shown: ExecutorWork,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        let done = self.run_shown(turn, shown.clone(), work).await;
        if let Err(problem) = &done {
            self.record_failure(&shown, problem);
        }
        done
    }

    /// Why work is not to be done yet, although it is asked for.
    pub fn hold_back(&self, work: &ExecutorWork) -> Option<Problem> {
        self.ledger.hold_back(work, clock::now())
    }

    /// Lists the failure of work that could not start.
    pub fn record_failure(&self, work: &ExecutorWork, problem: &Problem) {
        self.ledger.record_failure(work, problem, clock::now());
    }

    /// The listed works that are under way, the oldest first.
    pub fn under_way(&self) -> Vec<WorkStatus> {
        self.ledger.under_way(clock::now())
    }

    /// The calls of the storage that are under way, the oldest first.
    pub fn storage_under_way(&self) -> Vec<StorageCallStatus> {
        self.ledger.storage_under_way(clock::now())
    }

    /// The listed works whose last try failed.
    pub fn failures(&self) -> Vec<FailureStatus> {
        self.ledger.failures()
    }

    async fn take_turn<T: Send + 'static>(
        &self,
        turn: WorkTurn,
        shown: Option<ShownWork>,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        check_deadline(turn.deadline)?;
        self.check_order(&turn)?;
        let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() else {
            return Err(Problem::new(Code::Overloaded, "too many calls are under way").retryable());
        };
        let Ok(held) = timeout(patience(turn.deadline), self.lock(&turn.volumes)).await else {
            let message = format!(
                "plugin {} has not answered an earlier call for volume {}",
                turn.plugin(),
                turn.described()
            );
            return Err(Problem::new(Code::StillBusy, message).retryable());
        };
        // Both may have changed during the wait for the locks.
        check_deadline(turn.deadline)?;
        self.check_order(&turn)?;
        let (ledger, plugin) = (self.ledger.clone(), turn.plugin().to_owned());
        let working = tokio::spawn(async move {
            let list =
                |work: &ShownWork| ledger.start_work(work.clone(), turn.deadline, clock::now());
            let entry = shown.as_ref().map(list);
            let done = work.await;
            // Even if the caller was answered at its deadline.
            if let (Ok(_), Some(ShownWork::OfAlloc(shown))) = (&done, &shown) {
                ledger.record_success(shown);
            }
            drop((entry, held, permit));
            done
        });
        match timeout(patience(turn.deadline), working).await {
            Ok(Ok(done)) => done,
            Ok(Err(defect)) => Err(Problem::new(Code::Internal, defect)),
            Err(_) => {
                let message = format!(
                    "no answer of plugin {plugin} yet; it may still be at work, and nothing else \
                     is asked of it for this volume before it has answered"
                );
                Err(Problem::new(Code::NoAnswer, message).retryable())
            }
        }
    }

    /// Locks each volume, in one order for all, so that two groups do not wait for each other.
    async fn lock(&self, volumes: &BTreeSet<PluginVolume>) -> Vec<KeyGuard<PluginVolume>> {
        let mut held = Vec::new();
        for volume in volumes {
            held.push(self.locks.lock(volume).await);
        }
        held
    }

    /// Waits until nothing is under way. Returns false if something still was after `within`.
    pub async fn wait_idle(&self, within: Duration) -> bool {
        timeout(within, self.free.acquire_many(WORKS_MAX)).await.is_ok()
    }

    fn check_order(&self, turn: &WorkTurn) -> Result<(), Problem> {
        let Some(WorkOrder { volumes, revision }) = &turn.order else { return Ok(()) };
        let (StartRevision(started_at), since) = self.started_at;
        if *revision <= started_at && since.elapsed() < START_REVISION_TTL {
            let message = format!(
                "revision {revision} asks, and this agent began at {started_at}: it does not know \
                 what came after what was asked before"
            );
            return Err(Problem::new(Code::OldCall, message));
        }
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        volumes.iter().try_for_each(|volume| {
            newest.check_newest(volume, *revision, turn.deadline, clock::now())
        })
    }
}

/// Refuses a call at or past its deadline (safety rule 8). The deadline of a request whose caller
/// has gone is the present.
pub fn check_deadline(deadline: Timestamp) -> Result<(), Problem> {
    let now = clock::now();
    if now < deadline {
        return Ok(());
    }
    let late = now.since(deadline);
    let message = format!("its deadline {deadline} was {late:?} ago, by this node's clock");
    Err(Problem::new(Code::Late, message).retryable())
}

/// How long a caller waits here, so that the answer reaches it by its deadline.
fn patience(deadline: Timestamp) -> Duration {
    let left = deadline.since(clock::now());
    left.saturating_sub((left / 10).min(ANSWER_BEFORE_DEADLINE))
}

/// The newest revision seen of each volume.
///
/// A revision is remembered until every older call is past its own deadline. Attempts of a volume
/// are written one after another and all get the same time. So an older attempt's deadline is later
/// than this one's by at most the difference of the clocks.
#[derive(Debug, Default)]
struct NewestRevisions {
    newest: HashMap<VolumeKey, (u64, Timestamp)>,
}

impl NewestRevisions {
    fn check_newest(
        &mut self,
        volume: &VolumeKey,
        revision: u64,
        deadline: Timestamp,
        now: Timestamp,
    ) -> Result<(), Problem> {
        let until = deadline.after(CLOCK_MARGIN * 2);
        // Past its time a revision refuses nothing: an older call has expired by itself, and in a
        // bucket that was set back a call with a lower revision may be the newest one.
        if self.newest.get(volume).is_some_and(|(_, until)| *until < now) {
            self.newest.remove(volume);
        }
        if let Some((newest, kept_until)) = self.newest.get_mut(volume) {
            if *newest > revision {
                let message = format!("revision {revision} asks, and {newest} was seen already");
                return Err(Problem::new(Code::OldCall, message));
            }
            *newest = revision;
            *kept_until = until.max(*kept_until);
            return Ok(());
        }
        if self.newest.len() >= REVISIONS_MAX {
            self.newest.retain(|_, (_, until)| *until >= now);
        }
        if self.newest.len() >= REVISIONS_MAX {
            let message = format!("calls of {REVISIONS_MAX} volumes came within one deadline");
            return Err(Problem::new(Code::Overloaded, message).retryable());
        }
        self.newest.insert(volume.clone(), (revision, until));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
