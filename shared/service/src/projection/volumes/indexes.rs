//! Each index over all volumes is what a fresh fold of the same records has.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

/// A pseudo-random choice, the same in each run.
struct Choice(u64);

impl Choice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn pick<T: Clone>(&mut self, values: &[T]) -> T {
        values[usize::try_from(self.below(values.len() as u64)).unwrap()].clone()
    }

    fn spec(&mut self) -> Value {
        let since = "2026-01-01T00:00:00Z";
        let plugin = self.pick(&["p", "q"]);
        let made = |bytes: u64, class: &str| {
            let mut made = json!({"name": "n", "requested": since, "class": class});
            made["required_bytes"] = json!(bytes);
            made
        };
        let (mut for_alloc, mut copy) = (made(7, "fast"), made(u64::MAX, "slow"));
        for_alloc["for_alloc"] = json!("a0");
        copy["origin"] = json!({"volume": "v0", "external_id": "v0"});
        let provision = self.pick(&[json!(null), made(5, "fast"), for_alloc, copy]);
        let operation = self.pick(&[
            json!(null),
            json!({"work": {"create": {}}, "since": since}),
            json!({"work": {"expand": {"required_bytes": 9}}, "since": since}),
        ]);
        let closing = self.pick(&[json!(null), json!({"since": since, "reason": ""})]);
        json!({"plugin": plugin, "capabilities": [], "schema": 2, "closing": closing,
            "external_id": self.pick(&[json!(null), json!("x"), json!("y")]),
            "storage": {"provision": provision, "operation": operation}})
    }

    fn claim(&mut self) -> Value {
        let states = ["waiting", "publishing", "taken", "unpublishing", "node-detached"];
        json!({"state": self.pick(&states), "node": self.pick(&["n0", "n1", "unknown"]),
            "mode": "write", "since": "2026-01-01T00:00:00Z", "access": "multi-node-multi-writer",
            "attachment": "file-system", "controller": true, "plugin": "p",
            "external_id": self.pick(&["x", "y"]), "schema": 1})
    }

    fn snapshot(&mut self) -> Value {
        json!({"state": self.pick(&["creating", "ready", "deleting"]), "name": "s", "plugin": "p",
            "since": "2026-01-01T00:00:00Z", "source": "v0", "schema": 2})
    }

    /// A key, and a record for it.
    fn record(&mut self) -> (String, Value) {
        let volume = format!("{}.v{}", self.pick(&["ns0", "ns1"]), self.below(3));
        let (key, record) = match self.below(7) {
            0 | 1 => (format!("{volume}.spec"), self.spec()),
            2..=4 => (format!("{volume}.claim.a{}", self.below(3)), self.claim()),
            5 => {
                let owner = json!({"namespace": "ns0", "schema": 1,
                    "volume": format!("v{}", self.below(3))});
                (format!("=handle.p.{}", self.pick(&["x", "y", "v0"])), owner)
            }
            _ => (format!("{volume}.snapshot.s{}", self.below(2)), self.snapshot()),
        };
        (key, if self.below(20) == 0 { json!({"schema": 99}) } else { record })
    }
}

/// What the indexes have, and whether each of them has something.
fn check(volumes: &Volumes, fresh: &Volumes, filled: &mut [bool; 6]) {
    assert_eq!(volumes.index, fresh.index);
    assert_eq!(volumes.load, fresh.load);
    assert_eq!(volumes.handles, fresh.handles);
    assert_eq!(volumes.copies, fresh.copies);
    assert_eq!(volumes.unreadable, fresh.unreadable);
    assert_eq!(volumes.newer, fresh.newer);
    let index = &volumes.index;
    let now = [
        index.used_from(None).next().is_some(),
        index.unfinished().next().is_some(),
        index.closing().next().is_some(),
        index.count_waiting() > 0 && index.count_storage_changes() > 0,
        index.class_uses(&Namespace::wildcard()).len() > 1 && volumes.copies != Copies::default(),
        volumes.claims_without_node().next().is_some(),
    ];
    filled.iter_mut().zip(now).for_each(|(filled, now)| *filled |= now);
}

#[test]
fn each_is_what_a_fresh_fold_of_the_same_records_has_after_any_change() {
    let (mut volumes, mut choice) = (Volumes::default(), Choice(42));
    // The records of each key since it was deleted: one that cannot be read replaces no other.
    let mut records: BTreeMap<String, Vec<(u64, Vec<u8>)>> = BTreeMap::new();
    let mut filled = [false; 6];
    for revision in 1..1_500 {
        let (key, record) = choice.record();
        if choice.below(3) == 0 {
            records.remove(&key);
            volumes.delete(&key, revision);
        } else {
            let record = record.to_string().into_bytes();
            volumes.put(&key, revision, &record);
            records.entry(key).or_default().push((revision, record));
        }
        let mut fresh = Volumes::default();
        for (key, values) in records.iter().rev() {
            for (revision, value) in values {
                fresh.put(key, *revision, value);
            }
        }
        check(&volumes, &fresh, &mut filled);
    }
    assert_eq!(filled, [true; 6]);
    for key in records.into_keys() {
        volumes.delete(&key, 1_500);
    }
    assert_eq!(volumes.index, VolumeIndex::default());
    assert_eq!(volumes.handles, Handles::default());
    assert!(volumes.is_empty());
}

#[test]
fn a_list_has_the_volumes_of_its_namespace_and_prefix_from_its_first_on() {
    let mut volumes = Volumes::default();
    for key in ["a.xa", "b.w", "b.xa", "b.xb", "b.y", "c.xa"] {
        let spec = json!({"plugin": "p", "capabilities": [], "schema": 1}).to_string();
        volumes.put(&format!("{key}.spec"), 1, spec.as_bytes());
        let claim = Choice(1).claim().to_string();
        volumes.put(&format!("{key}.claim.a"), 2, claim.as_bytes());
    }
    let first = VolumeKey::new("b".parse().unwrap(), "xb".parse().unwrap());
    for (namespace, prefix, first, expected) in [
        ("*", "", None, &["a/xa", "b/w", "b/xa", "b/xb", "b/y", "c/xa"][..]),
        ("*", "x", None, &["a/xa", "b/xa", "b/xb", "c/xa"]),
        ("*", "x", Some(&first), &["b/xb", "c/xa"]),
        ("b", "", None, &["b/w", "b/xa", "b/xb", "b/y"]),
        ("b", "", Some(&first), &["b/xb", "b/y"]),
        ("b", "x", None, &["b/xa", "b/xb"]),
        ("b", "x", Some(&first), &["b/xb"]),
        ("a", "x", Some(&first), &[]),
        ("d", "", None, &[]),
    ] {
        let namespace: Namespace = namespace.parse().unwrap();
        let named = |listed: Vec<(&VolumeKey, &Subtree)>| -> Vec<String> {
            listed.into_iter().map(|(key, _)| key.to_string()).collect()
        };
        assert_eq!(named(volumes.iter_listed(&namespace, prefix, first).collect()), expected);
        assert_eq!(named(volumes.iter_used(&namespace, prefix, first).collect()), expected);
    }
}

/// A volume that is at rest costs no memory beyond its own.
#[test]
fn a_volume_at_rest_is_in_no_index_of_work() {
    let mut volumes = Volumes::default();
    let spec = json!({"plugin": "p", "capabilities": [], "schema": 1});
    volumes.put("default.v.spec", 1, spec.to_string().as_bytes());
    assert_eq!(volumes.index, VolumeIndex::default());
}
