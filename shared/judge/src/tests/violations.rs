//! One hand-written log for each way to break a rule: found once, with the lines that prove it.

use std::collections::BTreeSet;

use serde_json::json;

use super::log::*;
use crate::Rule;
use Came::{Failed, Killed, Lied, Lost, Noticed, Refused, Unknown};

/// The broken rule, a log, and the lines that prove it.
pub type Case = (&'static str, Log, Vec<usize>);

fn order() -> Vec<Case> {
    let n1 = || attached().ok("n1", DETACH, on("n1"));
    let elsewhere = |rule| Noticed(rule);
    vec![
        (
            "exclusive-attach",
            attached().call("n2", ATTACH, on("n2"), elsewhere("exclusive-attach")),
            vec![5, 6, 3, 4],
        ),
        // A call that failed half-way, or was killed, may have had its effect.
        (
            "exclusive-attach",
            Log::nodes().call("n1", ATTACH, on("n1"), Failed).call(
                "n2",
                ATTACH,
                on("n2"),
                elsewhere("exclusive-attach"),
            ),
            vec![5, 6, 3, 4],
        ),
        (
            "exclusive-attach",
            Log::nodes().begin("n1", ATTACH, on("n1")).start("n1'", json!([])).call(
                "n2",
                ATTACH,
                on("n2"),
                elsewhere("exclusive-attach"),
            ),
            vec![5, 6, 3],
        ),
        (
            "detach-before-unstage",
            staged().call("n2", DETACH, on("n1"), elsewhere("detach-before-unstage")),
            vec![7, 8, 5, 6],
        ),
        // Detached from all nodes at once.
        (
            "detach-before-unstage",
            staged().call("n2", DETACH, v(), elsewhere("detach-before-unstage")),
            vec![7, 8, 5, 6],
        ),
        // A killed stage may exist, even if an instance started since and found it.
        (
            "detach-before-unstage",
            attached()
                .call("n1", STAGE, staging("n1"), Killed)
                .start("n1'", json!([{"volume_id": "v", "staging": "/s"}]))
                .call("n2", DETACH, on("n1"), elsewhere("detach-before-unstage")),
            vec![7, 8, 5],
        ),
        (
            "unstage-before-unpublish",
            published().call("n1", UNSTAGE, staging("n1"), elsewhere("unstage-before-unpublish")),
            vec![9, 10, 7, 8],
        ),
        (
            "publish-before-stage",
            attached().call("n1", PUBLISH, target("n1"), elsewhere("publish-before-stage")),
            vec![5, 6],
        ),
        // If an instance started and found nothing, nothing is staged on its node.
        (
            "publish-before-stage",
            staged().start("n1'", json!([])).call(
                "n1'",
                PUBLISH,
                target("n1"),
                elsewhere("publish-before-stage"),
            ),
            vec![8, 9],
        ),
        (
            "publish-after-uncertain-stage",
            attached().call("n1", STAGE, staging("n1"), Lied).ok("n1", PUBLISH, target("n1")),
            vec![7, 8, 5, 6],
        ),
        (
            "second-staging-path",
            staged().call(
                "n1",
                STAGE,
                with(staging("n1"), json!({"staging_target_path": "/other"})),
                elsewhere("second-staging-path"),
            ),
            vec![7, 8, 5, 6],
        ),
        (
            "node-call-before-attach",
            n1().call("n1", STAGE, staging("n1"), elsewhere("node-call-before-attach")),
            vec![7, 8],
        ),
        (
            "node-call-after-uncertain-attach",
            Log::nodes().call("n1", ATTACH, on("n1"), Lost).ok("n1", STAGE, staging("n1")),
            vec![5, 6, 3, 4],
        ),
        // A detach that failed half-way leaves the attachment in doubt.
        (
            "node-call-after-uncertain-attach",
            attached().call("n1", DETACH, on("n1"), Failed).ok("n1", STAGE, staging("n1")),
            vec![7, 8, 3, 4, 5, 6],
        ),
        (
            "unconfirmed-undo",
            attached().call("n1", DETACH, on("n1"), Lost).ok("n2", ATTACH, on("n2")),
            vec![7, 8, 3, 4, 5, 6],
        ),
        // No node can check this: the volume may still be attached.
        (
            "unconfirmed-undo",
            attached().call("n1", DETACH, on("n1"), Unknown).ok("n2", ATTACH, on("n2")),
            vec![7, 8, 3, 4, 5, 6],
        ),
        (
            "unconfirmed-undo",
            published().call("n1", UNPUBLISH, target("n1"), Lied).ok("n1", UNSTAGE, staging("n1")),
            vec![11, 12, 7, 8, 9, 10],
        ),
    ]
}

fn sharing() -> Vec<Case> {
    let shared = |node: &str| with(on(node), mode("MULTI_NODE_SINGLE_WRITER"));
    let with_mode = |args| with(args, mode("MULTI_NODE_SINGLE_WRITER"));
    let read_only_attached =
        || Log::nodes().ok("n1", ATTACH, with(shared("n1"), json!({"readonly": true})));
    let nothing = || json!({"publish_context": {}});
    let free = |path: &str| {
        let paths = json!({"staging_target_path": "", "target_path": path});
        with(with(target("n1"), nothing()), paths)
    };
    // Without a start, neither attaching nor staging is required.
    let used = || Log::default().ok("n1", PUBLISH, free("/t"));
    vec![
        (
            "second-writer",
            Log::nodes().ok("n1", ATTACH, shared("n1")).call(
                "n2",
                ATTACH,
                shared("n2"),
                Noticed("second-writer"),
            ),
            vec![5, 6, 3, 4],
        ),
        (
            "exclusive-use",
            used().call("n2", PUBLISH, free("/t"), Noticed("exclusive-use")),
            vec![3, 4, 1, 2],
        ),
        (
            "second-writer",
            Log::default().ok("n1", PUBLISH, with_mode(free("/t"))).call(
                "n2",
                PUBLISH,
                with_mode(free("/t")),
                Noticed("second-writer"),
            ),
            vec![3, 4, 1, 2],
        ),
        ("second-target", used().call("n1", PUBLISH, free("/u"), Refused), vec![3, 4, 1, 2]),
        (
            "readonly-mismatch",
            read_only_attached().ok("n1", STAGE, with_mode(staging("n1"))).ok(
                "n1",
                PUBLISH,
                with_mode(target("n1")),
            ),
            vec![7, 8, 3, 4],
        ),
        (
            "path-of-another-volume",
            used().call("n1", PUBLISH, with(free("/t"), json!({"volume_id": "w"})), Refused),
            vec![3, 4, 1, 2],
        ),
    ]
}

fn arguments() -> Vec<Case> {
    let otherwise = || mode("SINGLE_NODE_MULTI_WRITER");
    let stale = || json!({"publish_context": {"device": "n0"}});
    let name = || json!({"name": "v", "capacity_range": {"required_bytes": 1}});
    let bigger = || json!({"name": "v", "capacity_range": {"required_bytes": 2}});
    let snapshot = |of: &str| json!({"name": "s", "source_volume_id": of});
    vec![
        (
            "stale-publish-context",
            attached().call("n1", STAGE, with(staging("n1"), stale()), Refused),
            vec![5, 6, 3, 4],
        ),
        (
            "stale-publish-context",
            staged().call("n1", PUBLISH, with(target("n1"), stale()), Refused),
            vec![7, 8, 3, 4],
        ),
        (
            "other-capability",
            staged().ok("n1", PUBLISH, with(target("n1"), otherwise())),
            vec![7, 8, 5, 6],
        ),
        (
            "changed-in-place",
            attached().call("n1", ATTACH, with(on("n1"), json!({"readonly": true})), Refused),
            vec![5, 6, 3, 4],
        ),
        (
            "changed-in-place",
            published().call("n1", PUBLISH, with(target("n1"), json!({"readonly": true})), Refused),
            vec![9, 10, 7, 8],
        ),
        (
            "retry-changed",
            Log::nodes().call("n1", ATTACH, on("n1"), Failed).call(
                "n1",
                ATTACH,
                with(on("n1"), otherwise()),
                Refused,
            ),
            vec![5, 6, 3, 4],
        ),
        (
            "retry-changed",
            Log::default().call("n1", CREATE, name(), Failed).ok("n1", CREATE, bigger()),
            vec![3, 4, 1, 2],
        ),
        (
            "create-conflict",
            Log::default().ok("n1", CREATE, name()).call("n1", CREATE, bigger(), Refused),
            vec![3, 4, 1, 2],
        ),
        (
            "create-conflict",
            Log::default().ok("n1", SNAPSHOT, snapshot("v")).call(
                "n1",
                SNAPSHOT,
                snapshot("w"),
                Refused,
            ),
            vec![3, 4, 1, 2],
        ),
    ]
}

fn objects() -> Vec<Case> {
    let create = || json!({"name": "v"});
    let clone = |kind: &str, id: &str| {
        let source = json!({"type": {kind: {format!("{kind}_id"): id}}});
        json!({"name": "w", "volume_content_source": source})
    };
    let snapshot = || json!({"name": "s", "source_volume_id": "v"});
    let gone = || json!({"snapshot_id": "s"});
    let grown = || Log::nodes().ok("n1", ATTACH, on("n1")).ok("n1", STAGE, staging("n1"));
    vec![
        ("delete-in-use", attached().call("n1", DELETE, v(), Refused), vec![5, 6, 3, 4]),
        (
            "unconfirmed-undo",
            attached().call("n1", DETACH, on("n1"), Lied).ok("n1", DELETE, v()),
            vec![7, 8, 3, 4, 5, 6],
        ),
        (
            "use-after-delete",
            Log::default().ok("n1", CREATE, create()).ok("n1", DELETE, v()).call(
                "n1",
                ATTACH,
                on("n1"),
                Refused,
            ),
            vec![5, 6, 3, 4],
        ),
        (
            "use-after-delete",
            Log::default().ok("n1", SNAPSHOT, snapshot()).ok("n1", DELETE_SNAPSHOT, gone()).call(
                "n1",
                CREATE,
                clone("snapshot", "s"),
                Refused,
            ),
            vec![5, 6, 3, 4],
        ),
        (
            "use-after-delete",
            Log::default().ok("n1", DELETE, v()).call("n1", SNAPSHOT, snapshot(), Refused),
            vec![3, 4, 1, 2],
        ),
        (
            "delete-of-source",
            Log::default()
                .begin("n1", CREATE, clone("snapshot", "s"))
                .ok("n2", DELETE_SNAPSHOT, gone())
                .end(1, Came::Ok),
            vec![2, 3, 1, 4],
        ),
        (
            "delete-of-source",
            Log::default()
                .begin("n1", CREATE, clone("volume", "v"))
                .ok("n1", DELETE, v())
                .end(1, Came::Ok),
            vec![2, 3, 1, 4],
        ),
        (
            "node-expand-before-controller",
            grown().call("n1", EXPAND, v(), Failed).ok("n1", NODE_EXPAND, v()),
            vec![9, 10, 7, 8],
        ),
        (
            "node-expand-before-use",
            attached().ok("n1", EXPAND, v()).call("n1", NODE_EXPAND, v(), Refused),
            vec![7, 8],
        ),
    ]
}

fn overlaps() -> Vec<Case> {
    let controller = Noticed("overlapping-controller-calls");
    let node = Noticed("overlapping-node-calls");
    vec![
        (
            "overlapping-controller-calls",
            Log::nodes()
                .begin("n1", ATTACH, on("n1"))
                .call("n2", ATTACH, on("n1"), controller)
                .end(3, Came::Ok),
            vec![4, 5, 3, 6],
        ),
        (
            "overlapping-node-calls",
            attached()
                .begin("n1", STAGE, staging("n1"))
                .call("n1", STAGE, staging("n1"), node)
                .end(5, Came::Ok),
            vec![6, 7, 5, 8],
        ),
        // The caller left only after the next call had begun.
        (
            "overlapping-node-calls",
            attached()
                .begin("n1", STAGE, staging("n1"))
                .call("n1", STAGE, staging("n1"), node)
                .gone(5)
                .end(5, Came::Ok),
            vec![6, 7, 5, 8, 9],
        ),
        // The call hangs, while its process answers others.
        (
            "overlapping-node-calls",
            attached().begin("n1", STAGE, staging("n1")).call("n1", STAGE, staging("n1"), node),
            vec![6, 7, 5],
        ),
        // Volumes and snapshots without an id are identified by their name.
        (
            "overlapping-controller-calls",
            Log::default()
                .begin("n1", CREATE, json!({"name": "v"}))
                .ok("n2", CREATE, json!({"name": "v"}))
                .end(1, Came::Ok),
            vec![2, 3, 1, 4],
        ),
        (
            "overlapping-controller-calls",
            Log::default()
                .begin("n1", DELETE_SNAPSHOT, json!({"snapshot_id": "s"}))
                .ok("n1", DELETE_SNAPSHOT, json!({"snapshot_id": "s"}))
                .end(1, Came::Ok),
            vec![2, 3, 1, 4],
        ),
        // The volume is not in use there, but a call on the node is in flight.
        (
            "detach-before-unstage",
            attached()
                .begin("n1", UNPUBLISH, target("n1"))
                .call("n2", DETACH, on("n1"), Noticed("detach-before-unstage"))
                .end(5, Came::Ok),
            vec![6, 7, 5, 8],
        ),
    ]
}

/// Calls that a driver carries out if it only looks at the path, or checks nothing.
fn carried_out() -> Vec<Case> {
    vec![
        // A lenient driver only looks at the path.
        (
            "undo-of-another-volume",
            published()
                .ok("n1", UNPUBLISH, with(target("n1"), json!({"volume_id": "w"})))
                .lenient(),
            vec![9, 10, 7, 8],
        ),
        // The judge knows of no use, but the kernel does.
        (
            "destroyed-while-mounted",
            Log::default().ok("n1", DELETE, v()).kernel(json!([{"path": "/t", "mounts": [
                {"device": "8:1", "root": "/backend/v/data//deleted", "read_only": false},
            ]}])),
            vec![1, 2],
        ),
    ]
}

fn fences() -> Vec<Case> {
    let other_volume = |args| with(args, json!({"volume_id": "w"}));
    vec![
        // A mount from before the fence remains, whatever happened to its attachment.
        (
            "stale-use",
            published()
                .fence("n1", true)
                .ok("n2", DETACH, on("n1"))
                .fence("n1", false)
                .ok("n2", ATTACH, other_volume(on("n1")))
                .begin(
                    "n1",
                    STAGE,
                    other_volume(with(staging("n1"), json!({"staging_target_path": "/w"}))),
                ),
            vec![15, 5, 6],
        ),
    ]
}

fn all() -> Vec<Case> {
    [
        fences(),
        carried_out(),
        order(),
        sharing(),
        arguments(),
        objects(),
        overlaps(),
        super::storage::all(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[test]
fn each_violation_is_caught_once_and_proven() {
    for (rule, log, proof) in all() {
        log.proves(rule, &proof);
    }
}

#[test]
fn each_rule_is_tried() {
    let of_the_co = all();
    let of_the_driver = super::kernel::all();
    let tried = of_the_co.iter().map(|(rule, ..)| *rule);
    let tried: BTreeSet<&str> = tried.chain(of_the_driver.iter().map(|(rule, _)| *rule)).collect();
    let rules: BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
    assert_eq!(tried, rules);
}
