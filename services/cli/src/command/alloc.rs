//! `berth alloc …`

use std::time::Duration;

use berth_contract::message::alloc::{self as message, Allocs};
use berth_contract::subject::Namespaced;
use berth_domain::alloc::AllocState;
use berth_service::clock;
use tokio::time::Instant;

use crate::args::{AllocStatus, AllocStop};
use crate::failure::Failure;
use crate::output::{more, say};
use crate::release::{Follow, unfinished};
use crate::session::Session;
use crate::show;

/// How long `--wait` waits, unless said otherwise.
const RELEASE_PATIENCE: Duration = Duration::from_secs(300);

/// Lists allocs, or shows one.
pub async fn status(args: &AllocStatus, session: &Session) -> Result<(), Failure> {
    if let Some(id) = &args.id {
        let body = message::Status::of(id.clone());
        let alloc: message::AllocStatus =
            session.ask(&session.about(Namespaced::AllocStatus), &body).await?;
        session.output.reply(&alloc, |alloc| show::alloc(alloc, clock::now()));
        return Ok(());
    }
    let body = message::List {
        prefix: args.prefix.clone(),
        node: args.node.clone(),
        state: args.state,
        page: (&args.page).into(),
        ..message::List::default()
    };
    let allocs: Allocs = session.ask(&session.about(Namespaced::AllocList), &body).await?;
    session.output.reply(&allocs, |allocs| show::allocs(allocs, clock::now()));
    more(allocs.next.as_ref());
    Ok(())
}

/// Stops an alloc, and with `--wait` tells each step of the release.
pub async fn stop(args: &AllocStop, session: &Session) -> Result<(), Failure> {
    let AllocStop { id, wait, reason } = args;
    let body = message::Stop { id: id.clone(), state: AllocState::Stopped, note: reason.clone() };
    let mut follow = if *wait { Some(Follow::begin(session, id).await) } else { None };
    let stopped: message::AllocStatus =
        session.ask(&session.about(Namespaced::AllocStop), &body).await?;
    let Some(follow) = &mut follow else {
        session.output.reply(&stopped, |stopped| show::alloc(stopped, clock::now()));
        return Ok(());
    };
    let until = Instant::now() + session.timeout.unwrap_or(RELEASE_PATIENCE);
    // What is not there any more is as it was when it was stopped, less its claims.
    let ended = follow.to_the_end(until).await?;
    let ended = ended.unwrap_or(message::AllocStatus { claims: Vec::new(), ..stopped });
    if let Some(unfinished) = unfinished(&ended) {
        return Err(unfinished);
    }
    session.output.reply(&ended, |ended| show::alloc(ended, clock::now()));
    say(format_args!("all volumes of {id} are free"));
    Ok(())
}
