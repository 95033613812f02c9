//! Threads for host operations that may hang: a `stat` on a dead mount, an unmount, a scan of
//! `/proc`.
//!
//! **Owns** the threads, and the list of operations that run on them.
//!
//! **Promises**
//! - that a caller is answered by its deadline;
//! - that one place has one operation at a time, also after its caller gave up: two changes of one
//!   mount never overlap;
//! - that one share (a plugin, a directory) holds at most [`SHARE_MAX`] threads, and all shares
//!   [`OPERATIONS_MAX`], so that a file system that hangs does not delay the others;
//! - that a caller is refused at once when all operations that are in its way hang.
//!
//! **Never** ends an operation: the kernel decides when a hung system call returns. Never runs a
//! write that others wait for, such as a journal's.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::{Duration, SystemTime};

use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Most operations of one share that run at once.
pub const SHARE_MAX: usize = 32;
/// Most operations of all shares that run at once, each on a thread.
pub const OPERATIONS_MAX: usize = 512;
/// Most callers that wait for a thread.
const WAITING_MAX: usize = 8192;
/// Most threads that are kept for the next operation.
const IDLE_MAX: usize = 8;

/// An operation, as the pool counts and shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostOperation {
    /// The action, such as `unmount`.
    pub what: &'static str,
    /// The share: operations that may hang together, such as those of all volumes of a plugin.
    pub share: Arc<str>,
    /// The place of the operation. One operation runs at one place of a share.
    pub place: PathBuf,
}

impl HostOperation {
    /// An operation at a place.
    pub fn new(what: &'static str, share: impl Into<Arc<str>>, place: impl Into<PathBuf>) -> Self {
        Self { what, share: share.into(), place: place.into() }
    }
}

/// Operations that have run past their deadlines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HungOperations {
    /// How many operations have run past their deadlines.
    pub count: usize,
    /// The operation that has run longest.
    pub oldest: HostOperation,
    /// When the oldest began, by the host's clock.
    pub since: SystemTime,
}

impl fmt::Display for HungOperations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostOperation { what, share, place } = &self.oldest;
        let (noun, verb) =
            if self.count == 1 { ("operation", "hangs") } else { ("operations", "hang") };
        let since = jiff::Timestamp::try_from(self.since).map_err(|_| fmt::Error)?;
        write!(f, "{} host {noun} {verb}, the oldest since {since:.0}: ", self.count)?;
        write!(f, "{what} at {} ({share})", place.display())
    }
}

/// Why an operation has no result.
#[derive(Debug, Error)]
pub enum HostPoolError {
    /// It runs, and has not ended by its deadline.
    #[error("{} at {} has not ended within {within:?}", operation.what, operation.place.display())]
    Late {
        /// The operation.
        operation: HostOperation,
        /// The deadline, counted from the call.
        within: Duration,
    },
    /// It was not begun, because the operations that it must wait for hang.
    #[error("{} at {} was not begun: {hung}", operation.what, operation.place.display())]
    Hung {
        /// The operation.
        operation: HostOperation,
        /// The operations that it must wait for.
        hung: HungOperations,
    },
    /// It was not begun by its deadline, because the operations that it must wait for took too
    /// long.
    #[error("{} at {} was not begun within {within:?}: {running} operations run before it",
        operation.what, operation.place.display())]
    Busy {
        /// The operation.
        operation: HostOperation,
        /// The deadline, counted from the call.
        within: Duration,
        /// The number of operations that it must wait for.
        running: usize,
    },
    /// It panicked.
    #[error("{what} ended without a result")]
    Panicked {
        /// The action of the operation.
        what: &'static str,
    },
    /// No thread could be started.
    #[error("no thread can be started for host operations")]
    Thread(#[source] io::Error),
}

