//! What must never go wrong: each search checks safety rules 1 to 4, 7 and 8 in every state, and
//! that from every state the volume becomes free, and whoever still wants it gets it.

use berth_domain::access::AccessMode;
use berth_model::search::search;
use berth_model::{Attaches, Scenario};

use crate::{BASE, R1, W1, W2};

/// A search that saw all there is to see, and nothing wrong.
fn holds(scenario: Scenario) {
    let report = search(&scenario, 20_000_000);
    println!("{scenario}: {report}");
    if let Some(found) = report.found {
        panic!("{}", found.story);
    }
    assert!(report.complete, "{scenario} has more states than its search may look at");
}

/// How long searches are asked for: `BERTH_MODEL_DEEP=1` for minutes, `2` for a quarter of an hour.
fn deep() -> u8 {
    std::env::var("BERTH_MODEL_DEEP").ok().and_then(|deep| deep.parse().ok()).unwrap_or(0)
}

/// Safety 1, 2, 3, 4, 7 and 8 for a volume that one node may have.
#[test]
fn an_exclusive_volume_moves_between_nodes() {
    let allocs = &[W1, W2];
    holds(Scenario { name: "exclusive", allocs, ..BASE });
    holds(Scenario { name: "exclusive, in line", allocs, wait: true, ..BASE });
    holds(Scenario { name: "exclusive, journals lost", allocs, loses_journal: true, ..BASE });
    let attaches = Attaches::Never;
    holds(Scenario { name: "exclusive, no controller", allocs, attaches, ..BASE });
    let allocs = &[W1, W2, W1];
    holds(Scenario { name: "exclusive, three in line", allocs, wait: true, ..BASE });
}

/// Safety 3 and rule 9 on one node: the last one out detaches, and only the last one.
#[test]
fn two_allocs_share_a_node() {
    let base = Scenario { allocs: &[W1, W1], ..BASE };
    let access = AccessMode::SingleNodeMultiWriter;
    holds(Scenario { name: "one node, many writers", access, ..base.clone() });
    let access = AccessMode::MultiNodeMultiWriter;
    let attaches = Attaches::Never;
    holds(Scenario { name: "one node, no controller", access, attaches, ..base.clone() });
    // The plugin is upgraded while the volume is in use, and needs the controller, or no longer.
    let attaches = Attaches::Changes;
    holds(Scenario { name: "one node, changing plugin", access, attaches, ..base });
}

/// Rule 11 where the node knows less than the claims do.
#[test]
fn two_allocs_share_a_node_that_loses_its_journal() {
    let access = AccessMode::MultiNodeMultiWriter;
    let allocs = &[W1, W1];
    holds(Scenario {
        name: "one node, journals lost",
        access,
        allocs,
        loses_journal: true,
        ..BASE
    });
}

/// Safety 4 where two nodes hold the volume: no call of one gets in the way of the other's.
#[test]
fn two_nodes_share_a_volume() {
    let access = AccessMode::MultiNodeMultiWriter;
    holds(Scenario { name: "two nodes", access, allocs: &[W1, W2], ..BASE });
}

/// Safety 1 where many read and one writes.
#[test]
fn one_writes_and_others_read_or_wait() {
    let access = AccessMode::MultiNodeSingleWriter;
    let base = Scenario { access, wait: true, ..BASE };
    holds(Scenario { name: "two writers in line", allocs: &[W1, W2], ..base.clone() });
    let allocs = &[W1, W2, R1];
    let attempts = Some(if deep() > 0 { 4 } else { 3 });
    holds(Scenario { name: "two writers, one reader", allocs, attempts, ..base });
}

/// Safety 3 and rule 9 with a third alloc that comes while one leaves and another may have left.
#[test]
fn three_allocs_share_a_node() {
    let access = AccessMode::MultiNodeMultiWriter;
    let allocs = &[W1, W1, W1];
    let nodes_fail = deep() > 0;
    holds(Scenario { name: "three on one node", access, allocs, nodes_fail, ..BASE });
}

/// Safety 2 and 3 with two allocs on one node and another elsewhere.
#[test]
fn three_allocs_share_two_nodes() {
    let access = AccessMode::MultiNodeMultiWriter;
    let base = Scenario { access, allocs: &[W1, W1, W2], ..BASE };
    let attempts = Some(if deep() > 0 { 4 } else { 3 });
    holds(Scenario { name: "three on two nodes", attempts, ..base.clone() });
    if deep() > 0 {
        let nodes_fail = deep() > 1;
        holds(Scenario { name: "three on two nodes, all attempts", nodes_fail, ..base.clone() });
    }
    let access = AccessMode::SingleNodeMultiWriter;
    holds(Scenario { name: "one node at a time, in line", access, attempts, wait: true, ..base });
}
