//! How a CO wants to access a volume.
//!
//! Owns: access modes, and the form of a `VolumeCapability` inside this driver. Promises:
//! unsupported fields are reported, never ignored. Never: reads a volume.

use std::collections::BTreeSet;
use std::fmt;

use berth_csi::v1;
use nix::mount::MsFlags;
use serde::{Deserialize, Serialize};

use crate::backing::{Backing, FsType};
use v1::volume_capability::access_mode::Mode;
use v1::volume_capability::{AccessType, MountVolume};

/// CSI `VolumeCapability.AccessMode.Mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "the names are the protocol's own")]
pub enum AccessMode {
    SingleNodeWriter,
    SingleNodeReaderOnly,
    MultiNodeReaderOnly,
    MultiNodeSingleWriter,
    MultiNodeMultiWriter,
    SingleNodeSingleWriter,
    SingleNodeMultiWriter,
}

impl AccessMode {
    /// The mode with this number; `None` for UNKNOWN and for numbers of a later protocol.
    pub fn from_number(number: i32) -> Option<Self> {
        match Mode::try_from(number).ok()? {
            Mode::Unknown => None,
            Mode::SingleNodeWriter => Some(Self::SingleNodeWriter),
            Mode::SingleNodeReaderOnly => Some(Self::SingleNodeReaderOnly),
            Mode::MultiNodeReaderOnly => Some(Self::MultiNodeReaderOnly),
            Mode::MultiNodeSingleWriter => Some(Self::MultiNodeSingleWriter),
            Mode::MultiNodeMultiWriter => Some(Self::MultiNodeMultiWriter),
            Mode::SingleNodeSingleWriter => Some(Self::SingleNodeSingleWriter),
            Mode::SingleNodeMultiWriter => Some(Self::SingleNodeMultiWriter),
        }
    }

    pub fn is_multi_node(self) -> bool {
        match self {
            Self::MultiNodeReaderOnly
            | Self::MultiNodeSingleWriter
            | Self::MultiNodeMultiWriter => true,
            Self::SingleNodeWriter
            | Self::SingleNodeReaderOnly
            | Self::SingleNodeSingleWriter
            | Self::SingleNodeMultiWriter => false,
        }
    }

    /// The two modes behind CSI's `SINGLE_NODE_MULTI_WRITER` capability.
    pub fn is_single_node_multi_writer(self) -> bool {
        matches!(self, Self::SingleNodeSingleWriter | Self::SingleNodeMultiWriter)
    }

    /// Whether a node may publish it at several targets (CSI, `NodePublishVolume`, second call).
    pub fn allows_many_targets(self) -> bool {
        self.is_multi_node() || self == Self::SingleNodeMultiWriter
    }

    pub fn is_reader_only(self) -> bool {
        matches!(self, Self::SingleNodeReaderOnly | Self::MultiNodeReaderOnly)
    }
}

impl fmt::Display for AccessMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The mount flags that a bind mount can honour, by their names in mount(8) and the mount table.
pub const MOUNT_FLAGS: [(&str, MsFlags); 7] = [
    (READ_ONLY, MsFlags::MS_RDONLY),
    ("nosuid", MsFlags::MS_NOSUID),
    ("nodev", MsFlags::MS_NODEV),
    ("noexec", MsFlags::MS_NOEXEC),
    ("noatime", MsFlags::MS_NOATIME),
    ("nodiratime", MsFlags::MS_NODIRATIME),
    ("relatime", MsFlags::MS_RELATIME),
];

pub const READ_ONLY: &str = "ro";

/// A supported `VolumeCapability`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Capability {
    pub mode: AccessMode,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub flags: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub block: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs: Option<FsType>,
    /// The number of the group that gets read and write access (CSI `volume_mount_group`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
}

impl Capability {
    pub fn mount(mode: AccessMode) -> Self {
        Self { mode, flags: BTreeSet::new(), block: false, fs: None, group: None }
    }

    /// Reads a well-formed `VolumeCapability` (see [`missing`]).
    ///
    /// The error has all unsupported fields, one line each. Lines do not repeat mount flags,
    /// because CSI allows secrets in them.
    pub fn supported(requested: &v1::VolumeCapability) -> Result<Self, Vec<String>> {
        let mut faults = Vec::new();
        let number = requested.access_mode.as_ref().map_or(0, |mode| mode.mode);
        let mode = AccessMode::from_number(number);
        if mode.is_none() {
            faults.push(format!("access_mode.mode {number} is not known"));
        }
        let mut read = Self::mount(mode.unwrap_or(AccessMode::SingleNodeWriter));
        match &requested.access_type {
            Some(AccessType::Mount(mount)) => read.read_mount(mount, &mut faults),
            Some(AccessType::Block(_)) => read.block = true,
            None => faults.push("access_type is not set".into()),
        }
        if faults.is_empty() { Ok(read) } else { Err(faults) }
    }

