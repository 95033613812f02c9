//! The candidates in given records, case by case.

use berth_bus::Fold;
use berth_domain::VolumeId;
use serde_json::{Value, json};

use super::*;

const GRACE: Duration = Duration::from_secs(30);

/// A time in seconds after an arbitrary noon.
fn at(seconds: u64) -> Timestamp {
    Timestamp::from_unix_ms(1_800_000_000_000 + 1000 * seconds)
}

fn stored(value: Value) -> Vec<u8> {
    serde_json::to_vec(&value).unwrap()
}

fn claim(state: &str, since: u64) -> Value {
    json!({"state": state, "node": "n1", "mode": "write", "since": at(since), "schema": 1,
        "access": "single-node-writer", "attachment": "file-system", "controller": true})
}

fn alloc(state: &str, since: u64) -> Value {
    json!({"state": state, "node": "n1", "since": at(since), "schema": 1})
}

fn spec(closing: Option<u64>) -> Value {
    let mut spec = json!({"plugin": "p", "schema": 1,
        "capabilities": [{"access": "single-node-writer", "attachment": "file-system"}]});
    if let Some(since) = closing {
        spec["closing"] = json!({"since": at(since), "reason": "no longer needed"});
    }
    spec
}

/// Records by key: of volumes, allocs, nodes and plugins.
#[derive(Default)]
struct Records<'a> {
    volumes: &'a [(&'a str, Value)],
    allocs: &'a [(&'a str, Value)],
    nodes: &'a [(&'a str, Value)],
    plugins: &'a [(&'a str, Value)],
}

fn folded<F: Fold + Default>(records: &[(&str, Value)]) -> F {
    let mut fold = F::default();
    for (revision, (key, value)) in (1..).zip(records) {
        fold.put(key, revision, &stored(value.clone()));
    }
    fold
}

/// The plan for one kind in these records, at second 100.
fn looked(kind: Kind, records: &Records<'_>, after: Duration) -> Plan {
    let (volumes, allocs) = (folded(records.volumes), folded(records.allocs));
    let (nodes, plugins) = (folded(records.nodes), folded(records.plugins));
    let (volumes, allocs, nodes, plugins) = (&volumes, &allocs, &nodes, &plugins);
    let mut plan = Plan::default();
    let view = SweepView { volumes, allocs, nodes, plugins, now: at(100) };
    view.find(kind, after, &mut plan);
    plan
}

fn planned(volumes: &[(&str, Value)], allocs: &[(&str, Value)], grace: Duration) -> Plan {
    looked(Kind::Claims, &Records { volumes, allocs, ..Records::default() }, grace)
}

fn volume(id: &str) -> VolumeKey {
    VolumeKey::new(Namespace::default(), VolumeId::new(id).unwrap())
}

#[test]
fn a_claim_is_unwanted_when_its_alloc_has_ended_or_is_not_there_for_longer_than_the_grace() {
    let rows = [
        ("taken", 10, Some(("live", 0)), false),
        ("taken", 10, Some(("complete", 20)), true),
        ("taken", 10, Some(("failed", 70)), true),
        ("taken", 10, Some(("stopped", 71)), false),
        ("waiting", 10, Some(("complete", 20)), true),
        ("waiting", 10, Some(("live", 0)), false),
        ("publishing", 10, Some(("complete", 20)), true),
        ("taken", 10, None, true),
        ("waiting", 70, None, true),
        // The alloc may have been registered after the mirror was read.
        ("taken", 71, None, false),
        // The claim is younger than the end of the alloc.
        ("taken", 90, Some(("complete", 20)), false),
        ("unpublishing", 10, Some(("complete", 5)), false),
        ("node-detached", 10, None, false),
    ];
    for (state, since, of, unwanted) in rows {
        let allocs: Vec<(&str, Value)> =
            of.map(|(state, since)| ("default.a", alloc(state, since))).into_iter().collect();
        let volumes = [("default.v.spec", spec(None)), ("default.v.claim.a", claim(state, since))];
        let plan = planned(&volumes, &allocs, GRACE);
        let expected = UnwantedClaim {
            volume: volume("v"),
            alloc: AllocId::new("a").unwrap(),
            // The revision of the record that made the claim.
            epoch: 2,
        };
        let expected: Vec<UnwantedClaim> = unwanted.then_some(expected).into_iter().collect();
        assert_eq!(plan.unwanted, expected, "{state} since {since}, alloc {of:?}");
        assert_eq!(plan.closing, []);
    }
}

#[test]
fn a_forced_sweep_gives_no_grace() {
    let volumes = [("default.v.spec", spec(None)), ("default.v.claim.a", claim("taken", 99))];
    let allocs = [("default.a", alloc("complete", 100))];
    assert_eq!(planned(&volumes, &allocs, GRACE).unwanted.len(), 0);
    assert_eq!(planned(&volumes, &allocs, Duration::ZERO).unwanted.len(), 1);
}

