//! The problem of a mount that stays: which processes use it, or what a person looks at.

use std::path::Path;

use berth_contract::code::Code;
use berth_contract::problem::Problem;

use super::processes::{fact_of, name_all};
use crate::host::mount_users::find_users;

/// Largest number of processes that are named.
const NAMED_MAX: usize = 4;

/// Adds to the problem of an unmount after which the mount is still at `path` which processes use
/// it, and what a person does about it.
pub(super) async fn explain(problem: Problem, path: &Path) -> Problem {
    let problem = Problem { code: Code::UnmountFailed, ..problem }.retryable();
    let users = find_users(path, NAMED_MAX).await;
    let path = path.display();
    if users.is_empty() {
        return problem.next(format!(
            "see with `findmnt --mountpoint {path}` what it is and with `fuser -vm \
             {path}` which processes use it; once none does, `umount {path}`; the release goes on \
             by itself then"
        ));
    }
    let message = format!("{}; it is used by {}", problem.message, name_all(&users));
    let next = "end these processes; Berth ends none, and the release goes on by \
                itself then";
    Problem { code: Code::VolumeHeldByProcess, message, ..problem }
        .held_by(users.iter().map(fact_of))
        .next(next)
}
