//! Where a volume can be reached, by the topology of its plugin.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Whether a node is where a volume can be reached: in one of its topologies, with every segment of
/// that (CSI 1.12, `Volume.accessible_topology`). A volume without topologies is everywhere. Keys
/// are compared without regard to case, as CSI has it.
pub fn reaches(volume: &[BTreeMap<String, String>], node: &BTreeMap<String, String>) -> bool {
    let is_at = |segment: &str, value: &str| {
        node.iter().any(|(key, at)| key.eq_ignore_ascii_case(segment) && at == value)
    };
    let within =
        |one: &BTreeMap<String, String>| one.iter().all(|(segment, value)| is_at(segment, value));
    volume.is_empty() || volume.iter().any(within)
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
