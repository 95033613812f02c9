//! Calls of a plugin's controller, and questions to it.

use berth_domain::PluginId;

use crate::message::{call, storage_call};
use crate::verb::PluginOnNode;

verbs! {
    /// For berth-claim: ControllerPublishVolume, attach a volume to a node
    ControllerPublish {
        step: "controller.publish", endpoint: "publish",
        subject: "berth.v1.controller.<plugin>.publish", to: PluginId,
        service: CONTROLLER, senders: [CLAIM], effect: Change,
        request: call::ClaimCall, reply: call::Called,
        errors: [OldCall] + PLUGIN_FAILED,
    }

    /// For volumewatchers: ControllerUnpublishVolume, detach a volume from a node
    ControllerUnpublish {
        step: "controller.unpublish", endpoint: "unpublish",
        subject: "berth.v1.controller.<plugin>.unpublish", to: PluginId,
        service: CONTROLLER, senders: [VOLUMEWATCHER], effect: Change,
        request: call::ClaimCall, reply: call::Called,
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

    /// For volumewatchers: create, delete, expand or modify a volume, cut or delete snapshots
    ControllerProvision {
        step: "controller.provision", endpoint: "provision",
        subject: "berth.v1.controller.<plugin>.provision", to: PluginId,
        service: CONTROLLER, senders: [VOLUMEWATCHER], effect: Change,
        request: call::StorageCall, reply: call::Called,
        errors: [OldCall, PluginUnable] + PLUGIN_FAILED,
    }

    /// For berth-claim: list the volumes or snapshots of the storage, or how much room it has
    ControllerQuery {
        step: "controller.query", endpoint: "query",
        subject: "berth.v1.controller.<plugin>.query", to: PluginId,
        service: CONTROLLER, senders: [CLAIM], effect: Read,
        request: storage_call::StorageQuery, reply: storage_call::Answered,
        errors: [PluginLacks, PluginUnable] + PLUGIN_FAILED,
    }

    /// For berth-claim: ControllerPublishVolume, attach a volume to a node
    ControllerPublishOnNode {
        step: "controller.publish-on-node", endpoint: "publish-on-node",
        subject: "berth.v1.agent.<node>.controller.<plugin>.publish", to: PluginOnNode,
        service: CONTROLLER, senders: [CLAIM], effect: Change,
        request: call::ClaimCall, reply: call::Called,
        errors: [OldCall] + PLUGIN_FAILED,
    }

    /// For volumewatchers: ControllerUnpublishVolume, detach a volume from a node
    ControllerUnpublishOnNode {
        step: "controller.unpublish-on-node", endpoint: "unpublish-on-node",
        subject: "berth.v1.agent.<node>.controller.<plugin>.unpublish", to: PluginOnNode,
        service: CONTROLLER, senders: [VOLUMEWATCHER], effect: Change,
        request: call::ClaimCall, reply: call::Called,
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

    /// For volumewatchers: create, delete, expand or modify a volume, cut or delete snapshots
    ControllerProvisionOnNode {
        step: "controller.provision-on-node", endpoint: "provision-on-node",
        subject: "berth.v1.agent.<node>.controller.<plugin>.provision", to: PluginOnNode,
        service: CONTROLLER, senders: [VOLUMEWATCHER], effect: Change,
        request: call::StorageCall, reply: call::Called,
        errors: [OldCall, PluginUnable] + PLUGIN_FAILED,
    }

    /// For berth-claim: list the volumes or snapshots of the storage, or how much room it has
    ControllerQueryOnNode {
        step: "controller.query-on-node", endpoint: "query-on-node",
        subject: "berth.v1.agent.<node>.controller.<plugin>.query", to: PluginOnNode,
        service: CONTROLLER, senders: [CLAIM], effect: Read,
        request: storage_call::StorageQuery, reply: storage_call::Answered,
        errors: [PluginLacks, PluginUnable] + PLUGIN_FAILED,
    }
}
