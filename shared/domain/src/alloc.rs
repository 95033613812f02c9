//! Allocs: one placed run of a workload on one node, and the volumes that it requests.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::access::{AccessMode, AttachmentMode, CapabilityFilter, Mode};
use crate::id::IdFault;
use crate::owner::{AllocOwner, ChangeGuard, GuardRefusal};
use crate::volume::MountOptions;
use crate::{NodeId, OwnerId, Timestamp, VolumeId};

/// The state of an alloc's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllocState {
    /// Placed: its volumes are being mounted, or it runs.
    Live,
    /// Ended by itself.
    Complete,
    /// Ended with an error, or its runner is gone.
    Failed,
    /// Ended by a request.
    Stopped,
}

impl AllocState {
    /// Whether its workload has ended, so that its claims are released.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Live)
    }

    /// The name in records and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

impl fmt::Display for AllocState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An alloc, as its scheduler or runner registered it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alloc {
    /// The state of its run.
    pub state: AllocState,
    /// The node it is placed on.
    pub node: NodeId,
    /// Its index among equal allocs, from 0. `per_alloc` volumes differ by it (A13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The volumes that it requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeRequest>,
    /// When it entered its state.
    pub since: Timestamp,
    /// A note for people, such as why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Who registered or adopted it, as the [actor](crate::owner) of the request: `user.anna`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Whom it belongs to. An alloc without an owner may be stopped by all who may stop allocs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<AllocOwner>,
    /// Labels of its scheduler.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
}

/// What serves a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeType {
    /// A CSI plugin. There is no other type so far.
    #[default]
    Csi,
}

/// Which volumes a workload's runner can mount (E7): `task_driver_mounts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskDriverMounts {
    /// None.
    None,
    /// Directories of the host only, and no volumes of plugins.
    Host,
    /// All volumes.
    #[default]
    All,
}

impl TaskDriverMounts {
    /// Why the workload cannot have a volume of this type, if it cannot.
    pub const fn lacks(self, kind: VolumeType) -> Option<&'static str> {
        match (self, kind) {
            (Self::All, VolumeType::Csi) => None,
            (Self::None, VolumeType::Csi) => {
                Some("the runner of this workload can mount no volumes (task_driver_mounts = none)")
            }
            (Self::Host, VolumeType::Csi) => Some(
                "the runner of this workload can mount directories of its host only, and this is a \
                 CSI volume (task_driver_mounts = host)",
            ),
        }
    }

    /// Whether it is the default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A volume that an alloc requests (E8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRequest {
    /// The workload's name for it; the source if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// What serves it.
    #[serde(rename = "type", default)]
    pub kind: VolumeType,
    /// The volume's id in the alloc's namespace. With `per_alloc`, the id without the index.
    pub source: VolumeId,
    /// Whether each alloc has a volume of its own: `data[0]` for source `data` and index 0 (A13).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub per_alloc: bool,
    /// Whether the workload only reads.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The requested access mode. The volume's first capability with this mode and this
    /// `attachment` is used, as far as they are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessMode>,
    /// File system or block device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<AttachmentMode>,
    /// Replaces the volume's own options, field by field (A11).
    #[serde(default, skip_serializing_if = "MountOptions::is_empty")]
    pub mount: MountOptions,
}

impl VolumeRequest {
    /// A request to write this volume, without any option.
    pub fn for_volume(source: VolumeId) -> Self {
        Self {
            alias: None,
            kind: VolumeType::Csi,
            source,
            per_alloc: false,
            read_only: false,
            access: None,
            attachment: None,
            mount: MountOptions::default(),
        }
    }

    /// The workload's name for the volume.
    pub fn name(&self) -> &str {
        self.alias.as_deref().unwrap_or(self.source.as_str())
    }

    /// The mode of its claim.
    pub fn mode(&self) -> Mode {
        if self.read_only { Mode::Read } else { Mode::Write }
    }

    /// The capabilities that fit the request.
    pub fn capability(&self) -> CapabilityFilter {
        CapabilityFilter { access: self.access, attachment: self.attachment }
    }

    /// The request as it may be shown: mount flags may hold secrets (A11).
    #[must_use]
    pub fn struck_out(&self) -> Self {
        Self { mount: self.mount.struck_out(), ..self.clone() }
    }

    /// The volume of the alloc with this index.
    pub fn volume(&self, index: Option<u32>) -> Result<VolumeId, RequestFault> {
        if !self.per_alloc {
            return Ok(self.source.clone());
        }
        let index = index.ok_or(RequestFault::NoIndex)?;
        VolumeId::new(format!("{}[{index}]", self.source)).map_err(RequestFault::Id)
    }
}

/// Why a request names no volume.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestFault {
    /// The volume is per alloc, and the alloc has no index.
    #[error("needs the alloc's `index`: it stands for `SOURCE[INDEX]`")]
    NoIndex,
    /// The resulting id is not valid.
    #[error("with the alloc's index {0}")]
    Id(IdFault),
}

