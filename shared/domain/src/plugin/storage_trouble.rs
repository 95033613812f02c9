//! What a node's plugin says of the storage behind it (`NodeGetStorageHealth`).

use serde::{Deserialize, Serialize};

use crate::access::{AccessMode, AttachmentMode, Capability, CapabilityFilter};

/// The storage is not well, seen from a node: all of it, or for one kind of use. A part of the kind
/// that is not named may be any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageTrouble {
    /// Whether the node cannot reach the storage. Otherwise volumes can be used there, more slowly
    /// or over fewer paths.
    pub unreachable: bool,
    /// What the plugin says, in its words.
    pub said: String,
    /// Only volumes that are shared so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessMode>,
    /// Only file systems, or only block devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<AttachmentMode>,
    /// Only file systems of this type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
}

impl StorageTrouble {
    /// Whether both keep the same volumes out, whatever the plugin says of them.
    pub fn is_alike(&self, other: &Self) -> bool {
        let kind = |it: &Self| (it.unreachable, it.access, it.attachment, it.fs_type.clone());
        kind(self) == kind(other)
    }

    /// Whether it keeps a volume from the node in this use.
    fn keeps_out(&self, used: Capability, fs_type: Option<&str>) -> bool {
        let affected = CapabilityFilter { access: self.access, attachment: self.attachment };
        self.unreachable
            && self.fs_type.as_deref().is_none_or(|affected| fs_type == Some(affected))
            && affected.covers(used)
    }
}

/// Whether two answers of a plugin keep the same volumes out.
pub fn are_alike(ones: &[StorageTrouble], others: &[StorageTrouble]) -> bool {
    ones.len() == others.len() && ones.iter().zip(others).all(|(one, other)| one.is_alike(other))
}

/// The trouble that keeps a volume from the node, if each of these uses has one. The node's plugin
/// may name each kind of use in a trouble of its own.
pub fn keeping_out<'a>(
    troubles: &'a [StorageTrouble],
    offered: &[Capability],
    fs_type: Option<&str>,
) -> Option<&'a StorageTrouble> {
    let of = |one: &Capability| troubles.iter().find(|it| it.keeps_out(*one, fs_type));
    let found: Option<Vec<_>> = offered.iter().map(of).collect();
    found?.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use AccessMode::{MultiNodeMultiWriter as Shared, SingleNodeWriter as Single};
    use AttachmentMode::{BlockDevice, FileSystem};

    type Row<'a> = (&'a [StorageTrouble], &'a [Capability], Option<&'a str>, bool);

    #[test]
    fn only_what_is_affected_in_each_use_is_kept_out() {
        let block = Capability { access: Single, attachment: BlockDevice };
        let files = Capability { access: Shared, attachment: FileSystem };
        let all = StorageTrouble {
            unreachable: true,
            said: "no path".to_owned(),
            access: None,
            attachment: None,
            fs_type: None,
        };
        let slow = StorageTrouble { unreachable: false, ..all.clone() };
        let of_blocks = StorageTrouble { attachment: Some(BlockDevice), ..all.clone() };
        let of_shared = StorageTrouble { access: Some(Shared), ..all.clone() };
        let of_nfs = StorageTrouble {
            attachment: Some(FileSystem),
            fs_type: Some("nfs".to_owned()),
            ..all.clone()
        };
        let each =
            [of_blocks.clone(), StorageTrouble { attachment: Some(FileSystem), ..all.clone() }];
        let one = std::slice::from_ref;
        let table: [Row<'_>; 13] = [
            (one(&all), &[block, files], None, true),
            (one(&slow), &[block], None, false),
            (one(&of_blocks), &[block], None, true),
            (one(&of_blocks), &[files], None, false),
            (one(&of_blocks), &[block, files], None, false),
            (&each, &[block, files], None, true),
            (&each, &[], None, false),
            (one(&of_shared), &[files], Some("nfs"), true),
            (one(&of_shared), &[block], None, false),
            (one(&of_nfs), &[files], Some("nfs"), true),
            (one(&of_nfs), &[files], Some("ext4"), false),
            (one(&of_nfs), &[files], None, false),
            (one(&of_nfs), &[block], Some("nfs"), false),
        ];
        for (troubles, offered, fs_type, kept_out) in table {
            let found = keeping_out(troubles, offered, fs_type).is_some();
            assert_eq!(found, kept_out, "{troubles:?} {offered:?} {fs_type:?}");
        }
    }
}
