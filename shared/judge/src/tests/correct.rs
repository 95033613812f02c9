//! Hand-written logs that break no rule, each close to one that does.

use serde_json::json;

use super::log::*;
use Came::{Failed, Killed, Lied, Lost, Refused, Unknown};

#[test]
fn a_whole_life_on_two_nodes() {
    published()
        .ok("n1", UNPUBLISH, target("n1"))
        .ok("n1", UNSTAGE, staging("n1"))
        .ok("n2", DETACH, on("n1"))
        .ok("n2", ATTACH, on("n2"))
        .ok("n2", STAGE, staging("n2"))
        .ok("n2", UNSTAGE, staging("n2"))
        .ok("n1", DETACH, v())
        .ok("n1", DELETE, v())
        .proves_nothing();
}

#[test]
fn what_changed_nothing_holds_nothing() {
    Log::nodes().call("n1", ATTACH, on("n1"), Refused).ok("n2", ATTACH, on("n2")).proves_nothing();
    staged()
        .call("n1", PUBLISH, target("n1"), Refused)
        .ok("n1", UNSTAGE, staging("n1"))
        .proves_nothing();
}

#[test]
fn what_is_uncertain_is_repeated_until_it_is_known() {
    for came in [Lied, Lost, Failed] {
        Log::nodes()
            .call("n1", ATTACH, on("n1"), came)
            .ok("n1", ATTACH, on("n1"))
            .call("n1", STAGE, staging("n1"), came)
            .ok("n1", STAGE, staging("n1"))
            .call("n1", PUBLISH, target("n1"), came)
            .ok("n1", PUBLISH, target("n1"))
            .call("n1", UNPUBLISH, target("n1"), came)
            .ok("n1", UNPUBLISH, target("n1"))
            .call("n1", UNSTAGE, staging("n1"), came)
            .ok("n1", UNSTAGE, staging("n1"))
            .call("n1", DETACH, on("n1"), came)
            .ok("n1", DETACH, on("n1"))
            .ok("n2", ATTACH, on("n2"))
            .proves_nothing();
    }
}

#[test]
fn what_a_node_has_undone_and_then_does_not_know_is_not_mounted() {
    published()
        .call("n1", UNPUBLISH, target("n1"), Unknown)
        .call("n1", UNSTAGE, staging("n1"), Unknown)
        .ok("n1", DETACH, on("n1"))
        .ok("n2", ATTACH, on("n2"))
        .proves_nothing();
}

#[test]
fn what_was_killed_is_cancelled_by_its_negation() {
    attached()
        .call("n1", STAGE, staging("n1"), Killed)
        .start("n1'", json!([{"volume_id": "v", "staging": "/s"}]))
        .ok("n1'", UNSTAGE, staging("n1"))
        .ok("n2", DETACH, on("n1"))
        .ok("n2", ATTACH, on("n2"))
        .proves_nothing();
}

#[test]
fn after_a_reboot_nothing_is_there() {
    published().start("n1'", json!([])).ok("n2", DETACH, on("n1")).proves_nothing();
}

#[test]
fn a_fenced_node_loses_its_volumes_and_undoes_what_it_has_before_it_gets_others() {
    published()
        .fence("n1", true)
        .ok("n2", DETACH, on("n1"))
        .ok("n2", ATTACH, on("n2"))
        .ok("n2", STAGE, staging("n2"))
        .fence("n1", false)
        .ok("n1", UNPUBLISH, target("n1"))
        .ok("n1", UNSTAGE, staging("n1"))
        .ok("n2", UNSTAGE, staging("n2"))
        .ok("n2", DETACH, on("n2"))
        .ok("n1", ATTACH, on("n1"))
        .ok("n1", STAGE, staging("n1"))
        .proves_nothing();
    // Its calls have no effect, however long they run.
    staged()
        .begin("n1", PUBLISH, target("n1"))
        .fence("n1", true)
        .ok("n2", DETACH, on("n1"))
        .proves_nothing();
    // Its agent may not know of the fence yet.
    staged()
        .fence("n1", true)
        .ok("n2", DETACH, on("n1"))
        .begin("n1", PUBLISH, target("n1"))
        .proves_nothing();
}