#[test]
fn a_claim_that_is_released_for_long_is_named_with_its_reason() {
    let mut failing = claim("unpublishing", 10);
    failing["tries"] = json!(4);
    failing["error"] = json!("agent.detach: the agent of node n1 is not there");
    let mut calling = claim("node-detached", 10);
    calling["attempt"] = json!({"id": "x", "call": "controller.unpublish",
        "worker": "volumewatcher/h/1", "deadline": at(200)});
    for (claim, said) in [
        (
            failing,
            "unpublishing on node n1 since 2027-01-15T08:00:10.000Z; 4 tries failed, the last \
                   with: agent.detach: the agent of node n1 is not there",
        ),
        (calling, "controller.unpublish by volumewatcher/h/1 has not been answered yet"),
        (claim("unpublishing", 10), "is berth-volumewatcher running?"),
    ] {
        let volumes = [("default.v.spec", spec(None)), ("default.v.claim.a", claim)];
        let plan = planned(&volumes, &[], GRACE);
        let [line] = plan.kept.as_slice() else { panic!("{plan:?}") };
        assert!(line.starts_with("claim of alloc a on volume default/v (epoch 2): "), "{line}");
        assert!(line.contains(said), "{line}");
    }
    let young = [("default.v.claim.a", claim("unpublishing", 71))];
    assert_eq!(planned(&young, &[], GRACE), Plan::default());
}

#[test]
fn a_closing_volume_goes_with_its_last_claim() {
    let held =
        [("default.v.spec", spec(Some(1))), ("default.v.claim.a", claim("unpublishing", 90))];
    assert_eq!(planned(&held, &[], GRACE).closing, []);
    assert_eq!(planned(&held[..1], &[], GRACE).closing, [volume("v")]);
    assert_eq!(planned(&[("default.v.spec", spec(None))], &[], GRACE).closing, []);
}

#[test]
fn a_volume_with_a_record_of_a_newer_version_is_named_and_left_alone() {
    let volumes = [
        ("default.v.spec", spec(Some(1))),
        ("default.v.claim.a", claim("taken", 1)),
        ("default.v.claim.b", json!({"state": "hovering", "schema": 3})),
        ("default.w.claim.a", claim("taken", 1)),
    ];
    let plan = planned(&volumes, &[], GRACE);
    let unwanted: Vec<VolumeKey> = plan.unwanted.into_iter().map(|claim| claim.volume).collect();
    assert_eq!(unwanted, [volume("w")]);
    assert_eq!(plan.closing, []);
    let [line] = plan.kept.as_slice() else { panic!("{:?}", plan.kept) };
    assert!(line.contains("default.v.claim.b") && line.contains("schema 3"), "{line}");
}

#[test]
fn what_is_found_comes_in_order() {
    let keys = ["default.b.claim.y", "default.b.claim.x", "a.z.claim.y", "default.a.claim.y"];
    let volumes: Vec<(&str, Value)> = keys.iter().map(|key| (*key, claim("taken", 1))).collect();
    let claims: Vec<String> = planned(&volumes, &[], GRACE)
        .unwanted
        .iter()
        .map(|claim| format!("{}/{}", claim.volume, claim.alloc))
        .collect();
    assert_eq!(claims, ["a/z/y", "default/a/y", "default/b/x", "default/b/y"]);
}

fn node(state: &str, since: u64) -> Value {
    json!({"state": state, "since": at(since), "schema": 1})
}

#[test]
fn an_alloc_is_forgotten_when_it_ended_before_and_claims_nothing() {
    let newer = json!({"schema": 3});
    for (alloc, claim, forgotten) in [
        (alloc("complete", 70), None, true),
        (alloc("failed", 70), None, true),
        (alloc("stopped", 71), None, false),
        (alloc("live", 1), None, false),
        (newer.clone(), None, false),
        (alloc("complete", 1), Some(claim("taken", 1)), false),
        (alloc("complete", 1), Some(claim("node-detached", 1)), false),
    ] {
        let allocs = [("default.a", alloc.clone()), ("other.a", self::alloc("live", 1))];
        let volumes: Vec<(&str, Value)> =
            claim.clone().map(|claim| ("default.v.claim.a", claim)).into_iter().collect();
        let records = Records { volumes: &volumes, allocs: &allocs, ..Records::default() };
        let plan = looked(Kind::Allocs, &records, GRACE);
        assert_eq!(plan.ended.len(), usize::from(forgotten), "{alloc} with claim {claim:?}");
        let kept = plan.kept.clone();
        assert_eq!(plan, Plan { ended: plan.ended.clone(), kept, ..Plan::default() });
        let unreadable = plan.kept.iter().filter(|line| line.contains("the record default.a"));
        assert_eq!(unreadable.count(), usize::from(alloc == newer), "{:?}", plan.kept);
    }
}

