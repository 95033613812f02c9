//! Which controllers this node's identity may host.
//!
//! **Owns** how that is shown to the registry (`node.host`), and what becomes of a controller here
//! that the identity may not host.
//!
//! **Promises** that no controller is reported whose calls nats-server keeps from this agent:
//! nobody would answer them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_bus::{Bus, Call, RequestError};
use berth_contract::message::registry::Host;
use berth_contract::verb::{self, PluginOnNode};
use berth_domain::{NodeId, PluginId};
use berth_service::clock;
use berth_service::fault_report::FaultReport;

/// Shows the registry which controllers the node may host.
#[derive(Debug, Clone)]
pub struct HostingRights {
    /// The bus.
    pub bus: Bus,
    /// The node.
    pub node: NodeId,
    /// Which controllers are here, and do not count, with the way out.
    pub fault: FaultReport,
    /// The plugins for which the registry has the right on record, as far as its answers say.
    shown: Arc<Mutex<BTreeSet<PluginId>>>,
}

/// The plugins with a controller here, by what the identity allows.
#[derive(Debug, Default)]
pub struct ShownRights {
    /// Their calls do not reach this agent.
    pub unheard: BTreeSet<PluginId>,
    /// The right may not be shown: an identity of an earlier version has no such right.
    pub denied: BTreeSet<PluginId>,
}

impl HostingRights {
    /// Of a node that has shown nothing yet.
    pub fn new(bus: Bus, node: NodeId) -> Self {
        Self { bus, node, fault: FaultReport::default(), shown: Arc::default() }
    }

    /// Shows the right for each of these plugins, before they are reported; once, unless the
    /// registry asks again. A registry of an earlier version does not answer, and asks for none.
    pub async fn show(
        &self,
        plugins: BTreeSet<PluginId>,
        within: Duration,
    ) -> Result<ShownRights, RequestError> {
        let mut shown = ShownRights::default();
        let known = {
            let mut known = lock(&self.shown);
            // What a report does not name leaves the registry's record.
            known.retain(|plugin| plugins.contains(plugin));
            known.clone()
        };
        for plugin in plugins {
            if !self.hears(&plugin) {
                shown.unheard.insert(plugin);
                continue;
            }
            if known.contains(&plugin) {
                continue;
            }
            let to = PluginOnNode { plugin: plugin.clone(), node: self.node.clone() };
            let call = Call::within(clock::begin_trace(), within);
            match self.bus.ask_service::<verb::NodeHost>(&to, &Host {}, &call).await {
                Ok(_) => {
                    lock(&self.shown).insert(plugin);
                }
                Err(RequestError::NoResponder { .. }) => {}
                Err(RequestError::NotAllowed { .. }) => {
                    shown.denied.insert(plugin);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(shown)
    }

    /// Whether the identity may listen for the controller's calls, as far as it says so.
    fn hears(&self, plugin: &PluginId) -> bool {
        let identity = self.bus.credentials().identity().ok().flatten();
        let permissions = identity.and_then(|identity| identity.permissions);
        permissions.is_none_or(|permissions| permissions.hears_controller(plugin))
    }

    /// Takes the registry's answer: these controllers do not count, and are shown again.
    pub fn note_uncounted(&self, plugins: &BTreeSet<PluginId>) {
        lock(&self.shown).retain(|plugin| !plugins.contains(plugin));
        let ids: Vec<&str> = plugins.iter().map(PluginId::as_str).collect();
        let fault = (!ids.is_empty()).then(|| {
            let ids = ids.join(",");
            format!(
                "the identity may not host {ids}: `berth access node {} --controllers {ids} \
                 --replace`",
                self.node
            )
        });
        if self.fault.set(fault.clone())
            && let Some(why) = fault
        {
            tracing::warn!(node = %self.node, why, "controllers here do not count");
        }
    }
}

fn lock(shown: &Mutex<BTreeSet<PluginId>>) -> MutexGuard<'_, BTreeSet<PluginId>> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}
