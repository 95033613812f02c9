//! The key of a volume's handle: written, changed and deleted with the volume's spec.
//!
//! **Owns** which writes go beside a transition's own, in one atomic batch, so that a storage
//! volume is never registered twice; and which handles need a repair
//! ([`handle_repair`](crate::store::handle_repair)).
//!
//! **Promises** that the key of a handle is taken only from a volume that is not registered with
//! the handle, which still holds at the moment of the write: the batch writes that volume, too,
//! under its guard.
//!
//! **Decides only**: [`transact`](crate::store::transact) stores, and `tests/model` calls the same
//! functions.

use berth_contract::key;
use berth_contract::record::UnreadableRecord;
use berth_domain::class::ClassUse;
use berth_domain::volume::{
    CallOwner, Command, Handle, HandleUse, Outcome, StorageAnswer, VolumeSpec, Write,
};
use berth_domain::{ClassId, Namespace, VolumeKey};
use berth_service::projection::{HandleEntry, HandleGuard, Subtree, Volumes};

/// A write in the same batch as a transition's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SideWrite {
    /// Stores unchanged the volume that the key named until now: without a spec, or with a spec of
    /// another handle. Its guard fails if that volume has changed.
    Fence(VolumeKey, Option<Box<VolumeSpec>>),
    /// Deletes the key of a handle.
    Free(Handle),
    /// Makes the key of a handle name the volume.
    Own(Handle),
    /// Writes the guard of a namespace's quota, with what the namespace used of the class.
    Quota(ClassId, Namespace, ClassUse),
}

impl SideWrite {
    /// The filter of the write's guard.
    pub fn filter(&self) -> String {
        match self {
            Self::Fence(volume, _) => key::subtree(volume),
            Self::Free(handle) | Self::Own(handle) => key::handle(handle),
            Self::Quota(class, namespace, _) => key::quota(class, namespace),
        }
    }

    /// The revision of the guard, as far as this replica knows.
    pub fn revision(&self, volumes: &Volumes) -> u64 {
        match self {
            Self::Fence(volume, _) => volumes.get(volume).map_or(0, |subtree| subtree.head),
            Self::Free(handle) | Self::Own(handle) => {
                guard(volumes, handle).map_or(0, |guard| guard.revision)
            }
            Self::Quota(class, namespace, _) => volumes.classes().quota_revision(class, namespace),
        }
    }
}

/// The use of the handle that a command concerns: the handle to be registered, or the volume's.
pub fn handle_use(volumes: &Volumes, volume: &VolumeKey, command: &Command) -> HandleUse {
    let use_of = |handle: Option<Handle>| volumes.handle_use(volume, handle.as_ref());
    match command {
        Command::Register(spec) => use_of(spec.handle(&volume.volume)),
        // The id that the plugin returned is about to become the volume's.
        Command::Answer {
            owner: CallOwner::Volume,
            outcome: Outcome::Stored(StorageAnswer::Volume(made)),
            ..
        } => {
            let subtree = volumes.get(volume);
            let spec = subtree.and_then(|subtree| subtree.volume.spec.as_ref());
            use_of(spec.map(|spec| Handle {
                plugin: spec.plugin.clone(),
                external_id: made.external_id.clone(),
            }))
        }
        _ => current_use(volumes, volume),
    }
}

/// The use of the volume's handle.
pub fn current_use(volumes: &Volumes, volume: &VolumeKey) -> HandleUse {
    volumes.handle_use(volume, current(volumes, volume).as_ref())
}

