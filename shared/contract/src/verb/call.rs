//! The subject of a call.

use berth_domain::volume::CallKind;

use super::table::{
    AgentDetach, AgentExpand, ControllerProvision, ControllerProvisionOnNode, ControllerPublish,
    ControllerPublishOnNode, ControllerUnpublish, ControllerUnpublishOnNode,
};
use super::{PluginOnNode, Verb as _};
use crate::message::call::Call;
use crate::message::storage_call::StorageCall;

impl Call {
    /// Where it is sent: to the node, or to an agent that hosts a healthy controller.
    pub fn subject(&self) -> String {
        let node = self.controller.clone();
        let on_node = node.map(|node| PluginOnNode { plugin: self.plugin.clone(), node });
        match (self.call, on_node) {
            (CallKind::NodeDetach, _) => AgentDetach::subject(&self.node),
            (CallKind::ControllerPublish, None) => ControllerPublish::subject(&self.plugin),
            (CallKind::ControllerPublish, Some(to)) => ControllerPublishOnNode::subject(&to),
            (_, None) => ControllerUnpublish::subject(&self.plugin),
            // No other call is one for a claim.
            (_, Some(to)) => ControllerUnpublishOnNode::subject(&to),
        }
    }
}

impl StorageCall {
    /// Where it is sent: to the node's agent, or to an agent that hosts a healthy controller.
    pub fn subject(&self) -> String {
        let plugin = || self.plugin.clone();
        match (self.call, self.node.clone()) {
            (CallKind::NodeExpand, Some(node)) => AgentExpand::subject(&node),
            (_, Some(node)) => {
                ControllerProvisionOnNode::subject(&PluginOnNode { plugin: plugin(), node })
            }
            (_, None) => ControllerProvision::subject(&plugin()),
        }
    }
}
