//! Which instance of a plugin calls go to, and what the plugin is by all of them; pure.
//!
//! An upgrade runs two versions side by side: calls go to the newest that is healthy. One that is
//! to leave is asked when there is no other. When none is healthy it stays as it was: a plugin that
//! is away for a moment is no reason to move.

use berth_domain::Timestamp;
use berth_domain::plugin::Half;

use super::{InstanceView, PluginHalves};

/// More instances beside the one that is asked are not named.
const BESIDE_MAX: usize = 3;

/// One instance, as far as it matters here.
#[derive(Debug, Clone)]
pub(crate) struct InstanceCandidate {
    pub(crate) key: String,
    pub(crate) view: InstanceView,
    /// Why its process does not run, of one that the agent runs.
    pub(crate) down: Option<String>,
    /// What else is to be said of it.
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
            // Nobody knows yet what it is.
            (None, _) => 1,
            (Some(false), _) => 0,
        }
    }
}

/// The one that calls of this half go to; `current` is the key of the one they went to.
pub(crate) fn choose_instance(
    all: &[InstanceCandidate],
    half: Half,
    current: Option<&str>,
) -> usize {
    let ranked = all.iter().enumerate().map(|(at, one)| {
        let is_current = current == Some(one.key.as_str());
        // Of those that are new alike, the one that is asked already.
        (one.rank(half, is_current), one.since, is_current, at)
    });
    ranked.max().map_or(0, |(.., at)| at)
}

/// What the plugin is, when calls go to these; none when there is none.
pub(crate) fn fold_halves(
    all: &[InstanceCandidate],
    controller: usize,
    node: usize,
) -> Option<PluginHalves> {
    let beside: Vec<String> = all
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != controller && *at != node)
        .map(|(_, one)| beside(one))
        .collect();
    let face = |at: usize| {
        let one = all.get(at)?;
        let said = one.down.as_ref().unwrap_or(&one.view.description);
        let named = beside.iter().take(BESIDE_MAX);
        let more = beside.len().saturating_sub(BESIDE_MAX);
        let more = (more > 0).then(|| format!("{more} more beside it"));
        let parts: Vec<&str> = std::iter::once(said)
            .chain(&one.remarks)
            .chain(named)
            .chain(&more)
            .map(String::as_str)
            .collect();
        Some(InstanceView { description: parts.join("; "), ..one.view.clone() })
    };
    Some(PluginHalves { controller: face(controller)?, node: face(node)? })
}

fn beside(one: &InstanceCandidate) -> String {
    let version = one.view.fingerprint.as_ref().map_or("", |known| known.vendor_version.as_str());
    let health = if one.view.healthy { "healthy" } else { "unhealthy" };
    let said: Vec<&str> =
        std::iter::once(health).chain(one.remarks.iter().map(String::as_str)).collect();
    format!("beside it {} {version} ({})", one.key, said.join(", "))
}

#[cfg(test)]
mod tests {
    use berth_csi::Fingerprint;
    use berth_csi::advertised::{
        ControllerCapabilities, NodeCapabilities, PluginServices, VolumeExpansion,
    };
    use berth_csi::fingerprint::NodeFingerprint;

    use super::*;

    fn one(key: &str, since: u64, healthy: bool, halves: Option<&[Half]>) -> InstanceCandidate {
        let fingerprint = halves.map(|halves| Fingerprint {
            name: "csi.example".to_owned(),
            vendor_version: format!("of {key}"),
            services: PluginServices::default(),
            expansion: VolumeExpansion::default(),
            controller: halves.contains(&Half::Controller).then(ControllerCapabilities::default),
            node: halves.contains(&Half::Node).then(|| NodeFingerprint {
                node_id: None,
                max_volumes: None,
                topology: [].into(),
                capabilities: NodeCapabilities::default(),
            }),
        });
        let since = Timestamp::from_unix_ms(since);
        let view =
            InstanceView { healthy, description: format!("{key} speaks"), since, fingerprint };
        let (down, remarks) = (None, Vec::new());
        InstanceCandidate { key: key.to_owned(), view, down, remarks, leaving: false, since }
    }

    const BOTH: Option<&[Half]> = Some(&[Half::Controller, Half::Node]);

    fn chosen(all: &[InstanceCandidate], current: &str) -> String {
        all[choose_instance(all, Half::Node, Some(current))].key.clone()
    }

    #[test]
    fn calls_go_to_the_newest_that_is_healthy() {
        let mut all = [one("old", 1, true, BOTH), one("new", 2, false, None)];
        assert_eq!(chosen(&all, "old"), "old", "the new one has not answered yet");
        all[1] = one("new", 2, true, BOTH);
        assert_eq!(chosen(&all, "old"), "new");
        all[1].view.healthy = false;
        assert_eq!(chosen(&all, "new"), "old");
        all[0].view.healthy = false;
        assert_eq!(chosen(&all, "new"), "new", "none is healthy: it stays as it was");
        assert_eq!(chosen(&all, "old"), "old");
    }

    #[test]
    fn one_that_is_to_leave_is_asked_when_there_is_no_other() {
        let mut all = [one("a", 1, true, BOTH), one("b", 2, true, BOTH)];
        all[1].leaving = true;
        assert_eq!(chosen(&all, "b"), "a");
        all[0].view.healthy = false;
        assert_eq!(chosen(&all, "a"), "b");
    }

    #[test]
    fn each_half_is_asked_where_it_is_served() {
        let all = [
            one("c", 1, true, Some(&[Half::Controller])),
            one("n", 2, true, Some(&[Half::Node])),
            one("x", 3, false, None),
        ];
        let controller = choose_instance(&all, Half::Controller, None);
        let node = choose_instance(&all, Half::Node, None);
        assert_eq!((controller, node), (0, 1));
        let halves = fold_halves(&all, controller, node).unwrap();
        let said = halves.node.description;
        assert_eq!(said, "n speaks; beside it x  (unhealthy)");
    }

    #[test]
    fn an_instance_alone_speaks_for_itself() {
        let all = [one("a", 1, true, BOTH)];
        let halves = fold_halves(&all, 0, 0).unwrap();
        assert_eq!(halves.node.description, "a speaks");
    }
}
