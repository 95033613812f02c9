//! What a plugin says of the health of a volume, and of the storage behind it.
//!
//! **Owns** one meaning for both forms: the conditions of CSI 1.12 and the health of CSI 1.13.
//!
//! **Promises** one line of bounded length, the worst first, with nothing left out that fits: a
//! status of a later CSI is shown by its number.
//!
//! **Never** acts on health: CSI means it for people. Only storage that a node cannot reach counts,
//! where a volume is placed.

use berth_domain::access::{AccessMode, AttachmentMode};
use berth_domain::plugin::StorageTrouble;

use crate::failure::{one_line, shortened};
use crate::v1;
use crate::v1::node_get_storage_health_response::StorageBackendHealth;
use crate::v1::volume_capability::AccessType;
use crate::v1::volume_health::VolumeHealthEntry;

/// The longest description of a volume's health, in bytes.
const WORDS_BYTES_MAX: usize = 256;
/// The most entries of an answer that are read.
const ENTRIES_READ_MAX: usize = 1024;
/// The most troubles of a storage that count.
const TROUBLES_MAX: usize = 16;

/// What is wrong with the volume; `None` if it is well.
pub fn of_condition(condition: Option<v1::VolumeCondition>) -> Option<String> {
    let abnormal = condition.filter(|condition| condition.abnormal)?;
    Some(bounded(&abnormal.message))
}

/// What is wrong with the volume; `None` if it is well.
pub fn of_volume(health: &v1::VolumeHealth) -> Option<String> {
    let mut entries: Vec<_> = health.health_statuses.iter().take(ENTRIES_READ_MAX).collect();
    // Always in one order, whatever that of the answer: the line is compared with the last one.
    entries.sort_by_key(|entry| {
        let known = v1::VolumeHealthErrorType::try_from(entry.status).unwrap_or_default();
        (std::cmp::Reverse(known as i32), entry.status, &entry.reason, &entry.message)
    });
    let words: Vec<_> = entries.into_iter().map(describe_entry).collect();
    (!words.is_empty()).then(|| bounded(&words.join("; ")))
}

fn describe_entry(entry: &VolumeHealthEntry) -> String {
    use v1::VolumeHealthErrorType::{DataLoss, Degraded, Inaccessible, UnknownVolumeHealthType};
    let status = match v1::VolumeHealthErrorType::try_from(entry.status) {
        Ok(DataLoss) => "data loss".to_owned(),
        Ok(Inaccessible) => "inaccessible".to_owned(),
        Ok(Degraded) => "degraded".to_owned(),
        Ok(UnknownVolumeHealthType) => "not well".to_owned(),
        Err(_) => format!("not well (status {})", entry.status),
    };
    describe(&status, &entry.reason, &entry.message)
}

/// The troubles of the storage, seen from the node. A status that is not known counts as one that
/// the storage can be used with.
pub fn of_storage(answer: &v1::NodeGetStorageHealthResponse) -> Vec<StorageTrouble> {
    let listed = answer.backend_health.iter().take(ENTRIES_READ_MAX);
    let mut troubles: Vec<_> = listed.map(describe_backend).collect();
    // What keeps most volumes out comes first, in one order whatever that of the answer.
    troubles.sort_by(|one, other| {
        let key = |it: &StorageTrouble| {
            (!it.unreachable, it.attachment.is_some(), it.fs_type.is_some(), it.access.is_some())
        };
        let kind = |it: &StorageTrouble| (it.attachment, it.access, it.fs_type.clone());
        (key(one), kind(one), &one.said).cmp(&(key(other), kind(other), &other.said))
    });
    troubles.dedup_by(|one, other| one.is_alike(other));
    troubles.truncate(TROUBLES_MAX);
    troubles
}

fn describe_backend(health: &StorageBackendHealth) -> StorageTrouble {
    use v1::StorageHealthErrorType::StorageUnreachable;
    let unreachable = health.status() == StorageUnreachable;
    let status = if unreachable { "it cannot be reached" } else { "it is degraded" };
    let said = bounded(&describe(status, &health.reason, &health.message));
    let affected = health.volume_capability.as_ref();
    let kind = affected.and_then(|affected| affected.access_type.as_ref());
    let attachment = kind.map(|kind| match kind {
        AccessType::Block(_) => AttachmentMode::BlockDevice,
        AccessType::Mount(_) => AttachmentMode::FileSystem,
    });
    let fs_type = match kind {
        Some(AccessType::Mount(mount)) => Some(&mount.fs_type).filter(|it| !it.is_empty()),
        _ => None,
    };
    let mode = affected.and_then(|affected| affected.access_mode.as_ref());
    StorageTrouble {
        unreachable,
        said,
        access: mode.and_then(|mode| access_of(mode.mode())),
        attachment,
        fs_type: fs_type.map(|it| shortened(it, WORDS_BYTES_MAX)),
    }
}

