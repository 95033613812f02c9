//! What a CO asks of a volume: how it is accessed, by how many.
//!
//! Owns: access modes, and the form a `VolumeCapability` has inside this driver.
//! Promises: what cannot be done is named, never passed over. Never: looks at a volume.

use std::collections::BTreeSet;
use std::fmt;

use berth_csi::v1;
use serde::{Deserialize, Serialize};

use v1::volume_capability::access_mode::Mode;
use v1::volume_capability::{AccessType, MountVolume};

/// Who may use a volume at the same time (CSI `VolumeCapability.AccessMode.Mode`).
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

    /// Whether several nodes may have the volume at once.
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

    /// Whether a node may publish it at several targets (CSI, `NodePublishVolume`, second call).
    pub fn allows_many_targets(self) -> bool {
        self.is_multi_node() || self == Self::SingleNodeMultiWriter
    }

    /// Whether nobody may write.
    pub fn is_reader_only(self) -> bool {
        matches!(self, Self::SingleNodeReaderOnly | Self::MultiNodeReaderOnly)
    }
}

impl fmt::Display for AccessMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A mount flag that a bind mount can honour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are those of mount(8)")]
pub enum MountFlag {
    Ro,
    NoSuid,
    NoDev,
    NoExec,
    NoAtime,
    NoDirAtime,
    RelAtime,
}

impl MountFlag {
    /// The flag that mount(8) and the mount table call `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "ro" => Some(Self::Ro),
            "nosuid" => Some(Self::NoSuid),
            "nodev" => Some(Self::NoDev),
            "noexec" => Some(Self::NoExec),
            "noatime" => Some(Self::NoAtime),
            "nodiratime" => Some(Self::NoDirAtime),
            "relatime" => Some(Self::RelAtime),
            _ => None,
        }
    }
}

/// What a volume of this driver is asked to do: to be mounted, in one mode, with these flags.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Capability {
    /// Who may use it at the same time.
    pub mode: AccessMode,
    /// Mount flags of the workload's mount.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub flags: BTreeSet<MountFlag>,
}

impl Capability {
    /// A mount in `mode` without flags.
    pub fn mount(mode: AccessMode) -> Self {
        Self { mode, flags: BTreeSet::new() }
    }

    /// Reads a well-formed `VolumeCapability` (see [`missing`]).
    ///
    /// # Errors
    /// Everything in it that a directory cannot do, one line each. Mount flags are not repeated in
    /// the lines, since CSI allows secrets in them.
    pub fn supported(asked: &v1::VolumeCapability) -> Result<Self, Vec<String>> {
        let mut faults = Vec::new();
        let mut flags = BTreeSet::new();
        match &asked.access_type {
            Some(AccessType::Mount(mount)) => flags = read_mount(mount, &mut faults),
            Some(AccessType::Block(_)) => {
                faults.push("block: the volume is a directory and can only be mounted".into());
            }
            None => faults.push("access_type is not set".into()),
        }
        let number = asked.access_mode.as_ref().map_or(0, |mode| mode.mode);
        let mode = AccessMode::from_number(number);
        if mode.is_none() {
            faults.push(format!("access_mode.mode {number} is not known"));
        }
        match mode {
            Some(mode) if faults.is_empty() => Ok(Self { mode, flags }),
            _ => Err(faults),
        }
    }
}

/// The flags of a mount; what a directory cannot do is added to `faults`.
fn read_mount(mount: &MountVolume, faults: &mut Vec<String>) -> BTreeSet<MountFlag> {
    let MountVolume { fs_type, mount_flags, volume_mount_group } = mount;
    if !fs_type.is_empty() {
        faults.push(format!(
            "mount.fs_type {fs_type:?}: the volume is a directory, leave fs_type empty"
        ));
    }
    if !volume_mount_group.is_empty() {
        faults.push("mount.volume_mount_group: VOLUME_MOUNT_GROUP is not offered".to_owned());
    }
    let mut flags = BTreeSet::new();
    for (index, name) in mount_flags.iter().enumerate() {
        match MountFlag::from_name(name) {
            Some(flag) => _ = flags.insert(flag),
            // What every mount here is anyway.
            None if name == "rw" => {}
            None => faults.push(format!(
                "mount.mount_flags[{index}]: only rw, ro, nosuid, nodev, noexec, noatime, \
                 nodiratime and relatime are supported"
            )),
        }
    }
    flags
}

/// The required fields that a `VolumeCapability`, itself called `field`, leaves out.
pub fn missing(field: &str, asked: Option<&v1::VolumeCapability>) -> Vec<String> {
    let Some(asked) = asked else { return vec![field.to_owned()] };
    let mut missing = Vec::new();
    if asked.access_type.is_none() {
        missing.push(format!("{field}.access_type"));
    }
    if asked.access_mode.is_none_or(|mode| mode.mode == 0) {
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
            fs_type: "ext4".into(),
            mount_flags: vec!["noexec".into(), "password=hunter2".into()],
            volume_mount_group: "100".into(),
        };
        let faults = Capability::supported(&asked(99, mount)).unwrap_err();
        assert_eq!(faults.len(), 4, "{faults:?}");
        let text = faults.join("; ");
        for part in ["ext4", "volume_mount_group", "mount_flags[1]", "mode 99"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("hunter2"), "{text}");
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
