//! The subject of a call.

use berth_domain::volume::CallKind;

use super::table::{
    AgentDetach, ControllerPublish, ControllerPublishOnNode, ControllerUnpublish,
    ControllerUnpublishOnNode,
};
use super::{PluginOnNode, Verb as _};
use crate::message::call::Call;

impl Call {
    /// Where it is sent: to the node, or to an agent that hosts a healthy controller.
    pub fn subject(&self) -> String {
        let node = self.controller.clone();
        let on_node = node.map(|node| PluginOnNode { plugin: self.plugin.clone(), node });
        match (self.call, on_node) {
            (CallKind::NodeDetach, _) => AgentDetach::subject(&self.node),
            (CallKind::ControllerPublish, None) => ControllerPublish::subject(&self.plugin),
            (CallKind::ControllerPublish, Some(to)) => ControllerPublishOnNode::subject(&to),
            (CallKind::ControllerUnpublish, None) => ControllerUnpublish::subject(&self.plugin),
            (CallKind::ControllerUnpublish, Some(to)) => ControllerUnpublishOnNode::subject(&to),
        }
    }
}
