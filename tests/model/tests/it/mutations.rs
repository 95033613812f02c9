//! What the search would see: each rule of the protocol, taken away, is missed within seconds, and
//! the way to the damage is short enough for a person to follow (`-- --nocapture` shows it).

use berth_domain::access::AccessMode;
use berth_model::search::search;
use berth_model::{Attaches, Mutation, Scenario, Trouble};

use crate::{BASE, W1, W2};

/// The longest story that a person is asked to follow.
const STEPS_MAX: usize = 24;

/// The search finds out that the rule is missing, and says so in these words.
fn is_missed(scenario: Scenario, mutation: Mutation, breach: &str) {
    goes_wrong(scenario.without(mutation), breach);
}

/// The search finds what goes wrong, and says so in these words.
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

/// Rule 9: the storage knows nodes by the plugin's ids, and two nodes may share one.
#[test]
fn leaving_a_node_without_looking_who_stays_under_its_id() {
    let troubles = &[Trouble::SharedId, Trouble::OlderService];
    let shared = Scenario { troubles, allocs: &[W1, W2], nodes_fail: false, ..SHARED };
    is_missed(shared, Mutation::ByNodeName, "not attached");
}

/// Rule 9: the one that is relied on has made its last unpublish already.
#[test]
fn relying_on_one_that_is_leaving() {
    is_missed(SHARED, Mutation::RelyOnLeaving, "attached where nobody claims it");
}

const CONFIRMED: Scenario =
    Scenario { troubles: &[Trouble::Confirmed], nodes_fail: false, ..EXCLUSIVE };

/// Rule 16: what was detached when the person looked, is attached by a call that hung.
#[test]
fn a_word_that_counts_whatever_the_controller_said() {
    is_missed(CONFIRMED, Mutation::AnyWord, "attached where nobody claims it");
}

/// Rule 18: a person is wrong, and the agent does not look.
#[test]
fn a_word_that_is_taken_without_a_look() {
    let said = Scenario { troubles: &[Trouble::Unstaged], ..EXCLUSIVE };
    is_missed(said, Mutation::BlindWord, "unstage while it is published");
}

/// Rules 9 and 16: after an operator's confirmation the controller is not called for the other
/// claim.
#[test]
fn relying_on_one_that_a_person_answers_for() {
    let shared = Scenario { allocs: SHARED.allocs, access: SHARED.access, ..CONFIRMED };
    is_missed(shared, Mutation::RelyOnDenied, "attached where nobody claims it");
}

/// Rule 11: an unstage while another alloc has it published from there.
#[test]
fn unstaging_without_looking_who_stays() {
    is_missed(SHARED, Mutation::CarelessUnstage, "unstage while it is published");
}

/// Rule 11: a count of uses that is one off after a call that was repeated.
#[test]
fn unstaging_by_a_count() {
    is_missed(SHARED, Mutation::CountUses, "unstage while it is published");
}

/// Rule 1: two services decide on the same record, and both write.
#[test]
fn writes_without_a_guard() {
    let troubles = &[Trouble::SecondService];
    let attaches = Attaches::Never;
    let racing = Scenario { troubles, attaches, nodes_fail: false, ..EXCLUSIVE };
    is_missed(racing, Mutation::NoGuard, "2 claims hold the volume");
    let troubles = &[Trouble::SecondService, Trouble::Deregistered];
    let racing = Scenario { troubles, allocs: &[W1], nodes_fail: false, ..EXCLUSIVE };
    is_missed(racing, Mutation::NoGuard, "on a volume that is not registered");
}

/// Rule 1: a replica misses a delete, whose marker goes; the head is what it was when it looked. It
/// frees a claim without a detach because another seems to stay on the node.
#[test]
fn heads_that_fall_when_a_marker_goes() {
    let troubles = &[Trouble::SecondService];
    let behind =
        Scenario { troubles, nodes_fail: false, attempts: Some(4), name: "falling", ..SHARED };
    is_missed(behind, Mutation::HeadsFall, "attached where nobody claims it");
}

/// Rule 12: a replica that is behind grants again what was released since, and the agent that would
/// know has lost its journal.
#[test]
fn grants_that_are_given_again_without_a_look_at_the_leader() {
    let troubles = &[Trouble::SecondService];
    let behind = Scenario { troubles, loses_journal: true, attempts: Some(3), ..EXCLUSIVE };
    is_missed(behind, Mutation::NoLeader, "staged where nobody was granted it");
}

const REPEATED: Scenario =
    Scenario { troubles: &[Trouble::Repeated], attempts: Some(2), ..EXCLUSIVE };

/// Rule 4: a call that arrives once more, within its deadline and after what negates it.
#[test]
fn executors_that_do_not_remember_the_newest_call() {
    is_missed(REPEATED, Mutation::NoMemory, "attached where nobody claims it");
}

/// What the protocol rests on: one member of a queue group gets the call, once. Another has not
/// seen what negates it, however well each remembers.
#[test]
fn calls_that_come_once_more_to_another_controller() {
    let troubles = &[Trouble::Repeated, Trouble::SecondController];
    goes_wrong(Scenario { troubles, ..REPEATED }, "attached where nobody claims it");
}

/// Rule 10: the alloc came back, and the call that ended its earlier claim comes once more.
#[test]
fn agents_that_detach_a_later_claim_than_they_are_told() {
    let come_back = Scenario { allocs: &[W1], attaches: Attaches::Never, ..REPEATED };
    is_missed(come_back, Mutation::AnyDetach, "unpublished what a later claim has");
}

