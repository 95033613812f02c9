//! Shutdown: one signal, seen by every task.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Tells tasks that the process is to end. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Shutdown {
    requested: watch::Receiver<bool>,
}

/// Requests the shutdown; dropping it requests it too.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

impl Shutdown {
    /// A shutdown nobody has requested, and what requests it.
    pub fn new() -> (Trigger, Self) {
        let (sender, requested) = watch::channel(false);
        (Trigger(sender), Self { requested })
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
        let mut requested = self.requested.clone();
        // An error means that the trigger is gone, which is a request too.
        let _ = requested.wait_for(|requested| *requested).await;
    }

    /// Whether it has been requested.
    pub fn is_requested(&self) -> bool {
        *self.requested.borrow() || self.requested.has_changed().is_err()
    }
}

impl Trigger {
    /// Requests the shutdown.
    pub fn request(&self) {
        self.0.send_replace(true);
    }
}
