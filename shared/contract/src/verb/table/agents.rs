//! What the agent of a node does.

use berth_domain::NodeId;

use crate::message::{agent, call, plugin};
use crate::verb::NodeAndNamespace;

verbs! {
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
        request: call::ClaimCall, reply: call::Called,
        errors: [
            OldCall, UnmountFailed, VolumeHeldByProcess, RunUnknown, MountUnaccounted,
            ForeignMount, NodeReturning,
        ] + PLUGIN_FAILED,
    }

    /// For volumewatchers: NodeExpandVolume, expand a volume that is staged on this node
    AgentExpand {
        step: "agent.expand", endpoint: "expand",
        subject: "berth.v1.agent.<node>.expand", to: NodeId,
        service: NODE_AGENT, senders: [VOLUMEWATCHER], effect: Change,
        request: call::StorageCall, reply: call::Called,
        errors: [OldCall, NotDue, PluginUnable, MountFailed] + PLUGIN_FAILED,
    }

    /// Take dead mounts of a volume down and bring them back at the same paths: alloc, force
    AgentRepublish {
        step: "agent.republish", endpoint: "republish",
        subject: "berth.v1.agent.<node>.republish", to: NodeId,
        service: NODE_AGENT, senders: [OPERATOR], effect: Change,
        request: agent::Republish, reply: agent::Republished,
        errors: [
            NoSuchClaim, GrantVoid, OldCall, MountFailed, UnmountFailed, ForeignMount,
            PathRefused, NotReadOnly, NodeReturning, MountOptionsRefused,
            VolumeHeldByProcess, MountWell,
        ] + PLUGIN_FAILED,
    }

    /// Take mounts of a volume down that no claim covers: volume, alloc, or all of them
    AgentUnmount {
        step: "agent.unmount", endpoint: "unmount",
        subject: "berth.v1.agent.<node>.unmount", to: NodeId,
        service: NODE_AGENT, senders: [OPERATOR], effect: Change,
        request: agent::Unmount, reply: agent::Unmounted,
        errors: [
            NoSuchClaim, Held, OldCall, UnmountFailed, VolumeHeldByProcess, RunUnknown,
            ForeignMount, PluginUnhealthy, SharedNodeId, VolumeNotReady,
        ] + PLUGIN_FAILED,
    }

    /// Show what is mounted on this node, for whom, and which controllers it serves
    AgentStatus {
        step: "agent.status", endpoint: "status",
        subject: "berth.v1.agent.<node>.status.<ns>", to: NodeAndNamespace,
        service: NODE_AGENT, senders: [READ, CLAIM, VOLUMEWATCHER], effect: Read,
        request: agent::AgentQuery, reply: agent::AgentStatus,
        errors: [],
    }

    /// Show each plugin instance of this node, its process, and files that are no plugin
    AgentPlugins {
        step: "agent.plugins", endpoint: "plugins",
        subject: "berth.v1.agent.<node>.plugins", to: NodeId,
        service: NODE_AGENT, senders: [NODE_READ], effect: Read,
        request: plugin::AgentPluginsQuery, reply: plugin::AgentPlugins,
        errors: [],
    }

    /// End the process of a plugin that the agent runs: plugin, instance, even_with_mounts, by
    AgentPluginStop {
        step: "agent.plugin-stop", endpoint: "plugin-stop",
        subject: "berth.v1.agent.<node>.plugin-stop", to: NodeId,
        service: NODE_AGENT, senders: [OPERATOR], effect: Change,
        request: plugin::StopPlugin, reply: plugin::OrderedInstances,
        errors: [NoSuchPlugin, PluginHeld],
    }

    /// Run a plugin again that was stopped: plugin, instance
    AgentPluginStart {
        step: "agent.plugin-start", endpoint: "plugin-start",
        subject: "berth.v1.agent.<node>.plugin-start", to: NodeId,
        service: NODE_AGENT, senders: [OPERATOR], effect: Change,
        request: plugin::StartPlugin, reply: plugin::OrderedInstances,
        errors: [NoSuchPlugin, PluginHeld],
    }
}
