//! A volume that `docker volume create` has created at its storage: the options, the progress of
//! the creation, and whether `docker volume rm` deletes the volume.
//!
//! **Owns** that rule. A name deletes only the volume that its own `docker volume create` made, and
//! only by the volume's reclaim policy:
//! - until the request is answered, that volume is recognised by its
//!   [title](berth_contract::docker), which names the node and Docker's name; a volume from before
//!   the request is another one;
//! - from then on it is recognised by its `create_index`. A volume that was created again is
//!   another one.
//!
//! **Promises** that a request that may create a volume is on the disk before it is sent, and stays
//! there until its outcome is known.
//!
//! **Never** waits, reads a clock or touches a disk.
//!
//! ```text
//!            create             ready                rm                 gone
//!   (none) ─────────▶ requested ──────▶ made ─────────────▶ removing ────────▶ (none)
//!                       │  │              ▲   refused          │
//!                       │  │              └────────────────────┘
//!                       │  └─ another request made the volume ▶ joined ─ rm ─▶ (none)
//!                       └─ refused, or never stored ─▶ (none)
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use berth_contract::message::storage::{CopyFrom, Create};
use berth_contract::message::volume::VolumeStatus;
use berth_domain::access::{AccessMode, AttachmentMode, Capability};
use berth_domain::limits::{CLOCK_MARGIN, REQUEST_TIMEOUT};
use berth_domain::size::Size;
use berth_domain::volume::MountOptions;
use berth_domain::volume::storage::{Reclaim, Stage};
use berth_domain::{ClassId, NodeId, PluginId, Timestamp};
use serde::{Deserialize, Serialize};

use super::target::VolumeTarget;

/// How long a request may still be carried out after it was sent: its timeout, and the difference
/// of two clocks.
const REQUEST_LIFE: Duration = REQUEST_TIMEOUT.saturating_add(CLOCK_MARGIN);

/// The state of a name and its volume.
pub enum Settlement {
    /// The name has its volume. The status is missing if the claim service did not answer.
    Usable(Option<Box<VolumeStatus>>),
    /// The name was forgotten, for this reason.
    Gone(String),
    /// The volume is still being created or deleted; the state in words.
    UnderWay(String),
}

/// The options of `docker volume create` that say how a volume is created. The others are in
/// [`VolumeTarget`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageOptions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassId>,
    /// The plugin, without a class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginId>,
    /// The largest size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Size>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Reclaim>,
    /// What the volume is a copy of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<CopyFrom>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mutable_parameters: BTreeMap<String, String>,
}

/// How the volume of a name is created, and its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Creation {
    #[serde(flatten)]
    pub options: StorageOptions,
    pub progress: CreationProgress,
}

/// The progress of a creation for a name, as far as this node knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CreationProgress {
    /// `volume.create` is about to be sent, or was sent. The volume may exist.
    Requested {
        at: Timestamp,
        /// The `create_index` of the volume that existed before the first of these requests.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<u64>,
    },
    /// The request of this name made the volume: `docker volume rm` may delete it.
    Made { create_index: u64 },
    /// Another request made the volume: `docker volume rm` removes the name only.
    Joined,
    /// `volume.delete` is about to be sent, or was sent.
    Removing { create_index: u64, at: Timestamp },
}

impl CreationProgress {
    pub const fn is_under_way(&self) -> bool {
        matches!(self, Self::Requested { .. } | Self::Removing { .. })
    }
}

impl StorageOptions {
    /// The options in words, without values of parameters: these may hold secrets.
    pub fn describe(&self) -> Vec<String> {
        let Self { class, plugin, limit, reclaim, origin, parameters, mutable_parameters } = self;
        let mut words = Vec::new();
        words.extend(class.as_ref().map(|class| format!("class={class}")));
        words.extend(plugin.as_ref().map(|plugin| format!("plugin={plugin}")));
        words.extend(limit.map(|limit| format!("limit={limit}")));
        words.extend(reclaim.map(|reclaim| format!("reclaim={}", reclaim_option(reclaim))));
        words.extend(origin.as_ref().map(|origin| match &origin.snapshot {
            Some(snapshot) => format!("from-snapshot={}@{snapshot}", origin.volume),
            None => format!("from-volume={}", origin.volume),
        }));
        words.extend(parameters.keys().map(|key| format!("param.{key}")));
        words.extend(mutable_parameters.keys().map(|key| format!("mutable.{key}")));
        words
    }

