//! Which calls may be with the driver at the same time.
//!
//! Owns: the gate for a driver that has none of its own. Promises: a call is refused with `ABORTED`
//! while another call of the same service is about the same object, as CSI asks of plugins. So a
//! call that a fault delays never comes after the call that undoes it. Never: waits.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_csi::{Code, Rpc, Service};
use serde_json::Value;
use tonic::Status;

use crate::log::{CallBegin, LoggedCall};
use crate::pass::Verdict;

/// Decides whether a call is passed on now. May block.
pub trait Gate: Send + Sync + 'static {
    /// Lets the call in, or refuses it. `volumes` are the ids of all volumes that it acts on.
    fn enter(&self, call: &CallBegin, volumes: &[String]) -> Result<Box<dyn Pass>, Refused>;
}

/// What a call holds until its end is in the log.
pub trait Pass: Any + Send {
    /// The caller of the call left; the call goes on.
    fn caller_gone(&self);
}

/// Why a call is not passed on.
#[derive(Debug)]
pub struct Refused {
    pub status: Status,
    pub verdict: Verdict,
}

/// The gate for a driver that is not known.
#[derive(Clone, Default)]
pub(crate) struct OneAtATime(Arc<Mutex<HashSet<Subject>>>);

/// A service, and an object that a call of it is about.
type Subject = (&'static str, String);

impl OneAtATime {
    fn lock(&self) -> MutexGuard<'_, HashSet<Subject>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate for OneAtATime {
    fn enter(&self, call: &CallBegin, volumes: &[String]) -> Result<Box<dyn Pass>, Refused> {
        let service = match call.call.rpc.service() {
            Service::Node => "node",
            Service::Controller | Service::GroupController => "controller",
            Service::Identity | Service::SnapshotMetadata => return Ok(Box::new(())),
        };
        let names = volumes.iter().map(|id| format!("volume {id}")).chain(named_in(&call.call));
        let wanted: Vec<Subject> = names.map(|name| (service, name)).collect();
        let mut held_subjects = self.lock();
        if let Some((_, busy)) = wanted.iter().find(|subject| held_subjects.contains(*subject)) {
            let message = format!("{busy}: an earlier {service} call is not done; ask again later");
            return Err(Refused::nothing_done(Code::Aborted, message));
        }
        held_subjects.extend(wanted.iter().cloned());
        drop(held_subjects);
        Ok(Box::new(Entered { gate: self.clone(), subjects: wanted }))
    }
}

/// The snapshots and groups that a call changes, and the object that it creates. A volume and a
/// snapshot of one name are different objects.
fn named_in(call: &LoggedCall) -> impl Iterator<Item = String> + '_ {
    let created_kind = match call.rpc {
        Rpc::CreateVolume => Some("new volume"),
        Rpc::CreateSnapshot => Some("new snapshot"),
        Rpc::CreateVolumeGroupSnapshot => Some("new group"),
        _ => None,
    };
    let name = created_kind.and_then(|kind| Some(format!("{kind} {}", call.arg("name")?)));
    let group = call.arg("group_snapshot_id").map(|id| format!("group {id}"));
    let members = call.args.get("snapshot_ids").and_then(Value::as_array).into_iter().flatten();
    let snapshots = call.arg("snapshot_id").into_iter().chain(members.filter_map(Value::as_str));
    let is_read =
        matches!(call.rpc, Rpc::ListSnapshots | Rpc::GetSnapshot | Rpc::GetVolumeGroupSnapshot);
    let group = group.filter(|_| !is_read);
    let snapshots = snapshots.filter(move |_| !is_read).map(|id| format!("snapshot {id}"));
    name.into_iter().chain(group).chain(snapshots)
}

impl Refused {
    /// A refusal before anything was changed.
    pub fn nothing_done(code: Code, message: impl Into<String>) -> Self {
        let status = Status::new(tonic::Code::from_i32(code as i32), message);
        Self { status, verdict: Verdict::default() }
    }
}

