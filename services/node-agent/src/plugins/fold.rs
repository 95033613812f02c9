//! Chooses the instance of a plugin that calls go to, and describes the plugin by its instances.
//!
//! **Owns** the choice. During an upgrade two versions run at the same time:
//! - calls go to the newest healthy instance;
//! - an instance that is leaving is called only if no other is healthy;
//! - if no instance is healthy, the choice stays: a short outage does not move the calls.
//!
//! **Never** reads a clock or makes a call.

use berth_domain::Timestamp;
use berth_domain::plugin::Half;

use super::view::{InstanceView, PluginHalves};

/// Largest number of other instances that a description names.
const NAMED_INSTANCES_MAX: usize = 3;

/// What the choice needs to know of an instance.
#[derive(Debug, Clone)]
pub(crate) struct InstanceCandidate {
    pub(crate) key: String,
    pub(crate) view: InstanceView,
    /// Why its process does not run, of one that the agent runs.
    pub(crate) down: Option<String>,
    /// Further facts for its description.
    pub(crate) remarks: Vec<String>,
    pub(crate) leaving: bool,
    pub(crate) since: Timestamp,
}

impl InstanceCandidate {
    fn rank(&self, half: Half, is_current: bool) -> u8 {
        let serves = self.view.fingerprint.as_ref().map(|known| match half {
            Half::Controller => known.controller.is_some(),
            Half::Node => known.node.is_some(),
        });
        match (serves, self.view.healthy) {
            (Some(true), true) if !self.leaving => 5,
            (Some(true), true) => 4,
            (Some(true), false) if is_current => 3,
            (Some(true), false) => 2,
            // It has not reported its services yet.
            (None, _) => 1,
            (Some(false), _) => 0,
        }
    }
}

/// The index of the instance that calls of this half go to. `current` is the key of the last
/// choice.
pub(crate) fn choose_instance(
    all: &[InstanceCandidate],
    half: Half,
    current: Option<&str>,
) -> usize {
    let ranked = all.iter().enumerate().map(|(index, candidate)| {
        let is_current = current == Some(candidate.key.as_str());
        // Of equally new instances the current one stays.
        (candidate.rank(half, is_current), candidate.since, is_current, index)
    });
    ranked.max().map_or(0, |(.., index)| index)
}

/// The plugin's views if calls go to these two instances. `None` if there is no such instance.
pub(crate) fn fold_halves(
    all: &[InstanceCandidate],
    controller: usize,
    node: usize,
) -> Option<PluginHalves> {
    let others: Vec<String> = all
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != controller && *index != node)
        .map(|(_, candidate)| describe_other(candidate))
        .collect();
    let view_of = |index: usize| {
        let chosen = all.get(index)?;
        let description = chosen.down.as_ref().unwrap_or(&chosen.view.description);
        let named = others.iter().take(NAMED_INSTANCES_MAX);
        let more = others.len().saturating_sub(NAMED_INSTANCES_MAX);
        let more = (more > 0).then(|| format!("{more} more beside it"));
        let parts: Vec<&str> = std::iter::once(description)
            .chain(&chosen.remarks)
            .chain(named)
            .chain(&more)
            .map(String::as_str)
            .collect();
        Some(InstanceView { description: parts.join("; "), ..chosen.view.clone() })
    };
    Some(PluginHalves { controller: view_of(controller)?, node: view_of(node)? })
}

fn describe_other(other: &InstanceCandidate) -> String {
    let version = other.view.fingerprint.as_ref().map_or("", |known| known.vendor_version.as_str());
    let health = if other.view.healthy { "healthy" } else { "unhealthy" };
    let facts: Vec<&str> =
        std::iter::once(health).chain(other.remarks.iter().map(String::as_str)).collect();
    format!("beside it {} {version} ({})", other.key, facts.join(", "))
}

#[cfg(test)]
mod tests {
    use berth_csi::Fingerprint;
    use berth_csi::advertised::{
        ControllerCapabilities, NodeCapabilities, PluginServices, VolumeExpansion,
    };
    use berth_csi::fingerprint::NodeFingerprint;

    use super::*;

    fn candidate(
        key: &str,
        since: u64,
        healthy: bool,
        halves: Option<&[Half]>,
    ) -> InstanceCandidate {
        let fingerprint = halves.map(|halves| Fingerprint {
            name: "csi.example".to_owned(),
            vendor_version: format!("of {key}"),
            services: PluginServices::default(),
            expansion: VolumeExpansion::default(),
            group_snapshots: false,
            controller: halves.contains(&Half::Controller).then(ControllerCapabilities::default),
            node: halves.contains(&Half::Node).then(|| NodeFingerprint {
                node_id: None,
                max_volumes: None,
                topology: [].into(),
                capabilities: NodeCapabilities::default(),
            }),
        });
        let (since, process) = (Timestamp::from_unix_ms(since), None);
        let view = InstanceView {
            healthy,
            description: format!("{key} speaks"),
            since,
            fingerprint,
            process,
        };
        let (down, remarks) = (None, Vec::new());
        InstanceCandidate { key: key.to_owned(), view, down, remarks, leaving: false, since }
    }

    const BOTH: Option<&[Half]> = Some(&[Half::Controller, Half::Node]);

    fn chosen(all: &[InstanceCandidate], current: &str) -> String {
        all[choose_instance(all, Half::Node, Some(current))].key.clone()
    }

    #[test]
    fn calls_go_to_the_newest_that_is_healthy() {
        let mut all = [candidate("old", 1, true, BOTH), candidate("new", 2, false, None)];
        assert_eq!(chosen(&all, "old"), "old", "the new one has not answered yet");
        all[1] = candidate("new", 2, true, BOTH);
        assert_eq!(chosen(&all, "old"), "new");
        all[1].view.healthy = false;
        assert_eq!(chosen(&all, "new"), "old");
        all[0].view.healthy = false;
        assert_eq!(chosen(&all, "new"), "new", "none is healthy: it stays as it was");
        assert_eq!(chosen(&all, "old"), "old");
    }

    #[test]
    fn a_leaving_instance_is_called_if_no_other_is_healthy() {
        let mut all = [candidate("a", 1, true, BOTH), candidate("b", 2, true, BOTH)];
        all[1].leaving = true;
        assert_eq!(chosen(&all, "b"), "a");
        all[0].view.healthy = false;
        assert_eq!(chosen(&all, "a"), "b");
    }

    #[test]
    fn calls_of_a_half_go_to_an_instance_that_serves_it() {
        let all = [
            candidate("c", 1, true, Some(&[Half::Controller])),
            candidate("n", 2, true, Some(&[Half::Node])),
            candidate("x", 3, false, None),
        ];
        let controller = choose_instance(&all, Half::Controller, None);
        let node = choose_instance(&all, Half::Node, None);
        assert_eq!((controller, node), (0, 1));
        let halves = fold_halves(&all, controller, node).unwrap();
        let said = halves.node.description;
        assert_eq!(said, "n speaks; beside it x  (unhealthy)");
    }

    #[test]
    fn a_single_instance_gives_the_plugin_its_description() {
        let all = [candidate("a", 1, true, BOTH)];
        let halves = fold_halves(&all, 0, 0).unwrap();
        assert_eq!(halves.node.description, "a speaks");
    }
}
