//! The caller of the request that is being handled: its deadline, and what its request waits for.
//!
//! **Owns** a task-local record per request: the caller's deadline, and the newest thing that
//! blocks the request.
//!
//! **Promises**: a wait for the bus on behalf of a request ends at the caller's deadline, however
//! long the wait may usually take. A caller whose deadline comes is told what blocked its request.
//!
//! **Never** bounds what a service does on its own account: a spawned task has no caller.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::{Instant, timeout_at};

/// The caller of one request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    deadline: Instant,
    blocker: Arc<Mutex<Option<String>>>,
}

tokio::task_local! {
    static CALLER: Caller;
}

impl Caller {
    pub(crate) fn with_deadline(deadline: Instant) -> Self {
        Self { deadline, blocker: Arc::default() }
    }

    /// Runs the handler of the caller's request.
    pub(crate) async fn run<F: Future>(&self, handler: F) -> F::Output {
        CALLER.scope(self.clone(), handler).await
    }

    /// The newest blocker, unless it is gone.
    pub(crate) fn blocker(&self) -> Option<String> {
        self.blocker.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_blocker(&self, blocker: Option<String>) {
        *self.blocker.lock().unwrap_or_else(PoisonError::into_inner) = blocker;
    }
}

/// The earlier of this deadline and the caller's. Without a caller, this deadline.
pub fn earlier_deadline(deadline: Instant) -> Instant {
    CALLER.try_with(|caller| caller.deadline.min(deadline)).unwrap_or(deadline)
}

/// Waits until the caller's deadline; none if the deadline came first. Without a caller the wait
/// has no bound.
pub async fn wait_until_deadline<F: Future>(future: F) -> Option<F::Output> {
    match CALLER.try_with(|caller| caller.deadline) {
        Ok(deadline) => timeout_at(deadline, future).await.ok(),
        Err(_) => Some(future.await),
    }
}

/// Records what the request waits for. Without a caller it does nothing.
pub(crate) fn set_blocker(blocker: impl FnOnce() -> String) {
    let _ = CALLER.try_with(|caller| caller.set_blocker(Some(blocker())));
}

/// Records that the request waits for nothing now.
pub(crate) fn clear_blocker() {
    let _ = CALLER.try_with(|caller| caller.set_blocker(None));
}
