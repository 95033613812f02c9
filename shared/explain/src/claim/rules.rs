//! Explains the state of one claim from the facts about it, its node and its plugin.
//!
//! Rules are tried in the order of [`Cause`]: the first finding decides.

use berth_contract::hint;
use berth_contract::message::claim::{ClaimStatus, ClaimWait};
use berth_contract::record::UnreadableRecord;
use berth_contract::service::VOLUMEWATCHER;
use berth_domain::Namespace;
use berth_domain::volume::{OtherClaim, State};

use super::case::Case;
use super::{controller, mount, node};
use crate::cause::{Actor, Cause};
use crate::finding::Finding;
use crate::record::{is_unreadable, unreadable_record};
use crate::span::ago;
use crate::wait_reason::WaitReason;
use crate::{failure as of_failure, next, service};

/// The sentence about a server whose disk was full.
pub const STORES_NOTHING: &str = "nats-server stores no writes: its disk is or was full, and it \
                                  stores nothing until it is restarted";

/// Looks for one kind of cause.
type Rule = fn(&Case<'_>) -> Option<Finding>;

/// Rules for a claim that is to be mounted and used.
const GRANTED: [Rule; 10] = [
    unreadable,
    stray,
    store,
    node::gone_or_away,
    node::missing_right,
    node::journal,
    crashes,
    mount::work,
    mount::trouble,
    mount::absent,
];

/// Rules for a claim that is being granted or released.
const MOVING: [Rule; 12] = [
    unreadable,
    store,
    clock,
    of_gone_node,
    node::gone_or_away,
    node::missing_right,
    node::journal,
    standing_use,
    crashes,
    plugin_down,
    last_error,
    held_back,
];

/// The claim was granted for a volume that is no longer registered under its name.
fn stray(case: &Case<'_>) -> Option<Finding> {
    let ClaimStatus { alloc, namespace, plugin, external_id, .. } = case.claim;
    let handle = plugin.as_ref().zip(external_id.as_ref());
    let register = match handle {
        Some((plugin, id)) => {
            format!("# or register the volume again as it was: plugin {plugin}, external id {id:?}")
        }
        None => "# the claim does not say which volume it is of: first register the volume again \
                 as it was"
            .to_owned(),
    };
    let sentence = "the registration of the volume that it was granted for is lost: the claim can \
                    be released, and is not granted again";
    let finding = Finding::new(Cause::RegistrationLost, Actor::You, sentence)
        .shown_by(handle.map(|(plugin, id)| format!("it is of {plugin}: {id}")))
        .next(next::stop_alloc(alloc, namespace, "once its workload has ended"))
        .next(register);
    case.claim.stray.then_some(finding)
}

/// The plugin's process ends at the call that is next: it is this call that takes the plugin down.
fn crashes(case: &Case<'_>) -> Option<Finding> {
    let (failure, at) = if case.is_granted() {
        (&case.failure()?.failure, Some(&case.claim.node))
    } else {
        (case.claim.failure.as_ref().filter(|_| case.claim.tries > 0)?, None)
    };
    let finding = of_failure::crashes(case.plugin_id(), at, failure)?;
    Some(finding.shown_by(case.evidence()).shown_by([failure.to_string()]))
}

/// Its node was declared gone: nothing is asked of the node any more, and the claim is released
/// whether or not its alloc has ended.
fn of_gone_node(case: &Case<'_>) -> Option<Finding> {
    let ClaimStatus { node, state, .. } = case.claim;
    let proof = case.gone_by().filter(|_| *state == State::Taken)?;
    let sentence = format!("node {node} was declared gone, so the claim is being released");
    let finding = match service::no_watcher_of_release(case.facts) {
        Some(found) => Finding { sentence: format!("{sentence}: {}", found.sentence), ..found },
        None => Finding::new(Cause::UnderWay, Actor::NOBODY, sentence),
    };
    Some(finding.shown_by([proof.to_string()]).next(next::node_status(node)))
}

/// The first cause that a rule finds; none when no rule finds one.
pub fn find_own(case: &Case<'_>) -> Option<Finding> {
    let rules: &[Rule] = if case.is_granted() { &GRANTED } else { &MOVING };
    rules.iter().find_map(|rule| rule(case))
}

/// The claim's state in words, with the state of its mount on the node.
pub fn state(case: &Case<'_>) -> String {
    let claim = case.claim;
    let claim_state = format!("{} by {} on {}", claim.state, claim.alloc, claim.node);
    if !case.is_granted() {
        return claim_state;
    }
    let beyond = match (case.agent(), case.mount(), case.work()) {
        // The agent's silence is listed among the unknown facts, because it is younger than the
        // claim's state.
        (None | Some(Err(_)), ..) => return claim_state,
        (_, _, Some(work)) => mount::doing(work).to_owned(),
        (_, Some(mount), None) => mount::word(mount).to_owned(),
        (_, None, None) => "not mounted".to_owned(),
    };
    format!("{claim_state}, {beyond}")
}

/// A record that the claim needs is unreadable.
fn unreadable(case: &Case<'_>) -> Option<Finding> {
    let ClaimStatus { namespace, alloc, .. } = case.claim;
    let alloc = case.facts.allocs.get(&(namespace.clone(), alloc.clone()));
    let node = case.node().and_then(|answer| answer.as_ref().err());
    let volume = case.facts.volumes.get(&case.key());
    let of_volume = case.volume().and_then(|volume| volume.unreadable.first());
    let volume = volume.and_then(|answer| answer.as_ref().err());
    let problems = [volume, alloc.and_then(|answer| answer.as_ref().err()), node];
    let mut problems = problems.into_iter().flatten().filter(|problem| is_unreadable(problem));
    let problem = of_volume.map(UnreadableRecord::problem).or_else(|| problems.next().cloned())?;
    Some(unreadable_record(&problem))
}

/// The server stores no writes.
fn store(case: &Case<'_>) -> Option<Finding> {
    let ClaimStatus { wait, waits_for, alloc, .. } = case.claim;
    (*wait == Some(ClaimWait::Store)).then(|| {
        let words = waits_for.as_deref().unwrap_or("the server");
        let finding = Finding::new(Cause::StoreFault, Actor::You, STORES_NOTHING)
            .shown_by([format!("the claim of {alloc} waits for {words}")]);
        next::after_full_store().into_iter().fold(finding, Finding::next)
    })
}

/// A wrong clock, or no volumewatcher. The node's clock is in no way of the controller's detach,
/// and a node that is gone is asked nothing.
fn clock(case: &Case<'_>) -> Option<Finding> {
    let asks_node = case.claim.state != State::NodeDetached && case.gone_by().is_none();
    service::in_the_way(case.facts, case.claim).or_else(|| {
        let node = case.node()?.as_ref().ok().filter(|_| asks_node)?;
        crate::node::wrong_clock(node)
    })
}

/// The plugin has no healthy instance that can make the step.
fn plugin_down(case: &Case<'_>) -> Option<Finding> {
    if case.claim.step?.is_controller() { controller::down(case) } else { node::plugin_down(case) }
}

/// The result of the last try, or the state of the current one.
fn last_error(case: &Case<'_>) -> Option<Finding> {
    if case.claim.step?.is_controller() { controller::trouble(case) } else { node::trouble(case) }
}

/// A volumewatcher runs, but has not begun the next call of the release.
fn held_back(case: &Case<'_>) -> Option<Finding> {
    let claim = case.claim;
    let is_due = claim.attempt.is_none() && claim.next_try.is_none_or(|next| next <= case.now());
    // When the alloc of a granted claim has ended is on no record of the claim.
    let since = if claim.state == State::Taken { case.ended() } else { None };
    let waits = case.now().since(since.unwrap_or(claim.since)).as_secs() >= 5;
    // Whether a volumewatcher runs is told before this rule by those that ask for one.
    let is_watched = case.facts.services.contains_key(VOLUMEWATCHER.name);
    let ping = (!is_watched).then(|| next::ping(VOLUMEWATCHER.name));
    let due = match claim.state {
        State::Taken => "its alloc has ended, and its release is not begun".to_owned(),
        _ => format!("its next call is due and not begun, for {}", ago(claim.since, case.now())),
    };
    (claim.step.is_some() && is_due && waits && claim.state != State::Publishing).then(|| {
        Finding::new(
            Cause::UnderWay,
            Actor::NOBODY,
            format!(
                "{due}: the volumewatcher has no room for it, or another claim of the volume is \
                 at its call"
            ),
        )
        .shown_by(case.evidence())
        .next_if_known(ping)
        .next(format!(
            "berth claim status --volume {}{}",
            hint::quoted(claim.volume.as_str()),
            hint::namespace_option(&claim.namespace)
        ))
    })
}

/// Another claim uses the attachment that this claim must release.
fn standing_use(case: &Case<'_>) -> Option<Finding> {
    let claim = case.claim;
    if claim.state != State::NodeDetached || claim.attempt.is_some() {
        return None;
    }
    let kind = match claim.wait? {
        ClaimWait::OtherName => Cause::RegisteredTwice,
        ClaimWait::Attachment => Cause::HeldByOthers,
        _ => return None,
    };
    let sentence = format!("its detach waits for {}", claim.waits_for.as_ref()?);
    let finding = Finding::new(kind, Actor::You, sentence);
    Some(
        finding
            .shown_by(claim.hint.clone())
            .next(next::why_volume(&claim.volume, &claim.namespace)),
    )
}

/// A claim of the same volume of the plugin under another name keeps the controller from detaching
/// this one. Only the claim service knows that claim.
pub fn behind_other_name(namespace: &Namespace, other: &OtherClaim) -> Finding {
    let reason = WaitReason::OtherName(namespace, other);
    let sentence = format!("its detach waits for {reason}");
    if !other.stands {
        let sentence = format!("{sentence}, by the deadline of that call at the latest");
        return Finding::new(Cause::RegisteredTwice, Actor::NOBODY, sentence);
    }
    let is_visible = other.volume.namespace == *namespace;
    let stop = || next::stop_alloc(&other.alloc, namespace, "once its workload has ended");
    Finding::new(Cause::RegisteredTwice, Actor::You, sentence)
        .next_if_known(is_visible.then(stop))
        .next("# if both volumes are registered, then deregister one of them")
}
