//! How much room a plugin has at each place, by its last answers (`GetCapacity`), for a volume that
//! its first claim will have created.
//!
//! **Promises** that a place is passed over only while the plugin has room for the volume at
//! another one that a claim could name. Otherwise the plugin is asked to create it, and decides.
//!
//! **Never** takes a place of which nothing is known for one without room.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::NodeId;
use crate::plugin::{Half, Plugin, keeping_out};
use crate::topology::{reaches, segments};
use crate::volume::VolumeSpec;
use crate::volume::storage::Topology;

/// The plugin's answer about one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Room {
    /// How many bytes can be provisioned there.
    pub available_bytes: Option<u64>,
    /// How large one volume can be there.
    pub max_volume_bytes: Option<u64>,
}

impl Room {
    /// The largest volume that can be created there; none if the plugin does not say.
    fn largest(self) -> Option<u64> {
        // Zero says nothing, as an absent value (CSI 1.13, `GetCapacityResponse`).
        let max = self.max_volume_bytes.filter(|max| *max > 0);
        self.available_bytes.into_iter().chain(max).min()
    }
}

/// What a plugin last said of each place for volumes of one kind.
pub type Places = BTreeMap<Topology, Room>;

/// What decides whether a volume had better be created elsewhere.
#[derive(Debug)]
pub struct Rooms {
    needed_bytes: u64,
    places: Arc<Places>,
    /// A place with room that a claim could name. Looked for once, and only if it is needed.
    elsewhere: OnceLock<Option<Topology>>,
}

impl Rooms {
    /// The room for a volume of at least this size.
    pub fn new(needed_bytes: u64, places: Arc<Places>) -> Self {
        // A plugin that may choose the size needs some room, too.
        Self { needed_bytes: needed_bytes.max(1), places, elsewhere: OnceLock::new() }
    }

    /// Why the volume had better be created elsewhere than at the place of this claim.
    pub(crate) fn lacking_at(
        &self,
        here: &Topology,
        spec: &VolumeSpec,
        plugin: &Plugin,
        ready: impl Fn(&NodeId) -> bool,
    ) -> Option<String> {
        let largest = self.places.get(here)?.largest()?;
        if largest >= self.needed_bytes {
            return None;
        }
        let elsewhere = self.elsewhere.get_or_init(|| self.find_room(spec, plugin, ready).cloned());
        let elsewhere = segments(elsewhere.as_ref()?);
        let needed = self.needed_bytes;
        let here = segments(here);
        Some(format!("{largest} of {needed} bytes in {here}, and enough in {elsewhere}"))
    }

