//! Events of plugins and nodes. Fire and forget: no request waits for an event.

use berth_bus::Events;
use berth_contract::event::{Event, EventName};
use berth_contract::service::PLUGIN_REGISTRY;
use berth_contract::trace::TraceContext;
use berth_domain::plugin::{Instance, Job, NodeState, StorageTrouble, are_alike};
use berth_domain::proof::Proof;
use berth_domain::{JobId, Namespace, NodeId, PluginId, Timestamp};
use berth_telemetry::metric::EVENTS_REFUSED;
use tokio::time::Instant;

use super::node_records::{InstanceKey, NodeRecords, Write};
use super::state::State;

pub fn publish(events: &Events, event: &Event, trace: TraceContext) {
    events.publish(&event.subject(), event, trace);
}

/// Publishes an event that the node caused, if its share of the stream lasts.
pub fn publish_in_share(state: &State, node: &NodeId, event: &Event, trace: TraceContext) {
    if state.event_shares.take_event(node, event, Instant::now()) {
        publish(&state.events, event, trace);
    } else {
        EVENTS_REFUSED.add(1, []);
        tracing::debug!(%node, event = %event.event, "beyond the node's share of the events");
    }
}

/// The event of a write; none for a write that no reader of events needs to know.
pub fn write_event(
    node: &NodeId,
    before: &NodeRecords,
    write: &Write,
    at: Timestamp,
    trace: TraceContext,
) -> Option<Event> {
    match write {
        Write::Node(next) => {
            let proof = before.node.as_ref().and_then(|record| record.gone.as_ref());
            let back = proof.filter(|_| next.gone.is_none());
            back.map(|proof| Event {
                detail: Some(format!(
                    "it has undone all that it had mounted; it counted as gone: {proof}"
                )),
                ..event(EventName::NodeBack, node, at, trace)
            })
        }
        Write::Put(instance_key, instance) => {
            let record = before.instances.get(instance_key);
            let flips = record.is_none_or(|record| record.healthy != instance.healthy);
            if flips {
                return Some(health(node, instance_key, instance, at, trace));
            }
            let troubles = |it: &Instance| it.node.as_ref().map(|node| node.storage.clone());
            let now = troubles(instance).unwrap_or_default();
            let last = record.and_then(troubles).unwrap_or_default();
            let is_news = !are_alike(&last, &now);
            is_news.then(|| storage_health(node, instance_key, &now, at, trace))
        }
        Write::Delete(instance_key) => Some(instance_left(node, instance_key, at, trace)),
    }
}

fn health(
    node: &NodeId,
    instance_key: &InstanceKey,
    instance: &Instance,
    at: Timestamp,
    trace: TraceContext,
) -> Event {
    let (plugin, half) = instance_key;
    let name = if instance.healthy { EventName::PluginHealthy } else { EventName::PluginUnhealthy };
    let detail = format!("{half} {}: {}", instance.version, instance.description);
    Event { plugin: Some(plugin.clone()), detail: Some(detail), ..event(name, node, at, trace) }
}

fn storage_health(
    node: &NodeId,
    (plugin, _): &InstanceKey,
    troubles: &[StorageTrouble],
    at: Timestamp,
    trace: TraceContext,
) -> Event {
    let is_well = troubles.is_empty();
    let name = if is_well { EventName::PluginStorageWell } else { EventName::PluginStorageTrouble };
    let said: Vec<_> = troubles.iter().map(|trouble| trouble.said.as_str()).collect();
    let detail = (!is_well).then(|| said.join("; "));
    Event { plugin: Some(plugin.clone()), detail, ..event(name, node, at, trace) }
}

/// A plugin gives a node no id of its own.
pub fn id_fault(
    node: &NodeId,
    plugin: &PluginId,
    why: String,
    at: Timestamp,
    trace: TraceContext,
) -> Event {
    let event = event(EventName::PluginUnhealthy, node, at, trace);
    Event { plugin: Some(plugin.clone()), detail: Some(why), ..event }
}

pub fn instance_left(
    node: &NodeId,
    instance_key: &InstanceKey,
    at: Timestamp,
    trace: TraceContext,
) -> Event {
    let (plugin, half) = instance_key;
    Event {
        plugin: Some(plugin.clone()),
        detail: Some(half.to_string()),
        ..event(EventName::PluginInstanceLeft, node, at, trace)
    }
}

/// A node's agent gained its lease, or lost it.
pub fn presence(node: &NodeId, state: NodeState, at: Timestamp, trace: TraceContext) -> Event {
    let (name, detail) = match state {
        NodeState::Ready => (EventName::NodeReady, "its agent holds its lease"),
        NodeState::Down => (EventName::NodeDown, "its agent's lease has ended"),
    };
    Event { detail: Some(detail.to_owned()), ..event(name, node, at, trace) }
}

/// A job of a plugin announces how many instances it is to run; none when it is withdrawn.
pub fn job_changed(
    (plugin, namespace, id): (&PluginId, &Namespace, &JobId),
    job: Option<&Job>,
    at: Timestamp,
    trace: TraceContext,
) -> Event {
    let detail = match job {
        Some(Job { controllers, nodes, .. }) => {
            format!("job {id} of namespace {namespace}: {controllers} controllers, {nodes} nodes")
        }
        None => format!("job {id} of namespace {namespace} was taken back"),
    };
    Event {
        plugin: Some(plugin.clone()),
        detail: Some(detail),
        trace: Some(trace.trace_id()),
        ..Event::new(EventName::PluginExpected, at, PLUGIN_REGISTRY)
    }
}

/// An operator declared a node gone.
pub fn node_gone(node: &NodeId, proof: &Proof, trace: TraceContext) -> Event {
    let detail = Some(proof.to_string());
    Event { detail, ..event(EventName::NodeGone, node, proof.at, trace) }
}

pub fn node_left(node: &NodeId, at: Timestamp, trace: TraceContext) -> Event {
    event(EventName::NodeLeft, node, at, trace)
}

fn event(name: EventName, node: &NodeId, at: Timestamp, trace: TraceContext) -> Event {
    Event {
        node: Some(node.clone()),
        trace: Some(trace.trace_id()),
        ..Event::new(name, at, PLUGIN_REGISTRY)
    }
}
