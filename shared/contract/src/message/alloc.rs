//! The messages of the `alloc.*` requests.
//!
//! **Owns** register, stop, forget, status and list.

use berth_domain::alloc::{AllocState, TaskDriverMounts, VolumeRequest, VolumeType};
use berth_domain::volume::MountOptions;
use berth_domain::{AllocId, Namespace, NodeId, Timestamp, VolumeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::claim::ClaimStatus;
use super::query::{Newer, Page, RefusedRequest, UnreadableRecord};
use crate::decode::{Decode, Decoder};
use crate::{decode_leaf, decode_struct, text};

/// `alloc.register`: a workload is placed on a node; again with the same content is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
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
}
decode_struct!(Register {
    id,
    node,
    index,
    volumes,
    note,
    task_driver_mounts = TaskDriverMounts::All,
    allow_missing = false,
});

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
pub struct Stop {
    /// The alloc.
    pub id: AllocId,
    /// How it ended.
    #[serde(default = "stopped")]
    pub state: AllocState,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
decode_leaf!(AllocState, VolumeType, TaskDriverMounts);
decode_struct!(Stop { id, state = AllocState::Stopped, note });

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
pub struct Status {
    /// The alloc.
    pub id: AllocId,
    /// Whether to wait.
    #[serde(flatten)]
    pub newer: Newer,
}
decode_struct!(Status { id } + newer);

impl Status {
    /// The alloc as it is now.
    pub fn current(id: AllocId) -> Self {
        Self { id, newer: Newer::default() }
    }
}

/// `alloc.list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct List {
    /// Only ids that begin so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Only allocs placed on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Only allocs in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<AllocState>,
    /// Which page.
    #[serde(flatten)]
    pub page: Page,
    /// Whether to wait.
    #[serde(flatten)]
    pub newer: Newer,
}
decode_struct!(List {
    prefix = String::new(),
    node,
    state,
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
    /// The revision of its record.
    #[serde(default)]
    pub modify_index: u64,
    /// Records that belong here and cannot be read: what they say may hold all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
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
    /// The volumes it asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeId>,
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
