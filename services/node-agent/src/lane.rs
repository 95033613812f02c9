//! One plugin call at a time for each volume, and none that comes too late.
//!
//! **Owns** the rules of an executor (rule 4; safety rules 4 and 8), the same for controller calls
//! and for node calls, which have a [`Lanes`] each.
//!
//! **Promises** that work begins only before its deadline, only when nothing newer was seen for its
//! volume, only when it was asked for since this process began, and only while no other work for
//! that volume is under way, also of a caller who gave up; and that each caller is answered by its
//! deadline.
//!
//! **Never** ends work that has begun: only the plugin knows when it has ended.

mod ledger;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use berth_contract::code::Code;
use berth_contract::message::agent::{FailureStatus, WorkStatus};
use berth_contract::problem::Problem;
use berth_domain::limits::{CALL_TIMEOUT_MAX, CLOCK_MARGIN};
use berth_domain::{PluginId, Timestamp, VolumeKey};
use berth_service::clock;
use berth_service::locks::KeyedLocks;
use tokio::sync::Semaphore;
use tokio::time::timeout;

pub use ledger::LaneWork;
use ledger::WorkLedger;

/// Works under way or waiting for their volume, at once.
const ROOM: u32 = 1024;
/// How long before its deadline a caller is told that there is no answer yet. Its own clock could
/// say only that nothing came, and not which plugin on which node is waited for.
const TELL_BEFORE: Duration = Duration::from_millis(250);
/// How long it matters when this process began: after that, every call of before is late. So a
/// bucket that is made anew, and counts from 1, finds agents that take its calls.
const BEGAN_KEPT: Duration = CALL_TIMEOUT_MAX.saturating_add(CLOCK_MARGIN.saturating_mul(2));
/// Volumes of which the newest revision is remembered, at once.
const SEEN_MAX: usize = 16_384;

/// A volume as its plugin knows it: CSI asks for one call per volume, and two volumes of ours may
/// be one of the plugin's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PluginVolume {
    /// The plugin.
    pub plugin: PluginId,
    /// What it calls the volume.
    pub external_id: String,
}

/// When work may begin.
#[derive(Debug, Clone)]
pub struct WorkTurn {
    /// For which volume.
    pub lane: PluginVolume,
    /// The revision that asked for it, among those of our volume; none for work that no attempt
    /// names.
    pub order: Option<(VolumeKey, u64)>,
    /// Past this it does not begin, and its caller no longer waits.
    pub deadline: Timestamp,
}

/// The lanes of one executor. Cheap to clone.
#[derive(Debug, Clone)]
pub struct VolumeExecutor {
    // The newest revision there was when this process began, and when that was.
    began: (u64, Instant),
    locks: KeyedLocks<PluginVolume>,
    seen: Arc<Mutex<NewestRevisions>>,
    room: Arc<Semaphore>,
    ledger: WorkLedger,
}

impl VolumeExecutor {
    /// Lanes for what is asked for later than by this revision. What was asked for before is known
    /// to an earlier process at most, and so is what came after it.
    pub fn since(began: u64) -> Self {
        Self {
            began: (began, Instant::now()),
            locks: KeyedLocks::default(),
            seen: Arc::default(),
            room: Arc::new(Semaphore::new(ROOM as usize)),
            ledger: WorkLedger::default(),
        }
    }

