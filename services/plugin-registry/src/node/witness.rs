//! Which parts of a node's event are believed.
//!
//! **Why.** Events are shown to the users of a namespace, and a node's identity can be stolen. So
//! an event names only things that its node can be concerned with: an alloc that was placed on it,
//! a mount on its record, or a call of a controller that it has on record.
//!
//! **Promises** that `by` is taken from the alloc's record, and that the time is the registry's if
//! the event's is in the future or long ago.
//!
//! **Never** drops an event: without a proof it becomes an event of its node, and names nothing
//! else.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use berth_contract::event::{Event, EventName};
use berth_contract::message::node::ToldEvent;
use berth_contract::problem::Problem;
use berth_domain::alloc::Alloc;
use berth_domain::plugin::Half;
use berth_domain::{AllocId, Namespace, NodeId, PluginId, Timestamp, VolumeKey};
use berth_service::clock;

use crate::store::evidence::Evidence;
use crate::store::node_records::NodeRecords;
use crate::store::state::State;

/// How old an event may be at its receipt. Agents keep events while no registry answers.
const LATE_MAX: Duration = Duration::from_secs(600);

impl State {
    /// Reduces the events to what is believed of them.
    pub async fn witness(
        &self,
        node: &NodeId,
        told_events: Vec<ToldEvent>,
    ) -> Result<Vec<ToldEvent>, Problem> {
        let records = self.mirrored_records(node);
        let mut allocs: HashMap<(Namespace, AllocId), Evidence> = HashMap::new();
        for ToldEvent { event, .. } in &told_events {
            let (Some(namespace), Some(alloc)) = (&event.namespace, &event.alloc) else { continue };
            if let Entry::Vacant(unread) = allocs.entry((namespace.clone(), alloc.clone())) {
                unread.insert(self.evidence(namespace, alloc).await?);
            }
        }
        let now = clock::now();
        let believe = |ToldEvent { event, traceparent }| {
            let alloc_key = event.namespace.clone().zip(event.alloc.clone());
            let evidence =
                alloc_key.and_then(|alloc_key| allocs.get(&alloc_key)).unwrap_or(&Evidence::None);
            let event = believed(event, node, &records, evidence, now);
            ToldEvent { event, traceparent }
        };
        Ok(told_events.into_iter().map(believe).collect())
    }
}

/// The event, with only what is believed of it. The records are the node's.
fn believed(
    event: Event,
    node: &NodeId,
    records: &NodeRecords,
    evidence: &Evidence,
    now: Timestamp,
) -> Event {
    let at = if event.at > now || event.at.after(LATE_MAX) < now { now } else { event.at };
    let by = match evidence {
        // The event keeps its sender, which is all that is known of the requester.
        _ if event.event == EventName::RequestRefused => event.by.clone(),
        Evidence::Record(Alloc { by, .. }) => by.clone(),
        Evidence::Unreadable | Evidence::None => None,
    };
    let event = Event { at, by, ..event };
    if is_shown(&event, node, records, evidence) {
        return event;
    }
    let (namespace, volume, snapshot, alloc, by) = (None, None, None, None, None);
    Event { namespace, volume, snapshot, alloc, by, ..event }
}

/// Whether the node can be concerned with what the event names.
fn is_shown(event: &Event, node: &NodeId, records: &NodeRecords, evidence: &Evidence) -> bool {
    let is_call = matches!(event.event, EventName::CallDone | EventName::CallFailed);
    let is_served =
        |plugin: &PluginId| records.instances.contains_key(&(plugin.clone(), Half::Controller));
    if is_call && event.plugin.as_ref().is_some_and(is_served) {
        return true;
    }
    if let Evidence::Record(record) = evidence {
        let requested = |volume| record.may_use(volume, node);
        return event.volume.as_ref().map_or(record.node == *node, requested);
    }
    // The alloc's record is missing or unreadable.
    let (Some(namespace), Some(volume), Some(alloc)) =
        (&event.namespace, &event.volume, &event.alloc)
    else {
        return false;
    };
    let key = VolumeKey::new(namespace.clone(), volume.clone());
    let mut mounts = records.node.iter().flat_map(|record| &record.unaccounted);
    mounts.any(|mount| mount.is_of(&key, alloc))
}