/// Frees its subjects when it is dropped.
struct Entered {
    gate: OneAtATime,
    subjects: Vec<Subject>,
}

impl Pass for Entered {
    fn caller_gone(&self) {}
}

impl Pass for () {
    fn caller_gone(&self) {}
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut held_subjects = self.gate.lock();
        self.subjects.iter().for_each(|subject| _ = held_subjects.remove(subject));
    }
}

impl fmt::Debug for OneAtATime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OneAtATime").field(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use berth_csi::rpc::Unary;
    use berth_csi::v1;

    use super::*;
    use crate::log::{LogWriter, LoggedCall};
    use crate::subject::CallSubject;

    fn enter<R: Unary>(gate: &OneAtATime, request: &R) -> Result<Box<dyn Pass>, Refused> {
        let source = LogWriter { node_id: "n".into(), instance: "1@2".into() };
        let call = LoggedCall::from_request(request, None);
        let begin = CallBegin { seq: 1, begin_us: 3, source, call };
        gate.enter(&begin, &CallSubject::from_request(request).volumes)
    }

    #[test]
    fn one_call_of_a_service_is_let_in_about_a_volume_or_name() {
        let gate = OneAtATime::default();
        let volume = || "v".to_owned();
        let stage = v1::NodeStageVolumeRequest { volume_id: volume(), ..Default::default() };
        let unstage = v1::NodeUnstageVolumeRequest { volume_id: volume(), ..Default::default() };
        let delete = v1::DeleteVolumeRequest { volume_id: volume(), ..Default::default() };
        let create = v1::CreateVolumeRequest { name: "v".into(), ..Default::default() };
        let staging = enter(&gate, &stage).unwrap();
        assert_eq!(enter(&gate, &unstage).err().unwrap().status.code(), tonic::Code::Aborted);
        let deleting = enter(&gate, &delete).unwrap();
        let creating = enter(&gate, &create).unwrap();
        assert!(enter(&gate, &create).is_err());
        assert!(enter(&gate, &v1::ProbeRequest {}).is_ok());
        drop((staging, creating));
        assert!(enter(&gate, &unstage).is_ok());
        assert!(enter(&gate, &create).is_ok());
        assert!(enter(&gate, &delete).is_err());
        drop(deleting);
    }

    #[test]
    fn a_snapshot_or_group_is_gated_by_its_id_and_shares_no_name_with_a_volume() {
        let gate = OneAtATime::default();
        let x = || "x".to_owned();
        let create = v1::CreateVolumeRequest { name: x(), ..Default::default() };
        let cut = v1::CreateSnapshotRequest { name: x(), ..Default::default() };
        let group = v1::CreateVolumeGroupSnapshotRequest { name: x(), ..Default::default() };
        let passes = (enter(&gate, &create), enter(&gate, &cut), enter(&gate, &group));
        assert!(passes.0.is_ok() && passes.1.is_ok() && passes.2.is_ok());
        assert!(enter(&gate, &cut).is_err() && enter(&gate, &group).is_err());
        let delete = v1::DeleteSnapshotRequest { snapshot_id: x(), ..Default::default() };
        let deleting = enter(&gate, &delete).unwrap();
        assert!(enter(&gate, &delete).is_err());
        // The snapshot is a member of the group.
        let delete_group = v1::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: "g".into(),
            snapshot_ids: vec![x()],
            ..Default::default()
        };
        assert!(enter(&gate, &delete_group).is_err());
        drop(deleting);
        let deleting = enter(&gate, &delete_group).unwrap();
        let another =
            v1::DeleteVolumeGroupSnapshotRequest { snapshot_ids: Vec::new(), ..delete_group };
        assert!(enter(&gate, &another).is_err() && enter(&gate, &delete).is_err());
        // A list acts on no object.
        let list = v1::ListSnapshotsRequest { snapshot_id: x(), ..Default::default() };
        assert!(enter(&gate, &list).is_ok());
        drop(deleting);
    }
}
