//! The end of a `berth run`: the alloc is stopped, and its release printed.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::alloc::StopAlloc;
use berth_contract::verb;
use berth_domain::alloc::AllocState;
use tokio::time::Instant;

use super::plan::Plan;
use super::signals::Signals;
use crate::failure::Failure;
use crate::output::print_note;
use crate::release::{Follow, unfinished};
use crate::session::{Patience, Session};

/// How long the stop of the alloc is retried.
const STOP_PATIENCE: Duration = Duration::from_secs(60);
/// How long the release is followed.
const RELEASE_PATIENCE: Duration = Duration::from_secs(60);

/// Stops the alloc and prints each step of its release. Returns whether the claim service has
/// recorded the end. On a failure, prints what is left.
pub async fn stop(
    session: &Session,
    plan: &Plan,
    state: AllocState,
    note: String,
    no_wait_release: bool,
    signals: &mut Signals,
) -> bool {
    let mut is_stopped = false;
    let outcome = tokio::select! {
        end = try_to_stop(session, plan, state, note, no_wait_release, &mut is_stopped) => end,
        signal = signals.ending() => {
            print_note(format_args!("{signal}: no longer watching the release"));
            Err(None)
        }
    };
    if let Err(failure) = outcome {
        if let Some(failure) = failure {
            print_note(&failure);
        }
        print_note(if is_stopped {
            how_it_goes_on(session, plan)
        } else {
            how_to_finish(session, plan)
        });
    }
    is_stopped
}

async fn try_to_stop(
    session: &Session,
    plan: &Plan,
    state: AllocState,
    note: String,
    no_wait_release: bool,
    is_stopped: &mut bool,
) -> Result<(), Option<Failure>> {
    let body = StopAlloc::new(plan.alloc.clone(), state, Some(note));
    let mut follow = None;
    if !no_wait_release {
        follow = Some(Follow::open(session, &plan.alloc).await);
    }
    let patience = Patience::lasting(STOP_PATIENCE).each(Duration::from_secs(5));
    let reply = session.pursue::<verb::AllocStop>(&session.namespace, &body, patience);
    let stopped = match reply.await {
        Ok(stopped) => stopped,
        // The alloc was never registered, so it has no claim. Its registration may still arrive.
        Err(failure) if failure.code() == Some(Code::NoSuchAlloc) => return Ok(()),
        Err(failure) => return Err(Some(failure)),
    };
    *is_stopped = true;
    let Some(follow) = &mut follow else { return Ok(()) };
    if stopped.claims.is_empty() {
        return Ok(());
    }
    print_note(format_args!("releasing the volumes of {}", plan.alloc));
    let until = Instant::now() + RELEASE_PATIENCE;
    let ended = follow.print_steps(until).await.map_err(Some)?;
    if let Some(failure) = ended.as_ref().and_then(unfinished) {
        // The volumewatcher continues without the operator.
        print_note(failure);
    }
    Ok(())
}

/// Prints that the release continues without us.
fn how_it_goes_on(session: &Session, plan: &Plan) -> String {
    format!(
        "the volumes of alloc {} are released without this; watch it: \
         berth alloc status {} --namespace {}",
        plan.alloc, plan.alloc, session.namespace
    )
}

/// The message if the claim service could not be reached: the node's agent stops the alloc, as
/// after a killed run.
fn how_to_finish(session: &Session, plan: &Plan) -> String {
    let volumes: Vec<&str> = plan.volumes().iter().map(|wanted| wanted.volume.as_ref()).collect();
    format!(
        "alloc {} on {} may still hold: {}\n\x20 \
         the agent of {} says that it has ended once it can; to say it now: \
         berth alloc stop {} --wait --namespace {}",
        plan.alloc,
        plan.node,
        volumes.join(", "),
        plan.node,
        plan.alloc,
        session.namespace
    )
}
