//! The candidates in given pages and records, case by case.

use std::time::Duration;

use berth_bus::Fold;
use berth_contract::message::alloc::Allocs;
use berth_contract::message::claim::Claims;
use berth_contract::message::volume::Volumes;
use berth_domain::VolumeId;
use serde::de::DeserializeOwned;
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
    json!({"namespace": "default", "volume": "v", "alloc": "a", "state": state, "node": "n1",
        "mode": "write", "since": at(since), "epoch": 2})
}

fn alloc(state: &str, since: u64) -> Value {
    json!({"id": "a", "namespace": "default", "state": state, "node": "n1", "since": at(since)})
}

fn folded<F: Fold + Default>(records: &[(&str, Value)]) -> F {
    let mut fold = F::default();
    for (revision, (key, value)) in (1..).zip(records) {
        fold.put(key, revision, &stored(value.clone()));
    }
    fold
}

/// Calls `with` with what these records say at second 100.
fn viewed<T>(
    nodes: &[(&str, Value)],
    plugins: &[(&str, Value)],
    with: impl FnOnce(&SweepView<'_>) -> T,
) -> T {
    let (nodes, plugins) = (folded(nodes), folded(plugins));
    with(&SweepView { nodes: &nodes, plugins: &plugins, now: at(100) })
}

fn page<T: DeserializeOwned>(field: &str, entries: &[Value], unreadable: &[&str]) -> T {
    let unreadable: Vec<Value> = unreadable
        .iter()
        .map(|key| json!({"key": key, "code": "BERTH0009", "error": "schema 3"}))
        .collect();
    let page = json!({field: entries, "unreadable": unreadable, "index": 1});
    serde_json::from_value(page).unwrap()
}

fn claim_page(claims: &[Value], unreadable: &[&str]) -> Claims {
    page("claims", claims, unreadable)
}

/// The plan of a page of claims, at second 100.
fn judged(claims: &[Value], unreadable: &[&str], grace: Duration) -> Plan {
    let mut plan = Plan::default();
    plan.add_claims(&claim_page(claims, unreadable), at(100), grace);
    plan
}

fn volume(id: &str) -> VolumeKey {
    VolumeKey::new(Namespace::default(), VolumeId::new(id).unwrap())
}

#[test]
fn a_claim_of_an_ended_alloc_is_unwanted_when_it_is_older_than_the_grace() {
    for (state, since, unwanted) in [
        ("taken", 10, true),
        ("taken", 70, true),
        ("waiting", 10, true),
        ("publishing", 10, true),
        // The alloc may have been registered after the claim service looked.
        ("taken", 71, false),
        ("unpublishing", 10, false),
        ("node-detached", 10, false),
    ] {
        let plan = judged(&[claim(state, since)], &[], GRACE);
        let expected = UnwantedClaim {
            volume: volume("v"),
            alloc: AllocId::new("a").unwrap(),
            epoch: 2,
            ended_before: at(70),
        };
        let expected: Vec<UnwantedClaim> = unwanted.then_some(expected).into_iter().collect();
        assert_eq!(plan.unwanted, expected, "{state} since {since}");
        assert_eq!(plan.closing, []);
    }
    let forced = judged(&[claim("taken", 100)], &[], Duration::ZERO);
    assert_eq!(forced.unwanted[0].ended_before, at(100), "a forced sweep gives no grace");
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
        let plan = judged(&[claim], &[], GRACE);
        let [line] = plan.kept.as_slice() else { panic!("{plan:?}") };
        assert!(line.starts_with("claim of alloc a on volume default/v (epoch 2): "), "{line}");
        assert!(line.contains(said), "{line}");
    }
    assert_eq!(judged(&[claim("unpublishing", 71)], &[], GRACE), Plan::default());
}

#[test]
fn a_closing_volume_goes_with_its_last_claim() {
    let stub = |releasing: usize, closing: bool| {
        let nodes = json!({"healthy": 1, "expected": 1});
        json!({"id": "v", "namespace": "default", "plugin": "p", "provider": "",
            "capabilities": [], "readers": 0, "writers": 0, "releasing": releasing,
            "waiting": 0, "healthy": true, "nodes": nodes, "closing": closing,
            "create_index": 1, "modify_index": 2})
    };
    let closing = |stub: Value, unreadable: &[&str]| {
        let mut plan = Plan::default();
        plan.add_closing(&page::<Volumes>("volumes", &[stub], unreadable));
        plan.closing
    };
    assert_eq!(closing(stub(1, true), &[]), []);
    assert_eq!(closing(stub(0, true), &[]), [volume("v")]);
    // A claim service of an older version lists others, too.
    assert_eq!(closing(stub(0, false), &[]), []);
    assert_eq!(closing(stub(0, true), &["default.v.claim.b"]), []);
}

