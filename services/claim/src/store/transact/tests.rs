//! Rules 1 and 17 without a bus: the guards of writes, and when the leader was asked enough.

use berth_domain::volume::{Claim, VolumeSpec};
use serde_json::json;

use super::*;
use crate::store::handle::SideWrite;

fn volume(name: &str) -> VolumeKey {
    VolumeKey::new("ns".parse().unwrap(), name.parse().unwrap())
}

fn spec() -> VolumeSpec {
    let capability = json!({"access": "single-node-writer", "attachment": "file-system"});
    let spec = json!({"plugin": "p", "external_id": "x", "capabilities": [capability]});
    serde_json::from_value(spec).unwrap()
}

fn claim() -> Claim {
    serde_json::from_value(json!({
        "state": "taken", "node": "n1", "mode": "write", "since": "2026-01-31T12:00:00.000Z",
        "access": "single-node-writer", "attachment": "file-system", "controller": true,
    }))
    .unwrap()
}

#[test]
fn rule_1_each_write_of_a_volume_is_guarded_by_all_that_is_below_it() {
    let trace = TraceContext::begin(&mut rand::rng());
    let (data, alloc) = (volume("data"), || "a".parse::<AllocId>().unwrap());
    for (write, key, is_put) in [
        (Write::PutSpec(spec()), "ns.data.spec", true),
        (Write::DeleteSpec, "ns.data.spec", false),
        (Write::PutClaim(alloc(), claim()), "ns.data.claim.a", true),
        (Write::DeleteClaim(alloc()), "ns.data.claim.a", false),
    ] {
        let stored = GuardedWrite::own(&data, &write, None, 7, trace).unwrap();
        assert_eq!((stored.key.as_str(), stored.value.is_some()), (key, is_put));
        assert_eq!((stored.filter.as_str(), stored.revision), ("ns.data.>", 7));
    }
}

#[test]
fn rule_17_what_goes_beside_a_write_is_guarded_by_what_it_changes() {
    let trace = TraceContext::begin(&mut rand::rng());
    let handle = spec().handle(&"any".parse().unwrap()).unwrap();
    let key = key::handle(&handle);
    let fenced_spec = Some(Box::new(spec()));
    for (write, key, filter, is_put) in [
        (SideWrite::Own(handle.clone()), key.as_str(), key.as_str(), true),
        (SideWrite::Free(handle), key.as_str(), key.as_str(), false),
        (SideWrite::Fence(volume("other"), fenced_spec), "ns.other.spec", "ns.other.>", true),
        (SideWrite::Fence(volume("other"), None), "ns.other.spec", "ns.other.>", false),
    ] {
        let stored = GuardedWrite::beside(&volume("data"), &write, 7, trace).unwrap();
        assert_eq!((stored.key.as_str(), stored.value.is_some()), (key, is_put), "{write:?}");
        assert_eq!((stored.filter.as_str(), stored.revision), (filter, 7), "{write:?}");
        let owner = stored.value.filter(|_| matches!(write, SideWrite::Own(_)));
        assert!(owner.is_none_or(|owner| String::from_utf8_lossy(&owner).contains("data")));
    }
}

/// A refusal, or an answer without a write, is given after the leader was asked for the volume; if
/// it rests on other volumes, after the leader was asked for all.
#[test]
fn the_leader_is_asked_once_and_for_all_volumes_where_others_decide() {
    let revisions = BTreeMap::from([("ns.data.>".to_owned(), 7)]);
    let heads = |revisions: &BTreeMap<String, u64>, all| Heads { known: revisions.clone(), all };
    let nothing = Heads::default();
    assert!(!nothing.were_asked(false) && !nothing.were_asked(true));
    assert!(
        heads(&revisions, false).were_asked(false) && !heads(&revisions, false).were_asked(true)
    );
    assert!(heads(&revisions, true).were_asked(false) && heads(&revisions, true).were_asked(true));
    let other_volumes = || vec!["volume other".to_owned()];
    assert!(is_of_other_volumes(&Refusal::HandleTaken { others: other_volumes() }));
    assert!(is_of_other_volumes(&Refusal::RegisteredTwice { others: other_volumes() }));
    assert!(!is_of_other_volumes(&Refusal::NoSuchVolume));
}
