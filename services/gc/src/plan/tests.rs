//! What is found, row by row.

use berth_bus::Fold;
use berth_domain::{Namespace, VolumeId};
use serde_json::{Value, json};

use super::*;

const GRACE: Duration = Duration::from_secs(30);

/// Seconds after an arbitrary noon.
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

/// The plan over these records, at second 100.
fn planned(volumes: &[(&str, Value)], allocs: &[(&str, Value)], grace: Duration) -> Plan {
    let (mut all_volumes, mut all_allocs) = (Volumes::default(), Allocs::default());
    for (revision, (key, value)) in (1..).zip(volumes) {
        all_volumes.put(key, revision, &stored(value.clone()));
    }
    for (revision, (key, value)) in (1..).zip(allocs) {
        all_allocs.put(key, revision, &stored(value.clone()));
    }
    plan(&all_volumes, &all_allocs, at(100), grace)
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
        // It may have been registered after the mirror looked.
        ("taken", 71, None, false),
        // Younger than the end of its alloc would say.
        ("taken", 90, Some(("complete", 20)), false),
        ("unpublishing", 10, Some(("complete", 5)), false),
        ("node-detached", 10, None, false),
    ];
    for (state, since, of, unwanted) in rows {
        let allocs: Vec<(&str, Value)> =
            of.map(|(state, since)| ("default.a", alloc(state, since))).into_iter().collect();
        let volumes = [("default.v.spec", spec(None)), ("default.v.claim.a", claim(state, since))];
        let plan = planned(&volumes, &allocs, GRACE);
        let expected = Unwanted {
            volume: volume("v"),
            alloc: AllocId::new("a").unwrap(),
            // The revision of the record that made the claim.
            epoch: 2,
        };
        let expected: Vec<Unwanted> = unwanted.then_some(expected).into_iter().collect();
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
        ("default.v.claim.b", json!({"state": "hovering", "schema": 2})),
        ("default.w.claim.a", claim("taken", 1)),
    ];
    let plan = planned(&volumes, &[], GRACE);
    let unwanted: Vec<VolumeKey> = plan.unwanted.into_iter().map(|one| one.volume).collect();
    assert_eq!(unwanted, [volume("w")]);
    assert_eq!(plan.closing, []);
    let [line] = plan.kept.as_slice() else { panic!("{:?}", plan.kept) };
    assert!(line.contains("default.v.claim.b") && line.contains("schema 2"), "{line}");
}

#[test]
fn what_is_found_comes_in_order() {
    let keys = ["default.b.claim.y", "default.b.claim.x", "a.z.claim.y", "default.a.claim.y"];
    let volumes: Vec<(&str, Value)> = keys.iter().map(|key| (*key, claim("taken", 1))).collect();
    let found: Vec<String> = planned(&volumes, &[], GRACE)
        .unwanted
        .iter()
        .map(|one| format!("{}/{}", one.volume, one.alloc))
        .collect();
    assert_eq!(found, ["a/z/y", "default/a/y", "default/b/x", "default/b/y"]);
}
