//! Volumes at their storage are created, expanded, copied and deleted (rules 19 to 24).

use berth_model::storage::{Mutation, Request, Scenario, Start, search};

use crate::scenarios::deep;

use Request::{
    Claim, ClaimCopy, CopySnapshot, CopyVolume, Create, CreateAtFirstUse, Cut, Delete, DeleteCopy,
    DeleteSnapshot, Expand, ExpandCopy, ExpandMore, Modify, Vanish,
};

const BASE: Scenario = Scenario {
    name: "created and deleted",
    start: Start::Empty,
    requests: &[Create, Delete],
    local: false,
    stale: false,
    mutation: None,
};
const READY: Scenario = Scenario { start: Start::Ready, ..BASE };
const SNAPSHOTTED: Scenario = Scenario { start: Start::Snapshotted, ..BASE };

fn holds(scenario: Scenario) {
    let report = search(scenario, 8_000_000);
    let (kind, stale) = (["", ", local"], ["", ", a replica is behind"]);
    let kind = kind[usize::from(scenario.local)];
    println!("{}{kind}{}: {report}", scenario.name, stale[usize::from(scenario.stale)]);
    if let Some((_, story)) = report.found {
        panic!("{}:\n{story}", scenario.name);
    }
    assert!(report.complete, "{} has more states than its search may look at", scenario.name);
}

/// Checks that the search finds the damage of the missing rule, and describes it with `breach`.
fn is_missed(scenario: Scenario, mutation: Mutation, breach: &str) {
    let report = search(Scenario { mutation: Some(mutation), ..scenario }, 1_000_000);
    println!("{} without {mutation:?}: {report}", scenario.name);
    let Some((found, story)) = report.found else { panic!("{mutation:?}: nothing was found") };
    println!("{story}");
    assert!(found.to_string().contains(breach), "{mutation:?}:\n{story}");
}

const CREATED: Scenario =
    Scenario { name: "created, claimed and deleted", requests: &[Create, Claim, Delete], ..BASE };

#[test]
fn volume_is_created_claimed_and_deleted() {
    holds(CREATED);
    let (name, requests): (_, &[_]) =
        ("created at its first use", &[CreateAtFirstUse, Claim, Delete]);
    holds(Scenario { name, requests, ..BASE });
}

/// Each executor knows only its own storage, so a lost creation is repeated at the same executor.
#[test]
fn volume_is_created_by_controllers_that_know_their_own_storage() {
    holds(Scenario { local: true, ..CREATED });
}

#[test]
fn volume_is_expanded_beside_a_claim_and_its_deletion() {
    let (name, requests): (_, &[_]) = ("expanded beside a claim", &[Expand, Claim, Delete]);
    holds(Scenario { name, requests, ..READY });
    let (name, requests): (_, &[_]) =
        ("expanded twice and modified", &[Expand, ExpandMore, Modify, Delete]);
    holds(Scenario { name, requests, ..READY });
    let (name, requests): (_, &[_]) =
        ("expanded twice beside a claim", &[Create, Expand, ExpandMore, Claim, Delete]);
    holds(Scenario { name, requests, ..READY });
    holds(Scenario { name, requests, local: true, ..READY });
}

const CUT: Scenario =
    Scenario { name: "a snapshot", requests: &[Cut, DeleteSnapshot, Delete], ..READY };

#[test]
fn snapshot_is_cut_beside_the_deletion_of_its_source() {
    holds(CUT);
    holds(Scenario { local: true, ..CUT });
    let (name, requests): (_, &[_]) =
        ("a snapshot, of a volume that comes back", &[Create, Cut, DeleteSnapshot, Delete]);
    holds(Scenario { name, requests, ..READY });
    holds(Scenario { name, requests, local: true, ..READY });
}

