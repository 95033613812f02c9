//! What reports change, case by case.

use super::*;
use berth_domain::plugin::{ControllerAbilities, NodeAbilities};
use berth_domain::proof::{Proof, ProofKind};
use berth_domain::{AllocId, Namespace, NodeId, VolumeId};

fn at(ms: u64) -> Timestamp {
    Timestamp::from_unix_ms(1_000_000 + ms)
}

fn plugin(id: &str) -> PluginId {
    PluginId::new(id).unwrap()
}

fn instance_since(healthy: bool, since: u64) -> Instance {
    Instance {
        healthy,
        description: if healthy { "ready" } else { "no answer" }.to_owned(),
        provider: "csi.example".to_owned(),
        version: "1.0".to_owned(),
        since: at(since),
        controller: None,
        node: None,
        id_since: None,
        process: None,
    }
}

/// A report sent at `clock` and received without delay.
fn received(clock: u64, instances: &[(&str, Half, Instance)]) -> ReceivedReport {
    let instances = instances.iter().map(|(id, half, instance)| ReportedInstance {
        plugin: plugin(id),
        half: *half,
        instance: instance.clone(),
    });
    let report = NodeReport {
        clock_offset: None,
        sealing_key: None,
        node: NodeId::new("n1").unwrap(),
        version: "1".to_owned(),
        boot_id: "boot".to_owned(),
        clock: at(clock),
        attributes: BTreeMap::new(),
        unaccounted: Vec::new(),
        compared: None,
        instances: instances.collect(),
        undone: None,
    };
    ReceivedReport { report, at: at(clock), volumes: None }
}

fn writes(records: &NodeRecords, received: &ReceivedReport) -> Vec<Write> {
    match decide(records, received) {
        Verdict::Write(writes) => writes,
        Verdict::Late => panic!("late"),
    }
}

/// The records after the agent has shown its rights, and after the writes.
fn after(records: &NodeRecords, received: &ReceivedReport) -> NodeRecords {
    let mut records = records.clone();
    for reported in
        received.report.instances.iter().filter(|reported| reported.half == Half::Controller)
    {
        let node = records.node.get_or_insert_with(|| Node::unknown(at(0)));
        node.hosts.insert(reported.plugin.clone());
    }
    for write in writes(&records, received) {
        match write {
            Write::Node(node) => records.node = Some(node),
            Write::Put(key, instance) => drop(records.instances.insert(key, instance)),
            Write::Delete(key) => drop(records.instances.remove(&key)),
        }
    }
    records
}

#[test]
fn a_first_report_makes_the_node_down_and_its_instances() {
    let first = received(100, &[("p", Half::Node, instance_since(true, 40))]);
    let writes = writes(&NodeRecords::default(), &first);
    let [Write::Node(node), Write::Put(key, instance)] = writes.as_slice() else {
        panic!("{writes:?}")
    };
    assert_eq!((node.state, node.since), (NodeState::Down, at(100)));
    assert_eq!((node.reported, node.clock_skew_ms), (at(100), 0));
    assert_eq!(*key, (plugin("p"), Half::Node));
    assert_eq!(instance.since, at(40));
}

#[test]
fn a_report_that_says_nothing_new_writes_nothing() {
    let first = received(100, &[("p", Half::Node, instance_since(true, 40))]);
    let records = after(&NodeRecords::default(), &first);
    assert_eq!(writes(&records, &first), []);
    // A restarted agent reports a later `since`: the health has been the same all the time.
    assert_eq!(
        writes(&records, &received(900, &[("p", Half::Node, instance_since(true, 890))])),
        []
    );
}

