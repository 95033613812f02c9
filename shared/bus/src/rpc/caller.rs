//! The caller of the request that is being handled: its deadline, and what its request waits for.
//!
//! **Owns** a task-local record per request: the caller's deadline, the request's place among those
//! that are handled, and the newest thing that blocks it.
//!
//! **Promises**: a wait for the bus on behalf of a request ends at the caller's deadline, however
//! long the wait may usually take. A caller whose deadline comes is told what blocked its request.
//!
//! **Never** bounds what a service does on its own account: a spawned task has no caller.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use berth_contract::problem::Problem;
use tokio::time::{Instant, timeout_at};

use crate::rpc::places::RequestPlace;

/// The caller of one request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    deadline: Instant,
    place: Arc<RequestPlace>,
    blocker: Arc<Mutex<Option<String>>>,
}

tokio::task_local! {
    static CALLER: Caller;
}

impl Caller {
    pub(crate) fn new(deadline: Instant, place: Arc<RequestPlace>) -> Self {
        Self { deadline, place, blocker: Arc::default() }
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

/// Waits for something that other requests bring about, such as a turn or a change. Another request
/// may take the place to work meanwhile. Fails if too many requests wait already. Without a caller
/// it only waits.
pub async fn wait_aside<F: Future>(wait: F) -> Result<F::Output, Problem> {
    match CALLER.try_with(|caller| (Arc::clone(&caller.place), caller.deadline)) {
        Ok((place, deadline)) => place.wait_aside(wait, deadline).await,
        Err(_) => Ok(wait.await),
    }
}

/// Records what blocks the request. Without a caller it does nothing.
pub(crate) fn set_blocker(blocker: impl FnOnce() -> String) {
    let _ = CALLER.try_with(|caller| caller.set_blocker(Some(blocker())));
}

/// Records that nothing blocks the request now.
pub(crate) fn clear_blocker() {
    let _ = CALLER.try_with(|caller| caller.set_blocker(None));
}