#[test]
fn snapshot_is_cut_beside_claims_and_expansions() {
    let (name, requests): (_, &[_]) =
        ("a snapshot beside a claim", &[Cut, DeleteSnapshot, Claim, Delete]);
    holds(Scenario { name, requests, ..READY });
    let (name, requests): (_, &[_]) =
        ("a snapshot beside an expansion", &[Cut, DeleteSnapshot, Expand, Delete]);
    holds(Scenario { name, requests, ..READY });
    let (name, requests): (_, &[_]) = (
        "a snapshot beside expansions, of a volume that comes back",
        &[Create, Cut, DeleteSnapshot, Expand, ExpandMore, Delete],
    );
    holds(Scenario { name, requests, ..READY });
    if deep() > 0 {
        let (name, requests): (_, &[_]) = (
            "a snapshot beside claims and expansions",
            &[Cut, DeleteSnapshot, Claim, Expand, Delete],
        );
        holds(Scenario { name, requests, ..READY });
    }
}

const GROUPED: Scenario = Scenario {
    name: "a group beside an expansion",
    start: Start::Pair,
    requests: &[Cut, DeleteSnapshot, ExpandCopy],
    ..BASE
};

#[test]
fn group_is_cut_beside_what_is_done_to_its_volumes() {
    holds(GROUPED);
    let (name, requests): (_, &[_]) =
        ("a group beside deletions", &[Cut, DeleteSnapshot, Delete, DeleteCopy]);
    holds(Scenario { name, requests, ..GROUPED });
    let (name, requests): (_, &[_]) = ("a group beside a claim", &[Cut, DeleteSnapshot, ClaimCopy]);
    holds(Scenario { name, requests, ..GROUPED });
    if deep() > 0 {
        let (name, requests): (_, &[_]) =
            ("a group beside expansions", &[Cut, DeleteSnapshot, Expand, ExpandCopy]);
        holds(Scenario { name, requests, ..GROUPED });
        let (name, requests): (_, &[_]) =
            ("a group beside a claim and an expansion", &[Cut, DeleteSnapshot, ClaimCopy, Expand]);
        holds(Scenario { name, requests, ..GROUPED });
    }
}

const COPIED: Scenario = Scenario {
    name: "a copy of a volume",
    requests: &[CopyVolume, DeleteCopy, Delete],
    stale: true,
    ..READY
};
const SNAPSHOT_COPIED: Scenario = Scenario {
    name: "a copy of a snapshot",
    requests: &[CopySnapshot, DeleteSnapshot, Delete],
    stale: true,
    ..SNAPSHOTTED
};

#[test]
fn volume_is_copied_beside_its_deletion() {
    holds(COPIED);
    holds(Scenario { local: true, ..COPIED });
    let (name, requests): (_, &[_]) =
        ("a copy of a volume that comes back", &[Create, CopyVolume, DeleteCopy, Delete]);
    holds(Scenario { name, requests, ..COPIED });
    let (name, requests): (_, &[_]) =
        ("a copy of a claimed volume", &[CopyVolume, DeleteCopy, Claim, Delete]);
    holds(Scenario { name, requests, ..COPIED });
}

#[test]
fn snapshot_is_copied_beside_its_deletion() {
    holds(SNAPSHOT_COPIED);
    let (name, requests): (_, &[_]) =
        ("a copy of a snapshot that is cut again", &[Cut, CopySnapshot, DeleteSnapshot]);
    holds(Scenario { name, requests, ..SNAPSHOT_COPIED });
    let (name, requests): (_, &[_]) =
        ("a copy of a snapshot, deleted", &[CopySnapshot, DeleteCopy, DeleteSnapshot]);
    holds(Scenario { name, requests, ..SNAPSHOT_COPIED });
    let (name, requests): (_, &[_]) = (
        "a copy of a volume or of its snapshot",
        &[CopyVolume, CopySnapshot, DeleteSnapshot, Delete],
    );
    holds(Scenario { name, requests, ..SNAPSHOT_COPIED });
    if deep() > 0 {
        let (name, requests): (_, &[_]) = (
            "a copy of a volume or of its snapshot, deleted",
            &[CopyVolume, CopySnapshot, DeleteCopy, DeleteSnapshot, Delete],
        );
        holds(Scenario { name, requests, ..SNAPSHOT_COPIED });
    }
}