fn access_of(mode: v1::volume_capability::access_mode::Mode) -> Option<AccessMode> {
    use v1::volume_capability::access_mode::Mode;
    Some(match mode {
        Mode::Unknown => return None,
        Mode::SingleNodeWriter => AccessMode::SingleNodeWriter,
        Mode::SingleNodeReaderOnly => AccessMode::SingleNodeReaderOnly,
        Mode::MultiNodeReaderOnly => AccessMode::MultiNodeReaderOnly,
        Mode::MultiNodeSingleWriter => AccessMode::MultiNodeSingleWriter,
        Mode::MultiNodeMultiWriter => AccessMode::MultiNodeMultiWriter,
        Mode::SingleNodeSingleWriter => AccessMode::SingleNodeSingleWriter,
        Mode::SingleNodeMultiWriter => AccessMode::SingleNodeMultiWriter,
    })
}

fn describe(status: &str, reason: &str, message: &str) -> String {
    match (reason.is_empty(), message.is_empty()) {
        (true, true) => status.to_owned(),
        (true, false) => format!("{status}: {message}"),
        (false, true) => format!("{status} ({reason})"),
        (false, false) => format!("{status} ({reason}): {message}"),
    }
}

fn bounded(words: &str) -> String {
    shortened(&one_line(words), WORDS_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_and_what_is_not_known_is_shown() {
        let entry = |status, reason: &str, message: &str| VolumeHealthEntry {
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        let said = |health_statuses| {
            of_volume(&v1::VolumeHealth { health_statuses, ..Default::default() })
        };
        assert_eq!(said(vec![]), None);
        let all = vec![
            entry(1, "Rebuild", "two of three\nreplicas"),
            entry(9, "MultipathLoss", ""),
            entry(3, "", "block 7"),
            entry(0, "", ""),
        ];
        let line = "data loss: block 7; degraded (Rebuild): two of three replicas; not well; not \
                    well (status 9) (MultipathLoss)";
        assert_eq!(said(all).as_deref(), Some(line));
        let long = said(vec![entry(2, "R", &"x".repeat(10_000))]).unwrap();
        assert!(long.len() <= WORDS_BYTES_MAX && long.starts_with("inaccessible (R): xxx"));
    }

    #[test]
    fn a_condition_counts_while_it_is_abnormal() {
        let said = |abnormal| {
            of_condition(Some(v1::VolumeCondition { abnormal, message: "a disk fails".to_owned() }))
        };
        assert_eq!((of_condition(None), said(false)), (None, None));
        assert_eq!(said(true).as_deref(), Some("a disk fails"));
    }

    #[test]
    fn a_storage_is_out_of_reach_for_what_the_plugin_names() {
        use v1::volume_capability as wire;
        let block = v1::VolumeCapability {
            access_type: Some(AccessType::Block(wire::BlockVolume {})),
            access_mode: Some(wire::AccessMode { mode: 5 }),
        };
        let files = v1::VolumeCapability {
            access_type: Some(AccessType::Mount(wire::MountVolume {
                fs_type: "nfs".to_owned(),
                ..wire::MountVolume::default()
            })),
            access_mode: None,
        };
        let backend = |status, volume_capability| StorageBackendHealth {
            status,
            reason: "Path".to_owned(),
            message: String::new(),
            volume_capability,
        };
        let answer = v1::NodeGetStorageHealthResponse {
            backend_health: vec![
                backend(1, None),
                backend(7, None),
                backend(2, Some(block)),
                backend(2, Some(files)),
            ],
        };
        let found = of_storage(&answer);
        let reach: Vec<_> = found.iter().map(|one| one.unreachable).collect();
        assert_eq!(reach, [true, true, false], "what says the same is told once: {found:?}");
        let [block, files, slow] = &found[..] else { panic!("{found:?}") };
        assert_eq!(block.attachment, Some(AttachmentMode::BlockDevice));
        assert_eq!(block.access, Some(AccessMode::MultiNodeMultiWriter));
        assert_eq!(files.attachment, Some(AttachmentMode::FileSystem));
        assert_eq!((files.access, files.fs_type.as_deref()), (None, Some("nfs")));
        assert_eq!(slow.said, "it is degraded (Path)");
    }
}