/// Rule 4: the same to an agent that has lost its journal, and cannot tell of which claim its
/// mounts are.
#[test]
fn agents_that_begin_anew_and_take_up_calls_of_before() {
    let (allocs, attaches) = (&[W1], Attaches::Never);
    let come_back = Scenario { allocs, attaches, loses_journal: true, ..REPEATED };
    is_missed(come_back, Mutation::NoBeginning, "unpublished what a later claim has");
}

/// Rule 4: no executor knows of the call that another is at, and the plugin does not care.
#[test]
fn plugins_that_are_at_two_calls_for_a_volume_at_once() {
    let troubles = &[Trouble::SecondController];
    let base = Scenario { name: "two controllers", troubles, nodes_fail: false, ..EXCLUSIVE };
    is_missed(base, Mutation::PluginOverlaps, "attached where nobody claims it");
}

/// Safety 4: a call outlives its deadline, and another controller knows nothing of it.
#[test]
fn controllers_that_are_not_asked_what_they_are_at() {
    let troubles = &[Trouble::OwnControllers];
    let allocs = &[W1, W2];
    let name = "a controller each";
    let base = Scenario { name, allocs, troubles, nodes_fail: false, ..SHARED };
    is_missed(base.clone(), Mutation::NoAsking, "two controller calls at work at once");
    is_missed(base, Mutation::AskTheUnheard, "two controller calls at work at once");
}

/// What decision 0011 leaves: a claim goes beside another on its node, and nothing on the record
/// says any more that its publish hangs. It is for the plugin to keep the next call apart.
#[test]
fn a_hanging_call_of_a_claim_that_is_gone_is_not_asked_after() {
    let allocs = &[W1, W1, W2];
    let troubles = &[Trouble::OwnControllers];
    let name = "two on one node, a controller each";
    let base = Scenario { name, allocs, troubles, nodes_fail: false, ..SHARED };
    goes_wrong(base, "two controller calls at work at once");
}

/// Rule 4: a call that waited is overtaken by one that was made because it was not answered.
#[test]
fn plugins_that_let_later_calls_overtake() {
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

/// Rule 12: a proof that was read for another claim.
#[test]
fn proofs_for_whatever_claim_there_is() {
    is_missed(NODES_GO, Mutation::AnyProof, "nobody was granted it");
}

/// Rule 12: what was made sure of an earlier absence says nothing of a later one.
#[test]
fn proofs_whose_evidence_is_of_an_earlier_absence() {
    is_missed(NODES_GO, Mutation::StaleEvidence, "nobody was granted it");
}

/// Rule 12: a node that counts as there with what it had before.
#[test]
fn nodes_that_come_back_and_undo_nothing() {
    is_missed(NODES_GO, Mutation::NoUndo, "nobody was granted it");
}

/// Rule 12: what is still claimed may be claimed no more when a proof is used that was read before.
#[test]
fn nodes_that_come_back_and_keep_what_is_claimed() {
    is_missed(NODES_GO, Mutation::KeepClaimed, "nobody was granted it");
}

/// Rule 12: and so may what was claimed and not mounted yet.
#[test]
fn nodes_that_come_back_and_follow_grants_from_before() {
    is_missed(NODES_GO, Mutation::NoFence, "nobody was granted it");
}

/// Rule 12: and the journal, which would say so, may be lost when the node is back.
#[test]
fn nodes_that_come_back_and_keep_the_fence_in_the_journal_only() {
    let losing = Scenario { loses_journal: true, ..NODES_GO };
    is_missed(losing, Mutation::JournalFence, "nobody was granted it");
}

/// Rule 12: a claim that was made while its node counted as gone is as old as those before.
#[test]
fn nodes_that_come_back_and_follow_grants_of_the_time_between() {
    is_missed(NODES_GO, Mutation::EarlyFence, "nobody was granted it");
}

/// Rule 2: a call that no attempt on the record names.
#[test]
fn calls_that_are_not_written_down() {
    is_missed(EXCLUSIVE, Mutation::UnwrittenCall, "is not the attempt that was written (rule 2)");
}

/// Safety 4, rule 3: a call beside another claim's.
#[test]
fn calls_that_are_made_without_looking_who_else_calls() {
    is_missed(SHARED, Mutation::ForgetCalls, "safety 4: two calls on the record");
}

/// Safety 7: the service would take an answer that is not of the attempt on the record.
#[test]
fn answers_of_old_attempts_that_are_taken() {
    is_missed(EXCLUSIVE, Mutation::TakeOldAnswers, "safety rule 7");
}

/// Rule 5: a call that failed leaves its error on the claim.
#[test]
fn failures_of_which_nothing_is_said() {
    is_missed(EXCLUSIVE, Mutation::SilentFailures, "a failure that its claim does not tell of");
}

/// Rule 12: a proof that was read for an earlier claim of the alloc.
#[test]
fn proofs_for_an_earlier_claim() {
    is_missed(NODES_GO, Mutation::EarlierProof, "a proof for an earlier claim made a difference");
}

/// Rule 14: what did not succeed is tried again, or the volume is never free.
#[test]
fn releases_that_are_tried_once() {
    is_missed(EXCLUSIVE, Mutation::NoSecondTry, "stuck: the volume never becomes free");
}

/// Rule 15: a volume goes with its last claim.
#[test]
fn deregistering_without_looking_who_claims() {
    let troubles = &[Trouble::Deregistered];
    let claimed = Scenario { troubles, allocs: &[W1], nodes_fail: false, ..EXCLUSIVE };
    is_missed(claimed, Mutation::DeregisterClaimed, "on a volume that is not registered");
}

/// A node that other volumes have filled.
#[test]
fn claims_on_a_node_that_is_full() {
    let full = Scenario { troubles: &[Trouble::NoRoom], nodes_fail: false, ..EXCLUSIVE };
    is_missed(full, Mutation::FullNodes, "claimed on a node that is full");
}
