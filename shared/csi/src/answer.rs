//! Checks that an answer belongs to its request.
//!
//! **Owns** each check of a plugin's answer against its request: whose ids it has, what it says a
//! copy is a copy of, and the bounds of CSI.
//!
//! **Promises** a check for each call with one answer: a call without a check does not compile
//! ([`Answers`]). [`Client::call`](crate::Client::call) makes it, so no caller can leave it out.
//! Everything that CSI allows passes: a larger size, another topology, a missing field.
//!
//! **Never** turns the answer of a call that has created something into an error, if it names what
//! was created: its id would be lost. Such an answer is accepted, and its fault is recorded
//! ([`created_volume_fault`], [`group_fault`]; a snapshot's source is compared in the domain).
//! **Never** reads other records: the domain and the claim service compare ids and sizes with
//! those.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::limits::{
    GROUP_MAX, LIST_MAX, MAP_BYTES_MAX, MAP_ENTRIES_MAX, PUBLISH_CONTEXT_BYTES_MAX, TEXT_BYTES_MAX,
};
use thiserror::Error;

use crate::v1;
use crate::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};

/// The longest text of a plugin that a fault quotes, in characters.
const QUOTED_CHARS_MAX: usize = 256;

/// Most snapshots of a group that are accepted. Even of a wrong group, the ids of all must be
/// stored.
const GROUP_ANSWERED_MAX: usize = 2 * GROUP_MAX;

/// The contradiction in an answer. Its text follows "it", and names the plugin's part.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AnswerFault {
    /// The answer is about something else.
    #[error("answered with {what} {answered:?}, and was asked for {asked:?}")]
    OtherId {
        /// What kind of thing.
        what: &'static str,
        /// The id in the request.
        asked: String,
        /// The id in the answer.
        answered: String,
    },
    /// A new volume has the content of something else.
    #[error("says that the volume is {answered}, and {asked} was requested")]
    OtherContent {
        /// What was requested.
        asked: String,
        /// What the plugin says.
        answered: String,
    },
    /// A group is of other volumes, or has not one snapshot of each.
    #[error(
        "answered with a group of snapshots of {answered:?}, and one of {asked:?} was requested"
    )]
    OtherMembers {
        /// The plugin's ids of the requested volumes.
        asked: Vec<String>,
        /// The volumes of the snapshots in the answer.
        answered: Vec<String>,
    },
    /// A group has other snapshots than were cut, or one snapshot twice.
    #[error("answered with other snapshots than those of the group that was cut: {answered:?}")]
    OtherSnapshots {
        /// The snapshots in the answer.
        answered: Vec<String>,
    },
    /// A group does not say whose snapshots it has.
    #[error("answered with a snapshot of the group, and does not say of which volume it is")]
    NoSource,
    /// A group has more snapshots than a record takes.
    #[error("answered with a group of {count} snapshots; at most {GROUP_ANSWERED_MAX} are taken")]
    ManySnapshots {
        /// How many there are.
        count: usize,
    },
    /// A field is larger than a record takes.
    #[error("answered with {what} of {bytes} bytes; at most {max} are taken")]
    TooLarge {
        /// The field, with an article.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// A list is longer than a record takes.
    #[error(
        "answered with {count} topologies; at most {LIST_MAX} of {MAP_BYTES_MAX} bytes are taken"
    )]
    ManyTopologies {
        /// How many there are.
        count: usize,
    },
}

/// A request that this kind of answer answers.
pub trait Answers<A> {
    /// What in the answer contradicts the request, so that nothing can be taken from it. None if
    /// the answer is one to the request.
    fn contradiction(&self, _answer: &A) -> Option<AnswerFault> {
        None
    }
}

impl Answers<v1::ControllerPublishVolumeResponse> for v1::ControllerPublishVolumeRequest {
    /// The context is recorded, and passed to every mount.
    fn contradiction(&self, answer: &v1::ControllerPublishVolumeResponse) -> Option<AnswerFault> {
        let bytes = map_bytes(&answer.publish_context);
        too_large("a publish_context", bytes, PUBLISH_CONTEXT_BYTES_MAX)
    }
}

impl Answers<v1::ControllerGetVolumeResponse> for v1::ControllerGetVolumeRequest {
    fn contradiction(&self, answer: &v1::ControllerGetVolumeResponse) -> Option<AnswerFault> {
        let answered = answer.volume.as_ref().map(|volume| volume.volume_id.as_str());
        other_id("volume", &self.volume_id, answered.unwrap_or_default())
    }
}

