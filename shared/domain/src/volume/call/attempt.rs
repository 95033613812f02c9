//! Attempts: the one call that may be under way for a claim, a volume or a snapshot.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{AttemptId, Timestamp, WorkerId, limits};

/// Which call an attempt makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CallKind {
    /// `ControllerPublishVolume`, for a reservation.
    #[serde(rename = "controller.publish")]
    ControllerPublish,
    /// Unpublish and, when it is the last on the node, unstage: by the node's agent.
    #[serde(rename = "agent.detach")]
    NodeDetach,
    /// `ControllerUnpublishVolume`.
    #[serde(rename = "controller.unpublish")]
    ControllerUnpublish,
    /// `CreateVolume`.
    #[serde(rename = "controller.create")]
    VolumeCreate,
    /// `DeleteVolume`.
    #[serde(rename = "controller.delete")]
    VolumeDelete,
    /// `ControllerExpandVolume`.
    #[serde(rename = "controller.expand")]
    VolumeExpand,
    /// `NodeExpandVolume`: by the node's agent.
    #[serde(rename = "agent.expand")]
    NodeExpand,
    /// `ControllerModifyVolume`.
    #[serde(rename = "controller.modify")]
    VolumeModify,
    /// `CreateSnapshot`; again until the snapshot is ready.
    #[serde(rename = "controller.snapshot")]
    SnapshotCreate,
    /// `DeleteSnapshot`.
    #[serde(rename = "controller.snapshot-delete")]
    SnapshotDelete,
    /// `CreateVolumeGroupSnapshot`; again until the group is ready.
    #[serde(rename = "controller.group-snapshot")]
    GroupCreate,
    /// `DeleteVolumeGroupSnapshot`.
    #[serde(rename = "controller.group-snapshot-delete")]
    GroupDelete,
}

impl CallKind {
    /// Whether the volume's controller is called, rather than a node.
    pub const fn is_controller(self) -> bool {
        !matches!(self, Self::NodeDetach | Self::NodeExpand)
    }

    /// The name in records and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ControllerPublish => "controller.publish",
            Self::NodeDetach => "agent.detach",
            Self::ControllerUnpublish => "controller.unpublish",
            Self::VolumeCreate => "controller.create",
            Self::VolumeDelete => "controller.delete",
            Self::VolumeExpand => "controller.expand",
            Self::NodeExpand => "agent.expand",
            Self::VolumeModify => "controller.modify",
            Self::SnapshotCreate => "controller.snapshot",
            Self::SnapshotDelete => "controller.snapshot-delete",
            Self::GroupCreate => "controller.group-snapshot",
            Self::GroupDelete => "controller.group-snapshot-delete",
        }
    }
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One call. The attempt is written before the call is sent. The call is sent once (rule 2). The
/// attempt stays on the record until it is answered or replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// New for every call.
    pub id: AttemptId,
    /// The call.
    pub call: CallKind,
    /// The process that makes the call.
    pub worker: WorkerId,
    /// The executor does nothing after this time.
    pub deadline: Timestamp,
    /// When a reader stops waiting for the call, although its deadline is later: it is too far
    /// ahead, so the writer's clock was wrong. Set when the record is read, and again when the
    /// reader's own clock was set back, because it may be the writer. Not stored.
    #[serde(skip)]
    pub bound: Option<Timestamp>,
}

impl Attempt {
    /// When another call may start, if this one is not answered (rule 3).
    pub fn free_at(&self, clock_margin: Duration) -> Timestamp {
        self.ends().after(clock_margin)
    }

    /// Bounds a deadline that is further ahead of the reader's clock than the call timeout and the
    /// clock margin allow.
    pub fn bound_deadline(&mut self, read_at: Timestamp, call_timeout: Duration) {
        let longest = read_at.after(call_timeout + limits::CLOCK_MARGIN);
        self.bound = (self.deadline > longest).then_some(longest);
    }

    /// When the call has ended, or its executor has given it up.
    pub fn ends(&self) -> Timestamp {
        self.bound.unwrap_or(self.deadline)
    }

    /// The attempt as others are told of it: with the deadline that this reader believes.
    #[must_use]
    pub fn with_believed_deadline(&self) -> Self {
        Self { deadline: self.ends(), bound: None, ..self.clone() }
    }

    /// Whether an executor may still start the call, or work on it (rule 3).
    pub fn may_still_act(&self, now: Timestamp, clock_margin: Duration) -> bool {
        now <= self.free_at(clock_margin)
    }
}
