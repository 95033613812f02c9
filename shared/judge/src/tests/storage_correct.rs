//! Hand-written logs that break no rule about the storage, each close to one that does.

use serde_json::json;

use super::log::*;
use super::storage::{copy, create, gone, group_of, grow, members_of, snapshot, tier};
use Came::{Failed, Lied, Lost, Refused};

#[test]
fn what_is_not_answered_is_repeated_until_it_is() {
    for came in [Lied, Lost, Failed] {
        Log::default()
            .call("n1", CREATE, create(5), came)
            .ok("n1", CREATE, create(5))
            .call("n1", MODIFY, tier("gold"), came)
            .ok("n1", MODIFY, tier("gold"))
            .ok("n1", MODIFY, tier("tin"))
            .call("n1", EXPAND, grow(20), came)
            .ok("n1", EXPAND, grow(20))
            .ok("n1", EXPAND, grow(20))
            .call("n1", SNAPSHOT, snapshot(), came)
            .ok("n1", SNAPSHOT, snapshot())
            .call("n1", GROUP, group_of(&["v", "u"]), came)
            .ok("n1", GROUP, group_of(&["u", "v"]))
            .ok("n1", GET_GROUP, members_of(&["u", "v"]))
            .call("n1", CREATE, copy("snapshot", "g-v"), came)
            .ok("n1", CREATE, copy("snapshot", "g-v"))
            .ok("n1", DELETE, v())
            .call("n1", DELETE_GROUP, members_of(&["v", "u"]), came)
            .ok("n1", DELETE_GROUP, members_of(&["v", "u"]))
            .ok("n1", DELETE_SNAPSHOT, gone("s"))
            .proves_nothing();
    }
}

#[test]
fn a_definite_refusal_ends_the_doubt() {
    Log::default()
        .call("n1", MODIFY, tier("gold"), Lost)
        .call("n1", MODIFY, tier("gold"), Refused)
        .ok("n1", MODIFY, tier("tin"))
        .call("n1", EXPAND, grow(20), Failed)
        .call("n1", EXPAND, grow(20), Refused)
        .ok("n1", EXPAND, grow(10))
        .call("n1", SNAPSHOT, snapshot(), Failed)
        .call("n1", SNAPSHOT, snapshot(), Refused)
        .call("n1", GROUP, group_of(&["v"]), Failed)
        .call("n1", GROUP, group_of(&["v"]), Refused)
        .ok("n1", GROUP, group_of(&["u"]))
        .ok("n1", DELETE, v())
        .proves_nothing();
    // There was no room, so there is no volume; the next one may be created elsewhere.
    Log::default()
        .call("n1", CREATE, create(20), Lost)
        .call("n1", CREATE, create(20), Refused)
        .code("RESOURCE_EXHAUSTED")
        .ok("n1", CREATE, create(10))
        .proves_nothing();
}

#[test]
fn a_size_is_compared_with_what_was_required_and_told() {
    let answered_size = |bytes: i64| json!({"volume": {"volume_id": "v", "capacity_bytes": bytes}});
    // The plugin rounded up.
    Log::default()
        .ok("n1", CREATE, create(5))
        .answer(answered_size(4096))
        .ok("n1", EXPAND, grow(7))
        .answer(json!({"capacity_bytes": 4096}))
        .ok("n1", EXPAND, grow(7))
        .proves_nothing();
    // The plugin gave less.
    Log::default()
        .ok("n1", CREATE, create(20))
        .answer(answered_size(10))
        .ok("n1", EXPAND, grow(15))
        .proves_nothing();
    // The id is used again by another volume.
    Log::default()
        .ok("n1", CREATE, create(20))
        .ok("n1", DELETE, v())
        .ok("n1", CREATE, create(5))
        .ok("n1", EXPAND, grow(10))
        .proves_nothing();
    // The plugin answered the id of another volume: its size says nothing about that volume.
    Log::default()
        .ok("n1", CREATE, create(5))
        .ok("n1", CREATE, json!({"name": "w", "capacity_range": {"required_bytes": 50}}))
        .answer(answered_size(50))
        .ok("n1", EXPAND, grow(10))
        .proves_nothing();
}

#[test]
fn a_snapshot_is_used_once_it_is_said_to_be_ready() {
    let answered_ready =
        |ready: bool| json!({"snapshot": {"snapshot_id": "s", "ready_to_use": ready}});
    let unready = || Log::default().ok("n1", SNAPSHOT, snapshot()).answer(answered_ready(false));
    let copied = |log: Log| log.ok("n1", CREATE, copy("snapshot", "s"));
    copied(unready().ok("n1", SNAPSHOT, snapshot())).proves_nothing();
    copied(unready().ok("n1", GET_SNAPSHOT, gone("s")).answer(answered_ready(true)))
        .proves_nothing();
    let listed = json!({"entries": [answered_ready(true)]});
    copied(unready().ok("n1", LIST_SNAPSHOTS, json!({})).answer(listed)).proves_nothing();
    // The log has only a part of the list.
    let other_snapshots = vec![json!({"snapshot": {"snapshot_id": "t", "ready_to_use": true}}); 64];
    let cut_off = json!({"entries": other_snapshots});
    copied(unready().ok("n1", LIST_SNAPSHOTS, json!({})).answer(cut_off)).proves_nothing();
    // The snapshot is cut, so its volume may be deleted.
    unready().ok("n1", DELETE, v()).proves_nothing();
}

#[test]
fn a_group_is_deleted_as_a_whole_and_then_its_members_are_unknown() {
    Log::default()
        .ok("n1", GROUP, group_of(&["v", "u"]))
        .ok("n1", DELETE_GROUP, members_of(&["u", "v"]))
        .ok("n1", DELETE_GROUP, members_of(&["u", "v"]))
        .ok("n1", DELETE_SNAPSHOT, gone("g-v"))
        .ok("n1", GROUP, group_of(&["v"]))
        .ok("n1", CREATE, copy("snapshot", "g-v"))
        .ok("n1", DELETE_GROUP, members_of(&["v"]))
        .proves_nothing();
    // The log has only the first of many members.
    let names: Vec<_> = (0..64).map(|index| format!("v{index}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    Log::default()
        .ok("n1", GROUP, group_of(&names))
        .ok("n1", DELETE_GROUP, members_of(&names[1..]))
        .proves_nothing();
}

#[test]
fn calls_about_different_volumes_may_overlap() {
    Log::default()
        .begin("n1", GROUP, group_of(&["v", "u"]))
        .ok("n1", EXPAND, json!({"volume_id": "w"}))
        .ok("n1", GROUP, json!({"name": "h", "source_volume_ids": ["w", "x"]}))
        .ok("n1", DELETE_GROUP, json!({"group_snapshot_id": "i", "snapshot_ids": ["i-v"]}))
        .end(1, Came::Ok)
        .proves_nothing();
}