    /// The request that creates the volume, where this node reaches it; for this use of its class,
    /// if not for the first.
    pub fn document(
        &self,
        target: &VolumeTarget,
        title: &str,
        (node, of_class): (&NodeId, Option<Capability>),
    ) -> Create {
        let default_access = self.class.is_none().then_some(AccessMode::SingleNodeWriter);
        let access = target.access.or(default_access).into_iter();
        let attachment = AttachmentMode::FileSystem;
        Create {
            id: target.volume.clone(),
            namespace: None,
            name: Some(title.to_owned()),
            class: self.class.clone(),
            plugin: self.plugin.clone(),
            size: target.size.and_then(|bytes| Size::new(bytes).ok()),
            limit: self.limit,
            capabilities: access
                .map(|access| Capability { access, attachment })
                .chain(of_class)
                .collect(),
            mount: MountOptions { fs_type: target.fs.clone(), ..MountOptions::default() },
            parameters: self.parameters.clone(),
            mutable_parameters: self.mutable_parameters.clone(),
            topologies: Vec::new(),
            topology_policy: None,
            reclaim: self.reclaim,
            origin: self.origin.clone(),
            for_alloc: None,
            node: Some(node.clone()),
            secrets: None,
        }
    }
}

pub const fn reclaim_option(reclaim: Reclaim) -> &'static str {
    match reclaim {
        Reclaim::Delete => "delete",
        Reclaim::Retain => "retain",
    }
}

/// The volume's stage at its storage. A service of an older version has only ready volumes.
pub fn stage_of(volume: &VolumeStatus) -> Stage {
    volume.storage.as_ref().map_or(Stage::Ready, |storage| storage.stage)
}

/// Whether a claim may use the volume, or create it.
pub fn is_usable(stage: Stage) -> bool {
    matches!(stage, Stage::Ready | Stage::Unused)
}

/// What the volume waits for at its storage, in words, and the plugin's last error.
pub fn describe_storage(volume: &VolumeStatus, now: Timestamp) -> String {
    match berth_explain::find_volume(now, volume) {
        Some(finding) if finding.evidence.is_empty() => finding.line(),
        Some(finding) => format!("{} ({})", finding.line(), finding.evidence.join("; ")),
        None => format!("it is {}", stage_of(volume)),
    }
}

fn refusal_of(volume: &VolumeStatus) -> Option<&str> {
    Some(volume.storage.as_ref()?.failure.as_ref()?.failure.message.as_str())
}

/// What the state of a volume means for the name that it was created for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreationStep {
    /// Nothing is under way, and the volume exists.
    Settled,
    /// The creation or deletion continues; the state in words.
    Await(String),
    /// The creation has come this far.
    Advance(CreationProgress),
    /// The name has no volume, for this reason.
    Forget(String),
    /// The storage refused to create the volume, so there is none. Its record is to be deleted.
    ClearRefused { create_index: u64, error: String },
}

/// Compares a creation with its volume; `None` for a volume that does not exist.
pub fn next_step(
    progress: &CreationProgress,
    volume: Option<&VolumeStatus>,
    title: &str,
    now: Timestamp,
) -> CreationStep {
    let is_pending = |sent: Timestamp| now.since(sent) < REQUEST_LIFE;
    let Some(volume) = volume else {
        return match *progress {
            CreationProgress::Requested { at, .. } if is_pending(at) => {
                CreationStep::Await("the request to create it is not stored yet".to_owned())
            }
            _ => CreationStep::Forget("Berth has no such volume".to_owned()),
        };
    };
    let stage = stage_of(volume);
    match *progress {
        CreationProgress::Made { create_index }
        | CreationProgress::Removing { create_index, .. }
            if volume.create_index != create_index =>
        {
            CreationStep::Forget("it was deleted, and its id is another volume's".to_owned())
        }
        CreationProgress::Removing { .. } if matches!(stage, Stage::Creating) => {
            CreationStep::Await(describe_storage(volume, now))
        }
        _ if stage == Stage::Deleting || volume.closing.is_some() => {
            CreationStep::Await(describe_storage(volume, now))
        }
        CreationProgress::Made { .. } | CreationProgress::Joined => CreationStep::Settled,
        CreationProgress::Removing { at, .. } if is_pending(at) => {
            CreationStep::Await("the request to delete it is not stored yet".to_owned())
        }
        CreationProgress::Removing { create_index, .. } => {
            CreationStep::Advance(CreationProgress::Made { create_index })
        }
        CreationProgress::Requested { before, .. } => {
            let is_own = is_made_by(title, before, volume);
            decide_requested(volume, is_own, now)
        }
    }
}