impl Answers<v1::ControllerGetVolumeHealthResponse> for v1::ControllerGetVolumeHealthRequest {
    fn contradiction(&self, answer: &v1::ControllerGetVolumeHealthResponse) -> Option<AnswerFault> {
        other_health(&self.volume_id, answer.volume_health.as_ref())
    }
}

impl Answers<v1::NodeGetVolumeHealthResponse> for v1::NodeGetVolumeHealthRequest {
    fn contradiction(&self, answer: &v1::NodeGetVolumeHealthResponse) -> Option<AnswerFault> {
        other_health(&self.volume_id, answer.volume_health.as_ref())
    }
}

impl Answers<v1::CreateSnapshotResponse> for v1::CreateSnapshotRequest {
    /// A snapshot whose ids cannot be stored cannot be deleted either, so it is not accepted.
    fn contradiction(&self, answer: &v1::CreateSnapshotResponse) -> Option<AnswerFault> {
        answer.snapshot.as_ref().and_then(large_ids)
    }
}

impl Answers<v1::GetSnapshotResponse> for v1::GetSnapshotRequest {
    fn contradiction(&self, answer: &v1::GetSnapshotResponse) -> Option<AnswerFault> {
        let answered = answer.snapshot.as_ref().map(|snapshot| snapshot.snapshot_id.as_str());
        let contradiction = other_id("snapshot", &self.snapshot_id, answered.unwrap_or_default());
        contradiction.or_else(|| answer.snapshot.as_ref().and_then(large_ids))
    }
}

impl Answers<v1::ListSnapshotsResponse> for v1::ListSnapshotsRequest {
    /// A plugin may ignore the filter, so snapshots that were not requested pass.
    fn contradiction(&self, answer: &v1::ListSnapshotsResponse) -> Option<AnswerFault> {
        let listed = answer.entries.iter().filter_map(|entry| entry.snapshot.as_ref());
        let mut asked = listed
            .filter(|found| !self.snapshot_id.is_empty() && found.snapshot_id == self.snapshot_id);
        asked.find_map(large_ids)
    }
}

impl Answers<v1::CreateVolumeGroupSnapshotResponse> for v1::CreateVolumeGroupSnapshotRequest {
    /// A group whose ids cannot be stored cannot be deleted either, so it is not accepted.
    fn contradiction(&self, answer: &v1::CreateVolumeGroupSnapshotResponse) -> Option<AnswerFault> {
        answer.group_snapshot.as_ref().and_then(large_group)
    }
}

impl Answers<v1::GetVolumeGroupSnapshotResponse> for v1::GetVolumeGroupSnapshotRequest {
    /// The group was complete when it was cut, so an incomplete answer is an error. An answer with
    /// another source is accepted (see [`group_fault`]).
    fn contradiction(&self, answer: &v1::GetVolumeGroupSnapshotResponse) -> Option<AnswerFault> {
        let no_group = v1::VolumeGroupSnapshot::default();
        let group = answer.group_snapshot.as_ref().unwrap_or(&no_group);
        let (asked, answered) = (&self.group_snapshot_id, &group.group_snapshot_id);
        if let Some(contradiction) = other_id("group of snapshots", asked, answered) {
            return Some(contradiction);
        }
        let mut answered: Vec<&str> =
            group.snapshots.iter().map(|snapshot| snapshot.snapshot_id.as_str()).collect();
        let mut cut: Vec<&str> = self.snapshot_ids.iter().map(String::as_str).collect();
        answered.sort_unstable();
        cut.sort_unstable();
        if answered != cut {
            return Some(other_snapshots(group));
        }
        let says_nothing =
            group.snapshots.iter().any(|snapshot| snapshot.source_volume_id.is_empty());
        says_nothing.then_some(AnswerFault::NoSource).or_else(|| large_group(group))
    }
}

/// Calls whose answer names nothing of the request. The other contents are judged by their users:
/// capabilities, sizes, health, lists.
macro_rules! names_nothing_of_the_request {
    ($($request:ident -> $response:ident;)*) => {
        $(impl Answers<v1::$response> for v1::$request {})*
    };
}

