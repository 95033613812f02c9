//! How problems name processes of this host.

use berth_domain::volume::HoldingProcess;
use berth_host::HolderProcess;

/// `process 7 (sh), process 8 (cat)`
pub(super) fn name_all(processes: &[HolderProcess]) -> String {
    let named = processes.iter().map(|one| format!("process {} ({})", one.pid, one.command));
    named.collect::<Vec<_>>().join(", ")
}

/// A process, as a failure names it.
pub(super) fn fact_of(process: &HolderProcess) -> HoldingProcess {
    HoldingProcess { pid: process.pid, command: process.command.clone() }
}