    /// Does the work in its turn and answers with its result, or at the deadline without.
    pub async fn run<T: Send + 'static>(
        &self,
        turn: WorkTurn,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        // In a box at once: it would be kept once more for each step of the way.
        self.take_turn(turn, None, Box::pin(work)).await
    }

    /// The same, and whoever asks is told of it while it is under way.
    pub async fn run_shown<T: Send + 'static>(
        &self,
        turn: WorkTurn,
        shown: LaneWork,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        self.take_turn(turn, Some(shown), Box::pin(work)).await
    }

    /// The same, and also when it has failed.
    pub async fn run_told<T: Send + 'static>(
        &self,
        turn: WorkTurn,
        told: LaneWork,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        let done = self.run_shown(turn, told.clone(), work).await;
        if let Err(problem) = &done {
            self.record_failure(&told, problem);
        }
        done
    }

    /// Records that work failed before it could have a turn.
    pub fn record_failure(&self, work: &LaneWork, problem: &Problem) {
        self.ledger.failed(work, problem, clock::now());
    }

    /// What is under way, the oldest first.
    pub fn under_way(&self) -> Vec<WorkStatus> {
        self.ledger.under_way(clock::now())
    }

    /// What did not succeed when it was tried last.
    pub fn failures(&self) -> Vec<FailureStatus> {
        self.ledger.failures()
    }

    async fn take_turn<T: Send + 'static>(
        &self,
        turn: WorkTurn,
        told: Option<LaneWork>,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        check_time(turn.deadline)?;
        self.check_order(&turn)?;
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            return Err(Problem::new(Code::Overloaded, "too many calls are under way").retryable());
        };
        let Ok(lane) = timeout(patience(turn.deadline), self.locks.lock(&turn.lane)).await else {
            let message = format!(
                "plugin {} has not answered an earlier call for volume {}",
                turn.lane.plugin, turn.lane.external_id
            );
            return Err(Problem::new(Code::StillBusy, message).retryable());
        };
        // Both may have changed while it waited.
        check_time(turn.deadline)?;
        self.check_order(&turn)?;
        let ledger = self.ledger.clone();
        let working = tokio::spawn(async move {
            let entry = ledger.begin(told.clone(), turn.deadline, clock::now());
            let done = work.await;
            // Also when its caller was told long ago that there is no answer.
            if let (Ok(_), Some(told)) = (&done, &told) {
                ledger.succeeded(told);
            }
            drop((entry, lane, room));
            done
        });
        match timeout(patience(turn.deadline), working).await {
            Ok(Ok(done)) => done,
            Ok(Err(defect)) => Err(Problem::new(Code::Internal, defect)),
            Err(_) => {
                let message = format!(
                    "no answer of plugin {} yet; it may still be at work, and nothing else is \
                     asked of it for this volume before it has answered",
                    turn.lane.plugin
                );
                Err(Problem::new(Code::NoAnswer, message).retryable())
            }
        }
    }

    /// Waits until nothing is under way; false when something still was.
    pub async fn idle(&self, within: Duration) -> bool {
        timeout(within, self.room.acquire_many(ROOM)).await.is_ok()
    }

    fn check_order(&self, turn: &WorkTurn) -> Result<(), Problem> {
        let Some((volume, revision)) = &turn.order else { return Ok(()) };
        let (began, since) = self.began;
        if *revision <= began && since.elapsed() < BEGAN_KEPT {
            let message = format!(
                "revision {revision} asks, and this agent began at {began}: it does not know what \
                 came after what was asked before"
            );
            return Err(Problem::new(Code::OldCall, message));
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.note(volume, *revision, turn.deadline, clock::now())
    }
}

/// Refuses what is past its deadline (safety rule 8).
pub fn check_time(deadline: Timestamp) -> Result<(), Problem> {
    let now = clock::now();
    if now <= deadline {
        return Ok(());
    }
    let late = now.since(deadline);
    let message = format!("its deadline {deadline} was {late:?} ago, by this node's clock");
    Err(Problem::new(Code::Late, message).retryable())
}

/// How long a caller is kept waiting: so that what it is told reaches it by its deadline.
fn patience(deadline: Timestamp) -> Duration {
    let left = deadline.since(clock::now());
    left.saturating_sub((left / 10).min(TELL_BEFORE))
}

/// The newest revision seen of each volume.
///
/// One is remembered until every older call is past its own deadline: attempts of a volume are
/// written one after another and all get the same time, so that an older one's deadline is no
/// later than this one's, but for what clocks differ by.
#[derive(Debug, Default)]
struct NewestRevisions {
    newest: HashMap<VolumeKey, (u64, Timestamp)>,
}

impl NewestRevisions {
    fn note(
        &mut self,
        volume: &VolumeKey,
        revision: u64,
        deadline: Timestamp,
        now: Timestamp,
    ) -> Result<(), Problem> {
        let until = deadline.after(CLOCK_MARGIN * 2);
        if let Some((newest, kept_until)) = self.newest.get_mut(volume) {
            if *newest > revision {
                let message = format!("revision {revision} asks, and {newest} was seen already");
                return Err(Problem::new(Code::OldCall, message));
            }
            *newest = revision;
            *kept_until = until.max(*kept_until);
            return Ok(());
        }
        if self.newest.len() >= SEEN_MAX {
            self.newest.retain(|_, (_, until)| *until >= now);
        }
        if self.newest.len() >= SEEN_MAX {
            let message = format!("calls of {SEEN_MAX} volumes came within one deadline");
            return Err(Problem::new(Code::Overloaded, message).retryable());
        }
        self.newest.insert(volume.clone(), (revision, until));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