/// Another program destroys the source. The record of the copy keeps everything.
#[test]
fn source_of_a_copy_disappears() {
    let (name, requests): (_, &[_]) =
        ("a copy of a volume that disappears", &[CopyVolume, DeleteCopy, Vanish]);
    holds(Scenario { name, requests, stale: false, ..COPIED });
    let (name, requests): (_, &[_]) =
        ("a copy of a snapshot that disappears", &[CopySnapshot, DeleteCopy, Vanish]);
    holds(Scenario { name, requests, stale: false, ..SNAPSHOT_COPIED });
}

const TWO_CALLS: &str = "two controller calls are at work for one volume";
const LOST_VOLUME: &str = "a volume is at the storage that no record knows";
const LOST_SNAPSHOT: &str = "a snapshot is at the storage that no record knows";
const VOLUME_BESIDE_COPY: &str = "a volume was deleted while a copy of it was under way";
const SNAPSHOT_BESIDE_COPY: &str = "a snapshot was deleted while a copy of it was under way";
const BESIDE_SNAPSHOT: &str = "a volume was deleted while a snapshot of it was under way";
const BESIDE_CLAIM: &str = "a volume was deleted while a claim holds it";

#[test]
fn writes_without_a_guard_are_found() {
    is_missed(Scenario { stale: true, ..CREATED }, Mutation::NoGuard, LOST_VOLUME);
    let claimed = Scenario { requests: &[Claim, Delete], stale: true, ..READY };
    is_missed(claimed, Mutation::NoGuard, TWO_CALLS);
}

#[test]
fn copies_created_without_a_write_of_their_source_are_found() {
    is_missed(COPIED, Mutation::NoFence, VOLUME_BESIDE_COPY);
    is_missed(SNAPSHOT_COPIED, Mutation::NoFence, SNAPSHOT_BESIDE_COPY);
}

#[test]
fn deletions_that_ignore_copies_are_found() {
    is_missed(COPIED, Mutation::CopiesIgnored, VOLUME_BESIDE_COPY);
    is_missed(SNAPSHOT_COPIED, Mutation::CopiesIgnored, SNAPSHOT_BESIDE_COPY);
}

#[test]
fn copies_of_a_source_being_deleted_are_found() {
    is_missed(COPIED, Mutation::CopyAnything, VOLUME_BESIDE_COPY);
    is_missed(SNAPSHOT_COPIED, Mutation::CopyAnything, SNAPSHOT_BESIDE_COPY);
}

#[test]
fn doomed_creations_that_are_not_repeated_are_found() {
    is_missed(BASE, Mutation::DoomedDeleted, LOST_VOLUME);
}

#[test]
fn refusals_that_end_the_doubt_about_earlier_calls_are_found() {
    is_missed(BASE, Mutation::RefusalEndsDoubt, LOST_VOLUME);
    let cut = Scenario { requests: &[Cut, DeleteSnapshot], ..READY };
    is_missed(cut, Mutation::RefusalEndsDoubt, LOST_SNAPSHOT);
    let deleted = Scenario { requests: &[Delete], ..READY };
    let what = "a volume is ready, and is not at the storage";
    is_missed(deleted, Mutation::RefusalEndsDoubt, what);
    let snapshot_deleted = Scenario { requests: &[DeleteSnapshot], ..SNAPSHOTTED };
    let what = "a snapshot was cut, and is not at the storage";
    is_missed(snapshot_deleted, Mutation::RefusalEndsDoubt, what);
}

#[test]
fn failures_taken_for_no_effect_are_found() {
    is_missed(BASE, Mutation::FailureIsRefusal, LOST_VOLUME);
    is_missed(CUT, Mutation::FailureIsRefusal, LOST_SNAPSHOT);
}

