//! Replaces fields of answers.
//!
//! Owns: which fields can be replaced, and where they are in each answer. Promises: a field that
//! the answer does not have changes nothing. Never: changes an error.

use std::any::Any;
use std::collections::BTreeMap;

use berth_csi::v1;
use berth_csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use serde::{Deserialize, Serialize};

/// The fields to put into an answer, by CSI's names: into its volume, or into each of its
/// snapshots.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnswerFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<i64>,
    /// The snapshot in `content_source`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_snapshot: Option<String>,
    /// The volume in `content_source`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_volume: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_volume_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_snapshot_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_context: Option<BTreeMap<String, String>>,
}

impl AnswerFields {
    /// Puts the fields into the answer. False if nothing changed.
    pub(crate) fn put_into(&self, answer: &mut dyn Any) -> bool {
        if let Some(created) = answer.downcast_mut::<v1::CreateVolumeResponse>() {
            return created.volume.as_mut().is_some_and(|volume| self.put_into_volume(volume));
        }
        if let Some(reply) = answer.downcast_mut::<v1::ControllerGetVolumeResponse>() {
            return reply.volume.as_mut().is_some_and(|volume| self.put_into_volume(volume));
        }
        if let Some(grown) = answer.downcast_mut::<v1::ControllerExpandVolumeResponse>() {
            return put(&mut grown.capacity_bytes, self.capacity_bytes.as_ref());
        }
        if let Some(node) = answer.downcast_mut::<v1::NodeGetInfoResponse>() {
            return put(&mut node.node_id, self.node_id.as_ref());
        }
        if let Some(attached) = answer.downcast_mut::<v1::ControllerPublishVolumeResponse>() {
            return put(&mut attached.publish_context, self.publish_context.as_ref());
        }
        if let Some(cut) = answer.downcast_mut::<v1::CreateSnapshotResponse>() {
            return cut.snapshot.as_mut().is_some_and(|cut| self.put_into_snapshot(cut));
        }
        if let Some(reply) = answer.downcast_mut::<v1::GetSnapshotResponse>() {
            return reply
                .snapshot
                .as_mut()
                .is_some_and(|snapshot| self.put_into_snapshot(snapshot));
        }
        if let Some(listed) = answer.downcast_mut::<v1::ListSnapshotsResponse>() {
            let each = listed.entries.iter_mut().filter_map(|entry| entry.snapshot.as_mut());
            return each.map(|listed| self.put_into_snapshot(listed)).max().unwrap_or_default();
        }
        if let Some(cut) = answer.downcast_mut::<v1::CreateVolumeGroupSnapshotResponse>() {
            return cut.group_snapshot.as_mut().is_some_and(|group| self.put_into_group(group));
        }
        if let Some(reply) = answer.downcast_mut::<v1::GetVolumeGroupSnapshotResponse>() {
            return reply.group_snapshot.as_mut().is_some_and(|group| self.put_into_group(group));
        }
        false
    }

    fn put_into_volume(&self, volume: &mut v1::Volume) -> bool {
        let mut changed = put(&mut volume.volume_id, self.volume_id.as_ref());
        changed |= put(&mut volume.capacity_bytes, self.capacity_bytes.as_ref());
        let source = match (&self.source_snapshot, &self.source_volume) {
            (Some(id), _) => Some(Type::Snapshot(SnapshotSource { snapshot_id: id.clone() })),
            (None, Some(id)) => Some(Type::Volume(VolumeSource { volume_id: id.clone() })),
            (None, None) => None,
        };
        let source = source.map(|kind| Some(v1::VolumeContentSource { r#type: Some(kind) }));
        changed | put(&mut volume.content_source, source.as_ref())
    }

    fn put_into_snapshot(&self, snapshot: &mut v1::Snapshot) -> bool {
        let mut changed = put(&mut snapshot.snapshot_id, self.snapshot_id.as_ref());
        changed |= put(&mut snapshot.source_volume_id, self.source_volume_id.as_ref());
        changed |= put(&mut snapshot.size_bytes, self.size_bytes.as_ref());
        changed | put(&mut snapshot.ready_to_use, self.ready_to_use.as_ref())
    }

    fn put_into_group(&self, group: &mut v1::VolumeGroupSnapshot) -> bool {
        let own = put(&mut group.group_snapshot_id, self.group_snapshot_id.as_ref());
        let each = group.snapshots.iter_mut().map(|snapshot| self.put_into_snapshot(snapshot));
        each.max().unwrap_or_default() || own
    }
}

fn put<T: Clone + PartialEq>(field: &mut T, value: Option<&T>) -> bool {
    let Some(value) = value.filter(|value| *value != field) else { return false };
    field.clone_from(value);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_an_answer_are_replaced_and_others_stay() {
        let fields: AnswerFields =
            serde_json::from_str(r#"{"source_volume_id": "w", "node_id": "n"}"#).unwrap();
        let snapshot = v1::Snapshot {
            snapshot_id: "s".into(),
            source_volume_id: "v".into(),
            ..v1::Snapshot::default()
        };
        let mut cut = v1::CreateSnapshotResponse { snapshot: Some(snapshot) };
        assert!(fields.put_into(&mut cut));
        assert!(!fields.put_into(&mut cut), "it says so already");
        let snapshot = cut.snapshot.unwrap();
        assert_eq!((snapshot.snapshot_id.as_str(), snapshot.source_volume_id.as_str()), ("s", "w"));
        let mut probe = v1::ProbeResponse { ready: Some(true) };
        assert!(!fields.put_into(&mut probe));
        assert!(serde_json::from_str::<AnswerFields>(r#"{"volume": "w"}"#).is_err());
    }
}
