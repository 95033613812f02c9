//! The keys of the volumes bucket, and how they combine.

use std::time::Duration;

use berth_domain::access::Mode;
use berth_domain::volume::{Policy, State};

use super::super::handles::HandleEntry;
use super::*;

const SPEC: &[u8] = br#"{"plugin":"p","capabilities":[{"access":"single-node-writer",
    "attachment":"file-system"}],"schema":1}"#;
const CLAIM: &[u8] = br#"{"state":"taken","node":"n1","mode":"write",
    "since":"2026-01-01T00:00:00Z","access":"single-node-writer","attachment":"file-system",
    "controller":false,"trace":"t1","schema":1}"#;

fn volume() -> VolumeKey {
    match parse_volume("default.data.spec") {
        Some(VolumeEntry::Spec(volume)) => volume,
        other => panic!("{other:?}"),
    }
}

#[test]
fn keys_fold_into_volumes_and_epochs_are_filled_in() {
    let mut volumes = Volumes::default();
    volumes.put("default.data.spec", 3, SPEC);
    volumes.put("default.data.claim.a", 7, CLAIM);
    let subtree = volumes.get(&volume()).unwrap();
    assert_eq!(subtree.head, 7);
    assert_eq!(subtree.volume.spec.as_ref().unwrap().create_index, 3);
    let claim = subtree.volume.claims.values().next().unwrap();
    assert_eq!(claim.epoch, 7);
    volumes.delete("default.data.claim.a", 9);
    assert_eq!(volumes.get(&volume()).unwrap().head, 9);
    volumes.delete("default.data.spec", 10);
    assert!(volumes.is_empty());
}

/// Each replica of the claim service and of the volumewatcher keeps all volumes of the fleet in
/// memory: with a million volumes, a byte of each is a megabyte of each replica. The allocator
/// gives blocks of 128, 160, 192 and 224 bytes, so a subtree of 161 bytes costs 192. A field that
/// most volumes lack, or have alike, is an `Interned` one or a box.
#[test]
fn a_volume_at_rest_keeps_to_its_budget_of_memory() {
    for (what, bytes, budget) in [
        ("its id, in the tree of volumes", size_of::<VolumeKey>(), 16),
        ("its subtree", size_of::<Subtree>(), 160),
        ("its handle's external id and key", size_of::<(Box<str>, HandleEntry)>(), 40),
    ] {
        assert!(bytes <= budget, "{what}: {bytes} bytes");
    }
}

#[test]
fn a_spec_shares_what_is_equal_in_the_volume_before_it() {
    let mut volumes = Volumes::default();
    for key in ["default.a.spec", "default.b.spec"] {
        volumes.put(key, 1, SPEC);
    }
    let specs = volumes.iter().filter_map(|(_, subtree)| subtree.volume.spec.as_ref());
    let copies: Vec<_> = specs.map(|spec| spec.capabilities.as_ptr()).collect();
    assert!(!copies[0].is_null() && copies[0] == copies[1]);
}

#[test]
fn volumes_come_in_order_and_unreadable_ones_are_known_until_they_are_mended() {
    let mut volumes = Volumes::default();
    for key in ["other.a.spec", "default.b.spec", "default.data.spec"] {
        volumes.put(key, 1, SPEC);
    }
    let named = |keys: &mut dyn Iterator<Item = (&VolumeKey, &Subtree)>| {
        keys.map(|(key, _)| key.to_string()).collect::<Vec<_>>()
    };
    let volume_names = ["default/b", "default/data", "other/a"];
    assert_eq!(named(&mut volumes.iter()), volume_names);
    assert_eq!(named(&mut volumes.iter_from(Some(&volume()))), volume_names[1..]);
    assert_eq!(named(&mut volumes.iter_unreadable()), [""; 0]);
    volumes.put("default.data.claim.a", 2, b"damaged");
    assert_eq!(named(&mut volumes.iter_unreadable()), ["default/data"]);
    volumes.put("default.data.claim.a", 3, CLAIM);
    assert_eq!(named(&mut volumes.iter_unreadable()), [""; 0]);
}