/// Each requested volume once, with the request that decides its claim and its publication: the
/// first request that writes, otherwise the first (E6). Requests that name no volume were refused
/// at registration.
pub fn each_volume(
    requests: &[VolumeRequest],
    index: Option<u32>,
) -> Vec<(VolumeId, &VolumeRequest)> {
    let mut each: Vec<(VolumeId, &VolumeRequest)> = Vec::new();
    for request in requests {
        let Ok(volume) = request.volume(index) else { continue };
        match each.iter_mut().find(|(known, _)| *known == volume) {
            None => each.push((volume, request)),
            Some((_, base)) if base.read_only && !request.read_only => *base = request,
            Some(_) => {}
        }
    }
    each
}

impl Alloc {
    /// The volumes that it requests, each once, with the request that decides its claim.
    pub fn requests(&self) -> impl Iterator<Item = (VolumeId, &VolumeRequest)> {
        each_volume(&self.volumes, self.index).into_iter()
    }

    /// The request that decides this volume's claim.
    pub fn request_for(&self, volume: &VolumeId) -> Option<&VolumeRequest> {
        self.requests().find(|(asked, _)| asked == volume).map(|(_, request)| request)
    }

    /// Whether the alloc was placed on this node, and requested this volume.
    pub fn may_use(&self, volume: &VolumeId, node: &NodeId) -> bool {
        self.node == *node && self.request_for(volume).is_some()
    }

    /// The request for this volume under this name, otherwise the one that decides the claim; and
    /// its index among the requests for the volume, from 0.
    pub fn request_named(
        &self,
        volume: &VolumeId,
        name: Option<&str>,
    ) -> Option<(u32, &VolumeRequest)> {
        let base = self.request_for(volume)?;
        let of_it = |request: &&VolumeRequest| request.volume(self.index).as_ref() == Ok(volume);
        let is_meant = |request: &VolumeRequest| match name {
            Some(name) => request.name() == name,
            None => std::ptr::eq(request, base),
        };
        let mut numbered = (0..).zip(self.volumes.iter().filter(of_it));
        numbered.find(|(_, request)| is_meant(request))
    }
}

impl Alloc {
    /// The owner that has the live alloc for as long as it holds its lease.
    pub fn leased_owner(&self) -> Option<&AllocOwner> {
        let owner = self.owner.as_ref().filter(|_| !self.state.is_terminal())?;
        (owner.leased && owner.unowned_since.is_none()).then_some(owner)
    }

    /// Whether it is live and its owner's lease has ended.
    pub fn is_unowned(&self) -> bool {
        let owner = self.owner.as_ref();
        !self.state.is_terminal() && owner.is_some_and(|owner| owner.unowned_since.is_some())
    }

    /// Whether a sender that calls itself so is its owner.
    pub fn is_owned_by(&self, name: &OwnerId, by: Option<&str>) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.name == *name) && self.by.as_deref() == by
    }

    /// Refuses a change, unless the sender is the owner or has seen this revision of the record.
    pub fn check_change(&self, revision: u64, guard: ChangeGuard<'_>) -> Result<(), GuardRefusal> {
        if let Some(seen) = guard.revision {
            let is_seen = seen == revision;
            return is_seen.then_some(()).ok_or(GuardRefusal::Changed { seen, now: revision });
        }
        match (&self.owner, guard.owner) {
            (None, None) => Ok(()),
            (None, Some(name)) => Err(GuardRefusal::NotOwned(name.clone())),
            (Some(_), Some(name)) if self.is_owned_by(name, guard.by) => Ok(()),
            (Some(owner), _) => {
                Err(GuardRefusal::Owned { owner: owner.name.clone(), by: self.by.clone() })
            }
        }
    }
}