#[test]
fn deletions_that_ignore_claims_are_found() {
    is_missed(CREATED, Mutation::DeleteIgnoresClaims, BESIDE_CLAIM);
}

#[test]
fn deletions_that_ignore_unfinished_snapshots_are_found() {
    is_missed(CUT, Mutation::DeleteIgnoresSnapshots, BESIDE_SNAPSHOT);
}

#[test]
fn executors_that_are_not_asked_for_earlier_calls_are_found() {
    is_missed(BASE, Mutation::NoAsking, TWO_CALLS);
    is_missed(CUT, Mutation::NoAsking, TWO_CALLS);
}

#[test]
fn group_calls_that_lock_only_the_leader_are_found() {
    is_missed(GROUPED, Mutation::LeaderLocked, TWO_CALLS);
    is_missed(GROUPED, Mutation::LeaderAsks, TWO_CALLS);
}

#[test]
fn half_stored_groups_are_found() {
    is_missed(GROUPED, Mutation::LeaderStored, "the records of a group differ");
}

#[test]
fn executors_asked_only_for_unanswered_calls_are_found() {
    is_missed(BASE, Mutation::AskTheUnheard, TWO_CALLS);
}

#[test]
fn snapshot_deletions_that_forget_a_failed_poll_are_found() {
    is_missed(CUT, Mutation::ForgetFailures, TWO_CALLS);
}

#[test]
fn uncertain_creations_sent_to_another_executor_are_found() {
    is_missed(Scenario { local: true, ..BASE }, Mutation::AnyExecutor, LOST_VOLUME);
}

#[test]
fn creations_with_a_new_name_for_each_try_are_found() {
    is_missed(BASE, Mutation::NewNames, LOST_VOLUME);
}

#[test]
fn claims_granted_during_the_creation_are_found() {
    is_missed(CREATED, Mutation::GrantWhileCreating, BESIDE_CLAIM);
}

#[test]
fn calls_that_are_tried_once_are_found() {
    is_missed(BASE, Mutation::NoSecondTry, "it never comes to rest from here");
}

#[test]
fn executors_that_take_calls_after_their_deadline_are_found() {
    is_missed(BASE, Mutation::LateCalls, TWO_CALLS);
}

#[test]
fn accepted_answers_of_earlier_attempts_are_found() {
    let expanded = Scenario { requests: &[Expand, Delete], ..READY };
    is_missed(expanded, Mutation::OldAnswers, LOST_VOLUME);
}

#[test]
fn calls_that_start_during_another_call_are_found() {
    let beside_snapshot = Scenario { requests: &[Cut, Expand], ..READY };
    is_missed(beside_snapshot, Mutation::ForgetCalls, TWO_CALLS);
    let beside_claim = Scenario { requests: &[Claim, Expand], ..READY };
    is_missed(beside_claim, Mutation::ForgetCalls, TWO_CALLS);
}

#[test]
fn calls_forgotten_with_the_replaced_operation_are_found() {
    let expanded = Scenario { requests: &[Expand, Delete], ..READY };
    is_missed(expanded, Mutation::ForgetReplaced, TWO_CALLS);
    is_missed(CUT, Mutation::ForgetReplaced, TWO_CALLS);
}

#[test]
fn answers_taken_for_the_replacing_operation_are_found() {
    let deleted = Scenario { requests: &[Expand, Delete], ..READY };
    is_missed(deleted, Mutation::TakeInherited, LOST_VOLUME);
    let expanded = Scenario { requests: &[Expand, ExpandMore], ..READY };
    let what = "an expansion ended before the volume was as large as asked";
    is_missed(expanded, Mutation::TakeInherited, what);
}

#[test]
fn snapshots_taken_for_ready_once_cut_are_found() {
    let what = "a snapshot is ready, and its plugin does not say so";
    is_missed(CUT, Mutation::CutIsReady, what);
}
