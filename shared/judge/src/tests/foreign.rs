//! Drivers of which nothing is known but their answers.

use serde_json::json;

use super::log::*;

#[test]
fn a_foreign_driver_may_stage_without_a_mount() {
    let nothing = json!([{"path": "/s", "mounts": []}]);
    assert_eq!(staged().kernel(nothing.clone()).broken().len(), 1);
    assert_eq!(staged().kernel(nothing).foreign().broken(), []);
    let other_root = |root: &str| {
        let mounts = json!([{"device": "8:1", "root": root, "read_only": false}]);
        json!([{"path": "/s", "mounts": []}, {"path": "/t", "mounts": mounts}])
    };
    assert_eq!(published().kernel(other_root("/v")).foreign().broken(), []);
    // What is published must be mounted.
    let unmounted = json!([{"path": "/s", "mounts": []}, {"path": "/t", "mounts": []}]);
    assert_eq!(published().kernel(unmounted).foreign().broken().len(), 1);
}

#[test]
fn what_a_foreign_driver_had_in_use_is_not_forgotten_when_its_log_starts_again() {
    let restarted = || staged().start("n1", json!([]));
    let publish = |log: Log| log.ok("n1", PUBLISH, target("n1"));
    let rules = |log: Log| log.broken().into_iter().map(|(_, rule, _)| rule).collect::<Vec<_>>();
    // The driver also has this rule, so there is a disagreement as well.
    assert_eq!(rules(publish(restarted())), ["publish-before-stage"; 2]);
    assert_eq!(rules(publish(restarted().foreign())), [""; 0]);
}

/// The controller is behind another socket, and its calls are in another log.
#[test]
fn a_node_half_that_is_served_alone_needs_what_its_controller_attaches() {
    let alone = |log: Log| log.attaching(false).foreign();
    let rules = |log: Log| log.broken().into_iter().map(|(_, rule, _)| rule).collect::<Vec<_>>();
    let stage = |log: Log| log.ok("n2", STAGE, staging("n2"));
    assert_eq!(rules(alone(stage(Log::nodes()))), [""; 0], "nothing shows that it attaches");
    let refused = Log::nodes().call("n2", ATTACH, on("n2"), Came::Refused);
    assert_eq!(rules(alone(stage(refused))), [""; 0], "a driver may not know the call");
    // The driver also has this rule, so there is a disagreement as well.
    assert_eq!(rules(alone(stage(attached()))), ["node-call-before-attach"; 2]);
}
