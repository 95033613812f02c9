//! What an error answer means to the caller.
//!
//! The answer itself has the sentence and the next step. [`judge`] finds its cause and who acts.

use berth_contract::code::Code;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::volume::VolumeStatus;
use berth_contract::problem::Problem;
use berth_domain::access::Mode;
use berth_domain::volume::State;
use berth_domain::{NodeId, VolumeKey};

use crate::cause::Cause;
use crate::claim::{Case, find_holder, find_in_the_way, keeps_itself};
use crate::facts::Facts;
use crate::finding::Finding;
use crate::judgement::judge;
use crate::next;
use crate::obstacle::show_processes;
use crate::record::{is_unreadable, unreadable_record};
use crate::span::ago;

/// The cause that an error answer names.
pub fn find_problem(problem: &Problem) -> Finding {
    if is_unreadable(problem) {
        return unreadable_record(problem);
    }
    let (cause, who) = judge(problem);
    let node = problem.node.as_ref().and_then(|node| node.parse().ok());
    let processes = node.and_then(|node| show_processes(&node, &problem.processes));
    let advice = Some(format!("# {}", problem.next)).filter(|_| !problem.next.is_empty());
    Finding::new(cause, who, problem.to_string()).next_if_known(processes.or(advice))
}

/// Whether the volume's claims explain more than the error answer with this code.
pub const fn is_of_holders(code: Code) -> bool {
    matches!(code, Code::Held | Code::AccessInUse | Code::Waiting | Code::Releasing)
}

/// Why the caller cannot use the volume on this node in this mode: because of its holders, if they
/// were read; otherwise what the error answer says. The answer's own advice about holders is for
/// callers that can wait.
pub fn find_unusable(
    facts: &Facts,
    key: &VolumeKey,
    (node, mode): (&NodeId, Mode),
    problem: &Problem,
) -> Finding {
    let volume = facts.volumes.get(key).and_then(|volume| volume.as_ref().ok());
    let volume = volume.filter(|_| is_of_holders(problem.code));
    let holder = volume.and_then(|VolumeStatus { claims, in_use, .. }| {
        let is_released_here = |claim: &&ClaimStatus| {
            let is_leaving = matches!(claim.state, State::Unpublishing | State::NodeDetached);
            is_leaving && claim.node == *node
        };
        // The caller's own earlier claim is in the way.
        if problem.code == Code::Releasing {
            return find_holder(facts, claims.iter().filter(is_released_here));
        }
        find_in_the_way(facts, in_use.map(|usage| usage.access), claims, (node, mode))
    });
    match holder {
        Some((holder, finding)) => explain_holder(&holder, finding, problem),
        None if is_of_holders(problem.code) => Finding {
            next: vec![next::why_volume(&key.volume, &key.namespace)],
            ..find_problem(problem)
        },
        None => find_problem(problem),
    }
}

/// The holder keeps the volume, or something keeps the holder from giving it up.
fn explain_holder(holder: &Case<'_>, finding: Finding, problem: &Problem) -> Finding {
    let ClaimStatus { alloc, node, volume, since, state, hint, .. } = holder.claim;
    let (since, code) = (ago(*since, holder.now()), problem.code);
    let in_use = format!("volume {volume} is in use ({code}): {alloc} on node {node}");
    let sentence = if keeps_itself(holder, &finding) {
        format!("{in_use} has held it for {since}")
    } else {
        format!("{in_use}, {state} for {since}: {}", finding.sentence)
    };
    // The claim service has read more records: its hint is more useful than a late cause.
    let hint = hint.as_ref().filter(|_| finding.cause >= Cause::UnderWay);
    let hint = hint.map(|hint| format!("# {hint}"));
    Finding { sentence, ..finding }.shown_by([problem.to_string()]).next_if_known(hint)
}
