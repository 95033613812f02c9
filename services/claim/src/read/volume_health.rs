//! The health of a volume: from its plugin's instances and its mounts, at each request (A6).
//!
//! **Promises** that a reply counts a plugin once, however many of its volumes it shows: a count
//! visits all nodes of the plugin.

use std::cell::RefCell;
use std::collections::BTreeMap;

use berth_contract::message::volume::Health;
use berth_domain::plugin::{Count, Half};
use berth_domain::volume::storage::Stage;
use berth_domain::volume::{Volume, VolumeSpec};
use berth_domain::{NodeId, PluginId};
use berth_service::registry_status::provider;

use crate::store::state::State;

/// What a volume shows of its plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginView {
    /// The plugin's own name; empty while no instance is known.
    pub provider: String,
    /// The health of its volumes, where nothing else is wrong with them.
    pub health: Health,
}

impl PluginView {
    /// The health of one of the plugin's volumes.
    pub fn health_of(&self, spec: &VolumeSpec, volume: &Volume) -> Health {
        let abnormal = volume.claims.condition().map(str::to_owned);
        Health { abnormal, ..judge_health(spec, self.health.clone()) }
    }
}

/// The plugins of one reply. Each is read once.
pub struct PluginViews<F> {
    read: F,
    views: RefCell<BTreeMap<PluginId, PluginView>>,
}

impl<F: Fn(&PluginId) -> PluginView> PluginViews<F> {
    pub fn new(read: F) -> Self {
        Self { read, views: RefCell::default() }
    }

    pub fn view(&self, id: &PluginId) -> PluginView {
        let mut views = self.views.borrow_mut();
        views.entry(id.clone()).or_insert_with_key(&self.read).clone()
    }
}

/// Reads a plugin, and counts its instances.
pub fn read_plugin(state: &State, id: &PluginId) -> PluginView {
    state.nodes.mirror.read(|nodes| {
        state.plugins.mirror.read(|plugins| {
            let Some(plugin) = plugins.get(id) else {
                let health = Health {
                    healthy: false,
                    description: format!("no agent has reported plugin {id}"),
                    controllers: None,
                    nodes: Count::default(),
                    abnormal: None,
                };
                return PluginView { provider: String::new(), health };
            };
            let ready = |node: &NodeId| nodes.is_ready(node);
            let (healthy, description) = plugin.health(ready);
            let controllers =
                plugin.has_controller().then(|| plugin.count(Half::Controller, ready));
            let nodes = plugin.count(Half::Node, ready);
            let health = Health { healthy, description, controllers, nodes, abnormal: None };
            PluginView { provider: provider(plugin).to_owned(), health }
        })
    })
}

/// A volume that was not created is unhealthy, however healthy its plugin is.
fn judge_health(spec: &VolumeSpec, of_plugin: Health) -> Health {
    if spec.stage() != Stage::Failed {
        return of_plugin;
    }
    let description = format!("plugin {} refused to create the volume", spec.plugin);
    Health { healthy: false, description, ..of_plugin }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn health(healthy: bool) -> Health {
        let (description, nodes) = ("healthy".to_owned(), Count { healthy: 1, expected: 1 });
        Health { healthy, description, controllers: None, nodes, abnormal: None }
    }

    fn is_healthy(external_id: Option<&str>, more: &Value) -> bool {
        let mut storage = json!({
            "provision": {"name": "n", "requested": "2026-11-21T20:00:00.000Z"},
        });
        storage.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let spec = json!({
            "plugin": "p", "capabilities": [], "external_id": external_id, "storage": storage,
        });
        let spec: VolumeSpec = serde_json::from_value(spec).unwrap();
        judge_health(&spec, health(true)).healthy
    }

    #[test]
    fn a_volume_that_the_storage_refused_to_create_is_not_healthy() {
        let failure = |operation: &str| {
            let at = "2026-11-21T20:00:00.000Z";
            json!({"failure": {"operation": operation, "at": at, "error": "no"}})
        };
        assert!(!is_healthy(None, &failure("create")));
        assert!(is_healthy(None, &json!({})), "it is created at its first use");
        assert!(is_healthy(Some("vol-1"), &failure("expand")), "it can be used as before");
    }

    #[test]
    fn a_reply_counts_each_plugin_once() {
        let reads = RefCell::new(Vec::new());
        let views = PluginViews::new(|id: &PluginId| {
            reads.borrow_mut().push(id.to_string());
            PluginView { provider: format!("{id}.example"), health: health(true) }
        });
        let providers =
            ["a", "b", "a", "a", "b"].map(|id| views.view(&PluginId::new(id).unwrap()).provider);
        assert_eq!(providers, ["a", "b", "a", "a", "b"].map(|id| format!("{id}.example")));
        assert_eq!(*reads.borrow(), ["a", "b"]);
    }
}