#[test]
fn an_ended_alloc_stays_while_its_node_may_have_a_mount_of_it() {
    let with = |field: &str, value: Value| {
        let mut node = node("ready", 1);
        node[field] = value;
        node
    };
    let mount = |namespace: &str, alloc: &str| {
        let mount = json!({"namespace": namespace, "volume": "v", "alloc": alloc, "path": "/p"});
        json!([mount])
    };
    let proof = json!({"kind": "powered-off", "by": "ada", "at": at(1)});
    for (node, forgotten) in [
        (None, true),
        (Some(node("ready", 1)), true),
        (Some(node("down", 1)), false),
        (Some(with("uncompared", json!(true))), false),
        (Some(with("gone", proof)), false),
        (Some(with("unaccounted", mount("default", "a"))), false),
        (Some(with("unaccounted", mount("default", "b"))), true),
        (Some(with("unaccounted", mount("other", "a"))), true),
        (Some(json!({"schema": 9})), false),
    ] {
        let nodes: Vec<(&str, Value)> = node.clone().map(|node| ("n1", node)).into_iter().collect();
        let allocs = [("default.a", alloc("complete", 1))];
        let records = Records { nodes: &nodes, allocs: &allocs, ..Records::default() };
        let plan = looked(Kind::Allocs, &records, GRACE);
        assert_eq!(plan.ended.len(), usize::from(forgotten), "{node:?}");
    }
}

#[test]
fn a_node_is_forgotten_when_it_is_down_since_before_and_nothing_is_there() {
    let mut gone = node("down", 1);
    gone["gone"] = json!({"kind": "powered-off", "by": "ada", "at": at(1)});
    let on_node = |node: &str, mut record: Value| {
        record["node"] = json!(node);
        record
    };
    let newer = json!({"schema": 3});
    let row = |node, volume: Option<(&'static str, Value)>, alloc: Option<Value>, kept| {
        (node, volume, alloc, kept)
    };
    for (node, volume, alloc, kept) in [
        row(node("down", 70), None, None, Some("")),
        row(node("down", 71), None, None, None),
        row(node("ready", 1), None, None, None),
        row(newer.clone(), None, None, Some("the record n1 cannot be read")),
        row(gone, None, None, Some("counts as gone (powered-off, says ada")),
        row(
            node("down", 1),
            Some(("default.v.claim.a", on_node("n1", claim("node-detached", 1)))),
            None,
            Some("claim of alloc a on volume default/v (epoch 1)"),
        ),
        row(
            node("down", 1),
            Some(("default.v.claim.a", on_node("n2", claim("taken", 1)))),
            None,
            Some(""),
        ),
        row(node("down", 1), None, Some(alloc("live", 1)), Some("alloc a of namespace default")),
        row(node("down", 1), None, Some(alloc("failed", 1)), Some("")),
        // Something that cannot be read may be on any node.
        row(node("down", 1), None, Some(newer.clone()), Some("cannot be read, and may be there")),
        row(
            node("down", 1),
            Some(("default.v.claim.a", newer.clone())),
            None,
            Some("default.v.claim.a cannot be read"),
        ),
        row(node("down", 1), Some(("default.v.spec", newer.clone())), None, Some("")),
    ] {
        let case = format!("{node}, {volume:?}, {alloc:?}");
        let volumes: Vec<(&str, Value)> = volume.into_iter().collect();
        let allocs: Vec<(&str, Value)> =
            alloc.map(|alloc| ("default.a", alloc)).into_iter().collect();
        let nodes = [("n1", node), ("n2", self::node("ready", 1))];
        let records =
            Records { volumes: &volumes, allocs: &allocs, nodes: &nodes, ..Records::default() };
        let plan = looked(Kind::Nodes, &records, GRACE);
        let idle: Vec<&str> = plan.idle.iter().map(NodeId::as_str).collect();
        match kept {
            None => assert_eq!(plan, Plan::default(), "{case}"),
            Some("") => assert_eq!((idle, plan.kept.len()), (vec!["n1"], 0), "{case}"),
            Some(why) => {
                let [line] = plan.kept.as_slice() else { panic!("{case}: {plan:?}") };
                assert!(line.starts_with("node n1: ") && line.contains(why), "{line}");
                assert!(idle.is_empty(), "{case}");
            }
        }
    }
}

#[test]
fn instances_of_a_node_that_nobody_knows_are_strays_once_all_are_old() {
    let instance = |since: u64| {
        json!({"healthy": true, "description": "", "provider": "p", "version": "1",
            "since": at(since), "schema": 1})
    };
    let plugins = [
        ("p.instance.known.node", instance(1)),
        ("p.instance.old.node", instance(1)),
        ("q.instance.old.controller", instance(70)),
        ("p.instance.young.node", instance(1)),
        ("p.instance.young.controller", instance(71)),
        ("p.job.default.csi", json!({"controllers": 1, "nodes": 1, "since": at(1), "schema": 1})),
    ];
    let nodes = [("known", node("down", 1))];
    let records = Records { nodes: &nodes, plugins: &plugins, ..Records::default() };
    let plan = looked(Kind::Plugins, &records, GRACE);
    assert_eq!(plan, Plan { strays: vec![NodeId::new("old").unwrap()], ..Plan::default() });
}
