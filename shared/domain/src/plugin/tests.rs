//! A plugin's count of instances, and what it can do.

use super::*;

pub(super) fn instance(healthy: bool) -> Instance {
    Instance {
        healthy,
        description: String::new(),
        provider: "csi.example".to_owned(),
        version: "1".to_owned(),
        since: Timestamp::from_unix_ms(0),
        controller: None,
        node: None,
        id_since: None,
        process: None,
    }
}

/// Instances of these halves, healthy or not, and jobs that are to have so many of each.
fn plugin(instances: &[(Half, bool)], jobs: &[(u32, u32)]) -> Plugin {
    let mut plugin = Plugin::default();
    for (at, (half, healthy)) in instances.iter().enumerate() {
        let node = NodeId::new(format!("n{at}")).unwrap();
        plugin.instances.insert((node, *half), instance(*healthy));
    }
    for (at, (controllers, nodes)) in jobs.iter().enumerate() {
        let job = JobId::new(format!("j{at}")).unwrap();
        let since = Timestamp::from_unix_ms(0);
        let (controllers, nodes) = (*controllers, *nodes);
        plugin.jobs.insert((Namespace::default(), job), Job { controllers, nodes, since });
    }
    plugin
}

#[test]
fn any_controller_may_be_calling_that_may_have_been_asked() {
    let nodes = ["n0", "n1", "n2"].map(|node| NodeId::new(node).unwrap());
    let [first, second, third] = &nodes;
    let halves = [(Half::Controller, false), (Half::Node, true), (Half::Controller, true)];
    let plugin = plugin(&halves, &[]);
    let asked = |of: &NodeId| {
        let calling = plugin.may_be_calling([of].into_iter(), &[], |_| true);
        calling.into_iter().map(NodeId::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(asked(first), ["n0", "n2"], "it may have been unwell, as it is now");
    assert_eq!(asked(second), ["n0", "n2"], "there is none beside it");
    let there = plugin.may_be_calling(nodes.iter(), &[], |node| node != first);
    assert_eq!(there.into_iter().collect::<Vec<_>>(), [third]);
}

#[test]
fn the_controller_beside_a_volume_is_asked_and_another_only_where_it_may_know_the_volume() {
    let zone = |zone: &str| BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
    let nodes = ["n1", "n2"].map(|node| NodeId::new(node).unwrap());
    let mut plugin = Plugin::default();
    for (node, at) in nodes.iter().zip(["a", "b"]) {
        let abilities = NodeAbilities { topology: zone(at), ..NodeAbilities::default() };
        let half = Instance { node: Some(abilities), ..instance(true) };
        plugin.instances.insert((node.clone(), Half::Node), half);
        plugin.instances.insert((node.clone(), Half::Controller), instance(true));
    }
    let [first, second] = &nodes;
    let beside = |plugin: &Plugin, volume: &[_]| plugin.controller_beside(first, volume, |_| true);
    assert_eq!(beside(&plugin, &[]), Some(first.clone()));
    assert_eq!(plugin.controllers(&[zone("b")], |_| true), [second.clone(), first.clone()]);

    let own = (first.clone(), Half::Controller);
    plugin.instances.get_mut(&own).unwrap().healthy = false;
    assert_eq!(beside(&plugin, &[]), None, "any other may know it");
    assert_eq!(beside(&plugin, &[zone("a"), zone("b")]), None, "it is reached from both");
    assert_eq!(beside(&plugin, &[zone("a")]), Some(first.clone()), "nobody else knows it");
    let calling = |volume: &[_]| plugin.may_be_calling([first].into_iter(), volume, |_| true).len();
    assert_eq!((calling(&[zone("a")]), calling(&[zone("a"), zone("b")])), (1, 2));
    assert_eq!(plugin.controllers(&[], |_| true), std::slice::from_ref(second));
    plugin.instances.remove(&own);
    assert_eq!(beside(&plugin, &[zone("a")]), None, "its controllers are elsewhere");
    // A restarted agent knows neither half before its plugin answers.
    plugin.instances.get_mut(&(first.clone(), Half::Node)).unwrap().node = None;
    assert_eq!(beside(&plugin, &[zone("a")]), Some(first.clone()), "the other may not know it");
    let calling = plugin.may_be_calling([first].into_iter(), &[zone("a")], |_| true).len();
    assert_eq!(calling, 1, "the other may have been called while it was the only one");
}

/// A controller answers the deletion of a volume that it does not know with OK.
#[test]
fn no_other_controller_gets_a_volume_while_its_own_is_not_known() {
    let zone = |zone: &str| BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
    let nodes = ["n1", "n2", "n3"].map(|node| NodeId::new(node).unwrap());
    let [first, second, third] = &nodes;
    let mut plugin = Plugin::default();
    let place = |plugin: &mut Plugin, node: &NodeId, at: Option<&str>| {
        let abilities = at.map(|at| NodeAbilities { topology: zone(at), ..Default::default() });
        let half = Instance { node: abilities, ..instance(true) };
        plugin.instances.insert((node.clone(), Half::Node), half);
        plugin.instances.insert((node.clone(), Half::Controller), instance(true));
    };
    place(&mut plugin, first, Some("a"));
    place(&mut plugin, second, Some("b"));
    assert_eq!(plugin.controller_of(&[]), ControllerChoice::Any);
    assert_eq!(plugin.controller_of(&[zone("b")]), ControllerChoice::Only(second));
    assert_eq!(plugin.controller_of(&[zone("a"), zone("b")]), ControllerChoice::Any);
    let with_home = |home| plugin.controller_with_home(Some(home), &[zone("b")]);
    assert_eq!(
        with_home(first),
        ControllerChoice::Only(first),
        "whatever nodes say of their place"
    );
    assert_eq!(with_home(third), ControllerChoice::Only(second), "it is not on record any more");

    assert_eq!(plugin.local_hosts(), [first.clone(), second.clone()]);
    place(&mut plugin, second, None);
    assert_eq!(plugin.local_hosts(), [first.clone(), second.clone()], "it has its own list");
    assert_eq!(plugin.controller_of(&[zone("b")]), ControllerChoice::Unknown, "it was restarted");
    assert_eq!(plugin.controller_of(&[zone("a")]), ControllerChoice::Only(first));
    plugin.instances.retain(|(node, _), _| node != second);
    assert_eq!(plugin.controller_of(&[zone("b")]), ControllerChoice::Unknown, "it is away");

    place(&mut plugin, third, Some("a"));
    assert_eq!(plugin.controller_of(&[zone("b")]), ControllerChoice::Any, "they serve one storage");
    plugin.instances.retain(|(node, half), _| node != third && *half == Half::Controller);
    assert_eq!(plugin.controller_of(&[zone("b")]), ControllerChoice::Any, "it serves no node");
}

/// Any other would create a second volume, if the first call comes to nothing it tells of.
#[test]
fn creation_is_pinned_to_a_controller_or_waits_where_each_may_have_a_storage() {
    let zone = |zone: &str| BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
    let nodes = ["n1", "n2"].map(|node| NodeId::new(node).unwrap());
    let [first, second] = &nodes;
    let mut plugin = Plugin::default();
    for (node, at) in [(first, "a"), (second, "b")] {
        let abilities = NodeAbilities { topology: zone(at), ..Default::default() };
        let half = Instance { node: Some(abilities), ..instance(true) };
        plugin.instances.insert((node.clone(), Half::Node), half);
        plugin.instances.insert((node.clone(), Half::Controller), instance(true));
    }
    let all = |_: &NodeId| true;
    let drawn = [0, 1].map(|draw| plugin.controller_to_create(&[], all, draw));
    assert_eq!(drawn, [ControllerChoice::Only(first), ControllerChoice::Only(second)]);
    let in_b = plugin.controller_to_create(&[zone("b")], all, 0);
    assert_eq!(in_b, ControllerChoice::Only(second));
    let no_node = |_: &NodeId| false;
    assert_eq!(plugin.controller_to_create(&[], no_node, 0), ControllerChoice::Unknown);
    let but_second = |node: &NodeId| node == first;
    let in_b = plugin.controller_to_create(&[zone("b")], but_second, 0);
    assert_eq!(in_b, ControllerChoice::Unknown, "the other has another storage");

    let elsewhere = NodeAbilities { topology: zone("b"), ..Default::default() };
    let half = Instance { node: Some(elsewhere), ..instance(true) };
    plugin.instances.insert((NodeId::new("n3").unwrap(), Half::Node), half);
    for draw in 0..3 {
        let in_b = plugin.controller_to_create(&[zone("b")], all, draw);
        assert_eq!(in_b, ControllerChoice::Only(second), "n3 says that it is there, too");
    }

    for (_, instance) in plugin.instances.iter_mut().filter(|((_, half), _)| *half == Half::Node) {
        instance.node = Some(NodeAbilities { topology: zone("a"), ..Default::default() });
    }
    for ready in [&all as &dyn Fn(&NodeId) -> bool, &no_node] {
        let choice = plugin.controller_to_create(&[], ready, 0);
        assert_eq!(choice, ControllerChoice::Any, "they serve one storage");
    }
}

#[test]
fn health_says_how_many_of_how_many() {
    const UP: (Half, bool) = (Half::Node, true);
    const DOWN: (Half, bool) = (Half::Node, false);
    const CONTROLLER: (Half, bool) = (Half::Controller, true);
    const CONTROLLER_DOWN: (Half, bool) = (Half::Controller, false);
    for (instances, jobs, healthy, said) in [
        (&[][..], &[][..], false, "0 of 0 nodes healthy"),
        (&[UP], &[], true, "healthy"),
        (&[UP, CONTROLLER], &[], true, "healthy"),
        (&[UP, DOWN], &[], true, "1 of 2 nodes healthy"),
        (&[DOWN], &[], false, "0 of 1 nodes healthy"),
        (&[UP, CONTROLLER], &[(3, 1)], true, "1 of 3 controllers healthy"),
        (
            &[UP, CONTROLLER],
            &[(1, 0), (1, 2)],
            true,
            "1 of 2 controllers healthy, 1 of 2 nodes healthy",
        ),
        (&[UP], &[(1, 0)], false, "0 of 1 controllers healthy"),
        (&[], &[(1, 3)], false, "0 of 1 controllers healthy, 0 of 3 nodes healthy"),
        // Only its controllers are hosted: no node instance is missing.
        (&[CONTROLLER], &[], true, "healthy, and on no node"),
        (&[CONTROLLER], &[(2, 0)], true, "1 of 2 controllers healthy"),
        (&[CONTROLLER_DOWN], &[], false, "0 of 1 controllers healthy"),
        (&[CONTROLLER], &[(1, 2)], false, "0 of 2 nodes healthy"),
        // More run than was said.
        (&[UP, UP, UP], &[(0, 2)], true, "healthy"),
    ] {
        let plugin = plugin(instances, jobs);
        let found = plugin.health(|_| true);
        assert_eq!(found, (healthy, said.to_owned()), "{instances:?} with {jobs:?}");
        assert!(!plugin.health(|_| false).0, "no node is there");
    }
}

/// Every node may report a node service, and its identity may be stolen.
#[test]
fn one_node_alone_gives_a_plugin_no_controller() {
    let of = |said: &[Option<bool>]| {
        let mut plugin = Plugin::default();
        for (at, said) in said.iter().enumerate() {
            let node = said.map(|controller_service| NodeAbilities {
                controller_service,
                ..NodeAbilities::default()
            });
            let key = (NodeId::new(format!("n{at}")).unwrap(), Half::Node);
            plugin.instances.insert(key, Instance { node, ..instance(true) });
        }
        plugin
    };
    for (said, expected) in [
        (&[Some(true), Some(false)][..], false),
        (&[Some(false), Some(true)], false),
        (&[Some(true), Some(true)], true),
        // A node that has just started says nothing.
        (&[None, Some(true)], true),
        (&[None], false),
        (&[], false),
    ] {
        assert_eq!(of(said).has_controller(), expected, "{said:?}");
    }
    // A controller counts only where its node may host it.
    let mut plugin = of(&[Some(false)]);
    plugin.instances.insert((NodeId::new("n9").unwrap(), Half::Controller), instance(false));
    assert!(plugin.has_controller());
}
