//! Combined troubles: a second service while nodes fail or go, and calls that arrive more than
//! once.

use berth_domain::access::AccessMode;
use berth_model::{Attaches, Scenario, Trouble};

use crate::scenarios::{deep, holds};
use crate::{BASE, W1, W2};

const SHARED: AccessMode = AccessMode::MultiNodeMultiWriter;

/// The scenario with a limit on the calls that may be started. Deep searches have one more.
fn calling(calls: u8, scenario: Scenario) -> Scenario {
    let attempts = Some(if deep() > 0 { calls + 1 } else { calls });
    Scenario { attempts, ..scenario }
}

/// Rule 1 while agents crash and nodes reboot.
#[test]
fn a_lagging_service_is_safe_while_nodes_fail() {
    let base = Scenario { troubles: &[Trouble::SecondService], allocs: &[W1, W2], ..BASE };
    let named = Scenario { name: "two services, nodes fail", wait: true, ..base.clone() };
    holds(calling(3, named));
    let base = Scenario { access: SHARED, ..base };
    let named = Scenario { name: "two services, two nodes fail", ..base.clone() };
    holds(calling(2, named));
    let named = Scenario { name: "two services, one node fails", allocs: &[W1, W1], ..base };
    holds(calling(2, named));
}

/// Rules 1 and 12: the record that a service saw may be from before a node went, or from before it
/// returned.
#[test]
fn a_lagging_service_is_safe_while_nodes_go() {
    let troubles = &[Trouble::SecondService, Trouble::NodeGone];
    let base = Scenario { troubles, allocs: &[W1, W2], nodes_fail: false, ..BASE };
    holds(calling(3, Scenario { name: "two services, n1 goes", ..base.clone() }));
    let fails = Scenario { nodes_fail: true, ..base.clone() };
    holds(calling(2, Scenario { name: "two services, n1 fails and goes", ..fails }));
    let (access, allocs) = (SHARED, &[W1, W1]);
    let named = Scenario { name: "two services, one node goes", access, allocs, ..base };
    holds(Scenario { attempts: Some(1), ..named });
}

/// Rules 1 and 10 where the agent has lost the epochs that it was told to detach.
#[test]
fn a_lagging_service_is_safe_while_journals_are_lost() {
    let base = Scenario { troubles: &[Trouble::SecondService], loses_journal: true, ..BASE };
    let named = Scenario { name: "two services, journals lost", allocs: &[W1, W2], ..base };
    holds(calling(3, named));
}

/// Rule 4, safety 8: a late repetition of a call has no effect, or one that is undone.
#[test]
fn repeated_calls_do_no_harm() {
    let base = Scenario { troubles: &[Trouble::Repeated], allocs: &[W1, W2], ..BASE };
    holds(calling(4, Scenario { name: "calls repeated", ..base.clone() }));
    let losing = Scenario { loses_journal: true, ..base.clone() };
    holds(calling(3, Scenario { name: "calls repeated, journals lost", ..losing }));
    let without = Scenario { attaches: Attaches::Never, ..base.clone() };
    holds(calling(2, Scenario { name: "calls repeated, no controller", ..without }));
    let shared = Scenario { access: SHARED, ..base };
    holds(calling(2, Scenario { name: "calls repeated, two nodes", ..shared.clone() }));
    let shared = Scenario { allocs: &[W1, W1], nodes_fail: false, ..shared };
    holds(calling(3, Scenario { name: "calls repeated, one node", ..shared }));
}

/// Rules 12 and 16: a proof or a confirmation replaces an answer, while each call is repeated.
#[test]
fn repeated_calls_do_no_harm_with_proofs() {
    let base = Scenario { allocs: &[W1, W2], nodes_fail: false, ..BASE };
    let troubles = &[Trouble::Repeated, Trouble::NodeGone];
    holds(calling(2, Scenario { name: "calls repeated, n1 goes", troubles, ..base.clone() }));
    let troubles = &[Trouble::Repeated, Trouble::Confirmed];
    holds(calling(3, Scenario { name: "calls repeated, confirmed", troubles, ..base }));
}