#[test]
fn since_is_kept_while_health_is_and_changes_with_it() {
    let records = after(
        &NodeRecords::default(),
        &received(100, &[("p", Half::Node, instance_since(true, 40))]),
    );
    let renamed = Instance { description: "still ready".to_owned(), ..instance_since(true, 190) };
    let ill = instance_since(false, 180);
    for (now, since) in [(renamed, at(40)), (ill, at(180))] {
        let writes = writes(&records, &received(200, &[("p", Half::Node, now.clone())]));
        let expected = Write::Put((plugin("p"), Half::Node), Instance { since, ..now });
        assert_eq!(writes.get(1), Some(&expected));
        assert!(matches!(writes[0], Write::Node(Node { reported, .. }) if reported == at(200)));
    }
    // The node's clock may be ahead: no time is in the registry's future.
    let writes =
        writes(&records, &received(200, &[("p", Half::Node, instance_since(false, 5000))]));
    assert!(matches!(&writes[1], Write::Put(_, Instance { since, .. }) if *since == at(200)));
}

#[test]
fn what_a_report_does_not_name_has_left() {
    let both_halves = [
        ("p", Half::Node, instance_since(true, 1)),
        ("p", Half::Controller, instance_since(true, 1)),
    ];
    let records = after(&NodeRecords::default(), &received(100, &both_halves));
    let writes = writes(&records, &received(200, &both_halves[..1]));
    assert_eq!(writes[1..], [Write::Delete((plugin("p"), Half::Controller))]);
    assert!(after(&records, &received(300, &[])).instances.is_empty());
}

/// An agent is restarted while the plugin is down: it does not know which services the plugin has.
#[test]
fn a_controller_stays_until_its_plugin_has_said_what_it_serves() {
    let can = ControllerAbilities { create_delete_volume: true, ..ControllerAbilities::default() };
    let abilities = NodeAbilities { external_node: "i-1".to_owned(), ..NodeAbilities::default() };
    let both_halves = [
        ("p", Half::Node, Instance { node: Some(abilities.clone()), ..instance_since(true, 1) }),
        ("p", Half::Controller, Instance { controller: Some(can), ..instance_since(true, 1) }),
    ];
    let records = after(&NodeRecords::default(), &received(100, &both_halves));
    let restarted =
        after(&records, &received(200, &[("p", Half::Node, instance_since(false, 190))]));
    let controller = &restarted.instances[&(plugin("p"), Half::Controller)];
    assert_eq!((controller.healthy, controller.controller), (false, Some(can)));
    assert_eq!(restarted.instances[&(plugin("p"), Half::Node)].node, Some(abilities));
    assert_eq!(
        writes(&restarted, &received(300, &[("p", Half::Node, instance_since(false, 290))])),
        []
    );
    let answered = after(&restarted, &received(400, &both_halves[..1]));
    assert!(!answered.instances.contains_key(&(plugin("p"), Half::Controller)));
    // The node half is deleted first.
    let writes_when_unreported = writes(&records, &received(500, &[]));
    let of_node = Write::Delete((plugin("p"), Half::Node));
    assert_eq!(
        writes_when_unreported[1..],
        [of_node, Write::Delete((plugin("p"), Half::Controller))]
    );
}

#[test]
fn a_node_is_back_when_it_has_undone_what_was_before_this_proof() {
    let proof = Proof {
        kind: ProofKind::Confirmed,
        by: "ada".to_owned(),
        at: at(150),
        note: String::new(),
    };
    let mut records = after(&NodeRecords::default(), &received(100, &[]));
    records.node.as_mut().unwrap().gone = Some(proof.clone());
    let undone_report = |clock: u64, of: u64| {
        let mut sent = received(clock, &[]);
        sent.report.undone = Some(at(of));
        sent
    };
    let node = after(&records, &undone_report(200, 140)).node.unwrap();
    assert_eq!((node.gone, node.back), (Some(proof), None), "another proof's");
    let records = after(&records, &undone_report(300, 150));
    let node = records.node.as_ref().unwrap();
    assert_eq!((&node.gone, node.back), (&None, Some(at(300))));
    let node = after(&records, &undone_report(9_000, 150)).node.unwrap();
    assert_eq!((node.gone, node.back), (None, Some(at(300))), "it is back once");
}