    /// A place that has room for certain, with a node where a claim would be granted.
    fn find_room<'a>(
        &self,
        spec: &VolumeSpec,
        plugin: &'a Plugin,
        ready: impl Fn(&NodeId) -> bool,
    ) -> Option<&'a Topology> {
        let fs_type = spec.mount.fs_type.as_deref();
        let nodes = plugin.instances.iter().filter(|((_, half), _)| *half == Half::Node);
        nodes
            .filter_map(|((node, _), instance)| Some((node, instance.node.as_ref()?)))
            .filter(|(_, abilities)| {
                let known = self.places.get(&abilities.topology).and_then(|room| room.largest());
                known.is_some_and(|largest| largest >= self.needed_bytes)
            })
            .find(|(node, abilities)| {
                plugin.route(node, &ready).is_ok()
                    && reaches(spec.accessible_from(), &abilities.topology)
                    && abilities.full.is_none()
                    && keeping_out(&abilities.storage, &spec.capabilities, fs_type).is_none()
            })
            .map(|(_, abilities)| &abilities.topology)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn zone(name: &str) -> Topology {
        Topology::from([("zone".to_owned(), name.to_owned())])
    }

    /// Node n1 in zone a, n2 in zone b, n3 in zone c.
    fn plugin() -> Plugin {
        let mut plugin = Plugin::default();
        for (node, name) in [("n1", "a"), ("n2", "b"), ("n3", "c")] {
            let instance = json!({"healthy": true, "description": "", "provider": "p",
                "version": "1", "since": "2026-01-01T00:00:00Z",
                "node": {"external_node": node, "controller_service": false,
                    "stage_unstage_volume": false, "topology": {"zone": name}}});
            let instance = serde_json::from_value(instance).unwrap();
            plugin.instances.insert((NodeId::new(node).unwrap(), Half::Node), instance);
        }
        plugin
    }

    fn spec() -> VolumeSpec {
        serde_json::from_value(json!({"plugin": "p", "capabilities":
            [{"access": "single-node-writer", "attachment": "file-system"}]}))
        .unwrap()
    }

    fn available(bytes: u64) -> Room {
        Room { available_bytes: Some(bytes), max_volume_bytes: None }
    }

    /// What keeps a volume of 10 bytes out of zone a.
    fn lacking(
        places: &[(&str, Room)],
        spec: &VolumeSpec,
        plugin: &Plugin,
        down: &str,
    ) -> Option<String> {
        let places = places.iter().map(|(name, room)| (zone(name), *room)).collect();
        let rooms = Rooms::new(10, Arc::new(places));
        rooms.lacking_at(&zone("a"), spec, plugin, |node| node.as_str() != down)
    }

    #[test]
    fn the_largest_volume_is_bounded_by_all_that_the_plugin_says() {
        let largest = |available_bytes, max_volume_bytes| {
            Room { available_bytes, max_volume_bytes }.largest()
        };
        assert_eq!(largest(Some(9), None), Some(9));
        assert_eq!(largest(Some(9), Some(0)), Some(9));
        assert_eq!(largest(Some(9), Some(5)), Some(5));
        assert_eq!(largest(Some(3), Some(5)), Some(3));
        assert_eq!(largest(None, None), None);
    }

    #[test]
    fn a_place_is_passed_over_only_for_one_with_room_that_can_be_claimed() {
        let (full, wide, silent) = (available(9), available(10), Room::default());
        let (spec, plugin) = (spec(), plugin());
        let words = Some("9 of 10 bytes in zone=a, and enough in zone=b".to_owned());
        let all = [("a", full), ("b", wide), ("c", full)];
        assert_eq!(lacking(&all, &spec, &plugin, "-"), words);
        for (case, places) in [
            ("it has room", &[("a", wide), ("b", wide)][..]),
            ("nothing is known of it", &[("b", wide)]),
            ("the plugin does not say how much", &[("a", silent), ("b", wide)]),
            ("no other has room", &[("a", full), ("b", full), ("c", full)]),
            ("nothing is known of the others", &[("a", full)]),
            ("nor does the plugin say of the others", &[("a", full), ("b", silent)]),
            ("there is no node where there is room", &[("a", full), ("d", wide)]),
        ] {
            assert_eq!(lacking(places, &spec, &plugin, "-"), None, "{case}");
        }
        assert_eq!(lacking(&all, &spec, &plugin, "n2"), None, "the other node is down");
    }

    #[test]
    fn a_place_where_a_claim_would_be_refused_is_no_better() {
        let places = [("a", available(9)), ("b", available(10))];
        let within = json!({"provision": {"name": "v", "requested": "2026-01-01T00:00:00Z",
            "first_use": true, "requisite": [{"zone": "a"}, {"zone": "c"}]}});
        let bound = VolumeSpec { storage: serde_json::from_value(within).unwrap(), ..spec() };
        assert_eq!(lacking(&places, &bound, &plugin(), "-"), None, "it may not be created there");
        let change = |field: &str, value: serde_json::Value| {
            let mut plugin = plugin();
            let instance = plugin.instances.get_mut(&(NodeId::new("n2").unwrap(), Half::Node));
            let instance = instance.unwrap();
            let mut shown = serde_json::to_value(&*instance).unwrap();
            *shown.pointer_mut(field).unwrap() = value;
            *instance = serde_json::from_value(shown).unwrap();
            lacking(&places, &spec(), &plugin, "-")
        };
        assert_eq!(change("/healthy", json!(false)), None);
        let node = |more: serde_json::Value| {
            let mut node = json!({"external_node": "n2", "controller_service": false,
                "stage_unstage_volume": false, "topology": {"zone": "b"}});
            node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            node
        };
        assert_eq!(change("/node", node(json!({"full": "25 of 25"}))), None);
        let away = json!({"storage": [{"unreachable": true, "said": "no path"}]});
        assert_eq!(change("/node", node(away)), None);
        assert!(change("/node", node(json!({}))).is_some(), "it is what is changed");
    }
}