impl From<HostPoolError> for io::Error {
    fn from(error: HostPoolError) -> Self {
        let kind = match &error {
            HostPoolError::Late { .. } => io::ErrorKind::TimedOut,
            HostPoolError::Hung { .. } | HostPoolError::Busy { .. } => io::ErrorKind::ResourceBusy,
            HostPoolError::Panicked { .. } | HostPoolError::Thread(_) => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The pool. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct HostPool {
    inner: Arc<Mutex<Operations>>,
}

#[derive(Debug, Default)]
struct Operations {
    /// The number of the next operation or waiter.
    next_id: u64,
    running: BTreeMap<u64, Running>,
    waiting: VecDeque<Waiter>,
    idle: Vec<mpsc::Sender<Job>>,
}

#[derive(Debug)]
struct Running {
    operation: HostOperation,
    began: Instant,
    since: SystemTime,
    deadline: Instant,
}

/// A caller whose operation cannot begin yet.
#[derive(Debug)]
struct Waiter {
    id: u64,
    operation: HostOperation,
    deadline: Instant,
    admitted: oneshot::Sender<Ticket>,
}

/// The right to run an operation. Dropping it lets the next one begin.
#[derive(Debug)]
struct Ticket {
    pool: HostPool,
    id: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let admitted = {
            let mut operations = self.pool.lock();
            operations.running.remove(&self.id);
            operations.admit_next(&self.pool)
        };
        // A caller that has given up drops its ticket, once the lock is free.
        if let Some((caller, ticket)) = admitted {
            drop(caller.send(ticket));
        }
    }
}

/// Forgets a waiter when its caller gives up.
#[derive(Debug)]
struct Waiting<'a> {
    pool: &'a HostPool,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.pool.lock().waiting.retain(|waiter| waiter.id != self.id);
    }
}

impl HostPool {
    /// The pool of this process. There is one, because threads and readings of the mount table are
    /// shared by the whole process.
    pub fn of_process() -> Self {
        static POOL: LazyLock<HostPool> = LazyLock::new(HostPool::default);
        POOL.clone()
    }

