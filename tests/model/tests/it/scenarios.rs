//! What must never go wrong. Each search checks safety rules 1 to 4, 7 and 8 in every state. From
//! every state the volume becomes free, and an alloc that still wants it gets it.

use berth_domain::access::AccessMode;
use berth_model::search::search;
use berth_model::{Attaches, Scenario, Trouble};

use crate::{BASE, R1, W1, W2};

/// Checks that a search sees all states, and finds no breach.
pub fn holds(scenario: Scenario) {
    let report = search(&scenario, if deep() > 0 { 20_000_000 } else { 1_000_000 });
    println!("{scenario}: {report}");
    if let Some(found) = report.found {
        panic!("{}", found.story);
    }
    assert!(report.complete, "{scenario} has more states than its search may look at");
}

/// How long searches may take, from `BERTH_MODEL_DEEP`: `1` for minutes, `2` for a quarter of an
/// hour.
pub fn deep() -> u8 {
    std::env::var("BERTH_MODEL_DEEP").ok().and_then(|deep| deep.parse().ok()).unwrap_or(0)
}

/// Safety 1, 2, 3, 4, 7 and 8 for a volume that only one node may have.
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

/// Safety 3 and rule 9 on one node: the last claim to leave detaches, and no other.
#[test]
fn two_allocs_share_a_node() {
    let base = Scenario { allocs: &[W1, W1], ..BASE };
    let access = AccessMode::SingleNodeMultiWriter;
    holds(Scenario { name: "one node, many writers", access, ..base.clone() });
    let access = AccessMode::MultiNodeMultiWriter;
    let attaches = Attaches::Never;
    holds(Scenario { name: "one node, no controller", access, attaches, ..base.clone() });
    // The plugin is upgraded while the volume is in use, and starts or stops needing the
    // controller.
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

/// Safety 4 where two nodes hold the volume: the calls of one do not delay those of the other.
#[test]
fn two_nodes_share_a_volume() {
    let access = AccessMode::MultiNodeMultiWriter;
    holds(Scenario { name: "two nodes", access, allocs: &[W1, W2], ..BASE });
}

/// Safety 1 where many allocs read and one writes.
#[test]
fn one_writes_and_others_read_or_wait() {
    let access = AccessMode::MultiNodeSingleWriter;
    let base = Scenario { access, wait: true, ..BASE };
    holds(Scenario { name: "two writers in line", allocs: &[W1, W2], ..base.clone() });
    let allocs = &[W1, W2, R1];
    let attempts = Some(if deep() > 0 { 4 } else { 3 });
    holds(Scenario { name: "two writers, one reader", allocs, attempts, ..base });
}

/// Safety 3 and rule 9 with a third alloc that arrives while one leaves and another may have left.
#[test]
fn three_allocs_share_a_node() {
    let access = AccessMode::MultiNodeMultiWriter;
    let allocs = &[W1, W1, W1];
    let nodes_fail = deep() > 0;
    let attempts = if deep() > 0 { None } else { Some(4) };
    holds(Scenario { name: "three on one node", access, allocs, nodes_fail, attempts, ..BASE });
}

/// Safety 2 and 3 with two allocs on one node and a third on another node.
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

/// Rule 12: nodes go, are declared gone, and return, while the oldest possible proofs are used. In
/// good weather a node that no alloc wants never returns.
#[test]
fn nodes_go_and_come_back() {
    let troubles = &[Trouble::NodeGone];
    let attempts = |few: u8| Some(if deep() > 0 { few + 1 } else { few });
    let base = Scenario { troubles, nodes_fail: false, attempts: attempts(4), ..BASE };
    let allocs = &[W1, W2];
    holds(Scenario { name: "exclusive, n1 goes", allocs, ..base.clone() });
    let base = Scenario { attempts: attempts(3), ..base };
    let attaches = Attaches::Never;
    holds(Scenario { name: "exclusive, no controller, n1 goes", allocs, attaches, ..base.clone() });
    holds(Scenario { name: "n1 fails and goes", allocs, nodes_fail: true, ..base.clone() });
    let troubles = &[Trouble::NodeGone, Trouble::OtherNodeGone];
    let base = Scenario { attempts: attempts(2), ..base };
    holds(Scenario { name: "both nodes go", allocs, troubles, ..base.clone() });
    let access = AccessMode::MultiNodeMultiWriter;
    let allocs = &[W1, W1];
    holds(Scenario { name: "one node that goes", access, allocs, ..base });
}

/// Rules 8 and 9 where the plugin has one id for both nodes: one alloc gets a claim, and the other
/// has to wait. Also where an older version admitted both.
#[test]
fn two_nodes_share_an_id() {
    let access = AccessMode::MultiNodeMultiWriter;
    let base = Scenario { access, allocs: &[W1, W2], wait: true, ..BASE };
    let troubles = &[Trouble::SharedId];
    holds(Scenario { name: "two nodes, one id", troubles, ..base.clone() });
    let troubles = &[Trouble::SharedId, Trouble::OlderService];
    holds(Scenario { name: "two nodes, one id, both admitted", troubles, ..base.clone() });
    let troubles = &[Trouble::SharedId, Trouble::OlderService, Trouble::NodeGone];
    let (attempts, nodes_fail) = (Some(3), false);
    let base = Scenario { attempts, nodes_fail, ..base };
    holds(Scenario { name: "two nodes, one id, n1 goes", troubles, ..base.clone() });
    let (troubles, allocs) = (&[Trouble::SharedId, Trouble::OlderService], &[W1, W1, W2]);
    holds(Scenario { name: "three on two nodes, one id", troubles, allocs, ..base });
}

/// Rule 16: a person says what the controller cannot say, as soon as it is true. A call under way
/// then makes it untrue.
#[test]
fn a_person_answers_for_the_controller() {
    let base = Scenario { troubles: &[Trouble::Confirmed], nodes_fail: false, ..BASE };
    holds(Scenario { name: "exclusive, confirmed", allocs: &[W1, W2], ..base.clone() });
    let access = AccessMode::MultiNodeMultiWriter;
    holds(Scenario { name: "one node, confirmed", access, allocs: &[W1, W1], ..base });
}

/// Rule 18: a person says, truly or not, that nothing is left on a node, and the agent checks.
#[test]
fn a_person_answers_for_a_nodes_plugin() {
    let base = Scenario { troubles: &[Trouble::Unstaged], ..BASE };
    holds(Scenario { name: "exclusive, unstaged by word", allocs: &[W1, W2], ..base.clone() });
    let access = AccessMode::MultiNodeMultiWriter;
    holds(Scenario { name: "one node, unstaged by word", access, allocs: &[W1, W1], ..base });
}

/// Rule 1: a decision on an older record is not written, and one without a write does no harm.
#[test]
fn a_second_service_is_behind() {
    let troubles = &[Trouble::SecondService];
    let base = Scenario { troubles, nodes_fail: false, ..BASE };
    let attempts = Some(if deep() > 0 { 3 } else { 2 });
    let allocs = &[W1, W2];
    holds(Scenario {
        name: "exclusive, two services",
        allocs,
        wait: true,
        attempts,
        ..base.clone()
    });
    let access = AccessMode::MultiNodeMultiWriter;
    let allocs = &[W1, W1];
    holds(Scenario { name: "one node, two services", access, allocs, attempts, ..base });
}

/// Rule 15: the spec is another key under the same guard.
#[test]
fn a_volume_is_updated_and_deregistered() {
    let troubles = &[Trouble::Deregistered];
    let base = Scenario { troubles, ..BASE };
    let allocs = &[W1, W2];
    holds(Scenario { name: "exclusive, deregistered", allocs, wait: true, ..base.clone() });
    let troubles = &[Trouble::Deregistered, Trouble::SecondService];
    let (attempts, nodes_fail) = (Some(2), false);
    let base = Scenario { troubles, attempts, nodes_fail, ..base };
    holds(Scenario { name: "deregistered by either of two", allocs, ..base });
}

/// Rule 12 where the journal is lost with the node, or after its return.
#[test]
fn nodes_go_and_come_back_without_their_journals() {
    let troubles = &[Trouble::NodeGone];
    let base = Scenario { troubles, nodes_fail: false, loses_journal: true, ..BASE };
    let (allocs, attempts) = (&[W1, W2], Some(if deep() > 0 { 4 } else { 3 }));
    holds(Scenario { name: "exclusive, n1 and its journal go", allocs, attempts, ..base.clone() });
    let (allocs, attempts) = (&[W1, W1], Some(2));
    let access = AccessMode::MultiNodeMultiWriter;
    holds(Scenario { name: "one node and its journal go", access, allocs, attempts, ..base });
}

/// Rules 3 and 4 where no executor knows which call the other works on, and the plugin does.
#[test]
fn controllers_do_not_see_each_others_locks() {
    let troubles = &[Trouble::SecondController];
    let base = Scenario { troubles, ..BASE };
    let allocs = &[W1, W2];
    holds(Scenario { name: "exclusive, two controllers", allocs, ..base.clone() });
    let access = AccessMode::MultiNodeMultiWriter;
    let base = Scenario { access, nodes_fail: false, ..base };
    holds(Scenario { name: "two nodes, two controllers", allocs, ..base.clone() });
    let allocs = &[W1, W1];
    holds(Scenario { name: "one node, two controllers", allocs, ..base });
    let troubles = &[Trouble::SecondController, Trouble::ThirdController];
    let base = Scenario { troubles, ..BASE };
    holds(Scenario { name: "exclusive, three controllers", allocs: &[W1, W2], ..base });
}

/// Safety 4 where each node has its own controller, and the plugin does not keep two calls apart:
/// the caller asks the other executors before a call (decision 0011).
#[test]
fn controllers_are_asked_what_they_are_at() {
    let base = Scenario { troubles: &[Trouble::OwnControllers], ..BASE };
    let allocs = &[W1, W2];
    holds(Scenario { name: "exclusive, a controller each", allocs, ..base.clone() });
    let access = AccessMode::MultiNodeMultiWriter;
    let base = Scenario { access, nodes_fail: false, ..base };
    holds(Scenario { name: "two nodes, a controller each", allocs, ..base.clone() });
    let access = AccessMode::MultiNodeSingleWriter;
    holds(Scenario {
        name: "a reader and a writer in line, a controller each",
        access,
        allocs: &[R1, W2],
        wait: true,
        ..base.clone()
    });
    let troubles = &[Trouble::OwnControllers, Trouble::SecondService];
    let name = "two services, a controller each";
    let attempts = Some(if deep() > 0 { 3 } else { 2 });
    holds(Scenario { name, troubles, allocs, attempts, ..base });
}

/// Claims that need the plugin wait for it, and everything else comes to rest.
#[test]
fn a_plugin_is_lost_for_good() {
    let base = Scenario { wait: true, ..BASE };
    for troubles in [&[Trouble::ControllerLost], &[Trouble::NodePluginLost]] {
        let base = Scenario { troubles, ..base.clone() };
        holds(Scenario { name: "exclusive, plugin lost", allocs: &[W1, W2], ..base.clone() });
        let (access, attempts) = (AccessMode::MultiNodeMultiWriter, Some(3));
        let base = Scenario { access, attempts, nodes_fail: false, ..base };
        holds(Scenario { name: "two nodes, plugin lost", allocs: &[W1, W2], ..base.clone() });
        holds(Scenario { name: "one node, plugin lost", allocs: &[W1, W1], ..base });
    }
}

/// A7: a claim that finds no room delays others, but not for ever.
#[test]
fn a_plugin_is_full() {
    let base = Scenario { troubles: &[Trouble::NoRoom], wait: true, ..BASE };
    let access = AccessMode::MultiNodeMultiWriter;
    holds(Scenario { name: "two nodes, no room", access, allocs: &[W1, W2], ..base.clone() });
    let (allocs, attempts) = (&[W1, W1, W2], Some(if deep() > 0 { 3 } else { 2 }));
    holds(Scenario { name: "three on two nodes, no room", access, allocs, attempts, ..base });
}
