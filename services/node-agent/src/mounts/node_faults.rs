//! Reads the mount table, and words failures of this node itself.

use std::error::Error;
use std::sync::Arc;

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_host::MountTable;

/// A failure of this node itself.
pub(super) fn local_problem<E: Error + 'static>(code: Code) -> impl Fn(E) -> Problem {
    move |error| Problem::new(code, berth_service::process::chain(&error)).retryable()
}

/// The mount table, read now.
pub(super) async fn read_mount_table(code: Code) -> Result<Arc<MountTable>, Problem> {
    // A test counts these lines: a reading takes a millisecond for some hundred mounts.
    tracing::debug!("the mount table is read");
    MountTable::read().await.map_err(local_problem(code))
}