/// Compares a requested creation with the existing volume.
fn decide_requested(volume: &VolumeStatus, is_own: bool, now: Timestamp) -> CreationStep {
    let create_index = volume.create_index;
    match stage_of(volume) {
        Stage::Ready | Stage::Unused if is_own => {
            CreationStep::Advance(CreationProgress::Made { create_index })
        }
        Stage::Ready | Stage::Unused => CreationStep::Advance(CreationProgress::Joined),
        Stage::Creating | Stage::Deleting => CreationStep::Await(describe_storage(volume, now)),
        Stage::Failed => {
            let error = refusal_of(volume).unwrap_or("no reason is given");
            let error = format!("the storage refused it: {error}");
            if is_own {
                CreationStep::ClearRefused { create_index, error }
            } else {
                CreationStep::Forget(format!("{error}; its record is another request's"))
            }
        }
    }
}

/// Whether the request with this title made the volume, after `before` was read.
fn is_made_by(title: &str, before: Option<u64>, volume: &VolumeStatus) -> bool {
    let was_created = volume.storage.as_ref().is_some_and(|storage| storage.reclaim.is_some());
    was_created && volume.name == title && Some(volume.create_index) != before
}

/// What `docker volume rm` does besides removing the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalPlan {
    /// The volume stays as it is, for this reason.
    KeepVolume(&'static str),
    /// The volume of this `create_index` is deleted at its storage.
    DeleteVolume { create_index: u64 },
    /// The request of the name may still create the volume.
    AwaitRequest,
}

impl RemovalPlan {
    pub const fn describe(self) -> &'static str {
        match self {
            Self::KeepVolume(reason) => reason,
            Self::DeleteVolume { .. } => "the volume is deleted",
            Self::AwaitRequest => "it may still be created",
        }
    }
}

/// Decides what a removal does with the volume; `None` for a volume that does not exist.
pub fn plan_removal(
    creation: Option<&Creation>,
    volume: Option<&VolumeStatus>,
    title: &str,
    now: Timestamp,
) -> RemovalPlan {
    let Some(Creation { progress, .. }) = creation else {
        return RemovalPlan::KeepVolume("the volume stays: this name did not create it");
    };
    let Some(volume) = volume else {
        return match progress {
            CreationProgress::Requested { at, .. } if now.since(*at) < REQUEST_LIFE => {
                RemovalPlan::AwaitRequest
            }
            _ => RemovalPlan::KeepVolume("there is no volume"),
        };
    };
    let is_own = match progress {
        CreationProgress::Requested { before, .. } => is_made_by(title, *before, volume),
        CreationProgress::Joined => false,
        CreationProgress::Made { create_index }
        | CreationProgress::Removing { create_index, .. } => volume.create_index == *create_index,
    };
    let reclaim = volume.storage.as_ref().and_then(|storage| storage.reclaim);
    match (is_own, reclaim) {
        (false, _) => RemovalPlan::KeepVolume("the volume stays: another request created it"),
        (true, Some(Reclaim::Delete)) => {
            RemovalPlan::DeleteVolume { create_index: volume.create_index }
        }
        (true, Some(Reclaim::Retain) | None) => {
            RemovalPlan::KeepVolume("the volume stays: its reclaim policy is retain")
        }
    }
}

#[cfg(test)]
mod tests;
