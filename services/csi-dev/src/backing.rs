//! What holds the content of a volume.
//!
//! Owns: the kinds of content and their file systems. Promises: has no state. Never: touches a
//! file.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What holds the content of a volume or snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Backing {
    /// A directory: mounted only, by any number of nodes
    #[default]
    Directory,
    /// A sparse file behind a loop device: a block device, or a file system on one
    Image,
}

/// A file system that images are made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are the kernel's")]
pub enum FsType {
    Ext4,
    Xfs,
}

impl FsType {
    /// The file system that the kernel calls `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::value_variants().iter().copied().find(|fs| fs.name() == name)
    }

    /// The kernel's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// The smallest size that its mkfs accepts, in bytes.
    pub fn smallest_bytes(self) -> i64 {
        match self {
            Self::Ext4 => 1 << 20,
            Self::Xfs => 300 << 20,
        }
    }
}

impl fmt::Display for FsType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