#[test]
fn the_skew_is_rewritten_when_it_changes_by_more_than_50_ms() {
    let skewed = |ms: i64, clock: u64| {
        let sent = received(clock, &[]);
        ReceivedReport { at: at(clock.checked_add_signed(-ms).unwrap()), ..sent }
    };
    assert_eq!(skewed(700, 10_000).skew_ms(0), 700);
    assert_eq!(skewed(-700, 10_000).skew_ms(0), -700);
    let records = after(&NodeRecords::default(), &skewed(700, 10_000));
    assert_eq!(records.node.as_ref().unwrap().clock_skew_ms, 700);
    for (ms, written) in
        [(700, None), (650, None), (750, None), (751, Some(751)), (649, Some(649)), (-1, Some(-1))]
    {
        let writes = writes(&records, &skewed(ms, 20_000));
        let rewritten = writes.first().map(|write| match write {
            Write::Node(node) => node.clock_skew_ms,
            other => panic!("{other:?}"),
        });
        assert_eq!(rewritten, written, "{ms}");
    }
    let far = ReceivedReport { at: at(0), ..received(u64::MAX / 2, &[]) };
    assert!(far.skew_ms(0) > 0);
}

/// The registry was paused: it receives a report 3.5 s late from a node whose clock is right.
#[test]
fn a_delay_is_no_skew_where_the_agent_measured_the_clock() {
    let late = |clock_offset| {
        let mut late = ReceivedReport { at: at(23_500), ..received(20_000, &[]) };
        late.report.clock_offset = clock_offset;
        late
    };
    let measured = |min_ms, max_ms| Some(ClockOffset { min_ms, max_ms });
    let records = after(&NodeRecords::default(), &received(10_000, &[]));
    let skew = |report: &ReceivedReport| after(&records, report).node.unwrap().clock_skew_ms;
    assert_eq!(skew(&late(None)), -3_500, "an older agent measures nothing");
    assert_eq!(writes(&records, &late(measured(-1, 1))), []);
    assert_eq!(skew(&late(measured(-3_500, 1))), 0, "the same delay, measured by the agent");
    assert_eq!(skew(&late(measured(-600, -598))), -598, "a clock that is behind indeed");
    assert_eq!(skew(&late(measured(700, 720))), 700, "a clock that is ahead");
    // The clock was set ahead after the measurement.
    let set_ahead = ReceivedReport { at: at(10_000), ..late(measured(-1, 1)) };
    assert_eq!(skew(&set_ahead), 10_000);
}

#[test]
fn a_report_older_than_the_newest_comes_too_late_unless_the_clock_was_set_back() {
    let records = after(
        &NodeRecords::default(),
        &received(100_000, &[("p", Half::Node, instance_since(true, 1))]),
    );
    let late_max = u64::try_from(LATE_MAX.as_millis()).unwrap();
    for (clock, boot, late) in [
        (100_001, "boot", false),
        (100_000, "boot", false),
        (99_999, "boot", true),
        (100_000 - late_max, "boot", true),
        (100_000 - late_max - 1, "boot", false),
        (99_999, "another boot", false),
    ] {
        let mut report = received(clock, &[]);
        report.report.boot_id = boot.to_owned();
        let verdict = decide(&records, &report);
        assert_eq!(verdict == Verdict::Late, late, "{clock} {boot}");
    }
}

#[test]
fn a_report_never_changes_a_nodes_state() {
    let mut records = after(&NodeRecords::default(), &received(100, &[]));
    let node = records.node.as_mut().unwrap();
    (node.state, node.since) = (NodeState::Ready, at(150));
    let mut next = received(200, &[]);
    next.report.version = "2".to_owned();
    let node = after(&records, &next).node.unwrap();
    assert_eq!((node.state, node.since, node.version.as_str()), (NodeState::Ready, at(150), "2"));
}

