//! The world: records, storage, and calls.

use berth_domain::volume::CallKind;

use super::{Mutation, Scenario};

/// The number of executors of the plugin's controller.
pub(super) const EXECUTORS: u8 = 2;
/// The number of the node's agent, after those of the controller's executors.
pub(super) const AGENT: u8 = EXECUTORS;

/// The role of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Role {
    /// S, the source.
    Source,
    /// C, the copy.
    Copy,
}

pub(super) const BOTH: [Role; 2] = [Role::Source, Role::Copy];

impl Role {
    pub(super) const fn at(self) -> usize {
        self as usize
    }

    /// The names of its incarnations at the plugin.
    pub(super) const fn names(self) -> [u8; 2] {
        match self {
            Self::Source => [0, 1],
            Self::Copy => [2, 3],
        }
    }
}

/// The names of the snapshot's incarnations.
pub(super) const SNAPSHOT_NAMES: [u8; 2] = [0, 1];

/// The number of a record: see [`Records`](super::records::Records).
pub(super) type Record = u16;

/// The plugin's id of a volume or a snapshot: the name that it was created with, and its storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id {
    pub(super) name: u8,
    pub(super) store: u8,
}

/// What a volume is a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CopyOf {
    pub(super) snapshot: bool,
    pub(super) id: Id,
}

/// The record that a call belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Owner {
    Operation,
    Snapshot,
    Claim,
}

/// The work that a call requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Work {
    Create { name: u8, of: Option<CopyOf> },
    Delete { id: Id },
    Expand { id: Id, size: u8 },
    ExpandNode,
    Modify { id: Id },
    Cut { name: u8, of: Id },
    DeleteSnapshot { id: Id },
    Publish { id: Id },
    Unpublish { id: Id },
    Detach,
}

impl Work {
    pub(super) const fn kind(self) -> CallKind {
        match self {
            Self::Create { .. } => CallKind::VolumeCreate,
            Self::Delete { .. } => CallKind::VolumeDelete,
            Self::Expand { .. } => CallKind::VolumeExpand,
            Self::ExpandNode => CallKind::NodeExpand,
            Self::Modify { .. } => CallKind::VolumeModify,
            Self::Cut { .. } => CallKind::SnapshotCreate,
            Self::DeleteSnapshot { .. } => CallKind::SnapshotDelete,
            Self::Publish { .. } => CallKind::ControllerPublish,
            Self::Unpublish { .. } => CallKind::ControllerUnpublish,
            Self::Detach => CallKind::NodeDetach,
        }
    }
}

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Outcome {
    Created { id: Id },
    Expanded { size: u8, nodes: bool },
    Cut { id: Id, ready: bool },
    Done,
    Refused,
    NotDone,
    Failed,
    Unasked,
    Unanswered,
}

/// The progress of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Progress {
    Sent,
    AtWork(u8),
    Answered(Outcome),
}

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Call {
    /// The volume; for a group's call, the leading volume.
    pub(super) role: Role,
    /// The other volume of its group.
    pub(super) other_member: Option<Role>,
    pub(super) owner: Owner,
    pub(super) work: Work,
    /// Whether its attempt is on the record.
    pub(super) current: bool,
    /// Whether its deadline is in the future.
    pub(super) live: bool,
    /// The executor that must get it; `None` if any executor may.
    pub(super) target: Option<u8>,
    /// Whether the other executors are asked first (rule 4).
    pub(super) asks: bool,
    pub(super) progress: Progress,
}

impl Call {
    /// Whether both are calls of one volume.
    pub(super) fn is_of_same_volume(&self, other: &Self) -> bool {
        let each = [Some(self.role), self.other_member];
        [Some(other.role), other.other_member]
            .iter()
            .flatten()
            .any(|role| each.contains(&Some(*role)))
    }
}

/// A snapshot at the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct StoredSnapshot {
    pub(super) id: Id,
    pub(super) ready: bool,
}

/// What the second replica sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct View {
    pub(super) records: [Record; 2],
    /// Whether the record's revision is still the newest.
    pub(super) fresh: [bool; 2],
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) records: [Record; 2],
    pub(super) view: Option<View>,
    /// The volumes at the storage, sorted.
    pub(super) volumes: Vec<Id>,
    /// The snapshots at the storage, sorted.
    pub(super) snapshots: Vec<StoredSnapshot>,
    /// Whether S or its snapshot disappeared without Berth.
    pub(super) vanished: bool,
    /// The calls under way, sorted.
    pub(super) calls: Vec<Call>,
}

impl World {
    pub(super) fn snapshot(&self, id: Id) -> Option<&StoredSnapshot> {
        self.snapshots.iter().find(|snapshot| snapshot.id == id)
    }

    /// The executors that work on a call for a volume of this call.
    pub(super) fn at_work(&self, related: Call) -> impl Iterator<Item = (u8, &Call)> {
        self.calls.iter().filter(move |call| call.is_of_same_volume(&related)).filter_map(|call| {
            match call.progress {
                Progress::AtWork(executor) => Some((executor, call)),
                Progress::Sent | Progress::Answered(_) => None,
            }
        })
    }

    /// Makes equivalent worlds equal.
    pub(super) fn normalise(&mut self, scenario: &Scenario) {
        let arrives_late = scenario.is(Mutation::LateCalls);
        let counts_late = scenario.is(Mutation::OldAnswers);
        self.calls.retain(|call| match call.progress {
            Progress::Sent => call.live || arrives_late,
            Progress::AtWork(_) => true,
            Progress::Answered(_) => call.current || counts_late,
        });
        self.calls.sort_unstable();
        // Executors of one storage are interchangeable.
        if !scenario.local {
            let mut calls = self.calls.clone();
            for call in &mut calls {
                if let Progress::AtWork(executor) = &mut call.progress
                    && *executor < EXECUTORS
                {
                    *executor = EXECUTORS - 1 - *executor;
                }
            }
            calls.sort_unstable();
            self.calls = calls.min(std::mem::take(&mut self.calls));
        }
        self.volumes.sort_unstable();
        self.snapshots.sort_unstable();
    }
}
