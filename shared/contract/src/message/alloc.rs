//! The messages of the `alloc.*` requests about one alloc, and of the list of allocs.
//!
//! **Owns** register, stop, forget, status, wait and list. Requests about many allocs are in
//! [`many`](super::many).

use std::collections::BTreeMap;

use berth_domain::alloc::{AllocState, TaskDriverMounts, VolumeRequest, VolumeType, each_volume};
use berth_domain::volume::{MountOptions, MountSummary};
use berth_domain::{AllocId, Namespace, NodeId, OwnerId, Timestamp, VolumeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::claim::ClaimStatus;
use super::query::{LongPoll, Page, RefusedRequest, UnreadableRecord};
use crate::decode::{Decode, Decoder};
use crate::{decode_leaf, decode_struct, text};

/// `alloc.register`: a workload is placed on a node; again with the same content is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterAlloc {
    /// The alloc.
    pub id: AllocId,
    /// Where it is placed.
    pub node: NodeId,
    /// Which of several alike it is, from 0; needed by volumes that are `per_alloc` (A13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The volumes it asks for.
    #[serde(default)]
    pub volumes: Vec<VolumeRequest>,
    /// What it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What the runner of the workload can mount: `none`, `host` or `all`. Volumes that it cannot
    /// are refused here, before anything is attached (E7).
    #[serde(default, skip_serializing_if = "TaskDriverMounts::is_default")]
    pub task_driver_mounts: TaskDriverMounts,
    /// Take an alloc whose node or volumes are not there yet. Without it such an alloc is refused,
    /// with all that is missing. `claim.take` with `wait` waits for them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_missing: bool,
    /// Whom it belongs to. From then on only this owner changes and stops it, or a request that
    /// names the revision of its record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    /// Labels: at most 32, and 2048 bytes together. They are stored, listed and filtered, and may
    /// be changed by another registration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// Change the record only if it is still at this revision: `modify_index`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
}

impl RegisterAlloc {
    /// An alloc on a node that requests these volumes, with nothing more said of it.
    pub fn new(id: AllocId, node: NodeId, volumes: Vec<VolumeRequest>) -> Self {
        Self {
            id,
            node,
            index: None,
            volumes,
            note: None,
            task_driver_mounts: TaskDriverMounts::All,
            allow_missing: false,
            owner: None,
            meta: BTreeMap::new(),
            revision: None,
        }
    }
}

impl Decode for RegisterAlloc {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut fields = decoder.fields(value)?;
        let id = fields.field("id");
        let node = fields.field("node");
        let index = fields.field("index");
        let volumes = fields.field("volumes");
        let comment = fields.field("note");
        let mounts: Option<Option<TaskDriverMounts>> = fields.field("task_driver_mounts");
        let allow_missing: Option<Option<bool>> = fields.field("allow_missing");
        let owner = fields.field("owner");
        let meta: Option<BTreeMap<String, String>> = fields.field("meta");
        let revision = fields.field("revision");
        fields.finish(&[]);
        if let Some(meta) = &meta {
            text::check_meta(decoder, "meta", meta);
        }
        Some(Self {
            id: id?,
            node: node?,
            index: index?,
            volumes: volumes?,
            note: comment?,
            task_driver_mounts: mounts?.unwrap_or_default(),
            allow_missing: allow_missing?.unwrap_or_default(),
            owner: owner?,
            meta: meta?,
            revision: revision?,
        })
    }
}

impl Decode for VolumeRequest {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let alias: Option<Option<String>> = decoder.field(&mut object, "alias");
        let kind: Option<Option<VolumeType>> = decoder.field(&mut object, "type");
        let source = decoder.field(&mut object, "source");
        let per_alloc: Option<Option<bool>> = decoder.field(&mut object, "per_alloc");
        let read_only: Option<Option<bool>> = decoder.field(&mut object, "read_only");
        let access = decoder.field(&mut object, "access");
        let attachment = decoder.field(&mut object, "attachment");
        let mount: Option<Option<MountOptions>> = decoder.field(&mut object, "mount");
        decoder.finish(&object, &REQUEST_FIELDS);
        let alias_text = alias.as_ref().and_then(Option::as_deref);
        text::add_fault(decoder, "alias", alias_text.and_then(text::name_fault));
        if let Some(Some(mount)) = &mount {
            text::check_mount(decoder, mount);
        }
        Some(Self {
            alias: alias?,
            kind: kind?.unwrap_or_default(),
            source: source?,
            per_alloc: per_alloc?.unwrap_or_default(),
            read_only: read_only?.unwrap_or_default(),
            access: access?,
            attachment: attachment?,
            mount: mount?.unwrap_or_default(),
        })
    }
}

