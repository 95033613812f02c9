//! One hand-written log for each way to break a rule about the storage.

use serde_json::{Value, json};

use super::log::*;
use super::violations::Case;
use Came::{Failed, Killed, Lied, Lost, Noticed, Refused};

/// More than the longest wait before a creation is repeated, in microseconds.
pub const LONG_US: u64 = 600_000_000;

/// A new volume called `w`, from this volume or snapshot.
pub fn copy(kind: &str, id: &str) -> Value {
    let source = json!({"type": {kind: {format!("{kind}_id"): id}}});
    json!({"name": "w", "volume_content_source": source})
}

pub fn snapshot() -> Value {
    json!({"name": "s", "source_volume_id": "v"})
}

/// The group `g` of these volumes.
pub fn group_of(volumes: &[&str]) -> Value {
    json!({"name": "g", "source_volume_ids": volumes})
}

/// A call about the group `g` and the members of these volumes.
pub fn members_of(volumes: &[&str]) -> Value {
    let ids: Vec<_> = volumes.iter().map(|volume| member("g", volume)).collect();
    json!({"group_snapshot_id": "g", "snapshot_ids": ids})
}

pub fn tier(tier: &str) -> Value {
    json!({"volume_id": "v", "mutable_parameters": {"tier": tier}})
}

pub fn grow(bytes: i64) -> Value {
    json!({"volume_id": "v", "capacity_range": {"required_bytes": bytes}})
}

pub fn create(bytes: i64) -> Value {
    json!({"name": "v", "capacity_range": {"required_bytes": bytes}})
}

pub fn gone(id: &str) -> Value {
    json!({"snapshot_id": id})
}

fn start() -> Log {
    Log::default()
}

fn groups() -> Vec<Case> {
    let grouped = || start().ok("n1", GROUP, group_of(&["v", "w"]));
    let listed = json!({"entries": [{"snapshot": {"snapshot_id": "s", "group_snapshot_id": "g"}}]});
    vec![
        (
            "delete-of-member",
            grouped().call("n1", DELETE_SNAPSHOT, gone("g-v"), Refused),
            vec![3, 4, 1, 2],
        ),
        // A list told the CO that the snapshot is a member.
        (
            "delete-of-member",
            start().ok("n1", LIST_SNAPSHOTS, json!({})).answer(listed).call(
                "n1",
                DELETE_SNAPSHOT,
                gone("s"),
                Refused,
            ),
            vec![3, 4, 1, 2],
        ),
        (
            "other-members",
            grouped().call("n1", DELETE_GROUP, members_of(&["v"]), Refused),
            vec![3, 4, 1, 2],
        ),
        (
            "other-members",
            grouped().call("n1", GET_GROUP, members_of(&["v", "w", "x"]), Refused),
            vec![3, 4, 1, 2],
        ),
        (
            "create-conflict",
            grouped().call("n1", GROUP, group_of(&["v"]), Refused),
            vec![3, 4, 1, 2],
        ),
        (
            "retry-changed",
            start().call("n1", GROUP, group_of(&["v"]), Failed).ok("n1", GROUP, group_of(&["w"])),
            vec![3, 4, 1, 2],
        ),
        (
            "use-after-delete",
            start().ok("n1", DELETE, v()).call("n1", GROUP, group_of(&["w", "v"]), Refused),
            vec![3, 4, 1, 2],
        ),
        // The members are deleted with their group.
        (
            "use-after-delete",
            grouped().ok("n1", DELETE_GROUP, members_of(&["w", "v"])).call(
                "n1",
                CREATE,
                copy("snapshot", "g-w"),
                Refused,
            ),
            vec![5, 6, 3, 4],
        ),
    ]
}