#[cfg(test)]
mod tests {
    use berth_contract::service::NODE_AGENT;
    use berth_domain::plugin::Node;
    use serde_json::{Value, json};

    use super::*;

    fn event(name: EventName, fields: Value) -> Event {
        let mut event = serde_json::to_value(Event::new(name, at(0), NODE_AGENT)).unwrap();
        event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(event).unwrap()
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::from_unix_ms(1_000_000 + second * 1000)
    }

    fn alloc_on(node: &str) -> Evidence {
        let alloc = json!({
            "state": "live", "node": node, "since": "2026-01-01T00:00:00.000Z", "by": "user.anna",
            "volumes": [{"source": "data"}],
        });
        Evidence::Record(serde_json::from_value(alloc).unwrap())
    }

    #[test]
    fn an_event_names_only_what_its_node_can_have_to_do_with() {
        let node = NodeId::new("n1").unwrap();
        let mount = json!({"namespace": "b", "volume": "kept", "alloc": "a", "path": "/p"});
        let node_record = Node {
            unaccounted: vec![serde_json::from_value(mount).unwrap()],
            ..Node::unknown(at(0))
        };
        // `decide` put it on record, from an agent of any version.
        let controller = json!({"healthy": true, "description": "", "provider": "csi.own",
            "version": "1", "since": at(0)});
        let controller = serde_json::from_value(controller).unwrap();
        let own = ("csi.own".parse().unwrap(), Half::Controller);
        let records =
            NodeRecords { node: Some(node_record), instances: [(own, controller)].into() };
        let on_volume = |volume: &str| json!({"namespace": "b", "volume": volume, "alloc": "a"});
        let call = |plugin: &str| json!({"namespace": "b", "volume": "data", "plugin": plugin});
        let all_of = json!({"namespace": "b", "alloc": "a"});
        let refused = EventName::RequestRefused;
        let (mounted, done) = (EventName::VolumeMounted, EventName::CallDone);
        for (name, named, evidence, expected) in [
            (mounted, on_volume("data"), alloc_on("n1"), true),
            // Events about all volumes of the alloc.
            (refused, all_of.clone(), alloc_on("n1"), true),
            (refused, all_of, alloc_on("n2"), false),
            (mounted, on_volume("vic"), alloc_on("n1"), false),
            (mounted, on_volume("data"), alloc_on("n2"), false),
            (mounted, on_volume("data"), Evidence::None, false),
            (mounted, on_volume("kept"), Evidence::None, true),
            (mounted, on_volume("kept"), Evidence::Unreadable, true),
            (done, call("csi.own"), Evidence::None, true),
            (done, call("csi.other"), Evidence::None, false),
            (EventName::PluginHeld, call("csi.own"), Evidence::None, false),
        ] {
            let event = event(name, named);
            let witnessed = believed(event.clone(), &node, &records, &evidence, at(0));
            let is_whole =
                (&witnessed.namespace, &witnessed.volume) == (&event.namespace, &event.volume);
            assert_eq!(is_whole, expected, "{event:?} {evidence:?}");
            assert!(
                is_whole || (witnessed.volume.is_none() && witnessed.alloc.is_none()),
                "{witnessed:?}"
            );
        }
    }

    #[test]
    fn who_wants_it_and_when_is_ours_to_say() {
        let node = NodeId::new("n1").unwrap();
        let forged = json!({"namespace": "b", "volume": "data", "alloc": "a", "by": "user.bob"});
        for (now, expected) in [(0, 0), (60, 0), (601, 601)] {
            let forged_event = event(EventName::VolumeMounted, forged.clone());
            let witnessed =
                believed(forged_event, &node, &NodeRecords::default(), &alloc_on("n1"), at(now));
            assert_eq!(witnessed.at, at(expected));
            assert_eq!(witnessed.by.as_deref(), Some("user.anna"));
        }
        let forged_event = Event { at: at(1), ..event(EventName::VolumeMounted, forged) };
        let witnessed =
            believed(forged_event, &node, &NodeRecords::default(), &Evidence::None, at(0));
        assert_eq!((witnessed.at, witnessed.by), (at(0), None));
    }
}