const REQUEST_FIELDS: [&str; 8] =
    ["alias", "type", "source", "per_alloc", "read_only", "access", "attachment", "mount"];

/// `alloc.stop`: its workload has ended; from here on its claims are released. It ends no process:
/// a release waits until no process of the node has the volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopAlloc {
    /// The alloc.
    pub id: AllocId,
    /// How it ended.
    #[serde(default = "stopped")]
    pub state: AllocState,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// As which owner. An alloc with an owner is stopped by this owner, or with `revision`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    /// Only if its record is still at this revision: `modify_index`. An alloc that has ended keeps
    /// its end, and this is not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
}
decode_leaf!(AllocState, VolumeType, TaskDriverMounts, WaitUntil);
decode_struct!(StopAlloc { id, state = AllocState::Stopped, note, owner, revision });

impl StopAlloc {
    /// A stop of an alloc without an owner.
    pub fn new(id: AllocId, state: AllocState, note: Option<String>) -> Self {
        Self { id, state, note, owner: None, revision: None }
    }
}

/// What an alloc is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitUntil {
    /// Its node has mounted every volume that it asked for. Never true of an alloc that has ended.
    Mounted,
    /// It has ended.
    Ended,
    /// It has ended, and no claim of it is left.
    Free,
}

/// `alloc.wait`: answered when the alloc is as far as that, when it can never be, or when the wait
/// is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The alloc. One whose record was removed has ended and is free.
    pub id: AllocId,
    /// What to wait for.
    pub until: WaitUntil,
    /// How long, in milliseconds: 15 s at most, and as long as the request's deadline allows. That
    /// long when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}
decode_struct!(Wait { id, until, wait_ms });

/// `alloc.wait` was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// Whether the alloc is as far as that. Otherwise ask again, unless it has ended.
    pub reached: bool,
    /// The alloc with its claims, each of which says what it waits for; none once its record was
    /// removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alloc: Option<AllocStatus>,
}

fn stopped() -> AllocState {
    AllocState::Stopped
}

/// `alloc.forget`: removes the record of an alloc that has ended and has no claim left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forget {
    /// The alloc.
    pub id: AllocId,
    /// Only if it ended before this time.
    pub before: Timestamp,
}
decode_struct!(Forget { id, before });

/// `alloc.forget` was done; again is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    /// Whether it was known until now.
    pub known: bool,
}

/// `alloc.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocQuery {
    /// The alloc.
    pub id: AllocId,
    /// Whether to wait.
    #[serde(flatten)]
    pub newer: LongPoll,
}
decode_struct!(AllocQuery { id } + newer);

impl AllocQuery {
    /// The alloc as it is now.
    pub fn current(id: AllocId) -> Self {
        Self { id, newer: LongPoll::default() }
    }
}

/// `alloc.list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListAllocs {
    /// Only ids that begin so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Only allocs placed on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Only allocs in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<AllocState>,
    /// Only allocs of this owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    /// Only allocs with all these labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// Only live allocs whose owner's lease has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unowned: bool,
    /// Only allocs that `alloc.forget` with this `before` would forget: those that ended before
    /// this time, have no claim, and are mounted nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgettable_before: Option<Timestamp>,
    /// Which page.
    #[serde(flatten)]
    pub page: Page,
    /// Whether to wait.
    #[serde(flatten)]
    pub newer: LongPoll,
}
decode_struct!(ListAllocs {
    prefix = String::new(),
    node,
    state,
    owner,
    meta,
    unowned = false,
    forgettable_before,
} + page, newer);

