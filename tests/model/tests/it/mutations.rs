//! Each rule of the protocol is taken away. The search finds the damage within seconds, and the
//! story of it is short enough for a person to follow (`-- --nocapture` shows it).

use berth_domain::access::AccessMode;
use berth_model::search::search;
use berth_model::{Attaches, Mutation, Scenario, Trouble};

use crate::{BASE, W1, W2};

/// The most steps of a story that a person is asked to follow.
const STEPS_MAX: usize = 24;

/// Checks that the search finds the damage of the missing rule, and describes it with `breach`.
fn is_missed(scenario: Scenario, mutation: Mutation, breach: &str) {
    goes_wrong(scenario.without(mutation), breach);
}

/// Checks that the search finds a breach, and describes it with `breach`.
fn goes_wrong(scenario: Scenario, breach: &str) {
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

/// Safety 8: an executor acts on a call after its deadline.
#[test]
fn executors_that_ignore_deadlines_are_found() {
    is_missed(EXCLUSIVE, Mutation::NoDeadline, "attached where nobody claims it");
}

/// Safety 8: a call is sent that negates another call which may still begin.
#[test]
fn attempts_that_wait_for_no_margin_are_found() {
    is_missed(EXCLUSIVE, Mutation::NoMargin, "attached where nobody claims it");
}

/// Safety 3: a grant arrives after the detach.
#[test]
fn agents_that_forget_detached_epochs_are_found() {
    is_missed(EXCLUSIVE, Mutation::NoEpoch, "staged where nobody was granted it");
}

/// Safety 3: a timeout counts as an answer.
#[test]
fn claims_freed_on_a_timeout_are_found() {
    is_missed(EXCLUSIVE, Mutation::FreeOnTimeout, "not attached");
}

/// Safety 7: an answer counts for another attempt.
#[test]
fn answers_that_count_for_any_attempt_are_found() {
    is_missed(EXCLUSIVE, Mutation::OldAnswers, "attached where nobody claims it");
}

/// Safety 3: the controller unpublishes while other claims hold the node.
#[test]
fn a_detach_under_another_holder_on_the_node_is_found() {
    is_missed(SHARED, Mutation::LeaveOthers, "not attached");
}

/// Rule 9: the storage knows nodes by the plugin's ids, and two nodes may share one id.
#[test]
fn a_detach_under_another_holder_with_the_same_node_id_is_found() {
    let troubles = &[Trouble::SharedId, Trouble::OlderService];
    let shared = Scenario { troubles, allocs: &[W1, W2], nodes_fail: false, ..SHARED };
    is_missed(shared, Mutation::ByNodeName, "not attached");
}

/// Rule 9: the claim that is relied on has already made its last unpublish.
#[test]
fn a_release_that_relies_on_a_leaving_claim_is_found() {
    is_missed(SHARED, Mutation::RelyOnLeaving, "attached where nobody claims it");
}

const CONFIRMED: Scenario =
    Scenario { troubles: &[Trouble::Confirmed], nodes_fail: false, ..EXCLUSIVE };

/// Rule 16: the volume was detached when the person looked, and is then attached by a hung call.
#[test]
fn a_confirmation_that_ignores_the_controller_is_found() {
    is_missed(CONFIRMED, Mutation::AnyWord, "attached where nobody claims it");
}

/// Rule 18: a person is wrong, and the agent does not check the mount table.
#[test]
fn a_confirmation_that_skips_the_mount_table_is_found() {
    let said = Scenario { troubles: &[Trouble::Unstaged], ..EXCLUSIVE };
    is_missed(said, Mutation::BlindWord, "unstage while it is published");
}

/// Rules 9 and 16: after an operator's confirmation, the controller is not called for the other
/// claim.
#[test]
fn a_release_that_relies_on_a_confirmable_claim_is_found() {
    let shared = Scenario { allocs: SHARED.allocs, access: SHARED.access, ..CONFIRMED };
    is_missed(shared, Mutation::RelyOnDenied, "attached where nobody claims it");
}

/// Rule 11: an agent unstages while another alloc has the volume published from there.
#[test]
fn an_unstage_under_another_user_is_found() {
    is_missed(SHARED, Mutation::CarelessUnstage, "unstage while it is published");
}

/// Rule 11: a use count is off by one after a repeated call.
#[test]
fn an_unstage_by_a_use_count_is_found() {
    is_missed(SHARED, Mutation::CountUses, "unstage while it is published");
}

/// Rule 1: two services decide on the same record, and both write.
#[test]
fn writes_without_a_guard_are_found() {
    let troubles = &[Trouble::SecondService];
    let attaches = Attaches::Never;
    let racing = Scenario { troubles, attaches, nodes_fail: false, ..EXCLUSIVE };
    is_missed(racing, Mutation::NoGuard, "2 claims hold the volume");
    let troubles = &[Trouble::SecondService, Trouble::Deregistered];
    let racing = Scenario { troubles, allocs: &[W1], nodes_fail: false, ..EXCLUSIVE };
    is_missed(racing, Mutation::NoGuard, "on a volume that is not registered");
}

/// Rule 1: a replica misses a delete whose marker is purged, so the head is the one that it saw. It
/// frees a claim without a detach, because another claim seems to stay on the node.
#[test]
fn a_head_that_falls_with_a_marker_is_found() {
    let troubles = &[Trouble::SecondService];
    let behind =
        Scenario { troubles, nodes_fail: false, attempts: Some(4), name: "falling", ..SHARED };
    is_missed(behind, Mutation::HeadsFall, "attached where nobody claims it");
}

/// Rule 12: a lagging replica repeats a grant whose claim was released since, and the agent that
/// would know has lost its journal.
#[test]
fn repeated_grants_without_a_read_at_the_leader_are_found() {
    let troubles = &[Trouble::SecondService];
    let behind = Scenario { troubles, loses_journal: true, attempts: Some(3), ..EXCLUSIVE };
    is_missed(behind, Mutation::NoLeader, "staged where nobody was granted it");
}

const REPEATED: Scenario =
    Scenario { troubles: &[Trouble::Repeated], attempts: Some(2), ..EXCLUSIVE };

/// Rule 4: a call arrives again within its deadline, after the call that negates it.
#[test]
fn executors_that_forget_the_newest_call_are_found() {
    is_missed(REPEATED, Mutation::NoMemory, "attached where nobody claims it");
}

/// The protocol depends on this: one member of a queue group gets a call, once. Another member has
/// not seen the call that negates it, however much each remembers.
#[test]
fn calls_repeated_at_another_controller_are_found() {
    let troubles = &[Trouble::Repeated, Trouble::SecondController];
    goes_wrong(Scenario { troubles, ..REPEATED }, "attached where nobody claims it");
}

/// Rule 10: the alloc returned, and the call that ended its earlier claim arrives again.
#[test]
fn agents_that_detach_a_later_claim_are_found() {
    let come_back = Scenario { allocs: &[W1], attaches: Attaches::Never, ..REPEATED };
    is_missed(come_back, Mutation::AnyDetach, "unpublished what a later claim has");
}

/// Rule 4: the same call arrives at an agent that has lost its journal, and cannot tell which claim
/// its mounts belong to.
#[test]
fn restarted_agents_that_accept_earlier_calls_are_found() {
    let (allocs, attaches) = (&[W1], Attaches::Never);
    let come_back = Scenario { allocs, attaches, loses_journal: true, ..REPEATED };
    is_missed(come_back, Mutation::NoBeginning, "unpublished what a later claim has");
}

/// Rule 4: no executor knows which call the other works on, and the plugin does not check.
#[test]
fn plugins_with_two_concurrent_calls_for_a_volume_are_found() {
    let troubles = &[Trouble::SecondController];
    let base = Scenario { name: "two controllers", troubles, nodes_fail: false, ..EXCLUSIVE };
    is_missed(base, Mutation::PluginOverlaps, "attached where nobody claims it");
}

/// Safety 4: a call outlives its deadline, and another controller does not know of it.
#[test]
fn controllers_that_are_not_asked_for_earlier_calls_are_found() {
    let troubles = &[Trouble::OwnControllers];
    let allocs = &[W1, W2];
    let name = "a controller each";
    let base = Scenario { name, allocs, troubles, nodes_fail: false, ..SHARED };
    is_missed(base.clone(), Mutation::NoAsking, "two controller calls at work at once");
    is_missed(base, Mutation::AskTheUnheard, "two controller calls at work at once");
}

/// The limit of decision 0011: a claim is released while another claim stays on its node, and no
/// record says any more that its publish hangs. The plugin has to keep the next call apart.
#[test]
fn a_hanging_call_of_a_deleted_claim_is_not_asked_for() {
    let allocs = &[W1, W1, W2];
    let troubles = &[Trouble::OwnControllers];
    let name = "two on one node, a controller each";
    let base = Scenario { name, allocs, troubles, nodes_fail: false, ..SHARED };
    goes_wrong(base, "two controller calls at work at once");
}

/// Rule 4: a waiting call is overtaken by one that was made because the first was not answered.
#[test]
fn plugins_that_reorder_waiting_calls_are_found() {
    let troubles = &[Trouble::SecondController, Trouble::ThirdController];
    let base = Scenario { name: "three controllers", troubles, nodes_fail: false, ..EXCLUSIVE };
    is_missed(base, Mutation::PluginJumpsLine, "attached where nobody claims it");
}

const NODES_GO: Scenario = Scenario {
    name: "nodes go",
    attaches: Attaches::Never,
    nodes_fail: false,
    troubles: &[Trouble::NodeGone],
    ..EXCLUSIVE
};

/// Rule 12: a proof was read for another claim.
#[test]
fn proofs_that_count_for_any_claim_are_found() {
    is_missed(NODES_GO, Mutation::AnyProof, "nobody was granted it");
}

/// Rule 12: evidence of an earlier absence does not prove a later one.
#[test]
fn proofs_with_evidence_of_an_earlier_absence_are_found() {
    is_missed(NODES_GO, Mutation::StaleEvidence, "nobody was granted it");
}

/// Rule 12: a node counts as present with its former mounts.
#[test]
fn returned_nodes_that_undo_nothing_are_found() {
    is_missed(NODES_GO, Mutation::NoUndo, "nobody was granted it");
}

/// Rule 12: a claim may be gone by the time when an older proof of it is used.
#[test]
fn returned_nodes_that_keep_claimed_mounts_are_found() {
    is_missed(NODES_GO, Mutation::KeepClaimed, "nobody was granted it");
}

/// Rule 12: the same holds for a claim that was not mounted yet.
#[test]
fn returned_nodes_that_follow_earlier_grants_are_found() {
    is_missed(NODES_GO, Mutation::NoFence, "nobody was granted it");
}

/// Rule 12: the journal may be lost when the node has returned.
#[test]
fn returned_nodes_with_the_fence_only_in_the_journal_are_found() {
    let losing = Scenario { loses_journal: true, ..NODES_GO };
    is_missed(losing, Mutation::JournalFence, "nobody was granted it");
}

/// Rule 12: a claim that was made while its node counted as gone is as old as those before.
#[test]
fn returned_nodes_that_follow_grants_of_their_absence_are_found() {
    is_missed(NODES_GO, Mutation::EarlyFence, "nobody was granted it");
}

/// Rule 2: no attempt on the record names the call.
#[test]
fn calls_without_an_attempt_on_the_record_are_found() {
    is_missed(EXCLUSIVE, Mutation::UnwrittenCall, "is not the attempt that was written (rule 2)");
}

/// Safety 4, rule 3: a call is made during a call of another claim.
#[test]
fn calls_that_ignore_calls_of_other_claims_are_found() {
    is_missed(SHARED, Mutation::ForgetCalls, "safety 4: two calls on the record");
}

/// Safety 7: the service accepts an answer that does not belong to the attempt on the record.
#[test]
fn accepted_answers_of_old_attempts_are_found() {
    is_missed(EXCLUSIVE, Mutation::TakeOldAnswers, "safety rule 7");
}

/// Rule 5: a failed call leaves its error on the claim.
#[test]
fn failures_that_leave_no_error_on_the_claim_are_found() {
    is_missed(EXCLUSIVE, Mutation::SilentFailures, "a failure that its claim does not tell of");
}

/// Rule 12: a proof was read for an earlier claim of the alloc.
#[test]
fn proofs_for_an_earlier_claim_are_found() {
    is_missed(NODES_GO, Mutation::EarlierProof, "a proof for an earlier claim made a difference");
}

/// Rule 14: a failed release is retried, or the volume never becomes free.
#[test]
fn releases_that_are_tried_once_are_found() {
    is_missed(EXCLUSIVE, Mutation::NoSecondTry, "stuck: the volume never becomes free");
}

/// Rule 15: a volume is deleted with its last claim.
#[test]
fn deregistering_a_claimed_volume_is_found() {
    let troubles = &[Trouble::Deregistered];
    let claimed = Scenario { troubles, allocs: &[W1], nodes_fail: false, ..EXCLUSIVE };
    is_missed(claimed, Mutation::DeregisterClaimed, "on a volume that is not registered");
}

/// A node is full of other volumes.
#[test]
fn claims_on_a_full_node_are_found() {
    let full = Scenario { troubles: &[Trouble::NoRoom], nodes_fail: false, ..EXCLUSIVE };
    is_missed(full, Mutation::FullNodes, "claimed on a node that is full");
}

/// Rule 25.
#[test]
fn claims_that_change_under_a_mount_are_found() {
    is_missed(EXCLUSIVE, Mutation::ChangeMounted, "given up under a mount");
}
