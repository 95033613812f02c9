//! Where a volume can be reached, by the topology of its plugin.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Whether a node is where a volume can be reached: in one of its topologies, with every segment of
/// that (CSI 1.13, `Volume.accessible_topology`). A volume without topologies is everywhere. Keys
/// are compared without regard to case, as CSI has it.
pub fn reaches(volume: &[BTreeMap<String, String>], node: &BTreeMap<String, String>) -> bool {
    let is_at = |segment: &str, value: &str| {
        node.iter().any(|(key, at)| key.eq_ignore_ascii_case(segment) && at == value)
    };
    let within =
        |one: &BTreeMap<String, String>| one.iter().all(|(segment, value)| is_at(segment, value));
    volume.is_empty() || volume.iter().any(within)
}

/// The places that are within both: each names the segments of one of `some` and of one of
/// `others`. Two places exclude each other only by a key with two values. Neither is empty.
pub fn common_places(
    some: &[BTreeMap<String, String>],
    others: &[BTreeMap<String, String>],
) -> Vec<BTreeMap<String, String>> {
    let mut common: Vec<BTreeMap<String, String>> = Vec::new();
    for (one, other) in some.iter().flat_map(|one| others.iter().map(move |other| (one, other))) {
        let known = |key: &str| other.iter().find(|(known, _)| known.eq_ignore_ascii_case(key));
        if one.iter().any(|(key, value)| known(key).is_some_and(|(_, is)| is != value)) {
            continue;
        }
        let more = one.iter().filter(|(key, _)| known(key).is_none());
        let mut both = other.clone();
        both.extend(more.map(|(key, value)| (key.clone(), value.clone())));
        if !common.contains(&both) {
            common.push(both);
        }
    }
    common
}

/// These places, those from which this node reaches a volume before the others.
pub fn reached_first(
    places: &[BTreeMap<String, String>],
    node: &BTreeMap<String, String>,
) -> Vec<BTreeMap<String, String>> {
    let mut places = places.to_vec();
    places.sort_by_key(|one| !reaches(std::slice::from_ref(one), node));
    places
}

/// A topology for people: `zone=a, rack=1`.
pub fn segments(topology: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (segment, value) in topology {
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{comma}{segment}={value}");
    }
    if text.is_empty() { "no topology that its plugin tells of".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_within_both_are_named_as_exactly_as_either_does() {
        let place = |segments: &[(&str, &str)]| {
            segments.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let [region, a, b] =
            [&[("region", "r")][..], &[("region", "r"), ("zone", "a")], &[("zone", "b")]]
                .map(place);
        let common = |some: &[&BTreeMap<String, String>], others: &[&BTreeMap<String, String>]| {
            let owned = |all: &[&BTreeMap<_, _>]| all.iter().map(|one| (*one).clone()).collect();
            let (some, others): (Vec<_>, Vec<_>) = (owned(some), owned(others));
            common_places(&some, &others).iter().map(segments).collect::<Vec<_>>()
        };
        assert_eq!(common(&[&a], &[&b, &a]), ["region=r, zone=a"]);
        assert_eq!(common(&[&region], &[&b, &a]), ["region=r, zone=b", "region=r, zone=a"]);
        assert_eq!(common(&[&b, &a], &[&region]), ["region=r, zone=b", "region=r, zone=a"]);
        let upper = BTreeMap::from([("Zone".to_owned(), "b".to_owned())]);
        assert_eq!(common(&[&upper], &[&b]), ["zone=b"], "keys are compared without case");
        assert!(common(&[&a], &[&b]).is_empty());
    }

    #[test]
    fn places_of_a_node_come_first_and_keep_their_order() {
        let place = |zone: &str, rack: &str| {
            let segments = [("zone", zone), ("rack", rack)].into_iter();
            let named = segments.filter(|(_, value)| !value.is_empty());
            named.map(|(key, value)| (key.to_owned(), value.to_owned())).collect::<BTreeMap<_, _>>()
        };
        let places = [place("a", ""), place("b", "1"), place("c", ""), place("b", "")];
        let order = |node| reached_first(&places, &node).iter().map(segments).collect::<Vec<_>>();
        assert_eq!(order(place("b", "1")), ["rack=1, zone=b", "zone=b", "zone=a", "zone=c"]);
        assert_eq!(order(place("z", "1")), ["zone=a", "rack=1, zone=b", "zone=c", "zone=b"]);
    }
}