fn overlaps() -> Vec<Case> {
    let noticed = Noticed("overlapping-controller-calls");
    let group = || start().begin("n1", GROUP, group_of(&["v", "w"]));
    vec![
        // The call uses each volume of the group.
        (
            "overlapping-controller-calls",
            group().call("n2", DELETE, json!({"volume_id": "w"}), noticed).end(1, Came::Ok),
            vec![2, 3, 1, 4],
        ),
        (
            "overlapping-controller-calls",
            start()
                .begin("n1", EXPAND, grow(5))
                .call("n2", GROUP, group_of(&["w", "v"]), noticed)
                .end(1, Came::Ok),
            vec![2, 3, 1, 4],
        ),
        // Two calls are one finding, however many volumes they share.
        (
            "overlapping-controller-calls",
            group()
                .call("n2", GROUP, json!({"name": "h", "source_volume_ids": ["v", "w"]}), noticed)
                .end(1, Came::Ok),
            vec![2, 3, 1, 4],
        ),
        (
            "overlapping-controller-calls",
            start()
                .begin("n1", MODIFY, tier("gold"))
                .call("n2", EXPAND, grow(5), noticed)
                .end(1, Came::Ok),
            vec![2, 3, 1, 4],
        ),
        // The driver has no slot for a group or its members.
        (
            "overlapping-controller-calls",
            start()
                .begin("n1", DELETE_GROUP, members_of(&["v"]))
                .ok("n2", GET_GROUP, members_of(&["v"]))
                .end(1, Came::Ok),
            vec![2, 3, 1, 4],
        ),
        (
            "overlapping-controller-calls",
            start()
                .begin("n1", DELETE_GROUP, members_of(&["v"]))
                .ok("n2", GET_SNAPSHOT, gone("g-v"))
                .end(1, Came::Ok),
            vec![2, 3, 1, 4],
        ),
    ]
}

fn sources() -> Vec<Case> {
    let unready = json!({"snapshot": {"snapshot_id": "s", "ready_to_use": false}});
    let mut cases = vec![
        (
            "delete-of-source",
            start()
                .ok("n1", GROUP, group_of(&["v"]))
                .begin("n1", CREATE, copy("snapshot", "g-v"))
                .ok("n2", DELETE_GROUP, members_of(&["v"]))
                .end(3, Came::Ok),
            vec![4, 5, 3, 6],
        ),
        // The caller left, so the next call is no overlap; but the snapshot may not be cut yet.
        (
            "delete-of-source",
            start()
                .begin("n1", SNAPSHOT, snapshot())
                .gone(1)
                .call("n2", DELETE, v(), Refused)
                .end(1, Came::Ok),
            vec![3, 4, 1, 2],
        ),
        (
            "source-not-ready",
            start().ok("n1", SNAPSHOT, snapshot()).answer(unready.clone()).call(
                "n1",
                CREATE,
                copy("snapshot", "s"),
                Refused,
            ),
            vec![3, 4, 1, 2],
        ),
        (
            "source-not-ready",
            start()
                .ok("n1", SNAPSHOT, snapshot())
                .ok("n1", GET_SNAPSHOT, gone("s"))
                .answer(unready)
                .call("n1", CREATE, copy("snapshot", "s"), Refused),
            vec![5, 6, 3, 4],
        ),
    ];
    // An unanswered call may be under way.
    for came in [Lied, Lost, Failed] {
        for (rpc, args) in
            [(SNAPSHOT, snapshot()), (GROUP, group_of(&["w", "v"])), (CREATE, copy("volume", "v"))]
        {
            let log = start().call("n1", rpc, args, came).ok("n1", DELETE, v());
            cases.push(("delete-of-source", log, vec![3, 4, 1, 2]));
        }
    }
    let killed = Log::nodes().call("n1", CREATE, copy("snapshot", "s"), Killed);
    let killed = killed.start("n1'", json!([])).ok("n2", DELETE_SNAPSHOT, gone("s"));
    cases.push(("delete-of-source", killed, vec![5, 6, 3]));
    cases
}