names_nothing_of_the_request! {
    GetPluginInfoRequest -> GetPluginInfoResponse;
    GetPluginCapabilitiesRequest -> GetPluginCapabilitiesResponse;
    ProbeRequest -> ProbeResponse;
    CreateVolumeRequest -> CreateVolumeResponse;
    DeleteVolumeRequest -> DeleteVolumeResponse;
    ControllerUnpublishVolumeRequest -> ControllerUnpublishVolumeResponse;
    ValidateVolumeCapabilitiesRequest -> ValidateVolumeCapabilitiesResponse;
    ListVolumesRequest -> ListVolumesResponse;
    ControllerListVolumeHealthRequest -> ControllerListVolumeHealthResponse;
    GetCapacityRequest -> GetCapacityResponse;
    ControllerGetCapabilitiesRequest -> ControllerGetCapabilitiesResponse;
    DeleteSnapshotRequest -> DeleteSnapshotResponse;
    ControllerExpandVolumeRequest -> ControllerExpandVolumeResponse;
    ControllerModifyVolumeRequest -> ControllerModifyVolumeResponse;
    GroupControllerGetCapabilitiesRequest -> GroupControllerGetCapabilitiesResponse;
    DeleteVolumeGroupSnapshotRequest -> DeleteVolumeGroupSnapshotResponse;
    NodeStageVolumeRequest -> NodeStageVolumeResponse;
    NodeUnstageVolumeRequest -> NodeUnstageVolumeResponse;
    NodePublishVolumeRequest -> NodePublishVolumeResponse;
    NodeUnpublishVolumeRequest -> NodeUnpublishVolumeResponse;
    NodeGetVolumeStatsRequest -> NodeGetVolumeStatsResponse;
    NodeGetStorageHealthRequest -> NodeGetStorageHealthResponse;
    NodeExpandVolumeRequest -> NodeExpandVolumeResponse;
    NodeGetCapabilitiesRequest -> NodeGetCapabilitiesResponse;
    NodeGetInfoRequest -> NodeGetInfoResponse;
}

/// Why a volume that `CreateVolume` made can only be deleted: its content is not the requested one,
/// or its answer cannot be stored.
pub fn created_volume_fault(
    asked: &v1::CreateVolumeRequest,
    made: &v1::Volume,
) -> Option<AnswerFault> {
    if let Some(fault) = too_large("an id", made.volume_id.len(), TEXT_BYTES_MAX) {
        return Some(fault);
    }
    let wanted = content(asked.volume_content_source.as_ref());
    let answered = content(made.content_source.as_ref());
    // A plugin that leaves the source out does not claim that the content differs.
    if let Some(answered) = answered.filter(|answered| Some(*answered) != wanted) {
        return Some(AnswerFault::OtherContent {
            asked: wanted.map_or_else(|| "an empty one".to_owned(), describe_content),
            answered: describe_content(answered),
        });
    }
    if !is_map_storable(&made.volume_context) {
        let bytes = map_bytes(&made.volume_context);
        return Some(AnswerFault::TooLarge { what: "a volume_context", bytes, max: MAP_BYTES_MAX });
    }
    let count = made.accessible_topology.len();
    let fits = made.accessible_topology.iter().all(|topology| is_map_storable(&topology.segments));
    (count > LIST_MAX || !fits).then_some(AnswerFault::ManyTopologies { count })
}

/// Why a group of snapshots can only be deleted: it is not one snapshot of each volume. Also used
/// for a group that was read by its id, which does not name its volumes.
pub fn group_fault(group: &v1::VolumeGroupSnapshot, asked: &[String]) -> Option<AnswerFault> {
    let sorted = |mut ids: Vec<String>| {
        ids.sort_unstable();
        ids
    };
    let of = |snapshot: &v1::Snapshot| snapshot.source_volume_id.clone();
    let answered = sorted(group.snapshots.iter().map(of).collect());
    let asked = sorted(asked.to_vec());
    if answered != asked {
        let answered = answered.iter().map(|id| quoted(id)).collect();
        return Some(AnswerFault::OtherMembers { asked, answered });
    }
    twice(group)
}

/// One snapshot for two volumes, because deleting one would delete the other; or a snapshot without
/// an id, which could not be restored.
fn twice(group: &v1::VolumeGroupSnapshot) -> Option<AnswerFault> {
    let ids = group.snapshots.iter().map(|snapshot| snapshot.snapshot_id.as_str());
    let ids: BTreeSet<&str> = ids.filter(|id| !id.is_empty()).collect();
    (ids.len() < group.snapshots.len()).then(|| other_snapshots(group))
}

fn other_snapshots(group: &v1::VolumeGroupSnapshot) -> AnswerFault {
    let id = |snapshot: &v1::Snapshot| quoted(&snapshot.snapshot_id);
    AnswerFault::OtherSnapshots { answered: group.snapshots.iter().map(id).collect() }
}

fn other_id(what: &'static str, asked: &str, answered: &str) -> Option<AnswerFault> {
    let fault =
        || AnswerFault::OtherId { what, asked: asked.to_owned(), answered: quoted(answered) };
    (asked != answered).then(fault)
}

