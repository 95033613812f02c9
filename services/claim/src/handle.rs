//! The key of a volume's handle: written, changed and deleted with the volume's spec.
//!
//! **Owns** which writes go beside a transition's own, in one atomic batch, so that a storage
//! volume is never registered twice; and the repair of handles whose keys an older version, a
//! restored backup or a person left wrong.
//!
//! **Promises** that the key of a handle is taken over only from a volume that is not registered
//! with it, and that this is still so when the key is written: the batch writes below that volume,
//! too, under its guard.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_contract::key;
use berth_domain::VolumeKey;
use berth_domain::volume::{Command, Handle, HandleUse, Refusal, VolumeSpec, Write};
use berth_service::projection::{HandleEntry, HandleGuard, Subtree, Volumes};
use berth_service::{clock, process};
use futures_util::{StreamExt as _, stream};

use crate::state::State;
use crate::transact::TransactError;

/// How often handles are looked through for what is to be repaired.
const REPAIR_EVERY: Duration = Duration::from_secs(30);
/// The first time, after the start.
const REPAIR_FIRST: Duration = Duration::from_secs(1);
/// How many are repaired at once: they share batches.
const REPAIRS_AT_ONCE: usize = 64;

/// A write that goes beside a transition's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beside {
    /// The volume that the key named until now is stored once more as it is: without a spec, or
    /// with one of another handle.
    Fence(VolumeKey, Option<Box<VolumeSpec>>),
    /// The key of a handle goes.
    Free(Handle),
    /// The key of a handle names the volume from now on.
    Own(Handle),
}

impl Beside {
    /// What the guard of the write covers.
    pub fn filter(&self) -> String {
        match self {
            Self::Fence(volume, _) => key::subtree(volume),
            Self::Free(handle) | Self::Own(handle) => key::handle(handle),
        }
    }

    /// The revision of the guard, as far as this replica knows.
    pub fn revision(&self, volumes: &Volumes) -> u64 {
        match self {
            Self::Fence(volume, _) => volumes.get(volume).map_or(0, |subtree| subtree.head),
            Self::Free(handle) | Self::Own(handle) => {
                let guard = volumes.handles().get(handle).and_then(|entry| entry.guard.as_ref());
                guard.map_or(0, |guard| guard.revision)
            }
        }
    }
}

/// What is known of the handle that a command is about: the one to be registered, or the volume's.
pub fn handle_use(volumes: &Volumes, volume: &VolumeKey, command: &Command) -> HandleUse {
    match command {
        Command::Register(spec) => volumes.handle_use(volume, &spec.handle(&volume.volume)),
        _ => current_use(volumes, volume),
    }
}

/// What is known of the handle that a volume has.
pub fn current_use(volumes: &Volumes, volume: &VolumeKey) -> HandleUse {
    let handle = current(volumes, volume);
    handle.map(|handle| volumes.handle_use(volume, &handle)).unwrap_or_default()
}

/// What goes beside a transition's write. A key that cannot be read is left as it is.
pub fn beside(
    volumes: &Volumes,
    volume: &VolumeKey,
    command: &Command,
    write: &Write,
) -> Result<Vec<Beside>, TransactError> {
    let before = current(volumes, volume);
    let after = match write {
        Write::PutSpec(spec) => Some(spec.handle(&volume.volume)),
        Write::DeleteSpec => None,
        // Whoever gets a claim needs the key; an older version wrote none.
        Write::PutClaim(..) if matches!(command, Command::Take(_)) => before.clone(),
        Write::PutClaim(..) | Write::DeleteClaim(_) => return Ok(Vec::new()),
    };
    let mut beside = Vec::new();
    let is_new = before != after;
    if let Some(before) = before.filter(|_| is_new)
        && let Some(HandleGuard { owner: Ok(owner), .. }) = guard(volumes, &before)
        && owner == volume
    {
        beside.push(Beside::Free(before));
    }
    let Some(after) = after else { return Ok(beside) };
    // Of a volume that is registered twice neither is granted, so neither needs the key.
    let others = !volumes.handle_use(volume, &after).others.is_empty();
    match guard(volumes, &after) {
        _ if others => {}
        None => beside.push(Beside::Own(after)),
        Some(HandleGuard { owner: Err(record), .. }) => {
            return Err(TransactError::Unreadable(record.clone()));
        }
        Some(HandleGuard { owner: Ok(owner), .. }) if owner == volume => {
            if is_new {
                beside.push(Beside::Own(after));
            }
        }
        Some(HandleGuard { owner: Ok(owner), .. }) => {
            beside.push(fence(volumes, owner)?);
            beside.push(Beside::Own(after));
        }
    }
    Ok(beside)
}

