//! A lasting fault of a process, as it reports it.

use tokio::sync::watch;

/// The fault in words; `None` while there is none. Cheap to clone; clones share it.
#[derive(Debug, Clone, Default)]
pub struct FaultReport(watch::Sender<Option<String>>);

impl FaultReport {
    /// The fault now.
    pub fn current(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Follows the fault.
    pub fn follow(&self) -> watch::Receiver<Option<String>> {
        self.0.subscribe()
    }

    /// Sets or clears the fault. Returns whether that changed it.
    pub fn set(&self, fault: Option<String>) -> bool {
        self.0.send_if_modified(|known| {
            let is_changed = *known != fault;
            *known = fault;
            is_changed
        })
    }
}