fn other_health(asked: &str, answered: Option<&v1::VolumeHealth>) -> Option<AnswerFault> {
    let answered = answered.map(|health| health.volume_id.as_str());
    other_id("volume", asked, answered.unwrap_or_default())
}

fn large_ids(made: &v1::Snapshot) -> Option<AnswerFault> {
    let bytes = made.snapshot_id.len().max(made.source_volume_id.len());
    too_large("a snapshot that has an id", bytes, TEXT_BYTES_MAX)
}

fn large_group(group: &v1::VolumeGroupSnapshot) -> Option<AnswerFault> {
    let count = group.snapshots.len();
    if count > GROUP_ANSWERED_MAX {
        return Some(AnswerFault::ManySnapshots { count });
    }
    let of_group = too_large("an id", group.group_snapshot_id.len(), TEXT_BYTES_MAX);
    of_group.or_else(|| group.snapshots.iter().find_map(large_ids))
}

fn too_large(what: &'static str, bytes: usize, max: usize) -> Option<AnswerFault> {
    (bytes > max).then_some(AnswerFault::TooLarge { what, bytes, max })
}

/// A source without an id says nothing.
fn content(source: Option<&v1::VolumeContentSource>) -> Option<&Type> {
    source?.r#type.as_ref().filter(|kind| match kind {
        Type::Snapshot(SnapshotSource { snapshot_id }) => !snapshot_id.is_empty(),
        Type::Volume(VolumeSource { volume_id }) => !volume_id.is_empty(),
    })
}

fn describe_content(source: &Type) -> String {
    match source {
        Type::Snapshot(SnapshotSource { snapshot_id }) => {
            format!("a copy of snapshot {:?}", quoted(snapshot_id))
        }
        Type::Volume(VolumeSource { volume_id }) => {
            format!("a copy of volume {:?}", quoted(volume_id))
        }
    }
}

fn quoted(id: &str) -> String {
    id.chars().take(QUOTED_CHARS_MAX).collect()
}

/// Whether a record takes the map.
pub fn is_map_storable(map: &BTreeMap<String, String>) -> bool {
    map.len() <= MAP_ENTRIES_MAX && map_bytes(map) <= MAP_BYTES_MAX
}

