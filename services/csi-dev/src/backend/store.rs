//! The shared directory: volumes and nodes in it.
//!
//! Owns: finding, creating and listing volumes and nodes. Promises: the next call completes the
//! work of a killed one. Never: locks two volumes at once.

use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::statvfs::statvfs;
use thiserror::Error;

use crate::backing::FsType;
use crate::lock::Lock;

use super::error::BackendError;
use super::meta::VolumeMeta;
use super::node::NodeRecord;
use super::volume::Volume;
use super::{encoding, file};
/// A shared directory of volumes.
#[derive(Clone, Debug)]
pub struct Backend {
    pub(super) root: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Provisioned {
    Made,
    Existed,
}

/// Why a volume was not provisioned.
#[derive(Debug, Error)]
pub enum ProvisionError {
    #[error(
        "volume {:?} exists with capacity {} and context {:?}; choose another id",
        existing.volume_id, existing.capacity_bytes, existing.volume_context
    )]
    Exists { existing: Box<VolumeMeta> },
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl Backend {
    /// Opens the directory `root`. Creates it if it is missing.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, BackendError> {
        let backend = Self { root: root.into() };
        for dir in ["volumes", "snapshots", "groups", "nodes"] {
            file::make_dir(&backend.root.join(dir))?;
        }
        // Mounts are compared by their absolute path.
        let root = fs::canonicalize(&backend.root)
            .map_err(|source| BackendError::io("resolve", &backend.root, source))?;
        Ok(Self { root })
    }

    /// Creates a volume, or returns that it exists. Completes a killed call.
    pub fn provision(&self, meta: &VolumeMeta) -> Result<Provisioned, ProvisionError> {
        match self.make_volume(meta, None)? {
            None => Ok(Provisioned::Made),
            Some(existing) if existing == *meta => Ok(Provisioned::Existed),
            Some(existing) => Err(ProvisionError::Exists { existing: existing.into() }),
        }
    }

    /// Creates a volume, with a copy of the content in `from` if given. Returns the existing volume
    /// if there is one. The caller holds the lock of the source.
    pub fn make_volume(
        &self,
        meta: &VolumeMeta,
        from: Option<&Path>,
    ) -> Result<Option<VolumeMeta>, BackendError> {
        Volume::make(self.volume_dir(&meta.volume_id)?, meta, from)
    }

    /// Removes what killed calls left of the volume `id`, unless the volume exists.
    pub fn clear_leftovers(&self, id: &str) -> Result<(), BackendError> {
        self.volume_dir(id).map_or(Ok(()), |dir| Volume::clear_leftovers(&dir))
    }

    /// The volume called `id`. `None` also for an id that no volume can have.
    pub fn volume(&self, id: &str) -> Result<Option<Volume>, BackendError> {
        match self.volume_dir(id) {
            Ok(dir) => Volume::open(dir),
            Err(_) => Ok(None),
        }
    }

    /// All volumes, ordered by id.
    pub fn volumes(&self) -> Result<Vec<Volume>, BackendError> {
        let mut volumes = Vec::new();
        for dir in self.all_in("volumes")? {
            volumes.extend(Volume::open(dir)?);
        }
        volumes.sort_by(|a, b| a.meta().volume_id.cmp(&b.meta().volume_id));
        Ok(volumes)
    }

    /// The lock for counting over all volumes. Taken before the lock of a volume, never after.
    pub fn lock(&self) -> Result<Lock, BackendError> {
        Ok(Lock::wait(&self.root.join("lock"))?)
    }

    /// Records a node, so that volumes can be attached to it.
    pub fn register_node(&self, node: &NodeRecord) -> Result<(), BackendError> {
        let path = self.node_file(&node.node_id).ok_or(BackendError::Id)?;
        let _lock = self.lock()?;
        // A starting instance neither lifts a fence nor mends the storage.
        let last = file::read::<NodeRecord>(&path)?;
        let (fenced, trouble) = last.map(|last| (last.fenced, last.trouble)).unwrap_or_default();
        file::replace(&path, &NodeRecord { fenced, trouble, ..node.clone() })
    }

    /// Sets what is wrong with the storage, seen from a node.
    pub fn set_trouble(&self, id: &str, trouble: Option<String>) -> Result<(), BackendError> {
        let path = self.node_file(id).ok_or(BackendError::Id)?;
        let _lock = self.lock()?;
        let record = file::read::<NodeRecord>(&path)?.unwrap_or_else(|| NodeRecord::new(id));
        file::replace(&path, &NodeRecord { trouble, ..record })
    }

    /// Fences a node, or lifts its fence, as an administrator does at the storage. While it is
    /// fenced, the node stages and publishes nothing. Its existing uses are
    /// [`cut`](super::NodeUse::cut), and stay so after the fence is lifted.
    ///
    /// This changes records only: a workload could still write. Returns the staging paths of ext4
    /// file systems of the node. The caller aborts those: two nodes that mount one ext4 damage it.
    pub fn fence(&self, id: &str, fenced: bool) -> Result<Vec<PathBuf>, BackendError> {
        let path = self.node_file(id).ok_or(BackendError::Id)?;
        {
            let _lock = self.lock()?;
            let record = file::read::<NodeRecord>(&path)?.unwrap_or_else(|| NodeRecord::new(id));
            file::replace(&path, &NodeRecord { fenced, ..record })?;
        }
        let mut mounted = Vec::new();
        for volume in self.volumes()?.iter().filter(|_| fenced) {
            let Some(locked) = volume.lock_unless_gone()? else { continue };
            let mut state = locked.state()?;
            if state.cut_off(id) {
                locked.save(&state)?;
            }
            let has_ext4 = volume.meta().fs == Some(FsType::Ext4);
            let staged = state.staged_on(id).filter(|staged| has_ext4 && !staged.capability.block);
            mounted.extend(staged.map(|staged| PathBuf::from(&staged.path)));
        }
        Ok(mounted)
    }

    pub fn is_fenced(&self, id: &str) -> Result<bool, BackendError> {
        Ok(self.node(id)?.is_some_and(|node| node.fenced))
    }

    /// The node called `id`, if an instance has ever served it.
    pub fn node(&self, id: &str) -> Result<Option<NodeRecord>, BackendError> {
        self.node_file(id).map_or(Ok(None), |path| file::read(&path))
    }

    /// All nodes that an instance has ever served, ordered by id.
    pub fn nodes(&self) -> Result<Vec<NodeRecord>, BackendError> {
        let mut nodes: Vec<NodeRecord> = Vec::new();
        for path in self.all_in("nodes")? {
            if path.extension().is_some_and(|extension| extension == "json") {
                nodes.extend(file::read(&path)?);
            }
        }
        nodes.sort_by(|a, b| a.node_id.cmp(&b.node_id));
        Ok(nodes)
    }

    /// The free bytes of the file system below the backend.
    pub fn free_bytes(&self) -> Result<i64, BackendError> {
        let failed = |errno: Errno| BackendError::io("measure", &self.root, errno.into());
        let free = statvfs(&self.root).map_err(failed)?;
        let free = free.blocks_available().saturating_mul(free.fragment_size());
        Ok(i64::try_from(free).unwrap_or(i64::MAX))
    }

    fn volume_dir(&self, id: &str) -> Result<PathBuf, BackendError> {
        Ok(self.root.join("volumes").join(encoding::encode(id).ok_or(BackendError::Id)?))
    }

    /// The paths of all entries of one kind.
    pub(super) fn all_in(&self, kind: &str) -> Result<Vec<PathBuf>, BackendError> {
        let dir = self.root.join(kind);
        let paths =
            fs::read_dir(&dir).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
        paths.map_err(|source| BackendError::io("list", &dir, source))
    }

    fn node_file(&self, id: &str) -> Option<PathBuf> {
        Some(self.root.join("nodes").join(format!("{}.json", encoding::encode(id)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Segments;

    fn meta(id: &str, capacity_bytes: i64) -> VolumeMeta {
        VolumeMeta { volume_id: id.to_owned(), capacity_bytes, ..VolumeMeta::default() }
    }

    #[test]
    fn provisioning_is_idempotent_and_refuses_another_volume_of_the_same_name() {
        let dir = tempfile::tempdir().unwrap();
        let backend = Backend::open(dir.path()).unwrap();
        assert!(matches!(backend.provision(&meta("v", 10)), Ok(Provisioned::Made)));
        assert!(matches!(backend.provision(&meta("v", 10)), Ok(Provisioned::Existed)));
        let refused = backend.provision(&meta("v", 20)).unwrap_err();
        assert!(refused.to_string().contains("capacity 10"), "{refused}");
        assert!(backend.provision(&meta("", 0)).is_err());
    }

    #[test]
    fn provisioning_that_was_killed_half_way_is_completed() {
        let dir = tempfile::tempdir().unwrap();
        let backend = Backend::open(dir.path()).unwrap();
        // What the killed call left: the directory and its data, but no meta.json.
        fs::create_dir_all(dir.path().join("volumes/v/data")).unwrap();
        assert!(backend.volume("v").unwrap().is_none());
        assert!(backend.volumes().unwrap().is_empty());
        assert!(matches!(backend.provision(&meta("v", 10)), Ok(Provisioned::Made)));
        assert_eq!(backend.volume("v").unwrap().unwrap().meta(), &meta("v", 10));
    }

    #[test]
    fn volumes_of_any_name_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let backend = Backend::open(dir.path()).unwrap();
        let mut ids = vec!["a/b", "..", "ü x", "plain"];
        let long = ["/".repeat(256), "/".repeat(255), "/".repeat(67)];
        ids.extend(long.iter().map(String::as_str));
        for id in &ids {
            backend.provision(&meta(id, 0)).unwrap();
        }
        ids.sort_unstable();
        let listed = backend.volumes().unwrap();
        let listed: Vec<_> = listed.iter().map(|volume| volume.meta().volume_id.as_str()).collect();
        assert_eq!(listed, ids);
    }

    /// Another instance may delete a volume while this one reads the list.
    #[test]
    fn a_volume_that_was_removed_after_it_was_listed_has_no_lock() {
        let dir = tempfile::tempdir().unwrap();
        let backend = Backend::open(dir.path()).unwrap();
        backend.provision(&meta("v", 10)).unwrap();
        let listed = backend.volumes().unwrap();
        assert!(listed[0].lock_unless_gone().unwrap().is_some());
        backend.volume("v").unwrap().unwrap().lock().unwrap().remove().unwrap();
        assert!(listed[0].lock_unless_gone().unwrap().is_none());
        assert!(listed[0].lock().is_err());
    }

    #[test]
    fn a_node_is_known_once_registered() {
        let dir = tempfile::tempdir().unwrap();
        let backend = Backend::open(dir.path()).unwrap();
        let long = "n/".repeat(128);
        assert!(backend.node(&long).unwrap().is_none());
        let topology = Segments::new();
        let node = NodeRecord { max_volumes: 3, topology, ..NodeRecord::new(&long) };
        backend.register_node(&node).unwrap();
        assert_eq!(backend.node(&long).unwrap().as_ref(), Some(&node));
        assert_eq!(backend.nodes().unwrap(), [node]);
    }
}
