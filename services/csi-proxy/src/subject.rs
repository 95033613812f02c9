//! The objects that a call is about.
//!
//! Owns: the ids and names by which a fault selects a call, and the volumes that the call locks.
//! Promises: reads whole lists, while the log has only their first entries. Never: checks whether a
//! volume exists.

use berth_csi::Rpc;
use berth_csi::rpc::Unary;
use serde_json::Value;

/// The objects that a call is about.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct CallSubject {
    /// The ids of volumes that the call acts on, sorted, each once.
    pub volumes: Vec<String>,
    /// If the call acts on no volume with an id: the name of what it makes, or the id of the
    /// snapshot or group.
    name: Option<String>,
}

impl CallSubject {
    pub fn from_request<R: Unary>(request: &R) -> Self {
        // Serializing a CSI message cannot fail.
        let args = serde_json::to_value(request).unwrap_or_default();
        let text = |name: &str| args.get(name).and_then(Value::as_str).filter(|id| !id.is_empty());
        let list = |name: &str| args.get(name).and_then(Value::as_array).cloned();
        let mut volumes: Vec<String> = match R::RPC {
            // The volume of a list request is only a filter.
            Rpc::CreateSnapshot => {
                text("source_volume_id").map(str::to_owned).into_iter().collect()
            }
            Rpc::CreateVolumeGroupSnapshot => {
                let ids = list("source_volume_ids").unwrap_or_default();
                ids.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            _ => text("volume_id").map(str::to_owned).into_iter().collect(),
        };
        volumes.sort();
        volumes.dedup();
        let name = match R::RPC {
            Rpc::CreateVolume => text("name"),
            Rpc::DeleteSnapshot | Rpc::GetSnapshot => text("snapshot_id"),
            Rpc::DeleteVolumeGroupSnapshot | Rpc::GetVolumeGroupSnapshot => {
                text("group_snapshot_id")
            }
            _ => None,
        };
        Self { volumes, name: name.map(str::to_owned) }
    }

    /// Every id and name by which a fault may select the call.
    pub fn names(&self) -> Vec<&str> {
        self.volumes.iter().chain(&self.name).map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use berth_csi::v1;

    use super::*;

    #[test]
    fn each_call_is_about_what_it_makes_changes_or_copies() {
        fn names<R: Unary>(request: &R) -> Vec<String> {
            let subject = CallSubject::from_request(request);
            subject.names().into_iter().map(str::to_owned).collect()
        }
        let create = v1::CreateVolumeRequest { name: "data".into(), ..Default::default() };
        assert_eq!(names(&create), ["data"]);
        let expand = v1::ControllerExpandVolumeRequest {
            volume_id: "vol-data".into(),
            ..Default::default()
        };
        assert_eq!(names(&expand), ["vol-data"]);
        let cut = v1::CreateSnapshotRequest {
            source_volume_id: "vol-data".into(),
            name: "s".into(),
            ..Default::default()
        };
        assert_eq!(names(&cut), ["vol-data"]);
        let source_volume_ids = ["b", "a", "b"].map(str::to_owned).to_vec();
        let group = v1::CreateVolumeGroupSnapshotRequest {
            name: "g".into(),
            source_volume_ids,
            ..Default::default()
        };
        assert_eq!(names(&group), ["a", "b"]);
        let snapshot_id = "snap-s".to_owned();
        let gone = v1::DeleteSnapshotRequest { snapshot_id, ..Default::default() };
        assert_eq!(names(&gone), ["snap-s"]);
        let list = v1::ListSnapshotsRequest { source_volume_id: "v".into(), ..Default::default() };
        assert_eq!(names(&list), [""; 0]);
    }
}
