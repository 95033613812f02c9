//! Which decisions need to know where a volume may be mounted without a claim.
//!
//! **Promises** that what destroys or forgets a volume rests on the nodes' records at the leader,
//! if its caller catches up first.

use berth_bus::{Ask, caller};
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_domain::VolumeKey;
use berth_domain::volume::{CallOwner, Command, Handle, MountDoubt, Volume};
use berth_service::projection::Volumes;
use tokio::time::Instant;

use crate::store::mounts::{handle_of, is_reported, mounts_of};
use crate::store::state::{State, StateInner};
use crate::store::transact::{CATCH_UP_TIMEOUT, TransactError};
use crate::store::unrecorded::MAY_RETURN;

/// Where the registered volume may be mounted without a claim, as far as this replica knows.
pub fn current_mounts(state: &StateInner, volume: &VolumeKey) -> Vec<MountDoubt> {
    let handle = |volumes: &Volumes| handle_of(volume, &volumes.get(volume)?.volume);
    let handle = state.volumes.mirror.read(handle);
    handle.map(|handle| state.mounts_of_handle(volume, &handle)).unwrap_or_default()
}

impl StateInner {
    /// Where the volume with this handle may be mounted without a claim.
    pub fn mounts_of_handle(&self, volume: &VolumeKey, handle: &Handle) -> Vec<MountDoubt> {
        let incarnation = self.volumes.bucket.incarnation();
        self.nodes.mirror.read(|nodes| {
            let suspects = self.suspects(nodes, volume, Some(handle));
            self.plugins
                .mirror
                .read(|plugins| mounts_of(nodes, plugins, incarnation, &suspects, volume, handle))
        })
    }

    /// The mounts without a claim that the decision on a command needs.
    pub fn mounts_for(
        &self,
        volume: &VolumeKey,
        now: &Volume,
        command: &Command,
    ) -> Vec<MountDoubt> {
        let handle = handle_of(volume, now).filter(|_| needs_mounts(command));
        handle.map(|handle| self.mounts_of_handle(volume, &handle)).unwrap_or_default()
    }

    /// Waits until this replica has the leader's records of nodes. Refuses while nodes that the
    /// restored records lack may still come back.
    pub async fn catch_up_with_nodes(&self) -> Result<(), TransactError> {
        if !self.have_nodes_had_time() {
            return Err(Problem::new(Code::MountsNotSaid, MAY_RETURN).retryable().into());
        }
        let deadline = caller::earlier_deadline(Instant::now() + CATCH_UP_TIMEOUT);
        let head =
            self.nodes.bucket.newest_together(Ask::ByRead).await.map_err(TransactError::Head)?;
        self.nodes.mirror.reach(head, deadline).await.map_err(TransactError::Behind)
    }
}

/// Forgets the claims that were deleted by hand as soon as their nodes have reported the mounts:
/// then the nodes' records have them.
pub async fn forget_reported(state: State) {
    let mut changes = state.nodes.mirror.subscribe();
    loop {
        state.nodes.mirror.read(|nodes| {
            state.lost.forget(|volume, alloc, lost| is_reported(nodes, volume, alloc, &lost.node));
        });
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Whether the command destroys or forgets the volume, or may need it unmounted.
fn needs_mounts(command: &Command) -> bool {
    match command {
        Command::Delete { .. } | Command::Deregister { .. } | Command::Register(_) => true,
        Command::Begin(begin) => begin.owner == CallOwner::Volume,
        _ => false,
    }
}
