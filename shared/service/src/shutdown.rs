//! Shutdown: one request, seen by every task.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The request to shut down, as tasks see it. Cheap to clone; a task cannot request the shutdown.
#[derive(Debug, Clone)]
pub struct Shutdown(CancellationToken);

/// Requests the shutdown when it is dropped.
#[derive(Debug)]
pub struct Trigger {
    _guard: DropGuard,
}

impl Shutdown {
    /// A shutdown that is not requested yet, with its trigger.
    pub fn new() -> (Trigger, Self) {
        let token = CancellationToken::new();
        (Trigger { _guard: token.clone().drop_guard() }, Self(token))
    }

    /// A shutdown that SIGTERM and SIGINT request.
    pub fn on_signals() -> std::io::Result<Self> {
        let (trigger, shutdown) = Self::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            crate::notify::stopping();
            trigger.request();
        });
        Ok(shutdown)
    }

    /// Ends when the shutdown is requested.
    pub async fn requested(&self) {
        self.0.cancelled().await;
    }

    /// Whether it has been requested.
    pub fn is_requested(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl Trigger {
    /// Requests the shutdown.
    pub fn request(self) {}
}
