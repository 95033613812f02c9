//! How much room a plugin has at each place, by its last answers (`GetCapacity`), for a volume that
//! its first claim will have created.
//!
//! **Promises** that a place is passed over only while the plugin has room for the volume at
//! another one. Otherwise the plugin is asked to create it, and decides.
//!
//! **Never** takes a place of which nothing is known for one without room.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::topology::segments;
use crate::volume::storage::Topology;

/// The plugin's answer about one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capacity {
    /// How many bytes can be provisioned there.
    pub available_bytes: Option<u64>,
    /// How large one volume can be there.
    pub max_volume_bytes: Option<u64>,
}

impl Capacity {
    /// The largest volume that can be created there; none if the plugin does not say.
    fn largest(self) -> Option<u64> {
        // Zero says nothing, as an absent value (CSI 1.13, `GetCapacityResponse`).
        let max = self.max_volume_bytes.filter(|max| *max > 0);
        self.available_bytes.into_iter().chain(max).min()
    }
}

/// What a plugin last said of each place for volumes of one kind.
pub type Places = BTreeMap<Topology, Capacity>;

/// What decides whether a volume had better be created elsewhere.
#[derive(Debug)]
pub struct Rooms {
    needed_bytes: u64,
    places: Arc<Places>,
    /// A place with room where a claim would be granted.
    elsewhere: Option<Topology>,
}

impl Rooms {
    /// The room for a volume of at least this size. `find_place` finds a place where a claim would
    /// be granted, among those that pass its test. It is called only if a place is too small.
    pub fn new(
        needed_bytes: u64,
        places: Arc<Places>,
        find_place: impl FnOnce(&dyn Fn(&Topology) -> bool) -> Option<Topology>,
    ) -> Self {
        // A plugin that may choose the size needs some room, too.
        let mut rooms = Self { needed_bytes: needed_bytes.max(1), places, elsewhere: None };
        if rooms.places.keys().any(|place| rooms.has_room(place) == Some(false)) {
            rooms.elsewhere = find_place(&|place| rooms.has_room(place) == Some(true));
        }
        rooms
    }

    /// Whether the volume fits there; none if that is not known.
    fn has_room(&self, place: &Topology) -> Option<bool> {
        Some(self.places.get(place)?.largest()? >= self.needed_bytes)
    }

    /// Why the volume had better be created elsewhere than here.
    pub(crate) fn lacking_at(&self, here: &Topology) -> Option<String> {
        self.has_room(here).filter(|has_room| !has_room)?;
        let largest = self.places.get(here)?.largest()?;
        let (needed, here) = (self.needed_bytes, segments(here));
        let elsewhere = segments(self.elsewhere.as_ref()?);
        Some(format!("{largest} of {needed} bytes in {here}, and for all of them in {elsewhere}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> Topology {
        Topology::from([("zone".to_owned(), name.to_owned())])
    }

    fn available(bytes: u64) -> Capacity {
        Capacity { available_bytes: Some(bytes), max_volume_bytes: None }
    }

    /// What keeps a volume out of zone a, while claims would be granted in zones b and c.
    fn lacking(needed_bytes: u64, places: &[(&str, Capacity)]) -> Option<String> {
        let places = places.iter().map(|(name, capacity)| (zone(name), *capacity)).collect();
        let find_place = |has_room: &dyn Fn(&Topology) -> bool| {
            ["b", "c"].map(zone).into_iter().find(|place| has_room(place))
        };
        Rooms::new(needed_bytes, Arc::new(places), find_place).lacking_at(&zone("a"))
    }

    #[test]
    fn the_largest_volume_is_bounded_by_all_that_the_plugin_says() {
        let largest = |available_bytes, max_volume_bytes| {
            Capacity { available_bytes, max_volume_bytes }.largest()
        };
        assert_eq!(largest(Some(9), None), Some(9));
        assert_eq!(largest(Some(9), Some(0)), Some(9));
        assert_eq!(largest(Some(9), Some(5)), Some(5));
        assert_eq!(largest(Some(3), Some(5)), Some(3));
        assert_eq!(largest(None, None), None);
    }

    #[test]
    fn a_place_is_passed_over_only_for_one_with_room_that_can_be_claimed() {
        let (full, wide, silent) = (available(9), available(10), Capacity::default());
        let words = Some("9 of 10 bytes in zone=a, and for all of them in zone=c".to_owned());
        assert_eq!(lacking(10, &[("a", full), ("b", full), ("c", wide)]), words);
        for (case, places) in [
            ("it has room", &[("a", wide), ("b", wide), ("c", full)][..]),
            ("nothing is known of it", &[("b", full), ("c", wide)]),
            ("the plugin does not say how much", &[("a", silent), ("b", full), ("c", wide)]),
            ("no other has room", &[("a", full), ("b", full), ("c", full)]),
            ("nothing is known of the others", &[("a", full)]),
            ("nor does the plugin say of the others", &[("a", full), ("b", silent)]),
            ("nothing can be claimed where there is room", &[("a", full), ("d", wide)]),
        ] {
            assert_eq!(lacking(10, places), None, "{case}");
        }
    }

    #[test]
    fn a_volume_of_any_size_needs_some_room() {
        assert_eq!(lacking(0, &[("a", available(1)), ("b", available(1))]), None);
        assert!(lacking(0, &[("a", available(0)), ("b", available(1))]).is_some());
    }
}
