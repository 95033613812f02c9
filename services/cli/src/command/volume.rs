//! `berth volume …`

use std::time::Duration;

use berth_contract::hint::{namespace_option, quoted};
use berth_contract::message::many::{DeregisterAnswer, DeregisterMany};
use berth_contract::message::query::LongPoll;
use berth_contract::message::storage::Create;
use berth_contract::message::volume::{
    self, Deregistered, ListPlacements, ListVolumes, RegisterVolume, VolumeQuery, VolumeStatus,
};
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::alloc::VolumeRequest;
use berth_domain::{Namespace, VolumeId};
use berth_service::clock;

use super::external;
use super::listing::{self, PollAnswer, ask_newer};
use super::{many, spec};
use crate::args::{self, Deregister, Init, List, VolumeArg};
use crate::failure::Failure;
use crate::output::more;
use crate::session::Session;
use crate::{show, table};

/// How long a deregistration among several is sent again while its refusal may pass.
const DEREGISTER_PATIENCE: Duration = Duration::from_secs(5);

/// Writes an example of a volume's file.
pub fn init(args: &Init, json: bool) -> Result<(), Failure> {
    let file = args.file.as_deref();
    if args.create {
        spec::write_example::<Create>(file, json)
    } else {
        spec::write_example::<RegisterVolume>(file, json)
    }
}

/// Lists volumes, or shows one.
pub async fn status(args: &List, session: &Session) -> Result<(), Failure> {
    if let Some(plugin) = &args.external {
        return external::list_volumes(plugin, args.view.sort.as_deref(), session).await;
    }
    if let Some(id) = &args.id {
        let ask = async |newer| {
            let body = VolumeQuery { newer, ..VolumeQuery::current(id.clone()) };
            let shown =
                ask_newer::<verb::VolumeStatus>(session, &session.namespace, &body, newer).await?;
            Ok(PollAnswer { index: shown.modify_index, shown, next: None })
        };
        let table = |volume: &VolumeStatus| show::volume(volume, clock::now());
        return listing::show(session, args.view.watch, ask, table).await;
    }
    let request = |newer| ListVolumes {
        prefix: args.prefix.clone(),
        plugin: args.plugin.clone(),
        node: args.node.clone(),
        state: args.state,
        page: (&args.page).into(),
        newer,
        ..ListVolumes::default()
    };
    listing::list::<verb::VolumeList>(session, &session.namespace, &args.view, None, request).await
}

/// Prints which nodes could host volumes.
pub async fn placement(args: &args::Placement, session: &Session) -> Result<(), Failure> {
    let request = |volume: &VolumeArg| VolumeRequest {
        per_alloc: args.per_alloc.is_some(),
        read_only: volume.read_only,
        access: args.access,
        attachment: args.attachment,
        ..VolumeRequest::for_volume(volume.source.clone())
    };
    let body = ListPlacements {
        volumes: args.volumes.iter().chain(&args.as_of_run).map(request).collect(),
        index: args.per_alloc,
        node: args.node.clone(),
        page: (&args.page).into(),
        newer: LongPoll::default(),
    };
    let nodes = session.ask_service::<verb::VolumePlacement>(&session.namespace, &body).await?;
    session.output.reply(&nodes, show::placements);
    more(nodes.next.as_ref());
    Ok(())
}

/// Deregisters volumes.
pub async fn deregister(args: &Deregister, session: &Session) -> Result<(), Failure> {
    let Deregister { ids, force, reason } = args;
    let request = |id: &VolumeId| volume::Deregister {
        id: id.clone(),
        force: *force,
        reason: reason.clone(),
        create_index: None,
    };
    let text = |answer: &Deregistered| deregistered_text(&session.namespace, answer);
    if let [id] = ids.as_slice() {
        let body = request(id);
        let gone = session.ask_service::<verb::VolumeDeregister>(&session.namespace, &body).await?;
        session.output.reply(&gone, text);
        return Ok(());
    }
    let until = session.patience(DEREGISTER_PATIENCE).until;
    let requests: Vec<_> = ids.iter().map(request).collect();
    let ask = async |volumes| {
        let body = DeregisterMany { volumes };
        let reply = session.ask_service::<verb::VolumeDeregisterMany>(&session.namespace, &body);
        Ok(reply.await?.answers.into_iter().map(result).collect())
    };
    let answers = many::ask_each(&requests, until, ask).await?;
    many::report(answers, session, text)
}

fn result(answer: DeregisterAnswer) -> Result<Deregistered, Problem> {
    let DeregisterAnswer { id, deregistered, error } = answer;
    deregistered.ok_or_else(|| error.unwrap_or_else(|| many::no_answer(&id)))
}

fn deregistered_text(namespace: &Namespace, answer: &Deregistered) -> String {
    let Deregistered { id, gone, claims, releasing, mounts } = answer;
    if *gone {
        return format!("volume {id} is deregistered");
    }
    let allocs: Vec<&str> = releasing.iter().map(AsRef::as_ref).collect();
    let waits_for = match allocs.as_slice() {
        [] => "once nothing has it mounted".to_owned(),
        allocs => {
            let more = claims.saturating_sub(allocs.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("with the last claim of {}{more}", allocs.join(", "))
        }
    };
    let mounts = mounts.iter().map(|doubt| format!("\nit may be in use still: {doubt}"));
    format!(
        "volume {id} is closed: it takes no new claims, and goes {}{}\n\
         follow it with: berth volume status {}{}",
        table::plain(&waits_for),
        table::plain(&mounts.collect::<String>()),
        quoted(id.as_str()),
        namespace_option(namespace)
    )
}
