//! A bucket is set back to an earlier state while services and agents continue (decisions 0049 to
//! 0051).

use berth_model::restored::{Mutation, Restore, Scenario, search};

use crate::scenarios::deep;

const OURS: Scenario = Scenario {
    name: "restored",
    restore: Restore::Ours,
    restarts: false,
    deletes: false,
    mutation: None,
};
const STOCK: Scenario = Scenario { name: "set back", restore: Restore::Stock, ..OURS };
const RESTARTED: Scenario = Scenario { name: "restored, restarted", restarts: true, ..OURS };
const DELETED: Scenario = Scenario { name: "restored, deleted", deletes: true, ..OURS };

fn holds(scenario: Scenario) {
    let report = search(scenario, 6_000_000);
    println!("{}: {report}", scenario.name);
    if let Some((breach, story)) = report.found {
        panic!("{}: {breach}\n{story}", scenario.name);
    }
    assert!(report.complete, "{} has more states than its search may look at", scenario.name);
}

/// Checks that the search finds the damage of the missing rule, and describes it with `words`.
fn is_missed(scenario: Scenario, mutation: Mutation, words: &str) {
    let scenario = scenario.without(mutation);
    let report = search(scenario, 3_000_000);
    println!("{} without {mutation:?}: {report}", scenario.name);
    let Some((breach, story)) = report.found else { panic!("{mutation:?}: nothing was found") };
    println!("{breach}\n{story}");
    assert!(breach.to_string().contains(words), "{mutation:?}: {breach}\n{story}");
}

#[test]
fn a_bucket_is_restored_by_our_command() {
    holds(OURS);
}

#[test]
fn a_service_starts_again_while_the_bucket_is_restored() {
    if deep() > 0 {
        holds(RESTARTED);
    }
}

#[test]
fn a_bucket_is_set_back_by_another_tool_and_accepted() {
    holds(STOCK);
}

#[test]
fn the_volume_is_deleted_around_a_restore() {
    holds(DELETED);
}

/// The limit of decision 0049: nothing distinguishes a service that has just started from one that
/// ran when the backup was made.
#[test]
fn a_service_without_memory_serves_a_bucket_that_another_tool_set_back() {
    let report = search(Scenario { restarts: true, ..STOCK }, 1_000_000);
    let (breach, _) = report.found.expect("it grants the volume beside a mount");
    assert_eq!(breach.to_string(), "two writers have it mounted");
}

#[test]
fn writes_from_memory_are_found() {
    is_missed(OURS, Mutation::FromMemory, "2 claims hold the volume");
}

#[test]
fn reused_revisions_are_found() {
    is_missed(OURS, Mutation::NotRaised, "two writers");
}

#[test]
fn a_volume_whose_newest_revision_stays_is_found() {
    is_missed(OURS, Mutation::HeadsStay, "two writers");
}

#[test]
fn services_that_serve_a_bucket_set_back_by_another_tool_are_found() {
    is_missed(STOCK, Mutation::ServeFallen, "two writers");
}

#[test]
fn grants_before_the_nodes_have_compared_are_found() {
    is_missed(OURS, Mutation::NotCompared, "two writers");
    is_missed(STOCK, Mutation::NotCompared, "two writers");
}

#[test]
fn nodes_that_compare_with_an_outdated_list_are_found() {
    is_missed(OURS, Mutation::OldLists, "two writers");
}

#[test]
fn ignored_mounts_without_a_claim_are_found() {
    is_missed(OURS, Mutation::IgnoreMounts, "two writers");
    is_missed(DELETED, Mutation::IgnoreMounts, "deleted under a live alloc");
}

#[test]
fn grants_requested_before_the_comparison_are_found() {
    is_missed(OURS, Mutation::OldGrants, "two writers");
}
