//! Plugins and nodes, as the plugin registry knows them.

use crate::message::{node, registry};
use crate::verb::PluginOnNode;

verbs! {
    /// Show plugins and the health of each instance; one, or by prefix, node, type: id
    PluginStatus {
        step: "plugin.status", endpoint: "plugin-status",
        subject: "berth.v1.plugin.status", to: (),
        service: PLUGIN_REGISTRY, senders: [PLUGIN_READ], effect: Read,
        request: registry::ListPlugins, reply: registry::Plugins,
        errors: [NoSuchPlugin],
    }

    /// Say how many instances of a plugin a job is to have: plugin, job, controllers, nodes
    PluginExpect {
        step: "plugin.expect", endpoint: "plugin-expect",
        subject: "berth.v1.plugin.expect", to: (),
        service: PLUGIN_REGISTRY, senders: [OPERATOR], effect: Change,
        request: registry::ExpectInstances, reply: registry::Expected,
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
        service: PLUGIN_REGISTRY, senders: [NODE_READ, GC], effect: Read,
        request: registry::ListNodes, reply: registry::Nodes,
        errors: [NoSuchNode],
    }

    /// For agents: all there is to know of a node and its plugin instances
    NodeReport {
        step: "node.report", endpoint: "node-report",
        subject: "berth.v1.node.report", to: (),
        service: PLUGIN_REGISTRY, senders: [NODE_AGENT], effect: Report,
        request: registry::NodeReport, reply: registry::Reported,
        errors: [],
    }

    /// For agents: the node may host the controller of this plugin. That it was sent is the proof:
    /// nobody without the right can send it
    NodeHost {
        step: "node.host", endpoint: "node-host",
        subject: "berth.v1.node.host.<node>.<plugin>", to: PluginOnNode,
        service: PLUGIN_REGISTRY, senders: [CONTROLLER], effect: Report,
        request: registry::Host, reply: registry::Hosted,
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
        request: node::TellEvents, reply: node::StoredEvents,
        errors: [],
    }

    /// Forget a node that is gone for good, and its plugin instances: node
    NodeLeave {
        step: "node.leave", endpoint: "node-leave",
        subject: "berth.v1.node.leave", to: (),
        service: PLUGIN_REGISTRY, senders: [OPERATOR, GC], effect: Change,
        request: registry::Leave, reply: registry::NodeLeft,
        errors: [Changed, NodeReady, MountUnaccounted, MountsNotSaid],
    }

    /// Say that nothing on a node can write any more, so that its claims are released by that:
    /// node, kind, by, note
    NodeGone {
        step: "node.gone", endpoint: "node-gone",
        subject: "berth.v1.node.gone", to: (),
        service: PLUGIN_REGISTRY, senders: [OPERATOR], effect: Change,
        request: registry::Gone, reply: registry::Declared,
        errors: [Changed, NodeReady, NodeElsewhere],
    }
}
