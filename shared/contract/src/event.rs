//! Events: what happened, in order, for people and programs.
//!
//! **Owns** the form of an event, and every name of one. **Never** decides anything: no service
//! reads them to act.

use std::fmt;

use berth_domain::{
    AllocId, AttemptId, Namespace, NodeId, PluginId, SnapshotId, Timestamp, VolumeId,
};
use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::service::ServiceName;
use crate::subject;
use crate::{decode_leaf, decode_struct};

macro_rules! events {
    ($($name:ident = $text:literal, $meaning:literal;)*) => {
        /// What happened. The noun is the kind in the subject.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum EventName {
            $(#[doc = $meaning] #[serde(rename = $text)] $name,)*
            /// Something that a newer version tells.
            #[serde(other, rename = "unknown")]
            Unknown,
        }

        impl EventName {
            /// Every name, by noun.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// As it is written: noun and what became of it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* Self::Unknown => "unknown" }
            }

            /// What it means, in a line.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
                    Self::Unknown => "something that a newer version tells",
                }
            }
        }
    };
}

events! {
    VolumeRegistered = "volume.registered", "A volume was registered.";
    VolumeUpdated = "volume.updated", "A volume's document was changed.";
    VolumeClosing = "volume.closing", "A volume is being deregistered; its claims are released.";
    VolumeDeregistered = "volume.deregistered", "A volume is gone from Berth.";
    VolumeCreating = "volume.creating", "A volume is being created at its storage.";
    VolumeCreated = "volume.created", "A volume was created at its storage; it can be claimed.";
    VolumeFailed = "volume.failed", "The storage refused to create, change or delete a volume.";
    VolumeDeleting = "volume.deleting", "A volume is being deleted at its storage.";
    VolumeDeleted = "volume.deleted", "A volume is gone from its storage and from Berth.";
    VolumeExpanding = "volume.expanding", "A volume is being made larger.";
    VolumeExpanded = "volume.expanded", "A volume is larger now, also on its nodes.";
    VolumeModifying = "volume.modifying", "Mutable parameters of a volume are being changed.";
    VolumeModified = "volume.modified", "Mutable parameters of a volume were changed.";
    VolumeRetried = "volume.retried", "A call for a volume itself did not succeed; it is repeated.";
    VolumeMounted = "volume.mounted", "A node mounted a volume for an alloc.";
    VolumeMountFailed = "volume.mount-failed", "A node could not mount a volume for an alloc.";
    VolumeUnmounted = "volume.unmounted", "A node took a volume down for an alloc.";
    VolumeMountDead = "volume.mount-dead", "A mount is gone, fails or hangs; see the detail.";
    VolumeMountUnaccounted = "volume.mount-unaccounted", "A mount that no claim covers is there.";
    VolumeMountHung = "volume.mount-hung", "A call that mounts a volume is past its deadline.";
    VolumeMountWell = "volume.mount-well", "A mount that did not answer answers again.";

    SnapshotCreating = "snapshot.creating", "A snapshot is being cut.";
    SnapshotCut = "snapshot.cut", "A snapshot was cut; the plugin still works on it.";
    SnapshotReady = "snapshot.ready", "A snapshot is ready: a volume can be made of it.";
    SnapshotFailed = "snapshot.failed", "The storage refused to cut or delete a snapshot.";
    SnapshotDeleting = "snapshot.deleting", "A snapshot is being deleted at its storage.";
    SnapshotDeleted = "snapshot.deleted", "A snapshot is gone from its storage and from Berth.";
    SnapshotRetried = "snapshot.retried", "A call for a snapshot did not succeed; it is repeated.";

    ClaimWaiting = "claim.waiting", "A claim waits in line for its volume.";
    ClaimPublishing = "claim.publishing", "The controller is asked to attach the volume.";
    ClaimTaken = "claim.taken", "A claim is granted.";
    ClaimUnpublishing = "claim.unpublishing", "A claim is released; its node is to unmount.";
    ClaimNodeDetached = "claim.node-detached", "The node has unmounted; the controller is next.";
    ClaimFailed = "claim.failed", "A call for a claim did not succeed; the detail says why.";
    ClaimFreed = "claim.freed", "A claim is gone; the volume is free of it.";

    CallDone = "call.done", "An agent made a call of the claim protocol.";
    CallFailed = "call.failed", "An agent was asked for a call, which did not succeed.";

    AllocRegistered = "alloc.registered", "An alloc was registered, or changed.";
    AllocComplete = "alloc.complete", "An alloc ended by itself.";
    AllocFailed = "alloc.failed", "An alloc ended with an error, or its runner vanished.";
    AllocStopped = "alloc.stopped", "An alloc ended by a request.";
    AllocUnowned = "alloc.unowned", "The lease of the alloc's owner has ended; it may be adopted.";
    AllocAdopted = "alloc.adopted", "An owner took the alloc over.";
    AllocForgotten = "alloc.forgotten", "The record of an alloc that had ended was removed.";

    RequestRefused = "request.refused",
        "A request for a change was refused, or failed; the code and the detail say why.";

    PluginHealthy = "plugin.healthy", "A plugin instance became healthy.";
    PluginUnhealthy = "plugin.unhealthy", "A plugin instance became unhealthy.";
    PluginInstanceLeft = "plugin.instance-left", "A node no longer has this plugin instance.";
    PluginStarted = "plugin.started", "An agent started the process of a plugin.";
    PluginEnded = "plugin.ended", "The process of a plugin ended; it is started again.";
    PluginStopped = "plugin.stopped", "An agent stopped a plugin; the detail says why.";
    PluginHeld = "plugin.held", "A plugin was taken away and still runs: mounts need it.";
    PluginMoved = "plugin.moved", "Calls go to another instance of a plugin on this node.";
    PluginStorageTrouble = "plugin.storage-trouble",
        "A plugin says that its storage is not well, seen from a node; the detail says how.";
    PluginStorageWell = "plugin.storage-well",
        "A plugin says that its storage is well again, seen from a node.";
    PluginExpected = "plugin.expected", "A job says how many instances of a plugin it is to have.";

    NodeReady = "node.ready", "A node's agent is there.";
    NodeDown = "node.down", "A node's agent is not there any more; nothing is freed by that.";
    NodeLeft = "node.left", "A node was removed for good.";
    NodeGone = "node.gone", "A node was declared gone: nothing on it can write; see the detail.";
    NodeBack = "node.back", "A node that was gone is back, and has undone what it had mounted.";
}