#[test]
fn registrations_of_one_handle_know_of_each_other() {
    let spec = |external_id: &str| {
        let text = String::from_utf8(SPEC.to_vec()).unwrap();
        text.replace(r#""plugin""#, &format!(r#""external_id":"{external_id}","plugin""#))
    };
    let mut volumes = Volumes::default();
    // One volume is known by its own id, the other by the external id in its spec.
    volumes.put("default.data.spec", 1, SPEC);
    volumes.put("other.copy.spec", 2, spec("data").as_bytes());
    volumes.put("other.copy.claim.a", 3, CLAIM);
    let registered = volumes.get(&volume()).unwrap().volume.spec.as_ref().unwrap();
    let handle = registered.handle(&volume().volume).unwrap();
    let handle_use = volumes.handle_use(&volume(), Some(&handle));
    assert_eq!(handle_use.others, ["a volume of another namespace"]);
    let copy = handle_use.claims[0].volume.clone();
    assert_eq!((copy.to_string().as_str(), handle_use.claims.len()), ("other/copy", 1));
    assert_eq!(volumes.handle_use(&copy, Some(&handle)).others.len(), 1);
    let sibling = VolumeKey::new(volume().namespace, copy.volume.clone());
    assert_eq!(volumes.handle_use(&sibling, Some(&handle)).others[0], "volume data");
    volumes.put("other.copy.spec", 4, spec("another").as_bytes());
    assert!(volumes.handle_use(&volume(), Some(&handle)).others.is_empty());
    // The key names the registered volume.
    let owner = br#"{"namespace":"default","volume":"data","schema":1}"#;
    volumes.put("=handle.p.data", 5, owner);
    let guard = volumes.handles().get(&handle).unwrap().guard().unwrap();
    assert_eq!((guard.revision, guard.owner), (5, Ok(&volume())));
    volumes.put("=handle.p.data", 6, br#"{"schema":99}"#);
    assert!(volumes.handles().get(&handle).unwrap().guard().unwrap().owner.is_err());
    for key in ["=handle.p.data", "default.data.spec", "other.copy.spec", "other.copy.claim.a"] {
        volumes.delete(key, 7);
    }
    assert!(volumes.is_empty() && volumes.handles().is_empty());
}

/// A registration was lost, and its volume has been registered under another name since.
#[test]
fn claims_of_a_lost_registration_count_as_another_use_of_their_volume() {
    let of = |external_id: &str, text: &[u8]| {
        let of = format!(r#""plugin":"p","external_id":"{external_id}","#);
        String::from_utf8(text.to_vec()).unwrap().replacen('{', &format!("{{{of}"), 1)
    };
    let spec = |external_id: &str| {
        let capability = r#"{"access":"single-node-writer","attachment":"file-system"}"#;
        let plain = format!(r#"{{"capabilities":[{capability}],"schema":1}}"#);
        of(external_id, plain.as_bytes())
    };
    let mut volumes = Volumes::default();
    volumes.put("default.data.spec", 1, spec("old").as_bytes());
    volumes.put("default.data.claim.a", 2, of("old", CLAIM).as_bytes());
    let old = Handle { plugin: PluginId::new("p").unwrap(), external_id: "old".to_owned() };
    let other = VolumeKey::new(volume().namespace, "other".parse().unwrap());
    let names = |volumes: &Volumes| volumes.handle_use(&other, Some(&old)).others;
    assert_eq!(names(&volumes), ["volume data"], "it is registered with it");
    let old_spec = spec("old");
    let new = Handle { external_id: "new".to_owned(), ..old.clone() };
    for (own, spec) in [(None, None), (Some(new), Some(spec("new")))] {
        match spec {
            Some(spec) => volumes.put("default.data.spec", 4, spec.as_bytes()),
            None => volumes.delete("default.data.spec", 3),
        }
        let handle_use = volumes.handle_use(&other, Some(&old));
        assert_eq!((names(&volumes), handle_use.claims.len()), (vec!["volume data".to_owned()], 1));
        assert!(volumes.handle_use(&volume(), Some(&old)).others.is_empty(), "its own claims");
        // The lost registration's claim shares an attachment with those of the new registration.
        assert!(volumes.handle_use(&volume(), None).claims.is_empty());
        volumes.put("default.other.spec", 4, old_spec.as_bytes());
        volumes.put("default.other.claim.b", 4, of("old", CLAIM).as_bytes());
        let handle_use = volumes.handle_use(&volume(), own.as_ref());
        assert_eq!((handle_use.others.len(), handle_use.claims.len()), (0, 1), "{handle_use:?}");
        assert_eq!((&handle_use.claims[0].volume, &handle_use.claims[0].handle), (&other, &old));
        volumes.delete("default.other.claim.b", 4);
        volumes.delete("default.other.spec", 4);
    }
    volumes.delete("default.data.claim.a", 5);
    assert_eq!(names(&volumes), [""; 0]);
    volumes.delete("default.data.spec", 6);
    assert!(volumes.is_empty() && volumes.handles().is_empty());
}

#[test]
fn a_newer_record_makes_its_volume_read_only() {
    let mut volumes = Volumes::default();
    volumes.put("default.data.spec", 3, SPEC);
    volumes.put("default.data.claim.a", 4, br#"{"schema":99}"#);
    assert_eq!(volumes.get(&volume()).unwrap().unreadable().len(), 1);
    volumes.put("default.data.claim.a", 5, CLAIM);
    assert!(volumes.get(&volume()).unwrap().unreadable().is_empty());
}

/// D9: a field that an older version did not write gets the value that holds the volume most
/// strictly.
#[test]
fn claims_of_an_older_version_hold_their_volume_each_on_a_node_of_its_own() {
    let older = br#"{"since":"2026-01-01T00:00:00Z","access":"multi-node-multi-writer",
        "attachment":"file-system"}"#;
    let mut volumes = Volumes::default();
    volumes.put("default.data.spec", 3, SPEC);
    volumes.put("default.data.claim.a", 4, older);
    volumes.put("default.data.claim.b", 5, older);
    let subtree = volumes.get(&volume()).unwrap();
    assert!(subtree.unreadable().is_empty());
    let claim_facts: Vec<_> = subtree
        .volume
        .claims
        .values()
        .map(|claim| (claim.state, claim.mode, claim.controller, claim.node.as_str()))
        .collect();
    let held = |node| (State::Taken, Mode::Write, true, node);
    assert_eq!(claim_facts, [held("unknown/a"), held("unknown/b")]);
    let lacking = |volumes: &Volumes| -> Vec<String> {
        volumes.claims_without_node().map(|(_, alloc)| alloc.to_string()).collect()
    };
    assert_eq!(lacking(&volumes), ["a", "b"]);
    volumes.put("default.data.claim.a", 6, CLAIM);
    assert_eq!(lacking(&volumes), ["b"]);
    volumes.delete("default.data.claim.b", 7);
    assert!(lacking(&volumes).is_empty());
}

/// A process that wrote a deadline by a wrong clock believed in it until that time, an hour later.
#[test]
fn times_of_a_clock_that_was_set_back_hold_nothing_up() {
    let wrong = clock::now();
    let right = wrong.before(Duration::from_secs(3600));
    let attempt = |name: &str, deadline: Timestamp| {
        format!(
            r#""attempt":{{"id":"{name}","call":"controller.unpublish","worker":"w",
            "deadline":"{deadline}"}},"#
        )
    };
    let due = wrong.after(Duration::from_secs(30));
    let with = |state: &str, times: String| {
        let text = String::from_utf8(CLAIM.to_vec()).unwrap();
        text.replace("taken", state).replace(r#""trace""#, &format!(r#"{times}"trace""#))
    };
    let mut volumes = Volumes::default();
    volumes.put("default.data.spec", 3, SPEC);
    for (alloc, state, times) in [
        ("called", "node-detached", attempt("wrong", due)),
        ("failed", "node-detached", format!(r#""next_try":"{due}","tries":1,"#)),
        ("waits", "waiting", format!(r#""place_until":"{}","#, wrong.after(limits::PLACE_KEPT))),
        ("early", "node-detached", attempt("right", right.after(Duration::from_secs(9)))),
    ] {
        volumes.put(&format!("default.data.claim.{alloc}"), 4, with(state, times).as_bytes());
    }
    let claim = |volumes: &Volumes, alloc: &str| {
        let alloc = AllocId::new(alloc).unwrap();
        volumes.get(&volume()).unwrap().volume.claims.get(&alloc).unwrap().clone()
    };
    assert_eq!(
        claim(&volumes, "called").progress.attempt.unwrap().ends(),
        due,
        "by the wrong clock"
    );
    volumes.bound_times(right);
    let within = |longest: Duration| right.after(longest + limits::CLOCK_MARGIN);
    let called = claim(&volumes, "called").progress.attempt.unwrap();
    assert_eq!(called.ends(), within(limits::CALL_TIMEOUT));
    assert_eq!(called.with_believed_deadline().deadline, called.ends(), "what others are told");
    assert_eq!(claim(&volumes, "failed").progress.next_try, Some(within(limits::RETRY_MAX)));
    assert_eq!(claim(&volumes, "waits").place_until, Some(within(limits::PLACE_KEPT)));
    let early = claim(&volumes, "early").progress.attempt.unwrap();
    assert_eq!(early.ends(), right.after(Duration::from_secs(9)));
    let subtree = volumes.get(&volume()).unwrap();
    let latest = subtree.volume.claims.calling().next().unwrap().0.clone();
    assert_eq!(latest.as_str(), "called", "the summary follows");
}

/// The times of calls of the volume itself and of its snapshots are bounded, too.
#[test]
fn times_of_calls_at_the_storage_are_bounded_when_the_clock_was_set_back() {
    let wrong = clock::now();
    let right = wrong.before(Duration::from_secs(3600));
    let due = wrong.after(Duration::from_secs(30));
    let progress = serde_json::json!({"next_try": due, "attempt": {"id": "wrong",
        "call": "controller.create", "worker": "w", "deadline": due}});
    let operation = serde_json::json!({"work": {"create": {}}, "since": wrong,
        "progress": progress});
    let spec = serde_json::json!({"plugin": "p", "capabilities": [], "schema": 2,
        "storage": {"operation": operation}});
    let snapshot = serde_json::json!({"state": "creating", "since": wrong, "progress": progress,
        "name": "s", "plugin": "p", "source": "v", "schema": 2});
    let mut volumes = Volumes::default();
    volumes.put("default.data.spec", 3, spec.to_string().as_bytes());
    volumes.put("default.data.snapshot.s", 4, snapshot.to_string().as_bytes());
    let times = |volumes: &Volumes| {
        let Volume { spec, snapshots, .. } = &volumes.get(&volume()).unwrap().volume;
        let of_volume = &spec.as_ref().unwrap().operation().unwrap().progress;
        let progresses = [of_volume, &snapshots.values().next().unwrap().progress];
        progresses.map(|progress| {
            (progress.calls.attempt.as_ref().unwrap().ends(), progress.calls.next_try.unwrap())
        })
    };
    assert_eq!(times(&volumes), [(due, due); 2], "by the wrong clock");
    volumes.bound_times(right);
    let within = |longest: Duration| right.after(longest + limits::CLOCK_MARGIN);
    let bounded = (within(limits::CALL_TIMEOUT), within(limits::RETRY_MAX));
    assert_eq!(times(&volumes), [bounded; 2]);
}

/// The clock itself cannot be set in a test. A policy with tighter bounds shows that times are
/// bounded.
#[test]
fn what_the_mirror_says_of_the_clock_bounds_the_times_of_all_records() {
    let long = Duration::from_secs(86_400);
    let mut volumes =
        Volumes::default().with_policy(&Policy { place_kept: long, ..Policy::default() });
    let far_future = clock::now().after(long);
    let waiting = String::from_utf8(CLAIM.to_vec()).unwrap().replace("taken", "waiting");
    let waiting =
        waiting.replace(r#""trace""#, &format!(r#""place_until":"{far_future}","trace""#));
    volumes.put("default.data.claim.a", 4, waiting.as_bytes());
    let place_until = |volumes: &Volumes| {
        let claims = &volumes.get(&volume()).unwrap().volume.claims;
        claims.values().next().unwrap().place_until.unwrap()
    };
    assert_eq!(place_until(&volumes), far_future);
    let mut volumes = volumes.with_policy(&Policy::default());
    volumes.clock_set_back();
    let longest = limits::PLACE_KEPT + limits::CLOCK_MARGIN;
    assert!(place_until(&volumes) <= clock::now().after(longest), "{}", place_until(&volumes));
}

#[test]
fn the_newest_schema_is_that_of_the_records_that_are_there_and_the_level_is_the_stored_one() {
    let mut volumes = Volumes::default();
    volumes.put("default.data.spec", 1, SPEC);
    assert_eq!((volumes.newest_schema(), volumes.level()), (1, &Level::default()));
    let (plugin, storage) = (PluginId::new("p").unwrap(), Some(Box::default()));
    let spec = VolumeSpec { storage, ..VolumeSpec::empty(&plugin) };
    let encoded = record::write_spec(&spec, None).unwrap();
    for (revision, key) in [(2, "default.made.spec"), (3, "default.data.spec")] {
        volumes.put(key, revision, &encoded);
        volumes.put(key, revision, &encoded);
        assert_eq!(volumes.newest_schema(), 2);
    }
    volumes.put("default.data.spec", 4, SPEC);
    assert_eq!(volumes.newest_schema(), 2);
    volumes.delete("default.made.spec", 5);
    assert_eq!(volumes.newest_schema(), 1);
    let raised = Level { level: 2, held: None };
    volumes.put("=level", 6, &record::write(&raised, None).unwrap());
    volumes.put("=level", 7, b"damaged");
    assert_eq!(volumes.level(), &raised, "a damaged one says nothing");
    // A backup from before there were levels was restored.
    volumes.delete("=level", 8);
    assert_eq!(volumes.level(), &Level::default());
}