#[test]
fn a_volume_is_deleted_although_a_fenced_node_had_it_mounted() {
    let published = || published().fence("n1", true).ok("n2", DETACH, on("n1"));
    published().ok("n2", DELETE, v()).proves_nothing();
    // The deletion may come while the node undoes its mounts, and the kernel still has them.
    let deleted = ["/s", "/t"].map(|path| {
        json!({"path": path, "mounts": [
            {"device": "8:1", "root": "/backend/v/data//deleted", "read_only": false},
        ]})
    });
    published().ok("n2", DELETE, v()).kernel(json!(deleted)).proves_nothing();
}

#[test]
fn a_driver_that_comes_back_finds_what_is_there() {
    published()
        .start("n1'", json!([{"volume_id": "v", "staging": "/s", "targets": ["/t"]}]))
        .ok("n1'", UNPUBLISH, target("n1"))
        .ok("n1'", UNSTAGE, staging("n1"))
        .ok("n1'", DETACH, on("n1"))
        .proves_nothing();
}

#[test]
fn shared_volumes_may_be_on_many_nodes() {
    let many = |node: &str| with(on(node), mode("MULTI_NODE_MULTI_WRITER"));
    Log::nodes().ok("n1", ATTACH, many("n1")).ok("n2", ATTACH, many("n2")).proves_nothing();
    let on_node = |node: &str| with(on(node), mode("MULTI_NODE_SINGLE_WRITER"));
    let reader = with(on_node("n2"), json!({"readonly": true}));
    Log::nodes().ok("n1", ATTACH, on_node("n1")).ok("n2", ATTACH, reader).proves_nothing();
}

#[test]
fn a_call_whose_caller_left_may_be_followed_by_another() {
    attached()
        .begin("n1", STAGE, staging("n1"))
        .gone(5)
        .call("n1", STAGE, staging("n1"), Refused)
        .end(5, Came::Ok)
        .proves_nothing();
}

#[test]
fn a_process_that_shows_no_more_sign_of_life_may_have_been_killed() {
    Log::nodes().begin("n1", ATTACH, on("n1")).ok("n2", ATTACH, on("n1")).proves_nothing();
}

#[test]
fn calls_on_different_nodes_and_volumes_may_overlap() {
    let many = |args| with(args, mode("MULTI_NODE_MULTI_WRITER"));
    Log::nodes()
        .ok("n1", ATTACH, many(on("n1")))
        .ok("n1", ATTACH, many(on("n2")))
        .begin("n1", STAGE, many(staging("n1")))
        .ok("n2", STAGE, many(staging("n2")))
        .ok("n1", ATTACH, with(on("n1"), json!({"volume_id": "w"})))
        .end(7, Came::Ok)
        .proves_nothing();
}

#[test]
fn a_name_is_free_again_after_its_volume_is_deleted() {
    let size = |bytes: u64| json!({"name": "v", "capacity_range": {"required_bytes": bytes}});
    Log::default()
        .ok("n1", CREATE, size(1))
        .ok("n1", CREATE, size(1))
        .ok("n1", DELETE, v())
        .ok("n1", DELETE, v())
        .ok("n1", CREATE, size(2))
        .ok("n1", ATTACH, on("n1"))
        .proves_nothing();
    // A refused creation took no name.
    Log::default().call("n1", CREATE, size(1), Refused).ok("n1", CREATE, size(2)).proves_nothing();
}

#[test]
fn a_volume_is_expanded_by_the_controller_then_on_the_node() {
    staged().ok("n1", EXPAND, v()).ok("n1", NODE_EXPAND, v()).proves_nothing();
    // The plugin may have only the node's call.
    staged().ok("n1", NODE_EXPAND, v()).proves_nothing();
}

#[test]
fn a_log_may_begin_in_the_midst_of_things() {
    let whole = published().ok("n1", UNPUBLISH, target("n1")).text();
    let tail: Vec<&str> = whole.lines().skip(5).collect();
    assert_eq!(judged(&(tail.join("\n") + "\n")), []);
}