#[test]
fn a_volume_with_a_record_of_a_newer_version_is_named_once_and_left_alone() {
    let mut other = claim("taken", 1);
    other["volume"] = json!("w");
    let unreadable = ["default.v.claim.b", "default.v.spec", "=class.fast"];
    let plan = judged(&[claim("taken", 1), other], &unreadable, GRACE);
    let unwanted: Vec<VolumeKey> = plan.unwanted.into_iter().map(|claim| claim.volume).collect();
    assert_eq!(unwanted, [volume("w")]);
    let [line] = plan.kept.as_slice() else { panic!("{:?}", plan.kept) };
    assert!(line.contains("default.v.claim.b") && line.contains("schema 3"), "{line}");
}

#[test]
fn an_alloc_that_would_be_forgotten_is_a_candidate_and_an_unreadable_one_is_named() {
    let mut plan = Plan::default();
    let mut claimed = alloc("complete", 70);
    claimed["claims"] = json!(1);
    // A claim service of an earlier version lists them all.
    let listed = [alloc("complete", 70), alloc("complete", 71), alloc("live", 70), claimed];
    let allocs: Allocs = page("allocs", &listed, &["default.b"]);
    plan.add_ended(&allocs, at(71));
    plan.add_unreadable_allocs(&allocs);
    let ended = EndedAlloc {
        namespace: Namespace::default(),
        alloc: AllocId::new("a").unwrap(),
        state: AllocState::Complete,
        at: at(70),
    };
    assert_eq!(plan.ended, [ended]);
    let [line] = plan.kept.as_slice() else { panic!("{:?}", plan.kept) };
    assert!(line.starts_with("alloc b of namespace default: "), "{line}");
}

fn node(id: &str, state: &str, since: u64) -> Value {
    json!({"id": id, "state": state, "since": at(since), "clock_skew_ms": 0, "version": "1",
        "boot_id": "b", "instances": []})
}

#[test]
fn a_node_is_forgotten_when_it_is_down_since_before_and_nothing_is_there() {
    let with = |field: &str, value: Value| {
        let mut node = node("n1", "down", 1);
        node[field] = value;
        node
    };
    let proof = json!({"kind": "powered-off", "by": "ada", "at": at(1)});
    let mount = json!([{"namespace": "default", "volume": "v", "alloc": "a", "path": "/p"}]);
    for (node, kept) in [
        (node("n1", "down", 70), Some("")),
        (node("n1", "down", 71), None),
        (node("n1", "ready", 1), None),
        (with("gone", proof), Some("counts as gone (powered-off, says ada")),
        (with("unaccounted", mount), Some("there is the mount of volume v without a claim")),
    ] {
        let case = format!("{node}");
        let nodes = [node, self::node("n2", "ready", 1)];
        let mut plan = Plan::default();
        let down = plan.find_down(page("nodes", &nodes, &[]), at(70));
        plan.kept.clear();
        for mut node in down {
            let burden = node.burden.take();
            plan.add_down(node, burden);
        }
        let idle: Vec<&str> = plan.idle.iter().map(|(id, _)| id.as_str()).collect();
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
    let mut plan = Plan::default();
    plan.add_unreadable_nodes(&page("nodes", &[], &["n1", "p.instance.n2.node"]));
    let [line] = plan.kept.as_slice() else { panic!("{plan:?}") };
    assert!(line.contains("the record n1 cannot be read"), "{line}");
}

#[test]
fn claims_and_live_allocs_keep_a_node_and_so_does_what_cannot_be_read() {
    let mut more = claim_page(&[claim("taken", 1)], &[]);
    assert_eq!(
        burden_by_claims(&more).unwrap(),
        "there is the claim of alloc a on volume default/v (epoch 2)"
    );
    more.next = Some("x".to_owned());
    assert!(burden_by_claims(&more).unwrap().ends_with("(epoch 2), and more"));
    let unread = burden_by_claims(&claim_page(&[], &["default.v.claim.a"])).unwrap();
    assert_eq!(unread, "the record default.v.claim.a cannot be read, and may be there");
    assert_eq!(burden_by_claims(&claim_page(&[], &[])), None);
    let allocs = |entries: &[Value], unreadable: &[&str]| {
        burden_by_allocs(&page::<Allocs>("allocs", entries, unreadable))
    };
    let live = allocs(&[alloc("live", 1)], &[]).unwrap();
    assert_eq!(live, "there is the alloc a of namespace default, live");
    assert!(allocs(&[], &["default.a"]).unwrap().contains("cannot be read, and may be there"));
    assert_eq!(allocs(&[], &[]), None);
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
    let nodes = [("known", json!({"state": "down", "since": at(1), "schema": 1}))];
    let mut plan = Plan::default();
    viewed(&nodes, &plugins, |view| view.find_strays(GRACE, &mut plan));
    assert_eq!(plan, Plan { strays: vec![NodeId::new("old").unwrap()], ..Plan::default() });
}
