//! The subject of a call.

use berth_domain::NodeId;
use berth_domain::volume::CallKind;

use super::table::{
    AgentDetach, AgentExpand, ControllerProvision, ControllerProvisionOnNode, ControllerPublish,
    ControllerPublishOnNode, ControllerUnpublish, ControllerUnpublishOnNode,
};
use super::{PluginOnNode, Verb as _};
use crate::message::call::Call;

impl Call {
    /// Where it is sent: to the node's agent, or to an agent that hosts a healthy controller.
    pub fn subject(&self) -> String {
        use CallKind::{ControllerPublish as Publish, ControllerUnpublish as Unpublish};
        let node = self.executor().cloned();
        match (self.call, node) {
            (CallKind::NodeDetach, Some(node)) => AgentDetach::subject(&node),
            (CallKind::NodeExpand, Some(node)) => AgentExpand::subject(&node),
            (Publish, Some(node)) => ControllerPublishOnNode::subject(&self.on_node(node)),
            (Publish, None) => ControllerPublish::subject(&self.plugin),
            (Unpublish, Some(node)) => ControllerUnpublishOnNode::subject(&self.on_node(node)),
            (Unpublish, None) => ControllerUnpublish::subject(&self.plugin),
            (_, Some(node)) => ControllerProvisionOnNode::subject(&self.on_node(node)),
            (_, None) => ControllerProvision::subject(&self.plugin),
        }
    }

    fn on_node(&self, node: NodeId) -> PluginOnNode {
        PluginOnNode { plugin: self.plugin.clone(), node }
    }
}
