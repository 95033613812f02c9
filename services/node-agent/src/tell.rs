//! Events of this node: told, and never waited for.

use berth_bus::Events;
use berth_contract::event::{Event, EventName};
use berth_contract::service::NODE_AGENT;
use berth_contract::trace::TraceContext;
use berth_domain::{AllocId, NodeId, PluginId, VolumeKey};
use berth_service::clock;

/// Tells events in the name of this node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Teller {
    events: Events,
    node: NodeId,
}

impl Teller {
    /// In the name of `node`.
    pub fn new(events: Events, node: NodeId) -> Self {
        Self { events, node }
    }

    /// A volume is there for an alloc: `volume.mounted`.
    pub fn mounted(&self, used: Used<'_>, trace: TraceContext) {
        self.volume(EventName::VolumeMounted, used, trace);
    }

    /// A volume is gone for an alloc: `volume.unmounted`.
    pub fn unmounted(&self, used: Used<'_>, trace: TraceContext) {
        self.volume(EventName::VolumeUnmounted, used, trace);
    }

    fn volume(&self, name: EventName, used: Used<'_>, trace: TraceContext) {
        let event = Event {
            namespace: Some(used.volume.namespace.clone()),
            volume: Some(used.volume.volume.clone()),
            alloc: Some(used.alloc.clone()),
            ..self.event(name, used.plugin, trace)
        };
        self.publish(event, trace);
    }

    fn event(&self, name: EventName, plugin: &PluginId, trace: TraceContext) -> Event {
        Event {
            event: name,
            at: clock::now(),
            namespace: None,
            volume: None,
            alloc: None,
            node: Some(self.node.clone()),
            plugin: Some(plugin.clone()),
            detail: None,
            service: NODE_AGENT.name.to_owned(),
            trace: Some(trace.trace_id()),
        }
    }

    fn publish(&self, event: Event, trace: TraceContext) {
        self.events.publish(&event.subject(), &event, trace);
    }
}

/// Who uses what, by which plugin.
#[derive(Debug, Clone, Copy)]
pub struct Used<'a> {
    /// The volume.
    pub volume: &'a VolumeKey,
    /// The alloc.
    pub alloc: &'a AllocId,
    /// The plugin.
    pub plugin: &'a PluginId,
}
