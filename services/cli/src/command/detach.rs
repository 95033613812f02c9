//! `berth volume detach`

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::hint::namespace_option;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::volume::{Detach as Message, Detached};
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::Timestamp;
use berth_service::clock;

use crate::args::Detach;
use crate::command::node;
use crate::failure::Failure;
use crate::release::describe;
use crate::session::Session;
use crate::table::plain;
use crate::wait::{WaitStep, Waiter};
use crate::{exit, span};

/// How long the command waits for the end of the last claim, unless `--timeout` is given.
const DETACH_PATIENCE: Duration = Duration::from_secs(60);
/// Pause between the repeated requests until no claim is left.
const RELEASE_POLL: Duration = Duration::from_millis(300);

/// Releases the node's claims on a volume, and waits until they are gone.
pub async fn detach(args: &Detach, session: &Session) -> Result<(), Failure> {
    let by = || args.by.clone().unwrap_or_else(node::user_and_host);
    let body = Message {
        id: args.id.clone(),
        node: args.node.clone(),
        reason: args.reason.clone(),
        confirmed_by: args.detached_at_storage.then(by),
        unstaged_by: args.unstaged_on_node.then(by),
    };
    let patience = session.patience(DETACH_PATIENCE);
    let mut waiter = Waiter::begin("release");
    let (mut left, mut had_claims) = (None, false);
    // The request is repeated, which is harmless: its reply names the claims that are left.
    let end = waiter.poll(patience.until, RELEASE_POLL, async |waiter| {
        let reply = session.pursue::<verb::VolumeDetach>(&session.namespace, &body, patience);
        Ok(match reply.await {
            Err(failure) if had_claims => Break(Err(explain_new_claims(args, failure))),
            Err(failure) => Break(Err(failure)),
            Ok(detached) if detached.gone => Break(Ok(detached)),
            Ok(detached) if !detached.unaccounted.is_empty() => Break(Err(unaccounted(&detached))),
            Ok(detached) => {
                for (subject, step) in steps(&detached, clock::now()) {
                    waiter.step(&subject, &step);
                }
                had_claims |= !detached.claims.is_empty();
                left = Some(detached);
                Continue(())
            }
        })
    });
    match (end.await?, left) {
        (Some(end), _) => session.output.reply(&end?, done),
        (None, Some(unfinished_claims)) => {
            return Err(unfinished(&unfinished_claims, waiter.waited(), clock::now()));
        }
        // Each read answers or ends the wait.
        (None, None) => {}
    }
    Ok(())
}

/// The claims that are left, and the hint, with what each is about.
fn steps(detached: &Detached, now: Timestamp) -> Vec<(String, WaitStep)> {
    let claim = |claim: &ClaimStatus| (claim.alloc.to_string(), describe_claim(claim, now));
    let hint = detached.hint.as_deref().map(|hint| (String::new(), plain(hint).into()));
    detached.claims.iter().map(claim).chain(hint).collect()
}

/// `a on data: unpublishing: …`
fn describe_claim(claim: &ClaimStatus, now: Timestamp) -> WaitStep {
    describe(claim, now).prefix_with(&claim.alloc, " on ")
}

fn done(detached: &Detached) -> String {
    let Detached { id, node, hint, .. } = detached;
    match hint {
        Some(hint) => format!("volume {id} is not on node {node}: {}", plain(hint)),
        None => format!("volume {id} is detached from node {node}"),
    }
}

/// Mounts that no claim covers stay until an operator removes them.
fn unaccounted(detached: &Detached) -> Failure {
    let Detached { id, node, unaccounted, hint, .. } = detached;
    Failure::Local {
        exit: exit::UNAVAILABLE,
        message: format!(
            "volume {id} is not detached from node {node}: {}",
            unaccounted.join("; ")
        ),
        next: hint.as_deref().map(plain).unwrap_or_default(),
    }
}

/// The claims that are left, with all that is known of them.
fn unfinished(detached: &Detached, waited: Duration, now: Timestamp) -> Failure {
    let Detached { id, node, left, claims, hint, .. } = detached;
    let mut lines: Vec<String> =
        claims.iter().map(|claim| describe_claim(claim, now).to_string()).collect();
    if let Some(more) = left.checked_sub(claims.len()).filter(|more| *more > 0) {
        lines.push(format!("{more} more"));
    }
    let namespace = claims.first().map(|claim| namespace_option(&claim.namespace));
    let namespace = namespace.unwrap_or_default();
    let goes_on =
        format!("`berth claim status --volume {id}{namespace}` shows how far it is; it goes on");
    let next = match hint {
        Some(hint) => format!("{}\n{goes_on}", plain(hint)),
        None => goes_on,
    };
    let waited = span::short(waited);
    let message = if lines.is_empty() {
        format!("it is not known after {waited} whether volume {id} is still on node {node}")
    } else {
        format!("volume {id} is still on node {node} after {waited}: {}", lines.join("; "))
    };
    Failure::Local { exit: exit::UNAVAILABLE, message, next }
}

/// The volume is on the node although its claims were released: a new claim was made since.
fn explain_new_claims(args: &Detach, failure: Failure) -> Failure {
    match failure {
        Failure::Problem(problem) if problem.code == Code::ClaimsLive => {
            let message = format!(
                "the claims that volume {} had on node {} are released, and a new claim was \
                 made there since: {}",
                args.id, args.node, problem.message
            );
            Failure::Problem(Box::new(Problem { message, ..*problem }))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use berth_contract::message::claim::ClaimStatus;
    use berth_domain::access::Mode;
    use berth_domain::volume::State;
    use berth_domain::{Namespace, NodeId, VolumeId};

    use super::*;

    fn detached(tries: u32, hint: Option<&str>) -> Detached {
        let (id, node) = (VolumeId::new("data").unwrap(), NodeId::new("n7").unwrap());
        let claim: ClaimStatus = serde_json::from_value(serde_json::json!({
            "namespace": Namespace::default(), "volume": id, "alloc": "a", "node": node,
            "state": State::Unpublishing, "mode": Mode::Write, "since": Timestamp::default(),
            "tries": tries, "error": (tries > 0).then_some("no responders"), "epoch": 7,
            "next_try": Timestamp::from_unix_ms(4000),
        }))
        .unwrap();
        let hint = hint.map(str::to_owned);
        let unaccounted = Vec::new();
        Detached { id, node, gone: false, left: 1, claims: vec![claim], hint, unaccounted }
    }

    #[test]
    fn each_claim_and_each_hint_is_a_step() {
        let now = Timestamp::from_unix_ms(1000);
        let all_steps = steps(&detached(1, Some("start its agent")), now);
        let all_steps: Vec<String> =
            all_steps.into_iter().map(|(_, step)| step.to_string()).collect();
        assert!(
            all_steps[0].contains("a on data: unpublishing")
                && all_steps[0].contains("no responders")
        );
        assert_eq!(all_steps[1..], ["start its agent"]);
        assert_eq!(steps(&detached(0, None), now).len(), 1);
    }

    #[test]
    fn an_unfinished_release_names_each_claim_with_its_error_and_next_try() {
        let two_left = detached(2, Some("start its agent"));
        let failure = unfinished(&two_left, Duration::from_secs(60), Timestamp::from_unix_ms(1000));
        assert_eq!(failure.exit(), exit::UNAVAILABLE);
        let text = failure.to_string();
        for part in ["n7", "try 2 failed: no responders, next in 3.0s", "start its agent"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
