//! The state that a scheduler shares with its allocs.

use berth_domain::OwnerId;

use super::asker::Asker;
use super::lease::Lease;
use super::watch::Watch;

/// A connected scheduler with its lease.
#[derive(Debug)]
pub(super) struct RunningScheduler {
    pub(super) asker: Asker,
    pub(super) owner: OwnerId,
    pub(super) lease: Lease,
    pub(super) watch: Watch,
}
