//! The names of the agent's links to callers' paths.

use std::path::{Path, PathBuf};

use crate::host::paths::{VolumePaths, path_hash};

pub(super) const LINK_PREFIX: &str = "bind-";

/// The link in the alloc's directory for the mount of `from` at a caller's path.
pub(super) fn link_path(place: &VolumePaths, from: &Path, path: &Path) -> PathBuf {
    let mounted = from.file_name().unwrap_or_default().to_string_lossy();
    place.alloc_dir.join(format!("{LINK_PREFIX}{mounted}-{}", path_hash(path)))
}
