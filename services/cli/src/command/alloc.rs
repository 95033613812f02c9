//! `berth alloc …`

use std::time::Duration;

use berth_contract::message::alloc::{self as message, Allocs};
use berth_contract::verb;
use berth_domain::alloc::AllocState;
use berth_service::clock;
use tokio::time::Instant;

use super::listing::{self, PollAnswer, ask_newer};
use crate::args::{AllocStatus, AllocStop};
use crate::failure::Failure;
use crate::output::print_note;
use crate::release::{Follow, unfinished};
use crate::session::Session;
use crate::show;

/// How long `--wait` waits without a `--timeout`.
const RELEASE_PATIENCE: Duration = Duration::from_secs(300);

/// Lists allocs, or shows one.
pub async fn status(args: &AllocStatus, session: &Session) -> Result<(), Failure> {
    if let Some(id) = &args.id {
        let ask = async |newer| {
            let body = message::Status { newer, ..message::Status::current(id.clone()) };
            let shown =
                ask_newer::<verb::AllocStatus>(session, &session.namespace, &body, newer).await?;
            Ok(PollAnswer { index: shown.modify_index, shown, next: None })
        };
        let table = |alloc: &message::AllocStatus| show::alloc(alloc, clock::now());
        return listing::show(session, args.view.watch, ask, table).await;
    }
    listing::check_sort(&args.view, &show::ALLOC_COLUMNS)?;
    // Records of ended allocs are kept for a while, and soon outnumber the others.
    let only_live = args.state.is_none() && !args.all;
    let ask = async |newer| {
        let body = message::List {
            prefix: args.prefix.clone(),
            node: args.node.clone(),
            state: if only_live { Some(AllocState::Live) } else { args.state },
            page: (&args.page).into(),
            newer,
        };
        let shown = ask_newer::<verb::AllocList>(session, &session.namespace, &body, newer).await?;
        Ok(PollAnswer { index: shown.index, next: shown.next.clone(), shown })
    };
    let table = |allocs: &Allocs| {
        if only_live && allocs.allocs.is_empty() {
            return "no live allocs; --all shows also those that have ended\n".to_owned();
        }
        show::allocs(allocs, args.view.sort.as_deref(), clock::now())
    };
    listing::show(session, args.view.watch, ask, table).await
}

/// Stops an alloc, and with `--wait` prints each step of the release.
pub async fn stop(args: &AllocStop, session: &Session) -> Result<(), Failure> {
    let AllocStop { id, wait, reason } = args;
    let body = message::Stop { id: id.clone(), state: AllocState::Stopped, note: reason.clone() };
    let mut follow = if *wait { Some(Follow::open(session, id).await) } else { None };
    let stopped = session.ask_service::<verb::AllocStop>(&session.namespace, &body).await?;
    let Some(follow) = &mut follow else {
        session.output.reply(&stopped, |stopped| show::alloc(stopped, clock::now()));
        return Ok(());
    };
    let until = Instant::now() + session.timeout.unwrap_or(RELEASE_PATIENCE);
    // The alloc's record is gone: its last status applies, without its claims.
    let ended = follow.print_steps(until).await?;
    let ended = ended.unwrap_or(message::AllocStatus { claims: Vec::new(), ..stopped });
    if let Some(unfinished) = unfinished(&ended) {
        return Err(unfinished);
    }
    session.output.reply(&ended, |ended| show::alloc(ended, clock::now()));
    print_note(format_args!("all volumes of {id} are free"));
    Ok(())
}
