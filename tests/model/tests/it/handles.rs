//! Rule 17: two names of one storage volume, two claim replicas, and an older version.

use berth_model::handle::{Mutation, Scenario, Start, search};

use crate::scenarios::deep;

const NAMES: Scenario = Scenario {
    name: "two names",
    start: Start::Empty,
    older_service: false,
    controller: false,
    lag_max: 2,
    mutation: None,
};
const OLDER: Scenario =
    Scenario { name: "two names, an older version", older_service: true, lag_max: 2, ..NAMES };
const TWICE: Scenario = Scenario {
    name: "registered twice",
    start: Start::Twice,
    controller: true,
    lag_max: 2,
    ..NAMES
};

/// Checks that the search finds nothing. In deep searches the mirror may lag by one more message.
fn holds(scenario: Scenario) {
    let lag_max = scenario.lag_max + usize::from(deep() > 0);
    let report = search(Scenario { lag_max, ..scenario }, 5_000_000);
    println!("{}: {report}", scenario.name);
    if let Some((_, story)) = report.found {
        panic!("{}:\n{story}", scenario.name);
    }
    assert!(report.complete, "{} has more states than its search may look at", scenario.name);
}

/// Checks that the search finds the damage of the missing rule, and describes it with `breach`.
fn is_missed(scenario: Scenario, mutation: Mutation, breach: &str) {
    let scenario = Scenario { mutation: Some(mutation), ..scenario };
    let report = search(scenario, 1_000_000);
    println!("{} without {mutation:?}: {report}", scenario.name);
    let Some((found, story)) = report.found else { panic!("{mutation:?}: nothing was found") };
    println!("{story}");
    assert!(found.to_string().contains(breach), "{mutation:?}:\n{story}");
}

/// Only one of the names is registered at a time, and that one has the key.
#[test]
fn two_names_are_registered_in_turn() {
    holds(NAMES);
}

/// An older version registers both names. No claim is then granted for either.
#[test]
fn an_older_version_registers_a_second_name() {
    holds(OLDER);
}

/// Duplicates from before are released one after the other, and grant nothing.
#[test]
fn a_volume_is_registered_twice_from_the_start() {
    holds(TWICE);
}

#[test]
fn specs_without_the_key_of_their_handle_are_found() {
    is_missed(NAMES, Mutation::NoKey, "a second name was registered");
}

#[test]
fn handles_looked_up_only_in_the_mirror_are_found() {
    is_missed(NAMES, Mutation::NoKeyGuard, "a second name was registered");
}

#[test]
fn half_stored_batches_are_found() {
    is_missed(NAMES, Mutation::NotAtomic, "a second name was registered");
}

#[test]
fn keys_deleted_with_a_volume_that_does_not_own_them_are_found() {
    is_missed(OLDER, Mutation::FreeOfOthers, "a volume has lost the key of its handle");
}

#[test]
fn claims_of_duplicates_are_found() {
    is_missed(TWICE, Mutation::GrantTwice, "beside that of the other name");
}

#[test]
fn releases_that_ignore_the_other_registration_are_found() {
    is_missed(TWICE, Mutation::BlindDetach, "detached under the claim of the other name");
}

#[test]
fn keys_taken_over_without_a_fence_are_found() {
    is_missed(OLDER, Mutation::NoFence, "a volume has lost the key of its handle");
}

#[test]
fn registrations_that_do_not_catch_up_are_found() {
    is_missed(OLDER, Mutation::NoCatchUp, "a second name was registered");
}

#[test]
fn repairs_that_delete_a_key_without_a_guard_are_found() {
    is_missed(OLDER, Mutation::BlindRepair, "a volume has lost the key of its handle");
}
