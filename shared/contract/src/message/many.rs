//! Requests about many allocs, volumes or placements at once, each with an answer of its own.
//!
//! **Promises** that one refused request among many spoils none of the others. Each is done as if
//! it had been sent alone, in no order. What is wrong in the message itself refuses all of them.

use berth_domain::alloc::AllocState;
use berth_domain::{AllocId, NodeId, OwnerId, VolumeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::alloc::{AllocStub, RegisterAlloc, StopAlloc};
use super::volume::{
    Deregister, Deregistered, ListPlacements, Placements, RegisterVolume, Registered,
};
use crate::decode::{Decode, Decoder};
use crate::decode_struct;
use crate::problem::Problem;

/// `alloc.register-many`: at most 64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterMany {
    /// The allocs.
    pub allocs: Vec<RegisterAlloc>,
}
decode_struct!(RegisterMany { allocs });

/// `alloc.stop-many`: at most 64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopMany {
    /// The stops.
    pub stops: Vec<StopAlloc>,
}
decode_struct!(StopMany { stops });

/// `alloc.register-many` or `alloc.stop-many` was done, as far as each answer says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocAnswers {
    /// The answers, in the order of the requests.
    pub answers: Vec<AllocAnswer>,
}

/// The answer to one of many.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocAnswer {
    /// The alloc that the request named.
    pub id: AllocId,
    /// The alloc, if the request was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alloc: Option<AllocStub>,
    /// Why not, if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

/// `alloc.stop-owned`: stops the live allocs of an owner, which is the sender; at most 500 at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopOwned {
    /// The owner.
    pub owner: OwnerId,
    /// Only allocs on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// How they ended.
    #[serde(default = "stopped")]
    pub state: AllocState,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
decode_struct!(StopOwned { owner, node, state = AllocState::Stopped, note });

const fn stopped() -> AllocState {
    AllocState::Stopped
}

/// `alloc.adopt`: takes live allocs of an owner over; at most 500 at once.
///
/// An owner whose lease is held keeps its allocs. An owner that never held a lease gives them to
/// the identity that registered them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopt {
    /// The owner that they belong to.
    pub from: OwnerId,
    /// The owner that takes them: the sender. It may be the same one, after its lease has ended.
    pub owner: OwnerId,
    /// Only these; all of them when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<AllocId>,
}
decode_struct!(Adopt { from, owner, ids });

/// `alloc.stop-owned` or `alloc.adopt` was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedAllocs {
    /// The allocs that were changed.
    pub allocs: Vec<AllocStub>,
    /// Whether there are more, among them those that could not be changed: ask again. Where none
    /// can be changed, the reply is the error.
    #[serde(default)]
    pub more: bool,
}

/// `volume.place-many`: at most 64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceMany {
    /// What `volume.placement` would be asked. None of them waits.
    pub placements: Vec<ListPlacements>,
}
decode_struct!(PlaceMany { placements });

/// `volume.place-many` was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlacementAnswers {
    /// The answers, in the order of the requests.
    pub answers: Vec<PlacementAnswer>,
}

/// The answer to one of many.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlacementAnswer {
    /// The first page of nodes, if there is an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placements: Option<Placements>,
    /// Why not, if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

/// `volume.register-many`: at most 64, each of another volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RegisterVolumes {
    /// The documents of the volumes, each as for `volume.register`.
    pub volumes: Vec<RegisterVolume>,
}

/// Two documents of one volume contradict each other: which of them counts would be chance.
impl Decode for RegisterVolumes {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut fields = decoder.fields(value)?;
        let volumes: Option<Vec<RegisterVolume>> = fields.field("volumes");
        fields.finish(&[]);
        let volumes = volumes?;
        check_each_once(decoder, "id", &volumes, |one, other| one.id == other.id);
        check_each_once(decoder, "external_id", &volumes, |one, other| {
            one.id != other.id && one.spec.handle(&one.id) == other.spec.handle(&other.id)
        });
        Some(Self { volumes })
    }
}

/// `volume.register-many` was done, as far as each answer says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterAnswers {
    /// The answers, in the order of the requests.
    pub answers: Vec<RegisterAnswer>,
}

/// The answer to one of many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterAnswer {
    /// The volume that the document named.
    pub id: VolumeId,
    /// What was done, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered: Option<Registered>,
    /// Why not, if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

/// `volume.deregister-many`: at most 64, each of another volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeregisterMany {
    /// The volumes, each as for `volume.deregister`.
    pub volumes: Vec<Deregister>,
}

impl Decode for DeregisterMany {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut fields = decoder.fields(value)?;
        let volumes: Option<Vec<Deregister>> = fields.field("volumes");
        fields.finish(&[]);
        let volumes = volumes?;
        check_each_once(decoder, "id", &volumes, |one, other| one.id == other.id);
        Some(Self { volumes })
    }
}

/// `volume.deregister-many` was done, or has begun, as far as each answer says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeregisterAnswers {
    /// The answers, in the order of the requests.
    pub answers: Vec<DeregisterAnswer>,
}

/// The answer to one of many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeregisterAnswer {
    /// The volume that the request named.
    pub id: VolumeId,
    /// What was done, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deregistered: Option<Deregistered>,
    /// Why not, if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

/// Notes each entry of `volumes` that says the same of a volume in this field as an earlier one.
fn check_each_once<T>(
    decoder: &mut Decoder,
    field: &str,
    volumes: &[T],
    is_same: impl Fn(&T, &T) -> bool,
) {
    for (at, volume) in volumes.iter().enumerate() {
        let earlier = volumes[..at].iter().position(|earlier| is_same(earlier, volume));
        if let Some(earlier) = earlier {
            let path = format!("volumes[{at}].{field}");
            decoder.demand(false, &path, format!("names the volume of `volumes[{earlier}]`"));
        }
    }
}