fn changes() -> Vec<Case> {
    let mut cases = vec![
        (
            "use-after-delete",
            start().ok("n1", DELETE, v()).call("n1", MODIFY, tier("gold"), Refused),
            vec![3, 4, 1, 2],
        ),
        (
            "retry-changed",
            start().call("n1", CREATE, create(5), Lost).ok(
                "n1",
                CREATE,
                with(create(5), json!({"mutable_parameters": {"tier": "gold"}})),
            ),
            vec![3, 4, 1, 2],
        ),
        (
            "smaller-expansion",
            start().ok("n1", CREATE, create(20)).ok("n1", EXPAND, grow(10)),
            vec![3, 4, 1, 2],
        ),
        (
            "smaller-expansion",
            start().ok("n1", EXPAND, grow(20)).call("n1", EXPAND, grow(10), Refused),
            vec![3, 4, 1, 2],
        ),
        // The CO was told a size without having required one.
        (
            "smaller-expansion",
            start()
                .ok("n1", CREATE, json!({"name": "v"}))
                .answer(json!({"volume": {"volume_id": "v", "capacity_bytes": 30}}))
                .ok("n1", EXPAND, grow(20)),
            vec![3, 4, 1, 2],
        ),
    ];
    // A retry without a definite answer leaves the doubt.
    for code in ["UNAVAILABLE", "ABORTED", "RESOURCE_EXHAUSTED"] {
        let lost = start().call("n1", MODIFY, tier("gold"), Lost);
        let retried = lost.call("n1", MODIFY, tier("gold"), Refused).code(code);
        cases.push(("retry-changed", retried.ok("n1", MODIFY, tier("tin")), vec![5, 6, 1, 2]));
    }
    for came in [Lied, Lost, Failed] {
        let modified = start().call("n1", MODIFY, tier("gold"), came);
        cases.push(("retry-changed", modified.ok("n1", MODIFY, tier("tin")), vec![3, 4, 1, 2]));
        let grown = start().call("n1", EXPAND, grow(20), came);
        cases.push(("smaller-expansion", grown.ok("n1", EXPAND, grow(10)), vec![3, 4, 1, 2]));
    }
    cases
}

fn abandoned() -> Vec<Case> {
    let other_name = || json!({"name": "other"});
    let mut cases = vec![
        // The caller left, and was not told that the call succeeded later.
        (
            "abandoned-creation",
            start().begin("n1", CREATE, create(5)).gone(1).end(1, Came::Ok).later(LONG_US).ok(
                "n1",
                CREATE,
                other_name(),
            ),
            vec![1, 2, 3, 5],
        ),
        // The request was repeated, and not answered either. The newest request is the proof.
        (
            "abandoned-creation",
            start()
                .call("n1", CREATE, create(5), Failed)
                .later(LONG_US)
                .call("n1", CREATE, create(5), Lost)
                .later(LONG_US)
                .ok("n1", CREATE, other_name()),
            vec![3, 4, 6],
        ),
        (
            "abandoned-creation",
            Log::nodes()
                .call("n1", CREATE, create(5), Killed)
                .start("n1'", json!([]))
                .later(LONG_US)
                .start("n2'", json!([])),
            vec![3, 5],
        ),
    ];
    for (rpc, args) in [(CREATE, create(5)), (SNAPSHOT, snapshot()), (GROUP, group_of(&["v", "w"]))]
    {
        let log = start().call("n1", rpc, args, Lost).later(LONG_US).ok("n1", CREATE, other_name());
        cases.push(("abandoned-creation", log, vec![1, 2, 4]));
    }
    cases
}

pub fn all() -> Vec<Case> {
    [groups(), overlaps(), sources(), changes(), abandoned()].into_iter().flatten().collect()
}

#[test]
fn a_finding_names_what_it_is_about() {
    let grouped = || start().ok("n1", GROUP, group_of(&["v", "w"]));
    for (log, beginning) in [
        (
            grouped().call("n1", DELETE_SNAPSHOT, gone("g-v"), Refused),
            "snapshot \"g-v\": a member of the group \"g\"",
        ),
        (
            grouped().call("n1", DELETE_GROUP, members_of(&["v"]), Refused),
            "group \"g\": snapshot_ids are not",
        ),
        (
            start().ok("n1", EXPAND, grow(20)).ok("n1", EXPAND, grow(10)),
            "volume \"v\": expanded to 10 bytes, and has or may have 20",
        ),
    ] {
        let text = log.findings()[0].to_string();
        assert!(text.starts_with(beginning), "{text}");
    }
}
