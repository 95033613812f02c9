//! volume.