/// The fields that differ from an alloc's earlier registration, by name. None may differ. The note
/// and the labels may.
pub fn differing_fields(current: &Alloc, again: &Alloc) -> Vec<&'static str> {
    [
        ("node", current.node != again.node),
        ("index", current.index != again.index),
        ("volumes", current.volumes != again.volumes),
    ]
    .into_iter()
    .filter_map(|(field, differs)| differs.then_some(field))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_per_alloc_is_named_by_its_index() {
        let shared = VolumeRequest::for_volume(VolumeId::new("data").unwrap());
        let own = VolumeRequest { per_alloc: true, ..shared.clone() };
        let id = |id: &str| VolumeId::new(id).map_err(RequestFault::Id);
        assert_eq!(own.volume(Some(0)), id("data[0]"));
        assert_eq!(own.volume(Some(12)), id("data[12]"));
        assert_eq!(own.volume(None), Err(RequestFault::NoIndex));
        assert_eq!(shared.volume(Some(3)), id("data"));
        let long = VolumeRequest { source: VolumeId::new("x".repeat(254)).unwrap(), ..own };
        assert!(matches!(long.volume(Some(0)), Err(RequestFault::Id(_))));
    }

    #[test]
    fn a_volume_under_several_names_is_one_volume_and_is_claimed_to_write_when_one_writes() {
        let named = |alias: &str, read_only| VolumeRequest {
            alias: Some(alias.to_owned()),
            read_only,
            ..VolumeRequest::for_volume(VolumeId::new("data").unwrap())
        };
        let other = VolumeRequest::for_volume(VolumeId::new("other").unwrap());
        let alloc = Alloc {
            state: AllocState::Live,
            node: NodeId::new("n1").unwrap(),
            index: None,
            volumes: vec![named("look", true), other, named("work", false), named("too", false)],
            since: Timestamp::from_unix_ms(0),
            note: None,
            by: None,
            owner: None,
            meta: BTreeMap::new(),
        };
        let data = VolumeId::new("data").unwrap();
        let each: Vec<_> = alloc.requests().map(|(id, base)| (id, base.name())).collect();
        let other = VolumeId::new("other").unwrap();
        assert_eq!(each, [(data.clone(), "work"), (other.clone(), "other")]);
        let place = |name| alloc.request_named(&data, name).map(|(at, it)| (at, it.name()));
        assert_eq!(place(None), Some((1, "work")));
        assert_eq!(place(Some("look")), Some((0, "look")));
        assert_eq!(place(Some("too")), Some((2, "too")));
        assert_eq!(place(Some("other")), None);
        assert_eq!(alloc.request_named(&other, None).map(|(at, _)| at), Some(0));
    }

    #[test]
    fn a_runner_that_mounts_nothing_or_only_its_host_says_so() {
        assert_eq!(TaskDriverMounts::default().lacks(VolumeType::Csi), None);
        for (mounts, word) in
            [(TaskDriverMounts::None, "no volumes"), (TaskDriverMounts::Host, "host")]
        {
            assert!(mounts.lacks(VolumeType::Csi).unwrap().contains(word), "{mounts:?}");
        }
    }

    #[test]
    fn a_request_of_before_there_were_types_is_read() {
        let request: VolumeRequest = serde_json::from_str(r#"{"source":"data"}"#).unwrap();
        assert_eq!(request, VolumeRequest::for_volume(VolumeId::new("data").unwrap()));
        assert_eq!(request.name(), "data");
        // Nor were there groups, and several requests for one volume.
        let alloc = r#"{"state":"live","node":"n1","since":"2026-01-01T00:00:00.000Z","volumes":
            [{"source":"data","mount":{"fs_type":"xfs","flags":["ro"]}}]}"#;
        let alloc: Alloc = serde_json::from_str(alloc).unwrap();
        let data = VolumeId::new("data").unwrap();
        let (place, request) = alloc.request_named(&data, None).unwrap();
        assert_eq!((place, request.mount.group.as_ref()), (0, None));
        assert!(alloc.index.is_none() && !request.per_alloc && !request.read_only);
    }

    fn owned_by(owner: Option<&str>) -> Alloc {
        Alloc {
            state: AllocState::Live,
            node: NodeId::new("n1").unwrap(),
            index: None,
            volumes: Vec::new(),
            since: Timestamp::from_unix_ms(0),
            note: None,
            by: Some("user.anna".to_owned()),
            owner: owner.map(|name| AllocOwner::new(OwnerId::new(name).unwrap(), true)),
            meta: BTreeMap::new(),
        }
    }

    #[test]
    fn only_the_owner_or_who_saw_the_record_changes_an_alloc() {
        let (a, b) = (OwnerId::new("a").unwrap(), OwnerId::new("b").unwrap());
        let ask = |owner, by, revision| ChangeGuard { by, owner, revision };
        let (owned, free) = (owned_by(Some("a")), owned_by(None));
        let of_a = GuardRefusal::Owned { owner: a.clone(), by: owned.by.clone() };
        let anna = Some("user.anna");
        let table = [
            (&owned, ask(Some(&a), anna, None), Ok(())),
            (&owned, ask(Some(&b), anna, None), Err(of_a.clone())),
            (&owned, ask(Some(&a), Some("user.bob"), None), Err(of_a.clone())),
            (&owned, ask(Some(&a), None, None), Err(of_a.clone())),
            (&owned, ask(None, anna, None), Err(of_a)),
            (&owned, ask(None, Some("user.bob"), Some(7)), Ok(())),
            (&owned, ask(Some(&a), anna, Some(6)), Err(GuardRefusal::Changed { seen: 6, now: 7 })),
            (&free, ask(None, Some("user.bob"), None), Ok(())),
            (&free, ask(None, None, Some(7)), Ok(())),
            (&free, ask(None, None, Some(8)), Err(GuardRefusal::Changed { seen: 8, now: 7 })),
            (&free, ask(Some(&a), anna, None), Err(GuardRefusal::NotOwned(a.clone()))),
        ];
        for (alloc, guard, expected) in table {
            assert_eq!(alloc.check_change(7, guard), expected, "{guard:?}");
        }
    }

    #[test]
    fn an_ended_alloc_is_nobodys_concern() {
        let mut lost = owned_by(Some("a"));
        assert!(!lost.is_unowned());
        lost.owner.as_mut().unwrap().unowned_since = Some(Timestamp::from_unix_ms(1));
        assert!(lost.is_unowned());
        lost.state = AllocState::Complete;
        assert!(!lost.is_unowned());
    }
}