    /// Reads the fields of a mount. Faults are added to `faults`.
    fn read_mount(&mut self, mount: &MountVolume, faults: &mut Vec<String>) {
        let MountVolume { fs_type, mount_flags, volume_mount_group } = mount;
        self.fs = FsType::from_name(fs_type);
        if self.fs.is_none() && !fs_type.is_empty() {
            faults.push(format!("mount.fs_type {fs_type:?}: only ext4 and xfs are supported"));
        }
        self.group = volume_mount_group.parse().ok();
        if self.group.is_none() && !volume_mount_group.is_empty() {
            faults.push("mount.volume_mount_group: has to be the number of a group".to_owned());
        }
        for (index, name) in mount_flags.iter().enumerate() {
            if MOUNT_FLAGS.iter().any(|(flag_name, _)| flag_name == name) {
                self.flags.insert(name.clone());
            } else if name != "rw" {
                faults.push(format!(
                    "mount.mount_flags[{index}]: only rw, ro, nosuid, nodev, noexec, noatime, \
                     nodiratime and relatime are supported"
                ));
            }
        }
    }

    /// What a volume with this content and file system does not offer of the capability.
    pub fn unfit(&self, backing: Backing, fs: Option<FsType>) -> Vec<String> {
        let mut faults = Vec::new();
        match (backing, fs) {
            (Backing::Directory, _) if self.block => {
                faults.push("block: the volume is a directory and can only be mounted".to_owned());
            }
            (Backing::Directory, _) => {
                if let Some(fs) = self.fs {
                    faults.push(format!(
                        "mount.fs_type {fs}: the volume is a directory, leave fs_type empty"
                    ));
                }
            }
            (Backing::Image, _) if self.block => {}
            (Backing::Image, None) => {
                faults.push("mount: the volume has no file system, use it as block".to_owned());
            }
            (Backing::Image, Some(made)) => {
                if let Some(requested) = self.fs.filter(|requested| *requested != made) {
                    faults.push(format!(
                        "mount.fs_type {requested}: the volume was made with {made}"
                    ));
                }
                if self.mode.is_multi_node() && !self.mode.is_reader_only() {
                    faults.push(format!(
                        "access_mode.mode {}: {made} has writers on one node at a time only",
                        self.mode
                    ));
                }
            }
        }
        faults
    }
}

/// The required fields that are missing in a `VolumeCapability`, which is itself the field `field`.
pub fn missing(field: &str, requested: Option<&v1::VolumeCapability>) -> Vec<String> {
    let Some(requested) = requested else { return vec![field.to_owned()] };
    let mut missing = Vec::new();
    if requested.access_type.is_none() {
        missing.push(format!("{field}.access_type"));
    }
    if requested.access_mode.is_none_or(|mode| mode.mode == 0) {
        missing.push(format!("{field}.access_mode"));
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(mode: i32, mount: MountVolume) -> v1::VolumeCapability {
        v1::VolumeCapability {
            access_mode: Some(v1::volume_capability::AccessMode { mode }),
            access_type: Some(AccessType::Mount(mount)),
        }
    }

    #[test]
    fn everything_unsupported_is_named_at_once_and_flags_are_not_repeated() {
        let mount = MountVolume {
            fs_type: "btrfs".into(),
            mount_flags: vec!["noexec".into(), "password=hunter2".into()],
            volume_mount_group: "wheel".into(),
        };
        let faults = Capability::supported(&asked(99, mount)).unwrap_err();
        assert_eq!(faults.len(), 4, "{faults:?}");
        let text = faults.join("; ");
        for part in ["btrfs", "volume_mount_group", "mount_flags[1]", "mode 99"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn what_each_kind_of_volume_cannot_do() {
        use AccessMode::{MultiNodeMultiWriter, MultiNodeReaderOnly, SingleNodeWriter};
        let mount = Capability::mount;
        let block = |mode| Capability { block: true, ..mount(mode) };
        let xfs = Capability { fs: Some(FsType::Xfs), ..mount(SingleNodeWriter) };
        let directory = (Backing::Directory, None);
        let (raw, ext4) = ((Backing::Image, None), (Backing::Image, Some(FsType::Ext4)));
        for (capability, (backing, fs), fits) in [
            (mount(MultiNodeMultiWriter), directory, true),
            (block(SingleNodeWriter), directory, false),
            (xfs.clone(), directory, false),
            (mount(SingleNodeWriter), ext4, true),
            (mount(MultiNodeReaderOnly), ext4, true),
            (mount(MultiNodeMultiWriter), ext4, false),
            (xfs.clone(), ext4, false),
            (xfs, (Backing::Image, Some(FsType::Xfs)), true),
            (block(MultiNodeMultiWriter), ext4, true),
            (block(MultiNodeMultiWriter), raw, true),
            (mount(SingleNodeWriter), raw, false),
        ] {
            let faults = capability.unfit(backing, fs);
            assert_eq!(faults.is_empty(), fits, "{capability:?} {backing:?} {fs:?}: {faults:?}");
        }
    }

    #[test]
    fn all_seven_modes_are_understood() {
        for number in 1..=7 {
            let capability = Capability::supported(&asked(number, MountVolume::default())).unwrap();
            assert_eq!(capability.mode.is_multi_node(), (3..=5).contains(&number), "{number}");
        }
    }

    #[test]
    fn each_missing_field_is_named() {
        assert_eq!(missing("c", None), ["c"]);
        let empty = v1::VolumeCapability { access_mode: None, access_type: None };
        assert_eq!(missing("c", Some(&empty)), ["c.access_type", "c.access_mode"]);
        assert!(missing("c", Some(&asked(1, MountVolume::default()))).is_empty());
    }
}