#[test]
fn an_instance_told_twice_is_a_fault_each_time() {
    let instance_half = ("p", Half::Node, instance_since(true, 1));
    let report = received(
        1,
        &[
            instance_half.clone(),
            ("q", Half::Node, instance_since(true, 1)),
            instance_half.clone(),
            instance_half,
        ],
    );
    let faults = faults(&report.report);
    let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, ["instances[2]", "instances[3]"]);
    assert!(faults[0].problem.contains("instances[0]"), "{:?}", faults[0]);
}

/// An agent that has just started has compared nothing: the recorded mounts stay.
#[test]
fn a_mount_without_a_claim_stays_on_record_until_a_restarted_agent_has_compared() {
    let mount = |alloc: &str| UnaccountedMount {
        namespace: Namespace::default(),
        volume: VolumeId::new("data").unwrap(),
        alloc: AllocId::new(alloc).unwrap(),
        path: format!("/p/{alloc}"),
        plugin: Some(plugin("p")),
        external_id: Some("x".to_owned()),
        used: None,
    };
    let reported = |clock, mounts: &[&str], compared| {
        let mut received = received(clock, &[]);
        received.report.unaccounted = mounts.iter().map(|alloc| mount(alloc)).collect();
        received.report.compared = compared;
        received
    };
    let records = after(&NodeRecords::default(), &reported(100, &["a"], Some(true)));
    for (mounts, compared, expected, uncompared) in [
        (vec![], Some(false), vec!["a"], true),
        (vec!["b"], Some(false), vec!["a", "b"], true),
        (vec![], Some(true), vec![], false),
        // An older agent does not say whether it has compared.
        (vec![], None, vec![], false),
    ] {
        let node = after(&records, &reported(200, &mounts, compared)).node.unwrap();
        let expected: Vec<_> = expected.into_iter().map(mount).collect();
        assert_eq!((node.unaccounted, node.uncompared), (expected, uncompared), "{compared:?}");
    }
}

/// Every node may send reports, so a report proves nothing about a controller.
#[test]
fn a_controller_counts_only_where_the_right_to_host_it_was_shown() {
    let both_halves = [
        ("p", Half::Node, instance_since(true, 1)),
        ("p", Half::Controller, instance_since(true, 1)),
    ];
    let (controller, told_both) = ((plugin("p"), Half::Controller), received(100, &both_halves));
    let mut forged = NodeRecords::default();
    for write in writes(&forged, &told_both) {
        match write {
            Write::Node(node) => forged.node = Some(node),
            Write::Put(key, instance) => drop(forged.instances.insert(key, instance)),
            Write::Delete(key) => panic!("{key:?}"),
        }
    }
    assert!(!forged.instances.contains_key(&controller));
    assert!(forged.instances.contains_key(&(plugin("p"), Half::Node)));
    assert_eq!(list_unproven(&forged, &told_both.report), [plugin("p")]);
    // Another plugin's right is not this one's.
    forged.node.as_mut().unwrap().hosts.insert(plugin("q"));
    assert_eq!(list_unproven(&forged, &told_both.report), [plugin("p")]);

    let records_with_rights = after(&forged, &received(200, &both_halves));
    assert!(records_with_rights.instances.contains_key(&controller));
    assert_eq!(records_with_rights.node.as_ref().unwrap().hosts, [plugin("p")].into());
    assert_eq!(list_unproven(&records_with_rights, &told_both.report), []);
    // An agent of an earlier version shows no rights, and keeps the controller that is on record.
    let mut without_rights = records_with_rights.clone();
    without_rights.node.as_mut().unwrap().hosts.clear();
    let ill = [both_halves[0].clone(), ("p", Half::Controller, instance_since(false, 290))];
    let writes_when_ill = writes(&without_rights, &received(300, &ill));
    let is_kept = |write: &Write| matches!(write, Write::Put(key, _) if *key == controller);
    assert!(writes_when_ill.iter().any(is_kept), "{writes_when_ill:?}");
    // A controller that was not reported has to be shown again.
    let without_controller = after(&records_with_rights, &received(400, &both_halves[..1]));
    assert_eq!(without_controller.node.unwrap().hosts, BTreeSet::new());
}
