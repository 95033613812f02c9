//! Where volumes are on this node.
//!
//! **Owns** the layout below the state directory:
//!
//! ```text
//! <state_dir>/csi/<volume>/staging           staged once per volume and node
//! <state_dir>/csi/<volume>/<alloc>/target    published once per alloc
//! <state_dir>/csi/<volume>/<alloc>/also1     the same under another name of the alloc's
//! ```
//!
//! `<volume>` stands for plugin, namespace and volume, `<alloc>` for the alloc: the first 96 and 64
//! bits of the SHA-256 of the ids, in hex. Ids may hold slashes and be 256 bytes long, and a plugin
//! need not take a path of more than 128 bytes (CSI 1.13, size limits). `agent.status` says which
//! path is whose.
//!
//! **Promises** that paths are functions of the ids and nothing else, so that an agent that lost
//! its journal still finds what a claim says it may hold (rule 11), and that none is too long for a
//! plugin. Two volumes share a directory by chance only after some 2^48 of them, and nobody can
//! make a volume that shares another's.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use berth_domain::limits::PATH_BYTES_MAX;
use berth_domain::{AllocId, PluginId, VolumeKey};
use sha2::{Digest as _, Sha256};

const ROOT: &str = "csi";
const STAGING: &str = "staging";
const TARGET: &str = "target";
/// How the names of views begin; what follows is less than
/// [`VOLUMES_PER_ALLOC_MAX`](berth_domain::limits::VOLUMES_PER_ALLOC_MAX).
const VIEW: &str = "also";
const VOLUME_BYTES: usize = 12;
const ALLOC_BYTES: usize = 8;

/// The longest state directory, in bytes, that leaves room for a target's path.
pub const STATE_DIR_BYTES_MAX: usize =
    PATH_BYTES_MAX - (ROOT.len() + TARGET.len() + 2 * (VOLUME_BYTES + ALLOC_BYTES) + "////".len());

/// The layout below one state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    root: PathBuf,
}

/// The paths of one alloc's use of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumePaths {
    /// What holds all of the volume's.
    pub volume_dir: PathBuf,
    /// `staging_target_path`: the same for every alloc.
    pub staging: PathBuf,
    /// The target's parent.
    pub alloc_dir: PathBuf,
    /// `target_path`: what the workload is given.
    pub target: PathBuf,
}

impl Paths {
    /// The layout below `state_dir`, which must not be a symbolic link nor lie behind one: the
    /// mount table knows real paths only.
    pub fn new(state_dir: &Path) -> Self {
        Self { root: state_dir.join(ROOT) }
    }

    /// What holds every volume.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The paths of this use.
    pub fn volume_paths(
        &self,
        plugin: &PluginId,
        volume: &VolumeKey,
        alloc: &AllocId,
    ) -> VolumePaths {
        let ids = [plugin.as_str(), volume.namespace.as_str(), volume.volume.as_str()];
        let volume_dir = self.root.join(name::<VOLUME_BYTES>(&ids));
        let alloc_dir = volume_dir.join(name::<ALLOC_BYTES>(&[alloc.as_str()]));
        VolumePaths {
            staging: volume_dir.join(STAGING),
            target: alloc_dir.join(TARGET),
            volume_dir,
            alloc_dir,
        }
    }
}

impl VolumePaths {
    /// Where the alloc has the volume under the name of this number.
    pub fn view(&self, number: u32) -> PathBuf {
        self.alloc_dir.join(format!("{VIEW}{number}"))
    }
}

/// Whether this is the name of a view in an alloc's directory.
pub(crate) fn is_view(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(VIEW.as_bytes())
}

/// Whether the path is in a view of the use whose target this is.
pub(crate) fn is_in_view(target: &Path, path: &Path) -> bool {
    let below = target.parent().and_then(|alloc_dir| path.strip_prefix(alloc_dir).ok());
    below.and_then(|below| below.iter().next()).is_some_and(is_view)
}

