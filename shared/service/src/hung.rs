//! Operations of the process's [`HostPool`] that hang: counted, and shown in the log and as a
//! metric.

use std::time::Duration;

use berth_host::{HostPool, HungOperations};
use berth_telemetry::metric::HOST_OPERATIONS_HUNG;
use tokio::time::sleep;

use crate::fault_report::FaultReport;
use crate::shutdown::Shutdown;

/// Interval at which the hung operations are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// Keeps the report of hung operations current until the shutdown.
pub async fn watch_hung(report: FaultReport, pool: HostPool, shutdown: Shutdown) {
    loop {
        update_report(&report, pool.hung().as_ref());
        tokio::select! {
            () = sleep(COUNT_INTERVAL) => {}
            () = shutdown.requested() => return,
        }
    }
}

fn update_report(report: &FaultReport, hung: Option<&HungOperations>) {
    let count = hung.map_or(0, |hung| hung.count);
    HOST_OPERATIONS_HUNG.set(u64::try_from(count).unwrap_or(u64::MAX), []);
    let hung = hung.map(ToString::to_string);
    if report.set(hung.clone()) {
        if let Some(hung) = hung {
            tracing::warn!(hung, "host operations hang");
        } else {
            tracing::info!("no host operation hangs any more");
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_host::HostOperation;

    use super::*;

    #[test]
    fn a_report_changes_when_another_operation_hangs_and_not_while_the_same_one_does() {
        let report = FaultReport::default();
        let mut reported = report.follow();
        let hung = HungOperations {
            count: 2,
            oldest: HostOperation::new("unmount", "mounts of plugin p", "/s/csi/v"),
            since: std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
        };
        update_report(&report, Some(&hung));
        assert!(reported.has_changed().unwrap());
        let fault = reported.borrow_and_update().clone().unwrap();
        assert_eq!(
            fault,
            "2 host operations hang, the oldest since 2027-01-15T08:00:00Z: unmount at /s/csi/v \
             (mounts of plugin p)"
        );
        update_report(&report, Some(&hung));
        assert!(!reported.has_changed().unwrap());
        update_report(&report, None);
        assert_eq!(reported.borrow_and_update().clone(), None);
    }
}
