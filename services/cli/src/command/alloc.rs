//! `berth alloc …`

use std::time::Duration;

use berth_contract::hint::{namespace_option, quoted};
use berth_contract::message::alloc::{
    self as message, AllocQuery, ListAllocs, StopAlloc, Wait, WaitUntil, Waited,
};
use berth_contract::message::many::Adopt;
use berth_contract::message::owner::ListOwners;
use berth_contract::verb;
use berth_domain::alloc::AllocState;
use berth_domain::limits;
use berth_service::clock;
use tokio::time::Instant;

use super::listing::{self, PollAnswer, ask_newer};
use crate::args::{AllocAdopt, AllocStatus, AllocStop, AllocWait, OwnerList};
use crate::failure::Failure;
use crate::output::{more, print_note};
use crate::release::{Follow, unfinished};
use crate::session::{Patience, Session};
use crate::show;

/// How long `--wait` waits without a `--timeout`.
const RELEASE_PATIENCE: Duration = Duration::from_secs(300);

/// Lists allocs, or shows one.
pub async fn status(args: &AllocStatus, session: &Session) -> Result<(), Failure> {
    if let Some(id) = &args.id {
        let ask = async |newer| {
            let body = AllocQuery { newer, ..AllocQuery::current(id.clone()) };
            let shown =
                ask_newer::<verb::AllocStatus>(session, &session.namespace, &body, newer).await?;
            Ok(PollAnswer { index: shown.status_index, shown, next: None })
        };
        let table = |alloc: &message::AllocStatus| show::alloc(alloc, clock::now());
        return listing::show(session, args.view.watch, ask, table).await;
    }
    // Records of ended allocs are kept for a while, and soon outnumber the others.
    let only_live = args.state.is_none() && !args.all;
    let none_text = only_live.then_some("no live allocs; --all shows also those that have ended");
    let request = |newer| ListAllocs {
        prefix: args.prefix.clone(),
        node: args.node.clone(),
        state: if only_live { Some(AllocState::Live) } else { args.state },
        owner: args.owner.clone(),
        meta: args.meta.iter().cloned().collect(),
        unowned: args.unowned,
        page: (&args.page).into(),
        newer,
        ..ListAllocs::default()
    };
    listing::list::<verb::AllocList>(session, &session.namespace, &args.view, none_text, request)
        .await
}

/// Stops an alloc, and with `--wait` prints each step of the release.
pub async fn stop(args: &AllocStop, session: &Session) -> Result<(), Failure> {
    let AllocStop { id, wait, reason, owner, revision } = args;
    let body = StopAlloc {
        owner: owner.clone(),
        revision: *revision,
        ..StopAlloc::new(id.clone(), AllocState::Stopped, reason.clone())
    };
    let mut follow = if *wait { Some(Follow::open(session, id).await) } else { None };
    let stopped = session.ask_service::<verb::AllocStop>(&session.namespace, &body).await?;
    let Some(follow) = &mut follow else {
        session.output.reply(&stopped, |stopped| show::alloc(stopped, clock::now()));
        return Ok(());
    };
    let until = Instant::now() + session.timeout.unwrap_or(RELEASE_PATIENCE);
    // The alloc's record may be gone: then its last status applies, without its claims.
    let ended = follow.print_steps(until).await?;
    let ended = ended.unwrap_or(message::AllocStatus { claims: Vec::new(), ..stopped });
    if let Some(unfinished) = unfinished(&ended) {
        return Err(unfinished);
    }
    session.output.reply(&ended, |ended| show::alloc(ended, clock::now()));
    print_note(format_args!("all volumes of {id} are free"));
    Ok(())
}

/// How long one request of a wait waits.
const ASK_FOR: Duration = Duration::from_secs(30);
/// How long `berth alloc wait` waits without a `--timeout`.
const WAIT_PATIENCE: Duration = Duration::from_secs(300);

/// Waits until an alloc is as far as that.
pub async fn wait(args: &AllocWait, session: &Session) -> Result<(), Failure> {
    let until = Instant::now() + session.timeout.unwrap_or(WAIT_PATIENCE);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let wait_for = left.min(ASK_FOR);
        let wait_ms = u64::try_from(wait_for.as_millis()).ok();
        let body = Wait { id: args.id.clone(), until: args.until, wait_ms };
        let patience = Patience::lasting(wait_for + limits::REQUEST_TIMEOUT);
        let pursued = session.pursue::<verb::AllocWait>(&session.namespace, &body, patience);
        let Waited { reached, alloc } = pursued.await?;
        let Some(alloc) = alloc else {
            if reached {
                print_note(format_args!("alloc {} is not on record any more", args.id));
                return Ok(());
            }
            let next = "list them with `berth alloc list --all`";
            return Err(Failure::local(format!("no alloc {}", args.id), next));
        };
        if reached {
            session.output.reply(&alloc, |alloc| show::alloc(alloc, clock::now()));
            return Ok(());
        }
        if alloc.state.is_terminal() && args.until == WaitUntil::Mounted {
            let message =
                format!("alloc {} is {}, and is not mounted any more", alloc.id, alloc.state);
            return Err(Failure::local(message, "start its workload again, as a new alloc"));
        }
        if Instant::now() >= until {
            let name = format!("alloc/{}", alloc.id);
            let namespace = namespace_option(&session.namespace);
            let next =
                format!("see what it waits for with `berth why {}{namespace}`", quoted(&name));
            return Err(Failure::local(format!("alloc {} is not as far as that", alloc.id), next));
        }
    }
}

/// Takes over the allocs of an owner.
pub async fn adopt(args: &AllocAdopt, session: &Session) -> Result<(), Failure> {
    let AllocAdopt { from, owner, alloc } = args;
    let body = Adopt { from: from.clone(), owner: owner.clone(), ids: alloc.clone() };
    let adopted = session.ask_service::<verb::AllocAdopt>(&session.namespace, &body).await?;
    session.output.reply(&adopted, |adopted| show::list(&adopted.allocs, None, clock::now()));
    if adopted.more {
        print_note("there are more: ask again");
    }
    Ok(())
}

/// Lists owners.
pub async fn owners(args: &OwnerList, session: &Session) -> Result<(), Failure> {
    let body = ListOwners { prefix: args.prefix.clone(), page: (&args.page).into() };
    let owners = session.ask_service::<verb::OwnerList>(&session.namespace, &body).await?;
    session.output.reply(&owners, |owners| show::owners(owners, clock::now()));
    more(owners.next.as_ref());
    Ok(())
}