/// Replaces a caller's path in the name of a file.
pub(crate) fn path_hash(path: &Path) -> String {
    name::<ALLOC_BYTES>(&[path.as_os_str().as_encoded_bytes()])
}

/// The first bytes of the ids' hash, in hex. Each id is preceded by its length, so that the ids
/// `ab`, `c` are not `a`, `bc`.
fn name<const BYTES: usize>(ids: &[&(impl AsRef<[u8]> + ?Sized)]) -> String {
    let mut hash = Sha256::new();
    for id in ids {
        let id = id.as_ref();
        hash.update((id.len() as u64).to_be_bytes());
        hash.update(id);
    }
    let mut name = String::with_capacity(2 * BYTES);
    for byte in hash.finalize().iter().take(BYTES) {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use berth_domain::limits::VOLUMES_PER_ALLOC_MAX;
    use berth_domain::{Namespace, VolumeId};

    use super::*;

    fn volume_paths(state_dir: &str, ids: [&str; 4]) -> VolumePaths {
        let [plugin, namespace, volume, alloc] = ids;
        let volume =
            VolumeKey::new(Namespace::new(namespace).unwrap(), VolumeId::new(volume).unwrap());
        let (plugin, alloc) = (PluginId::new(plugin).unwrap(), AllocId::new(alloc).unwrap());
        Paths::new(Path::new(state_dir)).volume_paths(&plugin, &volume, &alloc)
    }

    #[test]
    fn a_view_is_beside_its_target() {
        let place = volume_paths("/s", ["p", "default", "data", "a"]);
        let other = volume_paths("/s", ["p", "default", "data", "b"]);
        for path in [place.view(1), place.view(12), place.view(1).join("below")] {
            assert!(is_in_view(&place.target, &path), "{path:?}");
        }
        for path in [other.view(1), place.target.clone(), place.staging.clone(), place.alloc_dir] {
            assert!(!is_in_view(&place.target, &path), "{path:?}");
        }
    }

    /// These are on the disks of running nodes: another function would lose their mounts.
    #[test]
    fn paths_stay_what_they_are() {
        let place = volume_paths("/var/lib/berth", ["ebs.csi.aws.com", "default", "data", "web/1"]);
        let volume = "/var/lib/berth/csi/b806dc5fa10cb2304ded73c7";
        assert_eq!(place.volume_dir, Path::new(volume));
        assert_eq!(place.staging, Path::new(volume).join("staging"));
        assert_eq!(place.target, Path::new(volume).join("4f737f5c6663bf0a/target"));
    }

    #[test]
    fn each_id_counts_and_none_runs_into_the_next() {
        let all = [
            ["p", "n", "v", "a"],
            ["p", "n", "v", "b"],
            ["p", "n", "w", "a"],
            ["p", "m", "v", "a"],
            ["q", "n", "v", "a"],
            ["pn", "v", "a", "a"],
            ["p", "nv", "a", "a"],
            ["p", "n", "va", "a"],
        ];
        let targets: BTreeSet<PathBuf> = all.map(|ids| volume_paths("/s", ids).target).into();
        assert_eq!(targets.len(), all.len());
        assert_eq!(volume_paths("/s", all[0]).staging, volume_paths("/s", all[1]).staging);
        assert_ne!(volume_paths("/s", all[0]).staging, volume_paths("/s", all[2]).staging);
    }

    #[test]
    fn the_longest_state_directory_gives_the_longest_path() {
        let state_dir = format!("/{}", "s".repeat(STATE_DIR_BYTES_MAX - 1));
        let id = "é/".repeat(85);
        let place = volume_paths(&state_dir, [&id, &id, &id, &id]);
        assert_eq!(place.target.as_os_str().len(), PATH_BYTES_MAX);
        assert!(place.staging.as_os_str().len() < PATH_BYTES_MAX);
        let last = u32::try_from(VOLUMES_PER_ALLOC_MAX).unwrap() - 1;
        assert!(place.view(last).as_os_str().len() <= PATH_BYTES_MAX);
    }
}
