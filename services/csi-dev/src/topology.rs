//! The areas from which a volume can be reached.
//!
//! Owns: topological segments, and the choice among those that a CO requests. Promises: keys are
//! compared case-insensitively, as CSI requires. Never: knows the nodes.

use std::collections::BTreeMap;

use berth_csi::v1;

/// Topology keys and values; empty means anywhere (CSI `Topology.segments`).
pub type Segments = BTreeMap<String, String>;

/// Reads `key=value`.
pub fn parse_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let pair = pair.ok_or_else(|| format!("{text:?} does not have the form key=value"))?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

/// Whether the node has every segment of `area`.
pub fn is_within(node: &Segments, area: &Segments) -> bool {
    area.iter().all(|(key, value)| {
        node.iter().any(|(own, has)| own.eq_ignore_ascii_case(key) && has == value)
    })
}

/// The areas that a CO requests, in order of preference.
pub fn areas(requirement: &v1::TopologyRequirement) -> Vec<Segments> {
    let mut areas: Vec<Segments> = Vec::new();
    for topology in requirement.preferred.iter().chain(&requirement.requisite) {
        if !areas.contains(&topology.segments) {
            areas.push(topology.segments.clone());
        }
    }
    areas
}

/// The first of `areas` that contains one of `nodes`.
pub fn choose(areas: &[Segments], nodes: &[Segments]) -> Option<Segments> {
    areas.iter().find(|area| nodes.iter().any(|node| is_within(node, area))).cloned()
}

/// CSI's form; "anywhere" is an empty list.
pub fn to_wire(segments: &Segments) -> Vec<v1::Topology> {
    if segments.is_empty() {
        return Vec::new();
    }
    vec![v1::Topology { segments: segments.clone() }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(pairs: &[(&str, &str)]) -> Segments {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn keys_have_no_case_and_values_have() {
        let node = segments(&[("Zone", "a"), ("rack", "7")]);
        assert!(is_within(&node, &segments(&[("zone", "a")])));
        assert!(is_within(&node, &segments(&[])));
        assert!(!is_within(&node, &segments(&[("zone", "A")])));
        assert!(!is_within(&node, &segments(&[("zone", "a"), ("room", "1")])));
    }

    #[test]
    fn what_is_preferred_comes_first_where_there_is_a_node() {
        let topology = |zone: &str| v1::Topology { segments: segments(&[("zone", zone)]) };
        let requirement = v1::TopologyRequirement {
            requisite: vec![topology("a"), topology("b"), topology("c")],
            preferred: vec![topology("c"), topology("b")],
        };
        let areas = areas(&requirement);
        let zones: Vec<_> = areas.iter().map(|area| area["zone"].as_str()).collect();
        assert_eq!(zones, ["c", "b", "a"]);
        let nodes = [segments(&[("zone", "a")]), segments(&[("zone", "b")])];
        assert_eq!(choose(&areas, &nodes), Some(segments(&[("zone", "b")])));
        assert_eq!(choose(&areas[..1], &nodes), None);
    }
}
