//! A lasting fault of a process, for its reports.

use tokio::sync::watch;

/// The fault in words; `None` while there is none. Cheap to clone; clones share the fault.
#[derive(Debug, Clone, Default)]
pub struct FaultReport(watch::Sender<Option<String>>);

impl FaultReport {
    /// The present fault.
    pub fn current(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Follows the fault.
    pub fn follow(&self) -> watch::Receiver<Option<String>> {
        self.0.subscribe()
    }

    /// Sets or clears the fault. Returns whether that changed it.
    pub fn set(&self, fault: Option<String>) -> bool {
        self.0.send_if_modified(|current| {
            let is_changed = *current != fault;
            *current = fault;
            is_changed
        })
    }
}
