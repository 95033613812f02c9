//! Calls that change the storage: volumes, snapshots and groups of snapshots.
//!
//! **Owns** what a call asks of the plugin, and what of its answer is stored.
//!
//! **Promises**
//! - that a failure is told apart by what it leaves at the storage: nothing and never
//!   (`PluginRefused`), nothing for now (`PluginUnable`, `PluginExhausted`), or perhaps something
//!   (`PluginFailed`);
//! - that what goes beyond the bounds of a record is left out and said, and that a group is taken
//!   as a whole.
//!
//! **Never** cuts again a snapshot whose id is known, where the plugin can look for it.

use std::collections::BTreeMap;
use std::future::Future;

use berth_bus::Request;
use berth_contract::code::Code;
use berth_contract::message::call::{Called, StorageCall};
use berth_contract::message::secret::Secrets;
use berth_contract::message::storage_call::{CopySource, GroupIds, NewVolume, StorageWork};
use berth_contract::problem::Problem;
use berth_csi::answer::{self, is_map_storable};
use berth_csi::capability::volume_capability;
use berth_csi::rpc::Unary;
use berth_csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use berth_csi::{CallError, Class, Remedy, v1};
use berth_domain::Timestamp;
use berth_domain::access::Capability;
use berth_domain::limits::{LIST_MAX, MAP_BYTES_MAX, TEXT_BYTES_MAX};
use berth_domain::volume::storage::{OriginKind, Topology};
use berth_domain::volume::{CallKind, CreatedVolume, CutSnapshot, MountOptions, StorageAnswer};
use berth_service::clock;
use tokio::time::Instant;

use super::execute::ControllerExecutor;
use crate::executor::WorkTurn;
use crate::fleet::events::ExecutedCall;
use crate::plugins::{self, Plugin};

impl ControllerExecutor {
    /// One call of a volume's operation, or of a snapshot.
    pub(super) async fn provision(
        self,
        call: StorageCall,
        request: Request,
    ) -> Result<Called, Problem> {
        let (attempts, attempt) = (self.executor.attempts.clone(), call.attempt.clone());
        attempts.once(&attempt, Box::pin(self.make_storage_call(call, request))).await
    }

    async fn make_storage_call(
        self,
        call: StorageCall,
        request: Request,
    ) -> Result<Called, Problem> {
        let locate = |problem: Problem| {
            let volume = call.volume_key();
            problem.at_step(call.call).volume(volume).plugin(&self.plugin.id).node(&self.node)
        };
        if call.plugin != self.plugin.id {
            return Err(locate(self.misdirected(&call.plugin)));
        }
        if call.call == CallKind::NodeExpand {
            let message = format!("a call of {} came to a controller", call.call);
            return Err(locate(Problem::new(Code::BadInput, message)));
        }
        let deadline = call.deadline.min(clock::now().after(request.remaining()));
        let plugin = self.plugin.with_trace(request.trace);
        let secrets = self.secrets(call.volume_key(), call.secrets.as_ref(), deadline, &request);
        let answers = self.answers.clone();
        let provisioner =
            Provisioner { plugin: plugin.clone(), answers: answers.clone(), call: call.clone() };
        let work = async move {
            if let Some(answer) = answers.find(&provisioner.call) {
                return Ok(answer.into());
            }
            let secrets = Secrets(secrets.await?).for_call(provisioner.call.call.secrets());
            let called = provisioner.make(secrets).await?;
            answers.keep(&provisioner.call, deadline, called.answer.as_ref());
            Ok(called)
        };
        self.run_storage_call(&call, &request, &plugin, deadline, work).await.map_err(locate)
    }

    async fn run_storage_call(
        &self,
        call: &StorageCall,
        request: &Request,
        plugin: &Plugin,
        deadline: Timestamp,
        work: impl Future<Output = Result<Called, Problem>> + Send + 'static,
    ) -> Result<Called, Problem> {
        let began = Instant::now();
        let turn = WorkTurn::of_storage(call, deadline);
        let done = self.executor.run_shown(turn, call, work).await;
        let calls = plugin.calls().list();
        let executed = ExecutedCall::of_storage(call, None, began.elapsed(), calls);
        self.events.publish_call(executed, done.as_ref().err(), request.trace);
        done
    }
}

