//! What the search would see: each rule of the protocol, taken away, is missed within seconds, and
//! the way to the damage is short enough for a person to follow (`-- --nocapture` shows it).

use berth_domain::access::AccessMode;
use berth_model::search::search;
use berth_model::{Mutation, Scenario};

use crate::{BASE, W1, W2};

/// The longest story that a person is asked to follow.
const STEPS_MAX: usize = 20;

/// The search finds out that the rule is missing, and says so in these words.
fn is_missed(scenario: Scenario, mutation: Mutation, breach: &str) {
    let scenario = scenario.without(mutation);
    let report = search(&scenario, 300_000);
    println!("{scenario}: {report}");
    let found = report.found.unwrap_or_else(|| panic!("{scenario}: nothing was found"));
    println!("{}", found.story);
    assert!(found.breach.to_string().contains(breach), "{}", found.story);
    assert!(found.steps <= STEPS_MAX, "{} steps: {}", found.steps, found.story);
}

const EXCLUSIVE: Scenario = Scenario { name: "exclusive", allocs: &[W1, W2], ..BASE };
const SHARED: Scenario = Scenario {
    name: "one node",
    access: AccessMode::MultiNodeMultiWriter,
    allocs: &[W1, W1],
    ..BASE
};

/// Safety 8: a command that arrives after its deadline.
#[test]
fn executors_that_ignore_deadlines() {
    is_missed(EXCLUSIVE, Mutation::NoDeadline, "attached where nobody claims it");
}

/// Safety 8: a call that negates another, sent while that may still begin.
#[test]
fn attempts_that_wait_for_no_margin() {
    is_missed(EXCLUSIVE, Mutation::NoMargin, "attached where nobody claims it");
}

/// Safety 3: a grant that comes after the detach.
#[test]
fn agents_that_forget_what_they_were_told() {
    is_missed(EXCLUSIVE, Mutation::NoEpoch, "staged where nobody was granted it");
}

/// Safety 3: a timeout that counts as an answer.
#[test]
fn timeouts_that_free() {
    is_missed(EXCLUSIVE, Mutation::FreeOnTimeout, "not attached");
}

/// Safety 7: an answer that counts for another attempt.
#[test]
fn answers_that_count_for_any_attempt() {
    is_missed(EXCLUSIVE, Mutation::OldAnswers, "attached where nobody claims it");
}

/// Safety 3: a controller unpublish while others hold the node.
#[test]
fn leaving_without_looking_who_stays() {
    is_missed(SHARED, Mutation::LeaveOthers, "not attached");
}

/// Rule 9: the one that is relied on has made its last unpublish already.
#[test]
fn relying_on_one_that_is_leaving() {
    is_missed(SHARED, Mutation::RelyOnLeaving, "attached where nobody claims it");
}

/// Rule 11: an unstage while another alloc has it published from there.
#[test]
fn unstaging_without_looking_who_stays() {
    is_missed(SHARED, Mutation::CarelessUnstage, "unstage while it is published");
}