fn map_bytes(map: &BTreeMap<String, String>) -> usize {
    map.iter().map(|(key, value)| key.len() + value.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(id: &str, source: &str) -> v1::Snapshot {
        v1::Snapshot {
            snapshot_id: id.to_owned(),
            source_volume_id: source.to_owned(),
            ..v1::Snapshot::default()
        }
    }

    fn group(id: &str, snapshots: &[(&str, &str)]) -> v1::VolumeGroupSnapshot {
        v1::VolumeGroupSnapshot {
            group_snapshot_id: id.to_owned(),
            snapshots: snapshots.iter().map(|(id, of)| snapshot(id, of)).collect(),
            ..v1::VolumeGroupSnapshot::default()
        }
    }

    #[test]
    fn an_answer_is_about_what_was_asked_for() {
        let asked = v1::ControllerGetVolumeRequest { volume_id: "v".to_owned() };
        for (answered, is_it) in [(Some("v"), true), (Some("w"), false), (None, false)] {
            let volume =
                answered.map(|id| v1::Volume { volume_id: id.to_owned(), ..v1::Volume::default() });
            let answer = v1::ControllerGetVolumeResponse { volume, status: None };
            assert_eq!(asked.contradiction(&answer).is_none(), is_it, "{answered:?}");
        }
        let asked = v1::GetSnapshotRequest { snapshot_id: "s".to_owned(), ..Default::default() };
        for (answered, is_it) in [("s", true), ("t", false), ("", false)] {
            let answer = v1::GetSnapshotResponse { snapshot: Some(snapshot(answered, "v")) };
            assert_eq!(asked.contradiction(&answer).is_none(), is_it, "{answered}");
        }
    }

    #[test]
    fn a_group_that_is_not_one_snapshot_of_each_volume_can_only_be_deleted() {
        let asked = v1::CreateVolumeGroupSnapshotRequest {
            source_volume_ids: vec!["a".to_owned(), "b".to_owned()],
            ..Default::default()
        };
        let contradiction = |group| {
            let group_snapshot = Some(group);
            asked.contradiction(&v1::CreateVolumeGroupSnapshotResponse { group_snapshot })
        };
        let answered = |snapshots| {
            assert_eq!(contradiction(group("g", snapshots)), None, "its ids are stored");
            group_fault(&group("g", snapshots), &asked.source_volume_ids)
        };
        assert_eq!(answered(&[("2", "b"), ("1", "a")]), None);
        for wrong in [
            &[("1", "a")][..],
            &[("1", "a"), ("2", "x")],
            &[("1", "a"), ("2", "a")],
            &[("1", "a"), ("2", "b"), ("3", "c")],
            &[("1", "a"), ("1", "b")],
            &[("1", "a"), ("", "b")],
            &[("1", ""), ("2", "")],
            &[],
        ] {
            assert!(answered(wrong).is_some(), "{wrong:?}");
        }
        let long = "i".repeat(TEXT_BYTES_MAX + 1);
        let many = vec![("1", "a"); GROUP_ANSWERED_MAX + 1];
        for beyond in [group(&long, &[]), group("g", &[(&long, "a")]), group("g", &many)] {
            assert!(contradiction(beyond).is_some());
        }
    }

    #[test]
    fn a_group_that_was_cut_is_the_same_one_when_it_is_asked_for() {
        let asked = v1::GetVolumeGroupSnapshotRequest {
            group_snapshot_id: "g".to_owned(),
            snapshot_ids: vec!["1".to_owned(), "2".to_owned()],
            ..Default::default()
        };
        for (id, snapshots, is_same) in [
            ("g", &[("1", "a"), ("2", "b")][..], true),
            ("h", &[("1", "a"), ("2", "b")], false),
            ("g", &[("1", "a"), ("3", "b")], false),
            ("g", &[("1", "a"), ("1", "b")], false),
            ("g", &[("1", "a")], false),
            ("g", &[("1", "a"), ("2", "")], false),
            ("g", &[("2", "a"), ("1", "x")], true),
        ] {
            let answer =
                v1::GetVolumeGroupSnapshotResponse { group_snapshot: Some(group(id, snapshots)) };
            assert_eq!(asked.contradiction(&answer).is_none(), is_same, "{id} {snapshots:?}");
        }
    }

    #[test]
    fn a_volume_of_other_content_can_only_be_deleted() {
        let source = |kind| v1::VolumeContentSource { r#type: Some(kind) };
        let of_snapshot =
            |id: &str| source(Type::Snapshot(SnapshotSource { snapshot_id: id.to_owned() }));
        let of_volume = |id: &str| source(Type::Volume(VolumeSource { volume_id: id.to_owned() }));
        for (asked, answered, is_right) in [
            (None, None, true),
            (Some(of_snapshot("s")), Some(of_snapshot("s")), true),
            (Some(of_snapshot("s")), None, true),
            (Some(of_snapshot("s")), Some(v1::VolumeContentSource::default()), true),
            (Some(of_snapshot("s")), Some(of_snapshot("t")), false),
            (Some(of_snapshot("s")), Some(of_volume("s")), false),
            (Some(of_volume("v")), Some(of_volume("w")), false),
            (None, Some(of_volume("w")), false),
        ] {
            let request = v1::CreateVolumeRequest {
                volume_content_source: asked.clone(),
                ..Default::default()
            };
            let made = v1::Volume { content_source: answered.clone(), ..Default::default() };
            let fault = created_volume_fault(&request, &made);
            assert_eq!(fault.is_none(), is_right, "{asked:?} {answered:?}: {fault:?}");
        }
    }

    #[test]
    fn what_a_record_cannot_hold_is_said() {
        let request = v1::CreateVolumeRequest::default();
        let large = [("k".to_owned(), "x".repeat(MAP_BYTES_MAX))].into();
        let made = v1::Volume { volume_context: large, ..Default::default() };
        let fault = created_volume_fault(&request, &made).unwrap().to_string();
        assert!(fault.starts_with("answered with a volume_context of 4097 bytes"), "{fault}");
        let made = v1::Volume { volume_id: "i".repeat(TEXT_BYTES_MAX + 1), ..Default::default() };
        assert!(created_volume_fault(&request, &made).is_some());

        let asked = v1::ControllerPublishVolumeRequest::default();
        let attached = |bytes: usize| v1::ControllerPublishVolumeResponse {
            publish_context: [("k".to_owned(), "x".repeat(bytes))].into(),
        };
        assert_eq!(asked.contradiction(&attached(PUBLISH_CONTEXT_BYTES_MAX - 1)), None);
        assert!(asked.contradiction(&attached(PUBLISH_CONTEXT_BYTES_MAX)).is_some());
        let long = v1::CreateSnapshotResponse {
            snapshot: Some(snapshot(&"i".repeat(TEXT_BYTES_MAX + 1), "v")),
        };
        assert!(v1::CreateSnapshotRequest::default().contradiction(&long).is_some());
    }
}