/// The writes beside a transition's own. Fails for an unreadable key, and leaves it unchanged.
pub fn beside(
    volumes: &Volumes,
    volume: &VolumeKey,
    command: &Command,
    write: &Write,
) -> Result<Vec<SideWrite>, UnreadableRecord> {
    let before = current(volumes, volume);
    let after = match write {
        Write::PutSpec(spec) => spec.handle(&volume.volume),
        Write::DeleteSpec => None,
        // A claim needs the key. An older version wrote the spec without it.
        Write::PutClaim(..) if matches!(command, Command::Take(_)) => before.clone(),
        Write::PutClaim(..)
        | Write::DeleteClaim(_)
        | Write::PutSnapshot(..)
        | Write::DeleteSnapshot(_) => return Ok(Vec::new()),
    };
    let mut beside = Vec::new();
    if let Command::Create(_) = command
        && let Some(source) = source_of_copy(volume, write)
    {
        beside.push(fence(volumes, &source)?);
    }
    let is_new = before != after;
    if let Some(before) = before.filter(|_| is_new)
        && let Some(HandleGuard { owner: Ok(owner), .. }) = guard(volumes, &before)
        && owner == volume
    {
        beside.push(SideWrite::Free(before));
    }
    let Some(after) = after else { return Ok(beside) };
    // A volume that is registered twice is granted under neither name, so neither needs the key.
    let is_registered_twice = !volumes.handle_use(volume, Some(&after)).others.is_empty();
    match guard(volumes, &after) {
        _ if is_registered_twice => {}
        None => beside.push(SideWrite::Own(after)),
        Some(HandleGuard { owner: Err(record), .. }) => {
            return Err(record.clone());
        }
        Some(HandleGuard { owner: Ok(owner), .. }) if owner == volume => {
            if is_new {
                beside.push(SideWrite::Own(after));
            }
        }
        Some(HandleGuard { owner: Ok(owner), .. }) => {
            beside.push(fence(volumes, owner)?);
            beside.push(SideWrite::Own(after));
        }
    }
    Ok(beside)
}

fn guard<'a>(volumes: &'a Volumes, handle: &Handle) -> Option<HandleGuard<'a>> {
    volumes.handles().get(handle)?.guard()
}

fn current(volumes: &Volumes, volume: &VolumeKey) -> Option<Handle> {
    let spec = volumes.get(volume)?.volume.spec.as_ref()?;
    spec.handle(&volume.volume)
}

/// The other volume of which, or of whose snapshot, a new volume is a copy. It is stored unchanged
/// together with the new volume, so that it is not deleted meanwhile (rule 23).
fn source_of_copy(volume: &VolumeKey, write: &Write) -> Option<VolumeKey> {
    let Write::PutSpec(spec) = write else { return None };
    let origin = spec.provision()?.origin.as_ref()?;
    let source = VolumeKey::new(volume.namespace.clone(), origin.volume.clone());
    (source != *volume).then_some(source)
}

/// Stores a volume unchanged, so that it cannot meanwhile be registered with the handle whose key
/// names it.
fn fence(volumes: &Volumes, owner: &VolumeKey) -> Result<SideWrite, UnreadableRecord> {
    let subtree = volumes.get(owner);
    if let Some(record) = subtree.and_then(Subtree::first_unreadable) {
        // The unreadable record may be a spec with the handle.
        return Err(record.clone());
    }
    let spec = subtree.and_then(|subtree| subtree.volume.spec.clone()).map(Box::new);
    Ok(SideWrite::Fence(owner.clone(), spec))
}

/// The writes that delete a handle's key if it names a volume without this handle.
pub fn released(
    volumes: &Volumes,
    handle: &Handle,
    owner: &VolumeKey,
) -> Result<Vec<(u64, SideWrite)>, UnreadableRecord> {
    let writes = [fence(volumes, owner)?, SideWrite::Free(handle.clone())];
    Ok(writes.into_iter().map(|write| (write.revision(volumes), write)).collect())
}

/// A repair of a handle's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// A volume has no key for its handle.
    Reserve(VolumeKey),
    /// The key of a handle names a volume that is not registered with it.
    Release(Handle, VolumeKey),
}

/// The repair of a handle that is due.
pub fn due(handle: &Handle, entry: &HandleEntry) -> Option<Repair> {
    match (entry.registered(), entry.guard()) {
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

#[cfg(test)]
mod tests;