/// An alloc with its claims: the answer to register, stop and status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocStatus {
    /// The alloc.
    pub id: AllocId,
    /// Its namespace.
    pub namespace: Namespace,
    /// Where its run has got to.
    pub state: AllocState,
    /// Where it is placed.
    pub node: NodeId,
    /// Which of several alike it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Since when.
    pub since: Timestamp,
    /// What it is, or why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whom it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    /// Since when its owner's lease is not held any more, so that another owner may adopt it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unowned_since: Option<Timestamp>,
    /// Who registered or adopted it: the actor in the subject of that request, `user.anna`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// The volumes it asks for; mount flags are struck out.
    #[serde(default)]
    pub volumes: Vec<VolumeRequest>,
    /// Its claims, as far as they are there.
    #[serde(default)]
    pub claims: Vec<ClaimStatus>,
    /// The newest refused request that names it; none once a claim was granted after it. It is
    /// read from the events, so it may be missing, and events are kept for a week at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<RefusedRequest>,
    /// The revision of its record, with which a change can be guarded.
    #[serde(default)]
    pub modify_index: u64,
    /// Grows when the record, or a volume that it asks for, changes: `newer_than` of the next
    /// `alloc.status` is compared with it.
    #[serde(default)]
    pub status_index: u64,
    /// Records that belong here and cannot be read: what they say may hold all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
}

/// The mount options that an alloc requests for one of its volumes. Its own replace the volume's,
/// field by field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedMount {
    /// The volume.
    pub volume: VolumeId,
    /// The workload's name for it, with which it may request one volume several times.
    pub name: String,
    /// The options.
    #[serde(flatten)]
    pub mount: MountSummary,
}

impl RequestedMount {
    /// The requests that have mount options, of an alloc with this index.
    pub fn list(requests: &[VolumeRequest], index: Option<u32>) -> Vec<Self> {
        let with_options = requests.iter().filter(|request| !request.mount.is_empty());
        let shown = with_options.filter_map(|request| {
            let (name, mount) = (request.name().to_owned(), request.mount.summary());
            Some(Self { volume: request.volume(index).ok()?, name, mount })
        });
        shown.collect()
    }
}

/// An alloc in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocStub {
    /// The alloc.
    pub id: AllocId,
    /// Its namespace.
    pub namespace: Namespace,
    /// Where its run has got to.
    pub state: AllocState,
    /// Where it is placed.
    pub node: NodeId,
    /// Since when.
    pub since: Timestamp,
    /// What it is, or why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whom it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    /// Since when its owner's lease is not held any more, so that another owner may adopt it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unowned_since: Option<Timestamp>,
    /// Who registered or adopted it: the actor in the subject of that request, `user.anna`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// The volumes it asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeId>,
    /// The mount options that it asks for; without the requests that have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<RequestedMount>,
    /// How many claims it has, at about the same time.
    #[serde(default)]
    pub claims: usize,
    /// The revision of its record.
    #[serde(default)]
    pub modify_index: u64,
}

/// `alloc.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocs {
    /// The revision of the allocs bucket that the list shows: all of it, and nothing newer.
    #[serde(default)]
    pub index: u64,
    /// The allocs, by namespace and id.
    pub allocs: Vec<AllocStub>,
    /// Where the next page begins, as `after`; none when this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Records that belong here and cannot be read: what they say may hold all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
}

impl From<AllocStatus> for AllocStub {
    fn from(alloc: AllocStatus) -> Self {
        let volumes = each_volume(&alloc.volumes, alloc.index);
        Self {
            volumes: volumes.into_iter().map(|(volume, _)| volume).collect(),
            mounts: RequestedMount::list(&alloc.volumes, alloc.index),
            id: alloc.id,
            namespace: alloc.namespace,
            state: alloc.state,
            node: alloc.node,
            since: alloc.since,
            note: alloc.note,
            owner: alloc.owner,
            unowned_since: alloc.unowned_since,
            by: alloc.by,
            meta: alloc.meta,
            claims: alloc.claims.len(),
            modify_index: alloc.modify_index,
        }
    }
}
