//! Where a volume may be mounted although no claim says so, by what its nodes have reported.
//!
//! **Owns** the one answer that deletion, deregistration and exclusive grants ask for.
//!
//! **Promises** that a node which may have the volume and has not said so counts as one that may
//! have it mounted. A node that was declared gone has nothing mounted.

use std::collections::BTreeSet;

use crate::NodeId;
use crate::plugin::{Half, Plugin};
use crate::volume::{MountDoubt, UnaccountedMount};

/// The most doubts of one volume that are named.
const DOUBTS_MAX: usize = 16;

/// Where the volume may be mounted: first the mounts that nodes report, then the nodes that may
/// have it and have not said.
///
/// `reported` are the mounts without a claim that may be of the volume. `silent` are nodes of which
/// it is not known what they have mounted; of these only nodes with the volume's plugin matter.
/// `unreported` are nodes that have said nothing since the records were restored: each matters,
/// since the plugins that they had may be missing in the records, too.
pub fn mounts_in_doubt<'a>(
    reported: impl IntoIterator<Item = (&'a NodeId, &'a UnaccountedMount)>,
    silent: impl IntoIterator<Item = &'a NodeId>,
    unreported: impl IntoIterator<Item = &'a NodeId>,
    plugin: Option<&Plugin>,
) -> Vec<MountDoubt> {
    let reported = reported.into_iter();
    let mounted = reported.map(|(node, mount)| MountDoubt::mounted(node, mount));
    let may_have = |node: &&NodeId| {
        let place = ((*node).clone(), Half::Node);
        plugin.is_some_and(|plugin| plugin.instances.contains_key(&place))
    };
    let unreported: BTreeSet<&NodeId> = unreported.into_iter().take(DOUBTS_MAX).collect();
    let silent = silent.into_iter().filter(may_have).filter(|node| !unreported.contains(node));
    let not_said = silent.chain(unreported.iter().copied()).map(MountDoubt::not_said);
    mounted.chain(not_said).take(DOUBTS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::Instance;
    use crate::{AllocId, Namespace, PluginId, Timestamp, VolumeId};

    fn node(id: &str) -> NodeId {
        NodeId::new(id).unwrap()
    }

    fn plugin_on(nodes: &[(&str, Half)]) -> Plugin {
        let instance = Instance {
            healthy: false,
            description: String::new(),
            provider: "p".to_owned(),
            version: "1".to_owned(),
            since: Timestamp::default(),
            controller: None,
            node: None,
            id_since: None,
            process: None,
        };
        let instances = nodes.iter().map(|(id, half)| ((node(id), *half), instance.clone()));
        Plugin { instances: instances.collect(), ..Plugin::default() }
    }

    #[test]
    fn a_silent_node_counts_where_it_has_the_plugins_node_half_healthy_or_not() {
        let plugin = plugin_on(&[("n1", Half::Node), ("n2", Half::Controller)]);
        let silent = [node("n1"), node("n2"), node("n3")];
        let found = mounts_in_doubt([], &silent, [], Some(&plugin));
        assert_eq!(found, [MountDoubt::not_said(&node("n1"))]);
        assert_eq!(mounts_in_doubt([], &silent, [], None), []);
        let unreported = mounts_in_doubt([], &silent, &silent[1..2], Some(&plugin));
        let expected = [MountDoubt::not_said(&node("n1")), MountDoubt::not_said(&node("n2"))];
        assert_eq!(unreported, expected, "whatever it has, and once");
    }

    #[test]
    fn reported_mounts_come_first_and_count_wherever_the_plugin_is() {
        let mount = UnaccountedMount {
            namespace: Namespace::default(),
            volume: VolumeId::new("d").unwrap(),
            alloc: AllocId::new("a").unwrap(),
            path: "/p".to_owned(),
            plugin: Some(PluginId::new("p").unwrap()),
            external_id: Some("x".to_owned()),
            used: None,
        };
        let (away, silent) = (node("n9"), [node("n1")]);
        let plugin = plugin_on(&[("n1", Half::Node)]);
        let found = mounts_in_doubt([(&away, &mount)], &silent, [], Some(&plugin));
        let mounted = MountDoubt::mounted(&away, &mount);
        assert_eq!(found, [mounted, MountDoubt::not_said(&node("n1"))]);
        let many = std::iter::repeat_n((&away, &mount), 99);
        assert_eq!(mounts_in_doubt(many, &silent, [], Some(&plugin)).len(), DOUBTS_MAX);
    }
}