fn guard<'a>(volumes: &'a Volumes, handle: &Handle) -> Option<&'a HandleGuard> {
    volumes.handles().get(handle)?.guard.as_ref()
}

fn current(volumes: &Volumes, volume: &VolumeKey) -> Option<Handle> {
    let spec = volumes.get(volume)?.volume.spec.as_ref()?;
    Some(spec.handle(&volume.volume))
}

/// Holds a volume as it is, which is not registered with the handle that its key names it for.
fn fence(volumes: &Volumes, owner: &VolumeKey) -> Result<Beside, TransactError> {
    let subtree = volumes.get(owner);
    if let Some(record) = subtree.and_then(Subtree::first_unreadable) {
        // It may be registered with the handle after all.
        return Err(TransactError::Unreadable(record.clone()));
    }
    let spec = subtree.and_then(|subtree| subtree.volume.spec.clone()).map(Box::new);
    Ok(Beside::Fence(owner.clone(), spec))
}

/// What takes the key of a handle from a volume that is not registered with it.
pub fn released(
    volumes: &Volumes,
    handle: &Handle,
    owner: &VolumeKey,
) -> Result<Vec<(u64, Beside)>, TransactError> {
    let writes = [fence(volumes, owner)?, Beside::Free(handle.clone())];
    Ok(writes.into_iter().map(|write| (write.revision(volumes), write)).collect())
}

/// A repair that is due.
enum Repair {
    /// A volume has no key for its handle.
    Reserve(VolumeKey),
    /// The key of a handle names a volume that is not registered with it.
    Release(Handle, VolumeKey),
}

/// Looks through all handles now and then, and repairs what is wrong. Any number of replicas may do
/// this at once: each repair is guarded.
pub async fn repair(state: State) {
    let mut told = BTreeSet::new();
    let mut wait = REPAIR_FIRST;
    loop {
        tokio::time::sleep(clock::jittered(wait)).await;
        wait = REPAIR_EVERY;
        let mut twice = BTreeSet::new();
        let due: Vec<Repair> = state.volume_mirror.read(|volumes| {
            let handles = volumes.handles().iter();
            handles
                .filter_map(|(handle, entry)| {
                    if entry.registered.len() > 1 {
                        twice.insert((handle.clone(), entry.registered.clone()));
                    }
                    due(handle, entry)
                })
                .collect()
        });
        for (handle, volumes) in twice.difference(&told) {
            tracing::warn!(
                ?volumes, plugin = %handle.plugin, external_id = handle.external_id,
                "one volume of the plugin is registered more than once; none of these is granted"
            );
        }
        told = twice;
        let all = stream::iter(due).map(|repair| attend(&state, repair));
        all.buffer_unordered(REPAIRS_AT_ONCE).collect::<()>().await;
    }
}

fn due(handle: &Handle, entry: &HandleEntry) -> Option<Repair> {
    match (entry.registered.as_slice(), &entry.guard) {
        ([volume], None) => Some(Repair::Reserve(volume.clone())),
        ([volume], Some(HandleGuard { owner: Ok(owner), .. })) if owner != volume => {
            Some(Repair::Reserve(volume.clone()))
        }
        ([], Some(HandleGuard { owner: Ok(owner), .. })) => {
            Some(Repair::Release(handle.clone(), owner.clone()))
        }
        _ => None,
    }
}

async fn attend(state: &State, repair: Repair) {
    let (repaired, volume) = match repair {
        Repair::Reserve(volume) => {
            let trace = clock::begin_trace();
            let done = state.transact(&volume, trace, |_| Ok(Command::Reserve)).await;
            (done.map(drop), volume)
        }
        Repair::Release(handle, volume) => (state.release_handle(&handle, &volume).await, volume),
    };
    match repaired {
        Ok(()) => tracing::info!(%volume, "the key of the volume's handle is repaired"),
        // It changed meanwhile; the next look says whether something is left to do.
        Err(TransactError::Refused(Refusal::NoSuchVolume | Refusal::RegisteredTwice { .. })) => {}
        Err(error) => {
            let error = process::chain(&error);
            tracing::warn!(%volume, error, "the key of its handle is repaired later");
        }
    }
}

#[cfg(test)]
mod tests;