    /// Runs `work` on a thread. Returns its result, or by the deadline the reason why there is
    /// none. An operation whose caller gave up continues to its end.
    pub async fn run<T: Send + 'static>(
        &self,
        operation: HostOperation,
        within: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, HostPoolError> {
        let deadline = Instant::now() + within;
        let ticket = self.admit(&operation, within, deadline).await?;
        let (answer, answered) = oneshot::channel();
        self.start(Box::new(move || {
            let result = work();
            // Dropped before the answer, so that the caller's next operation finds the place free.
            drop(ticket);
            // The caller may have given up.
            let _ = answer.send(result);
        }))?;
        match timeout_at(deadline, answered).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) => Err(HostPoolError::Panicked { what: operation.what }),
            Err(_) => Err(HostPoolError::Late { operation, within }),
        }
    }

    /// The operations that have run past their deadlines; `None` when there are none.
    pub fn hung(&self) -> Option<HungOperations> {
        let (operations, now) = (self.lock(), Instant::now());
        HungOperations::among(operations.running.values().filter(|running| running.deadline <= now))
    }

    /// Waits until the operation may begin.
    async fn admit(
        &self,
        operation: &HostOperation,
        within: Duration,
        deadline: Instant,
    ) -> Result<Ticket, HostPoolError> {
        let (mut admitted, _waiting) = {
            let mut operations = self.lock();
            if operations.may_begin(operation) {
                return Ok(operations.begin(self, operation.clone(), deadline));
            }
            if operations.waiting.len() >= WAITING_MAX {
                return Err(operations.refusal(operation, within));
            }
            let (sender, admitted) = oneshot::channel();
            let id = operations.next_id();
            let operation = operation.clone();
            operations.waiting.push_back(Waiter { id, operation, deadline, admitted: sender });
            (admitted, Waiting { pool: self, id })
        };
        loop {
            // The operation begins when one of the operations before it ends. Once all of these
            // hang, waiting is pointless.
            let hopeless = self.lock().hopeless_at(operation);
            let now = Instant::now();
            if hopeless.is_some_and(|at| at <= now) || deadline <= now {
                // The operation may have been admitted just now.
                return admitted.try_recv().map_err(|_| self.lock().refusal(operation, within));
            }
            let wake = hopeless.map_or(deadline, |at| at.min(deadline));
            if let Ok(Ok(ticket)) = timeout_at(wake, &mut admitted).await {
                return Ok(ticket);
            }
        }
    }

    /// Hands a job to a thread that is idle, or to a new one.
    fn start(&self, job: Job) -> Result<(), HostPoolError> {
        let idle = self.lock().idle.pop();
        let job = match idle {
            Some(idle) => match idle.send(job) {
                Ok(()) => return Ok(()),
                Err(mpsc::SendError(job)) => job,
            },
            None => job,
        };
        let pool = Arc::downgrade(&self.inner);
        // Not a thread of the runtime, which waits for its own threads when it ends.
        let thread = thread::Builder::new().name("host-pool".to_owned());
        thread.spawn(move || work(&pool, job)).map_err(HostPoolError::Thread)?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Operations> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs jobs until more threads are idle than are kept.
fn work(pool: &Weak<Mutex<Operations>>, mut job: Job) {
    loop {
        job();
        let (sender, jobs) = mpsc::channel();
        {
            let Some(pool) = pool.upgrade() else { return };
            let mut operations = pool.lock().unwrap_or_else(PoisonError::into_inner);
            if operations.idle.len() >= IDLE_MAX {
                return;
            }
            operations.idle.push(sender);
        }
        let Ok(next_job) = jobs.recv() else { return };
        job = next_job;
    }
}

impl Operations {
    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// The running operations that must end before this operation may begin.
    fn in_the_way<'a>(&'a self, operation: &'a HostOperation) -> Vec<&'a Running> {
        let is_same = |running: &&Running| running.operation.share == operation.share;
        let at_place = self.running.values().filter(is_same);
        let at_place: Vec<_> =
            at_place.filter(|one| one.operation.place == operation.place).take(1).collect();
        if !at_place.is_empty() {
            return at_place;
        }
        let of_share: Vec<_> = self.running.values().filter(is_same).collect();
        if of_share.len() >= SHARE_MAX {
            return of_share;
        }
        if self.running.len() >= OPERATIONS_MAX {
            return self.running.values().collect();
        }
        Vec::new()
    }

    fn may_begin(&self, operation: &HostOperation) -> bool {
        self.in_the_way(operation).is_empty()
    }

    /// When all operations that this one must wait for hang; `None` if it need not wait.
    fn hopeless_at(&self, operation: &HostOperation) -> Option<Instant> {
        self.in_the_way(operation).iter().map(|running| running.deadline).max()
    }

    fn refusal(&self, operation: &HostOperation, within: Duration) -> HostPoolError {
        let (now, operation) = (Instant::now(), operation.clone());
        let in_the_way = self.in_the_way(&operation);
        let hung = in_the_way.iter().filter(|running| running.deadline <= now).copied();
        match HungOperations::among(hung) {
            Some(hung) => HostPoolError::Hung { operation, hung },
            None => HostPoolError::Busy { running: in_the_way.len(), operation, within },
        }
    }

    fn begin(&mut self, pool: &HostPool, operation: HostOperation, deadline: Instant) -> Ticket {
        let (id, began, since) = (self.next_id(), Instant::now(), SystemTime::now());
        self.running.insert(id, Running { operation, began, since, deadline });
        Ticket { pool: pool.clone(), id }
    }

    /// Admits the first waiter that may begin now. Called when one operation has ended, so one may
    /// begin.
    fn admit_next(&mut self, pool: &HostPool) -> Option<(oneshot::Sender<Ticket>, Ticket)> {
        self.waiting.retain(|waiter| !waiter.admitted.is_closed());
        let next = self.waiting.iter().position(|waiter| self.may_begin(&waiter.operation))?;
        let Waiter { operation, deadline, admitted, .. } = self.waiting.remove(next)?;
        Some((admitted, self.begin(pool, operation, deadline)))
    }
}

impl HungOperations {
    fn among<'a>(hung: impl Iterator<Item = &'a Running>) -> Option<Self> {
        let hung: Vec<&Running> = hung.collect();
        let oldest = hung.iter().min_by_key(|running| running.began)?;
        Some(Self { count: hung.len(), oldest: oldest.operation.clone(), since: oldest.since })
    }
}

/// The share of an operation that works on a directory of the host, whatever is in it.
pub fn directory_share(dir: &Path) -> Arc<str> {
    format!("directory {}", dir.display()).into()
}

#[cfg(test)]
mod tests;