/// Makes one call of the storage.
struct Provisioner {
    plugin: Plugin,
    answers: super::CreationAnswers,
    call: StorageCall,
}

impl Provisioner {
    async fn make(&self, Secrets(secrets): Secrets) -> Result<Called, Problem> {
        let volume_id = self.call.external_id.clone();
        let answer = match &self.call.details.work {
            StorageWork::Create(new) => {
                let mut request = create_request(&self.plugin, new);
                request.secrets = secrets;
                let made = self.ask_plugin(request.clone()).await?.volume.unwrap_or_default();
                self.answers.check(&new.name, &made.volume_id)?;
                Some(StorageAnswer::Volume(created(&request, made)))
            }
            StorageWork::Delete => {
                self.ask_plugin(v1::DeleteVolumeRequest { volume_id, secrets }).await?;
                None
            }
            StorageWork::Expand { required_bytes, limit_bytes, capability, mount } => {
                let request = v1::ControllerExpandVolumeRequest {
                    volume_id,
                    capacity_range: Some(range(*required_bytes, *limit_bytes)),
                    secrets,
                    volume_capability: Some(self.capability(*capability, mount)),
                };
                let done = self.ask_plugin(request).await?;
                Some(StorageAnswer::Capacity {
                    bytes: bytes(done.capacity_bytes),
                    node_expansion_required: done.node_expansion_required,
                })
            }
            StorageWork::Modify { parameters } => {
                let mutable_parameters = parameters.clone();
                let request =
                    v1::ControllerModifyVolumeRequest { volume_id, secrets, mutable_parameters };
                self.ask_plugin(request).await?;
                None
            }
            StorageWork::Snapshot { name, parameters, cut } => {
                let found = match cut {
                    Some(id) => self.find_snapshot(id, &secrets).await?,
                    None => None,
                };
                let snapshot = if let Some(found) = found {
                    found
                } else {
                    let request = v1::CreateSnapshotRequest {
                        source_volume_id: volume_id,
                        name: name.clone(),
                        secrets,
                        parameters: parameters.clone(),
                        // The plugin chooses where it is usable, and says so.
                        accessibility_requirements: None,
                    };
                    self.ask_plugin(request).await?.snapshot.unwrap_or_default()
                };
                Some(StorageAnswer::Snapshot(cut_snapshot(snapshot)))
            }
            StorageWork::DeleteSnapshot { id } => {
                self.ask_plugin(v1::DeleteSnapshotRequest { snapshot_id: id.clone(), secrets })
                    .await?;
                None
            }
            StorageWork::Group { name, sources, parameters, cut } => {
                let group = if let Some(GroupIds { group, snapshots }) = cut {
                    let request = v1::GetVolumeGroupSnapshotRequest {
                        group_snapshot_id: group.clone(),
                        snapshot_ids: snapshots.clone(),
                        secrets,
                    };
                    self.ask_plugin(request).await?.group_snapshot
                } else {
                    let request = v1::CreateVolumeGroupSnapshotRequest {
                        name: name.clone(),
                        source_volume_ids: sources.clone(),
                        secrets,
                        parameters: parameters.clone(),
                    };
                    self.ask_plugin(request).await?.group_snapshot
                };
                Some(group_answer(group.unwrap_or_default(), sources))
            }
            StorageWork::DeleteGroup(GroupIds { group, snapshots }) => {
                let request = v1::DeleteVolumeGroupSnapshotRequest {
                    group_snapshot_id: group.clone(),
                    snapshot_ids: snapshots.clone(),
                    secrets,
                };
                self.ask_plugin(request).await?;
                None
            }
        };
        Ok(Called { answer, ..Called::default() })
    }

