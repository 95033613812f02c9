//! Events: what happened, in order, for people and programs.
//!
//! **Owns** the form of an event. **Never** decides anything: no service reads them to act.

use berth_domain::{AllocId, Namespace, NodeId, PluginId, Timestamp, VolumeId};
use serde::{Deserialize, Serialize};

use crate::subject;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What, such as `claim.taken`: the noun is the kind in the subject.
    pub event: String,
    /// When.
    pub at: Timestamp,
    /// In which namespace; none for plugins and nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// To which volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeId>,
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
    /// Who says so.
    pub service: String,
    /// The trace that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl Event {
    /// Where it is published: by namespace, noun, and the id of the thing itself.
    pub fn subject(&self) -> String {
        let kind = self.event.split('.').next().unwrap_or_default();
        let id = match kind {
            "plugin" => self.plugin.as_ref().map(AsRef::as_ref),
            "node" => self.node.as_ref().map(AsRef::as_ref),
            "alloc" => self.alloc.as_ref().map(AsRef::as_ref),
            _ => self.volume.as_ref().map(AsRef::as_ref),
        };
        subject::event(self.namespace.as_ref(), kind, id.unwrap_or("_"))
    }
}
