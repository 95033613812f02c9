//! Access of a volume as a CSI `VolumeCapability`.
//!
//! **Owns** the translation of access mode, attachment mode and mount options into CSI's
//! `VolumeCapability`.
//!
//! **Promises** a capability that every plugin understands: the two modes that CSI added later are
//! sent only to plugins that advertise them.
//!
//! **Never** decides who may share a volume: that is `berth_domain::access`.

use berth_domain::access::{AccessMode, AttachmentMode, Capability};
use berth_domain::volume::MountOptions;

use crate::v1::VolumeCapability;
use crate::v1::volume_capability::access_mode::Mode;
use crate::v1::volume_capability::{self, AccessType, BlockVolume, MountVolume};

/// The capability in a request to a plugin.
///
/// `single_node_multi_writer`: whether the called service advertises that capability. Without it
/// the request has `SINGLE_NODE_WRITER` instead of the two later modes. To such a plugin that means
/// one node with any number of writers, and Berth enforces the rest.
///
/// Mount options go to file systems only; a block device has none.
pub fn volume_capability(
    capability: Capability,
    mount: &MountOptions,
    single_node_multi_writer: bool,
) -> VolumeCapability {
    let access_type = match capability.attachment {
        AttachmentMode::BlockDevice => AccessType::Block(BlockVolume {}),
        AttachmentMode::FileSystem => AccessType::Mount(MountVolume {
            fs_type: mount.fs_type.clone().unwrap_or_default(),
            mount_flags: mount.flags.clone(),
            volume_mount_group: mount.group.clone().unwrap_or_default(),
        }),
    };
    let mode = mode_of(capability.access, single_node_multi_writer);
    VolumeCapability {
        access_type: Some(access_type),
        access_mode: Some(volume_capability::AccessMode { mode: mode.into() }),
    }
}

const fn mode_of(access: AccessMode, single_node_multi_writer: bool) -> Mode {
    match access {
        AccessMode::SingleNodeReaderOnly => Mode::SingleNodeReaderOnly,
        AccessMode::SingleNodeWriter => Mode::SingleNodeWriter,
        AccessMode::MultiNodeReaderOnly => Mode::MultiNodeReaderOnly,
        AccessMode::MultiNodeSingleWriter => Mode::MultiNodeSingleWriter,
        AccessMode::MultiNodeMultiWriter => Mode::MultiNodeMultiWriter,
        AccessMode::SingleNodeSingleWriter if single_node_multi_writer => {
            Mode::SingleNodeSingleWriter
        }
        AccessMode::SingleNodeMultiWriter if single_node_multi_writer => {
            Mode::SingleNodeMultiWriter
        }
        AccessMode::SingleNodeSingleWriter | AccessMode::SingleNodeMultiWriter => {
            Mode::SingleNodeWriter
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(access: AccessMode, single_node_multi_writer: bool) -> Mode {
        let capability = Capability { access, attachment: AttachmentMode::BlockDevice };
        volume_capability(capability, &MountOptions::default(), single_node_multi_writer)
            .access_mode
            .unwrap()
            .mode()
    }

    #[test]
    fn each_access_mode_has_its_own_on_the_wire() {
        use AccessMode as A;
        let table = [
            (A::SingleNodeWriter, 1),
            (A::SingleNodeReaderOnly, 2),
            (A::MultiNodeReaderOnly, 3),
            (A::MultiNodeSingleWriter, 4),
            (A::MultiNodeMultiWriter, 5),
            (A::SingleNodeSingleWriter, 6),
            (A::SingleNodeMultiWriter, 7),
        ];
        for (access, number) in table {
            assert_eq!(mode(access, true) as i32, number, "{access:?}");
        }
    }

    #[test]
    fn a_plugin_that_does_not_know_the_later_modes_is_asked_for_single_node_writer() {
        for access in [AccessMode::SingleNodeSingleWriter, AccessMode::SingleNodeMultiWriter] {
            assert_eq!(mode(access, false), Mode::SingleNodeWriter);
        }
        assert_eq!(mode(AccessMode::MultiNodeMultiWriter, false), Mode::MultiNodeMultiWriter);
    }

    #[test]
    fn mount_options_go_to_file_systems_only() {
        let mount = MountOptions {
            fs_type: Some("xfs".into()),
            flags: vec!["noatime".into()],
            group: Some("4711".into()),
        };
        let ask = |attachment| {
            let access = AccessMode::SingleNodeWriter;
            volume_capability(Capability { access, attachment }, &mount, false).access_type
        };
        assert_eq!(ask(AttachmentMode::BlockDevice), Some(AccessType::Block(BlockVolume {})));
        let expected = MountVolume {
            fs_type: "xfs".into(),
            mount_flags: vec!["noatime".into()],
            volume_mount_group: "4711".into(),
        };
        assert_eq!(ask(AttachmentMode::FileSystem), Some(AccessType::Mount(expected)));
    }
}
