//! Operations of the process's [`HostPool`] that hang: counted, and shown in the log and as a
//! metric.

use std::time::Duration;

use berth_host::{HostPool, HungOperations};
use berth_telemetry::metric::HOST_OPERATIONS_HUNG;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::shutdown::Shutdown;

/// How often the operations that hang are counted.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// What hangs, in words; `None` while nothing does. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct HungReport(watch::Sender<Option<String>>);

impl HungReport {
    /// What it is now.
    pub fn now(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Follows it.
    pub fn follow(&self) -> watch::Receiver<Option<String>> {
        self.0.subscribe()
    }

    /// Keeps it current until the shutdown.
    pub async fn keep(self, pool: HostPool, shutdown: Shutdown) {
        loop {
            self.count(pool.hung().as_ref());
            tokio::select! {
                () = sleep(COUNT_EVERY) => {}
                () = shutdown.requested() => return,
            }
        }
    }

    fn count(&self, hung: Option<&HungOperations>) {
        let count = hung.map_or(0, |hung| hung.count);
        HOST_OPERATIONS_HUNG.set(u64::try_from(count).unwrap_or(u64::MAX), []);
        let said = hung.map(ToString::to_string);
        let is_news = self.0.send_if_modified(|known| {
            let is_news = *known != said;
            known.clone_from(&said);
            is_news
        });
        match said {
            _ if !is_news => {}
            Some(hung) => tracing::warn!(hung, "host operations hang"),
            None => tracing::info!("no host operation hangs any more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_host::HostOperation;

    use super::*;

    #[test]
    fn a_report_changes_when_another_operation_hangs_and_not_while_the_same_one_does() {
        let report = HungReport::default();
        let mut told = report.follow();
        let hung = HungOperations {
            count: 2,
            oldest: HostOperation::new("unmount", "mounts of plugin p", "/s/csi/v"),
            since: std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
        };
        report.count(Some(&hung));
        assert!(told.has_changed().unwrap());
        let said = told.borrow_and_update().clone().unwrap();
        assert_eq!(
            said,
            "2 host operations hang, the oldest since 2027-01-15T08:00:00Z: unmount at /s/csi/v \
             (mounts of plugin p)"
        );
        report.count(Some(&hung));
        assert!(!told.has_changed().unwrap());
        report.count(None);
        assert_eq!(told.borrow_and_update().clone(), None);
    }
}