impl EventName {
    /// Whether agents tell it. The registry stores no other event for them.
    pub const fn is_of_agents(self) -> bool {
        matches!(
            self,
            Self::VolumeMounted
                | Self::VolumeMountFailed
                | Self::VolumeUnmounted
                | Self::VolumeMountDead
                | Self::VolumeMountUnaccounted
                | Self::VolumeMountHung
                | Self::VolumeMountWell
                | Self::CallDone
                | Self::CallFailed
                | Self::RequestRefused
                | Self::PluginStarted
                | Self::PluginEnded
                | Self::PluginStopped
                | Self::PluginHeld
                | Self::PluginMoved
        )
    }
}

impl fmt::Display for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What.
    pub event: EventName,
    /// When.
    pub at: Timestamp,
    /// In which namespace; none for plugins and nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// To which volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeId>,
    /// To which snapshot of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotId>,
    /// For which alloc.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alloc: Option<AllocId>,
    /// On which node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// By which plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginId>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Of a refused request: the verb that refused it, such as `claim.take`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Of a refused request: the code of the error. The error's message is the detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// Who wants it: whom the alloc was registered or adopted by; of a refused request, its sender.
    /// It is the actor of that request, as in its subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Who says so.
    pub service: String,
    /// The trace that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Of a release: the trace of the claim that is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_trace: Option<String>,
    /// The attempt that began, or that it is the end of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// How long what ended with it took, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    /// The calls of the plugin that it is the end of, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<PluginCall>,
}

/// One call of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginCall {
    /// Which RPC, such as `NodeStageVolume`.
    pub rpc: String,
    /// When it was made.
    pub at: Timestamp,
    /// How long the answer took, in microseconds.
    pub took_us: u64,
    /// gRPC's code of the answer, such as `OK`; `NO_ANSWER` when there was none.
    pub code: String,
}

decode_leaf!(EventName, Code);
decode_struct!(Event {
    event,
    at,
    namespace,
    volume,
    snapshot,
    alloc,
    node,
    plugin,
    detail,
    step,
    code,
    by,
    service,
    trace,
    claim_trace,
    attempt,
    took_us,
    calls,
});
decode_struct!(PluginCall { rpc, at, took_us, code });

impl Event {
    /// Something that happened, with nothing more said of it yet.
    pub fn new(event: EventName, at: Timestamp, service: ServiceName) -> Self {
        Self {
            event,
            at,
            namespace: None,
            volume: None,
            snapshot: None,
            alloc: None,
            node: None,
            plugin: None,
            detail: None,
            step: None,
            code: None,
            by: None,
            service: service.name.to_owned(),
            trace: None,
            claim_trace: None,
            attempt: None,
            took_us: None,
            calls: Vec::new(),
        }
    }

    /// Where it is published: by namespace, noun, the id of the thing itself, alloc, and who wants
    /// it.
    pub fn subject(&self) -> String {
        let kind = self.event.as_str().split('.').next().unwrap_or_default();
        let id = match kind {
            "plugin" => self.plugin.as_ref().map(AsRef::as_ref),
            "node" => self.node.as_ref().map(AsRef::as_ref),
            "alloc" => self.alloc.as_ref().map(AsRef::as_ref),
            _ => self.volume.as_ref().map(AsRef::as_ref),
        };
        let about = subject::EventSubject {
            namespace: self.namespace.as_ref(),
            kind,
            id,
            alloc: self.alloc.as_ref(),
            by: self.by.as_deref(),
        };
        about.to_string()
    }
}
