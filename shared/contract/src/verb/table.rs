//! The table of verbs.
//!
//! **Owns** for each verb its name, its subject, which service answers and who sends it, its
//! request, its reply, its errors, and one line of documentation, which people also read in
//! `nats micro info`.
//!
//! To add a verb, add its row here, register its handler where the service answers, and write its
//! test: see "Adding a verb" in CONTRIBUTING.md.

#![expect(clippy::doc_markdown, reason = "`nats micro info` shows the text as it is")]

use berth_domain::{Namespace, NodeId, PluginId};

use super::Effect;
use super::errors::{CLAIM_REFUSED, PLUGIN_FAILED, codes};
use super::sender::senders;
use super::{NodeAndNamespace, PluginOnNode, Row, Verb};
use crate::message::{
    agent, alloc, call, claim, collect, history, many, node, owner, plugin, registry, secret,
    volume,
};
use crate::service::{CLAIM, CONTROLLER, GC, NODE_AGENT, PLUGIN_REGISTRY};

/// Makes each row a type that implements [`Verb`], and lists them all.
macro_rules! verbs {
    ($(
        $(#[doc = $line:literal])+
        $name:ident {
            step: $step:literal, endpoint: $endpoint:literal,
            subject: $subject:literal, to: $to:ty,
            service: $service:ident, senders: [$($sender:ident),*], effect: $effect:ident,
            request: $request:ty, reply: $reply:ty,
            errors: [$($code:ident),* $(,)?] $(+ $group:ident)*,
        }
    )+) => {
        $(
            $(#[doc = $line])+
            #[derive(Debug, Clone, Copy)]
            pub enum $name {}

            impl Verb for $name {
                type To = $to;
                type Request = $request;
                type Reply = $reply;
                const ROW: Row = Row {
                    step: $step,
                    endpoint: $endpoint,
                    subject: $subject,
                    service: $service,
                    senders: &[$(senders::$sender),*],
                    effect: Effect::$effect,
                    errors: &[codes![$($code),*] $(, $group)*],
                    description: concat!($($line),+).trim_ascii(),
                    request: stringify!($request),
                    reply: stringify!($reply),
                };
            }
        )+

        /// Every row.
        pub const ALL: &[Row] = &[$($name::ROW),+];
    };
}

verbs! {
    /// Register a volume, or change it: the volume's document
    VolumeRegister {
        step: "volume.register", endpoint: "volume-register",
        subject: "berth.v1.volume.register.<ns>", to: Namespace,
        service: CLAIM, senders: [WRITE], effect: Change,
        request: volume::Register, reply: volume::Registered,
        errors: [VolumeClosing, UnsafeUpdate, HandleTaken] + PLUGIN_FAILED,
    }

    /// Deregister a volume; by force once its claims are released: id, force, reason
    VolumeDeregister {
        step: "volume.deregister", endpoint: "volume-deregister",
        subject: "berth.v1.volume.deregister.<ns>", to: Namespace,
        service: CLAIM, senders: [WRITE, GC], effect: Change,
        request: volume::Deregister, reply: volume::Deregistered,
        errors: [NoSuchVolume, ClaimsLive, NotDue, Changed, Releasing],
    }

    /// Release a node's claims on a volume whose allocs have ended: id, node, reason
    VolumeDetach {
        step: "volume.detach", endpoint: "volume-detach",
        subject: "berth.v1.volume.detach.<ns>", to: Namespace,
        service: CLAIM, senders: [OPERATOR], effect: Change,
        request: volume::Detach, reply: volume::Detached,
        errors: [NoSuchVolume, NoSuchNode, ClaimsLive, NoSuchClaim],
    }

    /// Show one volume with its claims and its health: id
    VolumeStatus {
        step: "volume.status", endpoint: "volume-status",
        subject: "berth.v1.volume.status.<ns>", to: Namespace,
        service: CLAIM, senders: [READ, DOCKER], effect: Read,
        request: volume::Status, reply: volume::VolumeStatus,
        errors: [NoSuchVolume],
    }

    /// List volumes, one short line each: prefix, plugin, node, state
    VolumeList {
        step: "volume.list", endpoint: "volume-list",
        subject: "berth.v1.volume.list.<ns>", to: Namespace,
        service: CLAIM, senders: [READ, DOCKER, PLUGIN_REGISTRY], effect: Read,
        request: volume::List, reply: volume::Volumes,
        errors: [],
    }

    /// Show which nodes could host these volumes, now or later, and why others cannot: volumes
    VolumePlacement {
        step: "volume.placement", endpoint: "volume-placement",
        subject: "berth.v1.volume.placement.<ns>", to: Namespace,
        service: CLAIM, senders: [READ], effect: Read,
        request: volume::Placement, reply: volume::Placements,
        errors: [],
    }

    /// Show for each of many workloads which nodes could host its volumes: placements
    VolumePlaceMany {
        step: "volume.place-many", endpoint: "volume-place-many",
        subject: "berth.v1.volume.place-many.<ns>", to: Namespace,
        service: CLAIM, senders: [READ], effect: Read,
        request: many::PlaceMany, reply: many::PlacementAnswers,
        errors: [],
    }

    /// Take a claim on a volume for an alloc: alloc, volume, node, mode, wait
    ClaimTake {
        step: "claim.take", endpoint: "claim-take",
        subject: "berth.v1.claim.take.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT, NODE_AGENT], effect: Change,
        request: claim::Take, reply: claim::Grant,
        errors: [] + CLAIM_REFUSED + PLUGIN_FAILED,
    }

    /// Give a claim up: alloc, volume, epoch, reason
    ClaimRelease {
        step: "claim.release", endpoint: "claim-release",
        subject: "berth.v1.claim.release.<ns>", to: Namespace,
        service: CLAIM, senders: [OPERATOR, NODE_AGENT, GC], effect: BriefChange,
        request: claim::Release, reply: claim::Released,
        errors: [NoSuchVolume, NoSuchClaim, ClaimDiffers, StaleAttempt],
    }

    /// For volumewatchers: record what came of a call, learn the next call
    ClaimCheckpoint {
        step: "claim.checkpoint", endpoint: "claim-checkpoint",
        subject: "berth.v1.claim.checkpoint.<ns>", to: Namespace,
        service: CLAIM, senders: [VOLUMEWATCHER], effect: Change,
        request: claim::Checkpoint, reply: claim::Checkpointed,
        errors: [NoSuchVolume, NoSuchClaim, StaleAttempt, NotDue],
    }

    /// For agents: record what the node does with a granted claim
    ClaimObserve {
        step: "claim.observe", endpoint: "claim-observe",
        subject: "berth.v1.claim.observe.<ns>", to: Namespace,
        service: CLAIM, senders: [NODE_AGENT], effect: Change,
        request: claim::Observe, reply: claim::Observed,
        errors: [NoSuchVolume, NoSuchClaim],
    }

    /// Show claims and what each waits for: prefix, volume, alloc, node, plugin, state
    ClaimStatus {
        step: "claim.status", endpoint: "claim-status",
        subject: "berth.v1.claim.status.<ns>", to: Namespace,
        service: CLAIM, senders: [READ, NODE_AGENT, PLUGIN_REGISTRY], effect: Read,
        request: claim::Status, reply: claim::Claims,
        errors: [NoSuchVolume],
    }

    /// Say that an alloc is placed on a node: id, node, volumes, owner, meta
    AllocRegister {
        step: "alloc.register", endpoint: "alloc-register",
        subject: "berth.v1.alloc.register.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT, DOCKER], effect: BriefChange,
        request: alloc::Register, reply: alloc::AllocStatus,
        errors: [
            AllocForeign, AllocTerminal, NoSuchNode, NoSuchVolume, RunnerCannotMount,
            UnsafeUpdate, VolumeNotRequested, AllocOwned, Changed,
        ],
    }

    /// Say where many allocs are placed, each with an answer of its own: allocs
    AllocRegisterMany {
        step: "alloc.register-many", endpoint: "alloc-register-many",
        subject: "berth.v1.alloc.register-many.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT], effect: BriefChange,
        request: many::RegisterMany, reply: many::AllocAnswers,
        errors: [],
    }

    /// Say that an alloc has ended, so that its claims are released: id, state, note, owner
    AllocStop {
        step: "alloc.stop", endpoint: "alloc-stop",
        subject: "berth.v1.alloc.stop.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT, NODE_AGENT, DOCKER], effect: BriefChange,
        request: alloc::Stop, reply: alloc::AllocStatus,
        errors: [NoSuchAlloc, AllocOwned, Changed],
    }

    /// Say that many allocs have ended, each with an answer of its own: stops
    AllocStopMany {
        step: "alloc.stop-many", endpoint: "alloc-stop-many",
        subject: "berth.v1.alloc.stop-many.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT], effect: BriefChange,
        request: many::StopMany, reply: many::AllocAnswers,
        errors: [],
    }

    /// Stop the live allocs of an owner, which is the sender: owner, node, state, note
    AllocStopOwned {
        step: "alloc.stop-owned", endpoint: "alloc-stop-owned",
        subject: "berth.v1.alloc.stop-owned.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT], effect: BriefChange,
        request: many::StopOwned, reply: many::ChangedAllocs,
        errors: [],
    }

    /// Take over live allocs of an owner whose lease has ended: from, owner, ids
    AllocAdopt {
        step: "alloc.adopt", endpoint: "alloc-adopt",
        subject: "berth.v1.alloc.adopt.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT], effect: BriefChange,
        request: many::Adopt, reply: many::ChangedAllocs,
        errors: [OwnerHeld],
    }

    /// Wait until an alloc is mounted, has ended, or is free: id, until
    AllocWait {
        step: "alloc.wait", endpoint: "alloc-wait",
        subject: "berth.v1.alloc.wait.<ns>", to: Namespace,
        service: CLAIM, senders: [READ, MOUNT], effect: Read,
        request: alloc::Wait, reply: alloc::Waited,
        errors: [],
    }

    /// Show one alloc with its claims: id
    AllocStatus {
        step: "alloc.status", endpoint: "alloc-status",
        subject: "berth.v1.alloc.status.<ns>", to: Namespace,
        service: CLAIM, senders: [READ, NODE_AGENT, DOCKER], effect: Read,
        request: alloc::Status, reply: alloc::AllocStatus,
        errors: [NoSuchAlloc],
    }

    /// List allocs, one short line each: prefix, node, state, owner, meta, unowned
    AllocList {
        step: "alloc.list", endpoint: "alloc-list",
        subject: "berth.v1.alloc.list.<ns>", to: Namespace,
        service: CLAIM, senders: [READ, NODE_AGENT], effect: Read,
        request: alloc::List, reply: alloc::Allocs,
        errors: [],
    }

    /// Remove the record of an alloc that ended before a time and has no claim: id, before
    AllocForget {
        step: "alloc.forget", endpoint: "alloc-forget",
        subject: "berth.v1.alloc.forget.<ns>", to: Namespace,
        service: CLAIM, senders: [OPERATOR, GC], effect: Change,
        request: alloc::Forget, reply: alloc::Forgotten,
        errors: [AllocKept],
    }

    /// Take or renew an owner's lease, at whose end its allocs may be adopted: owner, holder, ttl_s
    OwnerHold {
        step: "owner.hold", endpoint: "owner-hold",
        subject: "berth.v1.owner.hold.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT], effect: BriefChange,
        request: owner::HoldOwner, reply: owner::OwnerHeld,
        errors: [OwnerHeld],
    }

    /// Give an owner's lease up: owner, holder
    OwnerYield {
        step: "owner.yield", endpoint: "owner-yield",
        subject: "berth.v1.owner.yield.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT], effect: BriefChange,
        request: owner::YieldOwner, reply: owner::OwnerYielded,
        errors: [OwnerHeld],
    }

    /// List owners of allocs, and whether their leases are held: prefix
    OwnerList {
        step: "owner.list", endpoint: "owner-list",
        subject: "berth.v1.owner.list.<ns>", to: Namespace,
        service: CLAIM, senders: [READ], effect: Read,
        request: owner::List, reply: owner::Owners,
        errors: [],
    }

    /// List events of the last days, oldest first: kinds, volumes, allocs, node, plugin, trace
    HistoryList {
        step: "history.list", endpoint: "history-list",
        subject: "berth.v1.history.list.<ns>", to: Namespace,
        service: CLAIM, senders: [READ], effect: Read,
        request: history::List, reply: history::EventPage,
        errors: [],
    }

    /// Show plugins and the health of each instance; one, or by prefix, node, type: id
    PluginStatus {
        step: "plugin.status", endpoint: "plugin-status",
        subject: "berth.v1.plugin.status", to: (),
        service: PLUGIN_REGISTRY, senders: [PLUGIN_READ], effect: Read,
        request: registry::PluginQuery, reply: registry::Plugins,
        errors: [NoSuchPlugin],
    }

    /// Say how many instances of a plugin a job is to have: plugin, job, controllers, nodes
    PluginExpect {
        step: "plugin.expect", endpoint: "plugin-expect",
        subject: "berth.v1.plugin.expect", to: (),
        service: PLUGIN_REGISTRY, senders: [OPERATOR], effect: Change,
        request: registry::Expect, reply: registry::Expected,
        errors: [TooManyJobs],
    }

    /// Remove what is left of a plugin that nobody runs or uses: id
    PluginDelete {
        step: "plugin.delete", endpoint: "plugin-delete",
        subject: "berth.v1.plugin.delete", to: (),
        service: PLUGIN_REGISTRY, senders: [OPERATOR], effect: Change,
        request: registry::Delete, reply: registry::Deleted,
        errors: [PluginInUse],
    }

    /// Show nodes, whether their agents are there, and their plugins; all of them, or one: id
    NodeStatus {
        step: "node.status", endpoint: "node-status",
        subject: "berth.v1.node.status", to: (),
        service: PLUGIN_REGISTRY, senders: [NODE_READ], effect: Read,
        request: registry::NodeQuery, reply: registry::Nodes,
        errors: [NoSuchNode],
    }

    /// For agents: all there is to know of a node and its plugin instances
    NodeReport {
        step: "node.report", endpoint: "node-report",
        subject: "berth.v1.node.report", to: (),
        service: PLUGIN_REGISTRY, senders: [NODE_AGENT], effect: Report,
        request: registry::Report, reply: registry::Reported,
        errors: [],
    }

    /// For agents: take or renew the node's lease: holder, ttl_s, over
    NodeHold {
        step: "node.hold", endpoint: "node-hold",
        subject: "berth.v1.node.hold", to: (),
        service: PLUGIN_REGISTRY, senders: [NODE_AGENT], effect: Report,
        request: node::Hold, reply: node::LeaseAnswer,
        errors: [],
    }

    /// For agents: give the node's lease up: node, revision
    NodeYield {
        step: "node.yield", endpoint: "node-yield",
        subject: "berth.v1.node.yield", to: (),
        service: PLUGIN_REGISTRY, senders: [NODE_AGENT], effect: Report,
        request: node::Yield, reply: node::Yielded,
        errors: [],
    }

    /// For agents: events of the node, to be stored: events
    NodeTell {
        step: "node.tell", endpoint: "node-tell",
        subject: "berth.v1.node.tell", to: (),
        service: PLUGIN_REGISTRY, senders: [NODE_AGENT], effect: Report,
        request: node::Tell, reply: node::StoredEvents,
        errors: [],
    }

    /// Forget a node that is gone for good, and its plugin instances: node
    NodeLeave {
        step: "node.leave", endpoint: "node-leave",
        subject: "berth.v1.node.leave", to: (),
        service: PLUGIN_REGISTRY, senders: [OPERATOR, GC], effect: Change,
        request: registry::Leave, reply: registry::Left,
        errors: [Changed, NodeReady],
    }

    /// Say that nothing on a node can write any more, so that its claims are released by that:
    /// node, kind, by, note
    NodeGone {
        step: "node.gone", endpoint: "node-gone",
        subject: "berth.v1.node.gone", to: (),
        service: PLUGIN_REGISTRY, senders: [OPERATOR], effect: Change,
        request: registry::Gone, reply: registry::Declared,
        errors: [Changed, NodeReady],
    }

    /// Collect now; says what was collected, what was kept, and why
    GcForce {
        step: "gc.force", endpoint: "gc-force",
        subject: "berth.v1.gc.force", to: (),
        service: GC, senders: [OPERATOR], effect: Change,
        request: collect::Force, reply: collect::Sweep,
        errors: [],
    }

    /// Show the public key that a volume's secrets are to be sealed for
    SecretKey {
        step: "secret.key", endpoint: "secret-key",
        subject: "berth.v1.secret.key", to: (),
        service: CLAIM, senders: [WRITE], effect: Read,
        request: secret::Key, reply: secret::PublicKey,
        errors: [SecretsUnavailable],
    }

    /// For agents: a volume's secrets for a plugin call that is due at the node, sealed for it
    SecretOpen {
        step: "secret.open", endpoint: "secret-open",
        subject: "berth.v1.secret.open.<node>", to: NodeId,
        service: CLAIM, senders: [NODE_AGENT], effect: Read,
        request: secret::Open, reply: secret::Sealed,
        errors: [SealingKeyUnknown, SecretsUnavailable],
    }

    /// Claim a volume for an alloc of this node, and mount it: alloc, volume, alias, path, wait
    AgentMount {
        step: "agent.mount", endpoint: "mount",
        subject: "berth.v1.agent.<node>.mount.<ns>", to: NodeAndNamespace,
        service: NODE_AGENT, senders: [MOUNT, DOCKER], effect: Change,
        request: agent::Mount, reply: agent::Mounted,
        errors: [
            OldCall, NotReadOnly, MountFailed, PathRefused, ForeignMount,
            UnmountFailed,
        ] + CLAIM_REFUSED + PLUGIN_FAILED,
    }

    /// Claim and mount all volumes of an alloc of this node, or none of them: alloc, wait
    AgentMountAll {
        step: "agent.mount-all", endpoint: "mount-all",
        subject: "berth.v1.agent.<node>.mount-all.<ns>", to: NodeAndNamespace,
        service: NODE_AGENT, senders: [MOUNT], effect: Change,
        request: agent::MountAll, reply: agent::MountedAll,
        errors: [
            OldCall, NotReadOnly, MountFailed, PathRefused, ForeignMount,
            UnmountFailed,
        ] + CLAIM_REFUSED + PLUGIN_FAILED,
    }

    /// Name what runs an alloc on this node: its volumes stay while that lives: alloc, guard, owner
    AgentGuard {
        step: "agent.guard", endpoint: "guard",
        subject: "berth.v1.agent.<node>.guard.<ns>", to: NodeAndNamespace,
        service: NODE_AGENT, senders: [MOUNT], effect: Change,
        request: agent::SetGuard, reply: agent::Guarded,
        errors: [NoSuchAlloc, AllocTerminal, AllocForeign, AllocOwned, GuardRefused],
    }

    /// For volumewatchers: take the volume down for an alloc; wholly, after the last
    AgentDetach {
        step: "agent.detach", endpoint: "detach",
        subject: "berth.v1.agent.<node>.detach", to: NodeId,
        service: NODE_AGENT, senders: [VOLUMEWATCHER], effect: Change,
        request: call::Call, reply: call::Called,
        errors: [
            OldCall, UnmountFailed, VolumeHeldByProcess, MountUnaccounted,
            ForeignMount, NodeReturning,
        ] + PLUGIN_FAILED,
    }

    /// Take dead mounts of a volume down and bring them back at the same paths: alloc, or all
    AgentRepublish {
        step: "agent.republish", endpoint: "republish",
        subject: "berth.v1.agent.<node>.republish", to: NodeId,
        service: NODE_AGENT, senders: [OPERATOR], effect: Change,
        request: agent::Republish, reply: agent::Republished,
        errors: [
            NoSuchClaim, GrantVoid, OldCall, MountFailed, UnmountFailed, ForeignMount,
            PathRefused, NotReadOnly, NodeReturning, MountOptionsRefused,
            VolumeHeldByProcess,
        ] + PLUGIN_FAILED,
    }

    /// Take mounts of a volume down that no claim covers: volume, alloc, or all of them
    AgentUnmount {
        step: "agent.unmount", endpoint: "unmount",
        subject: "berth.v1.agent.<node>.unmount", to: NodeId,
        service: NODE_AGENT, senders: [OPERATOR], effect: Change,
        request: agent::Unmount, reply: agent::Unmounted,
        errors: [
            NoSuchClaim, Held, OldCall, UnmountFailed, VolumeHeldByProcess,
            ForeignMount,
        ] + PLUGIN_FAILED,
    }

    /// Show what is mounted on this node, for whom, and which controllers it serves
    AgentStatus {
        step: "agent.status", endpoint: "status",
        subject: "berth.v1.agent.<node>.status.<ns>", to: NodeAndNamespace,
        service: NODE_AGENT, senders: [READ, CLAIM, VOLUMEWATCHER], effect: Read,
        request: agent::Status, reply: agent::AgentStatus,
        errors: [],
    }

    /// Show each plugin instance of this node, its process, and files that are no plugin
    AgentPlugins {
        step: "agent.plugins", endpoint: "plugins",
        subject: "berth.v1.agent.<node>.plugins", to: NodeId,
        service: NODE_AGENT, senders: [NODE_READ], effect: Read,
        request: plugin::Query, reply: plugin::Here,
        errors: [],
    }

    /// End the process of a plugin that the agent runs: plugin, instance, even_with_mounts, by
    AgentPluginStop {
        step: "agent.plugin-stop", endpoint: "plugin-stop",
        subject: "berth.v1.agent.<node>.plugin-stop", to: NodeId,
        service: NODE_AGENT, senders: [OPERATOR], effect: Change,
        request: plugin::Stop, reply: plugin::Ordered,
        errors: [NoSuchPlugin, PluginHeld],
    }

    /// Run a plugin again that was stopped: plugin, instance
    AgentPluginStart {
        step: "agent.plugin-start", endpoint: "plugin-start",
        subject: "berth.v1.agent.<node>.plugin-start", to: NodeId,
        service: NODE_AGENT, senders: [OPERATOR], effect: Change,
        request: plugin::Start, reply: plugin::Ordered,
        errors: [NoSuchPlugin, PluginHeld],
    }

    /// For berth-claim: ControllerPublishVolume, attach a volume to a node
    ControllerPublish {
        step: "controller.publish", endpoint: "publish",
        subject: "berth.v1.controller.<plugin>.publish", to: PluginId,
        service: CONTROLLER, senders: [CLAIM], effect: Change,
        request: call::Call, reply: call::Called,
        errors: [OldCall] + PLUGIN_FAILED,
    }

    /// For volumewatchers: ControllerUnpublishVolume, detach a volume from a node
    ControllerUnpublish {
        step: "controller.unpublish", endpoint: "unpublish",
        subject: "berth.v1.controller.<plugin>.unpublish", to: PluginId,
        service: CONTROLLER, senders: [VOLUMEWATCHER], effect: Change,
        request: call::Call, reply: call::Called,
        errors: [OldCall] + PLUGIN_FAILED,
    }

    /// For berth-claim: ValidateVolumeCapabilities, can the volume be used so
    ControllerValidate {
        step: "controller.validate", endpoint: "validate",
        subject: "berth.v1.controller.<plugin>.validate", to: PluginId,
        service: CONTROLLER, senders: [CLAIM], effect: Read,
        request: call::Validate, reply: call::Validated,
        errors: [OldCall] + PLUGIN_FAILED,
    }

    /// For berth-claim: ControllerPublishVolume, attach a volume to a node
    ControllerPublishOnNode {
        step: "controller.publish-on-node", endpoint: "publish-on-node",
        subject: "berth.v1.agent.<node>.controller.<plugin>.publish", to: PluginOnNode,
        service: CONTROLLER, senders: [CLAIM], effect: Change,
        request: call::Call, reply: call::Called,
        errors: [OldCall] + PLUGIN_FAILED,
    }

    /// For volumewatchers: ControllerUnpublishVolume, detach a volume from a node
    ControllerUnpublishOnNode {
        step: "controller.unpublish-on-node", endpoint: "unpublish-on-node",
        subject: "berth.v1.agent.<node>.controller.<plugin>.unpublish", to: PluginOnNode,
        service: CONTROLLER, senders: [VOLUMEWATCHER], effect: Change,
        request: call::Call, reply: call::Called,
        errors: [OldCall] + PLUGIN_FAILED,
    }

    /// For berth-claim: ValidateVolumeCapabilities, can the volume be used so
    ControllerValidateOnNode {
        step: "controller.validate-on-node", endpoint: "validate-on-node",
        subject: "berth.v1.agent.<node>.controller.<plugin>.validate", to: PluginOnNode,
        service: CONTROLLER, senders: [CLAIM], effect: Read,
        request: call::Validate, reply: call::Validated,
        errors: [OldCall] + PLUGIN_FAILED,
    }
}