    /// A snapshot that was cut before, by its id; none if the plugin does not tell of one snapshot.
    /// Only then may it be asked for by its name: one that was adopted has no name known here, and
    /// `CreateSnapshot` would cut another.
    async fn find_snapshot(
        &self,
        id: &str,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Option<v1::Snapshot>, Problem> {
        let can = self.plugin.controller().unwrap_or_default();
        if can.get_snapshot {
            let (snapshot_id, secrets) = (id.to_owned(), secrets.clone());
            let found = self.ask_plugin(v1::GetSnapshotRequest { snapshot_id, secrets }).await?;
            let found = found.snapshot.unwrap_or_default();
            return Ok(Some(found));
        }
        if !can.list_snapshots {
            return Ok(None);
        }
        let request = v1::ListSnapshotsRequest {
            snapshot_id: id.to_owned(),
            secrets: secrets.clone(),
            ..v1::ListSnapshotsRequest::default()
        };
        let listed = self.ask_plugin(request).await?.entries;
        let mut listed = listed.into_iter().filter_map(|entry| entry.snapshot);
        let found = listed.find(|snapshot| snapshot.snapshot_id == id);
        found.map(Some).ok_or_else(|| {
            let message = format!("the plugin's list has no snapshot {id:?}, which was cut before");
            Problem::new(Code::PluginUnable, message)
                .retryable()
                .next("look for it at the storage; if it is gone, delete it here")
        })
    }

    async fn ask_plugin<R: Unary>(&self, request: R) -> Result<R::Response, Problem> {
        self.plugin.call(request).await.map_err(|error| storage_problem(&error))
    }

    fn capability(&self, capability: Capability, mount: &MountOptions) -> v1::VolumeCapability {
        let later = self.plugin.controller().is_some_and(|can| can.single_node_multi_writer);
        volume_capability(capability, mount, later)
    }
}

/// The problem of a failed call of the storage, by what the call has left there.
pub(crate) fn storage_problem(error: &CallError) -> Problem {
    let (code, retryable, remedy) = match error.class() {
        Class::Refused(remedy) => (Code::PluginRefused, false, Some(remedy)),
        Class::Retry(remedy @ Remedy::FindCapacity) => (Code::PluginExhausted, true, Some(remedy)),
        Class::Retry(remedy) => (Code::PluginUnable, true, Some(remedy)),
        Class::Uncertain(remedy) => (Code::PluginFailed, true, Some(remedy)),
        Class::Done => (Code::PluginFailed, true, None),
    };
    plugins::problem_with_remedy(code, retryable, remedy, error)
}

fn create_request(plugin: &Plugin, new: &NewVolume) -> v1::CreateVolumeRequest {
    let later = plugin.controller().is_some_and(|can| can.single_node_multi_writer);
    let capability = |one: &Capability| volume_capability(*one, &new.mount, later);
    let topologies: Vec<v1::Topology> =
        new.topologies.iter().map(|one| v1::Topology { segments: one.clone() }).collect();
    let accessibility = (!topologies.is_empty())
        .then(|| v1::TopologyRequirement { requisite: topologies.clone(), preferred: topologies });
    let source = new.origin.as_ref().map(|CopySource { kind, external_id: id }| {
        let r#type = match kind {
            OriginKind::Snapshot => Type::Snapshot(SnapshotSource { snapshot_id: id.clone() }),
            OriginKind::Volume => Type::Volume(VolumeSource { volume_id: id.clone() }),
        };
        v1::VolumeContentSource { r#type: Some(r#type) }
    });
    let has_range = new.required_bytes > 0 || new.limit_bytes.is_some();
    v1::CreateVolumeRequest {
        name: new.name.clone(),
        capacity_range: has_range.then(|| range(new.required_bytes, new.limit_bytes)),
        volume_capabilities: new.capabilities.iter().map(capability).collect(),
        parameters: new.parameters.clone(),
        volume_content_source: source,
        accessibility_requirements: accessibility,
        mutable_parameters: new.mutable_parameters.clone(),
        ..v1::CreateVolumeRequest::default()
    }
}

pub(crate) fn range(required_bytes: u64, limit_bytes: Option<u64>) -> v1::CapacityRange {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    v1::CapacityRange {
        required_bytes: signed(required_bytes),
        limit_bytes: limit_bytes.map(signed).unwrap_or_default(),
    }
}

/// A size as the plugin says it. CSI forbids negative ones: they say nothing.
pub(super) fn bytes(signed: i64) -> u64 {
    u64::try_from(signed).unwrap_or_default()
}

/// What the plugin says, unless that is more than a record takes.
fn places(topologies: Vec<v1::Topology>) -> Vec<Topology> {
    let places: Vec<_> = topologies.into_iter().map(|one| one.segments).collect();
    let fits = places.len() <= LIST_MAX && places.iter().all(is_map_storable);
    if fits { places } else { Vec::new() }
}

/// The same of a snapshot. A group has many, and an answer that is too large would be lost with all
/// their ids.
fn usable_from(topologies: Vec<v1::Topology>) -> Vec<Topology> {
    let places = places(topologies);
    let bytes: usize = places.iter().flatten().map(|(key, value)| key.len() + value.len()).sum();
    if bytes <= MAP_BYTES_MAX { places } else { Vec::new() }
}

/// The volume as it is stored. What goes beyond the bounds of a record is left out, and said.
fn created(asked: &v1::CreateVolumeRequest, made: v1::Volume) -> CreatedVolume {
    let unusable = answer::created_volume_fault(asked, &made).map(|fault| fault.to_string());
    let topologies = places(made.accessible_topology);
    let mut context = made.volume_context;
    if !is_map_storable(&context) {
        context.clear();
    }
    let mut external_id = made.volume_id;
    if external_id.len() > TEXT_BYTES_MAX {
        external_id.clear();
    }
    CreatedVolume {
        external_id,
        capacity_bytes: bytes(made.capacity_bytes),
        context,
        topologies,
        is_copy: made.content_source.is_some_and(|source| source.r#type.is_some()),
        unusable,
    }
}

pub(super) fn cut_snapshot(snapshot: v1::Snapshot) -> CutSnapshot {
    CutSnapshot {
        external_id: snapshot.snapshot_id,
        source: snapshot.source_volume_id,
        size_bytes: bytes(snapshot.size_bytes),
        cut_at: snapshot.creation_time.and_then(|at| timestamp(at.seconds, at.nanos)),
        ready: snapshot.ready_to_use,
        usable_from: usable_from(snapshot.accessible_topology),
    }
}

/// The group as it is stored. If it is not one snapshot of each source, no snapshot says that it is
/// of a source: each record knows its own source alone, so otherwise one member would take its part
/// of the group, and the rest would not.
fn group_answer(mut group: v1::VolumeGroupSnapshot, sources: &[String]) -> StorageAnswer {
    if let Some(fault) = answer::group_fault(&group, sources) {
        tracing::warn!(group = group.group_snapshot_id, "the plugin is wrong: it {fault}");
        let of_source = group.snapshots.iter_mut();
        let of_source = of_source.filter(|made| sources.contains(&made.source_volume_id));
        of_source.for_each(|made| made.source_volume_id.clear());
    }
    StorageAnswer::Group {
        external_id: group.group_snapshot_id,
        ready: group.ready_to_use,
        snapshots: group.snapshots.into_iter().map(cut_snapshot).collect(),
    }
}

fn timestamp(seconds: i64, nanos: i32) -> Option<Timestamp> {
    let seconds = u64::try_from(seconds).ok()?;
    let ms = u64::try_from(nanos).ok()? / 1_000_000;
    Some(Timestamp::from_unix_ms(seconds.checked_mul(1000)?.checked_add(ms)?))
}

#[cfg(test)]
mod tests {
    use berth_csi::{Code as GrpcCode, Failure, Rpc};

    use super::*;

    fn code(rpc: Rpc, code: GrpcCode) -> Code {
        let failure = Failure::Answered { code, message: "its words".to_owned() };
        storage_problem(&CallError { rpc, socket: "/p.sock".into(), failure }).code
    }

    #[test]
    fn a_failure_says_what_it_leaves_at_the_storage() {
        for (grpc, expected) in [
            (GrpcCode::InvalidArgument, Code::PluginRefused),
            (GrpcCode::AlreadyExists, Code::PluginRefused),
            (GrpcCode::OutOfRange, Code::PluginRefused),
            (GrpcCode::Unimplemented, Code::PluginRefused),
            (GrpcCode::NotFound, Code::PluginUnable),
            (GrpcCode::ResourceExhausted, Code::PluginExhausted),
            (GrpcCode::Internal, Code::PluginFailed),
            (GrpcCode::Aborted, Code::PluginFailed),
            (GrpcCode::DeadlineExceeded, Code::PluginFailed),
        ] {
            assert_eq!(code(Rpc::CreateVolume, grpc), expected, "{grpc}");
        }
        assert_eq!(code(Rpc::DeleteVolume, GrpcCode::FailedPrecondition), Code::PluginUnable);
    }

    #[test]
    fn a_socket_without_a_plugin_was_not_asked() {
        let failure = Failure::Unreachable { reason: "no".to_owned() };
        let error = CallError { rpc: Rpc::CreateVolume, socket: "/p.sock".into(), failure };
        assert_eq!(storage_problem(&error).code, Code::PluginUnable);
    }

    /// The volume is at the storage: its id is stored, and what is left out is said.
    #[test]
    fn what_a_record_cannot_hold_is_left_out_and_said() {
        let kept_of = |made| created(&v1::CreateVolumeRequest::default(), made);
        let made = || v1::Volume { volume_id: "v".to_owned(), ..v1::Volume::default() };
        assert_eq!(kept_of(made()).unusable, None);
        let long = |bytes: usize| BTreeMap::from([("k".to_owned(), "x".repeat(bytes))]);
        let topology = |bytes| v1::Topology { segments: long(bytes) };
        let context = long(MAP_BYTES_MAX);
        let most = long(MAP_BYTES_MAX - 1);
        for (beyond, said) in [
            (v1::Volume { volume_context: context, ..made() }, "volume_context of 4097 bytes"),
            (
                v1::Volume { accessible_topology: vec![topology(MAP_BYTES_MAX)], ..made() },
                "1 topologies",
            ),
            (
                v1::Volume { accessible_topology: vec![topology(1); LIST_MAX + 1], ..made() },
                "65 topologies",
            ),
        ] {
            let kept = kept_of(beyond);
            assert_eq!((kept.external_id.as_str(), kept.topologies.len()), ("v", 0));
            assert!(kept.context.is_empty());
            assert!(kept.unusable.as_ref().is_some_and(|why| why.contains(said)), "{kept:?}");
        }
        assert_eq!(kept_of(v1::Volume { volume_context: most, ..made() }).unusable, None);
        let named = kept_of(v1::Volume { volume_id: "i".repeat(1025), ..made() });
        assert!(named.external_id.is_empty() && named.unusable.is_some());
    }

    /// Each record knows its own source alone: none may find it in a group that is wrong.
    #[test]
    fn a_wrong_group_is_handed_on_with_its_ids_and_without_its_members() {
        let kept_of = |snapshots: &[(&str, &str)]| {
            let made = |(id, of): &(&str, &str)| v1::Snapshot {
                snapshot_id: (*id).to_owned(),
                source_volume_id: (*of).to_owned(),
                ..v1::Snapshot::default()
            };
            let group = v1::VolumeGroupSnapshot {
                group_snapshot_id: "g".to_owned(),
                snapshots: snapshots.iter().map(made).collect(),
                ..v1::VolumeGroupSnapshot::default()
            };
            let kept = group_answer(group, &["a".to_owned(), "b".to_owned()]);
            let StorageAnswer::Group { snapshots, .. } = kept else { panic!("{kept:?}") };
            let told = snapshots.into_iter().map(|made| (made.external_id, made.source));
            told.collect::<Vec<_>>()
        };
        let told = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|(id, of)| ((*id).to_owned(), (*of).to_owned())).collect()
        };
        let right = [("2", "b"), ("1", "a")];
        assert_eq!(kept_of(&right), told(&right));
        assert_eq!(kept_of(&[("1", "a"), ("2", "x")]), told(&[("1", ""), ("2", "x")]));
        assert_eq!(kept_of(&[("1", "a")]), told(&[("1", "")]));
        assert_eq!(kept_of(&[("1", "a"), ("1", "b")]), told(&[("1", ""), ("1", "")]));
    }

    #[test]
    fn sizes_and_times_that_csi_forbids_say_nothing() {
        assert_eq!(bytes(-1), 0);
        assert_eq!(range(u64::MAX, None).required_bytes, i64::MAX);
        assert_eq!(timestamp(-1, 0), None);
        assert_eq!(timestamp(2, 5_000_000), Some(Timestamp::from_unix_ms(2005)));
    }
}
