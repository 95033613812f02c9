//! `berth events`: past events, and new ones.

use berth_contract::message::history::{EventEntry, EventKind, ListEvents};
use berth_service::clock;
use tokio::signal::ctrl_c;

use crate::args::Events;
use crate::failure::Failure;
use crate::history::{EVENTS_MAX, History};
use crate::output::{self, print_note};
use crate::session::Session;
use crate::show::{self, Zone};

/// Number of events that are shown without an option.
const EVENTS_SHOWN: usize = 50;

/// Prints the newest events, oldest first; then, with `--follow`, each new one.
pub async fn events(args: &Events, session: &Session) -> Result<(), Failure> {
    let request = request(args);
    let mut history = History::new(session, may_be_of_fleet(&request));
    let last = match (args.last, args.since) {
        (Some(last), _) => usize::from(last),
        (None, Some(_)) => EVENTS_MAX,
        (None, None) => EVENTS_SHOWN,
    };
    let past = history.read_newest(&request, last).await?;
    if past.more && args.last.is_none() && args.since.is_some() {
        print_note(format_args!(
            "only the newest {last} are shown; see others with a shorter --since"
        ));
    }
    let zone = Zone::local();
    let print = |entry: &EventEntry| {
        let body = &entry.event;
        output::line(&if session.output.json { body.to_json() } else { show::event(body, &zone) })
    };
    // Printing fails when the reader of stdout has closed it.
    if past.events.iter().any(|entry| print(entry).is_err()) || !args.follow {
        return Ok(());
    }
    let mut follow = history.follow(request, past.end).await;
    let mut stop = std::pin::pin!(ctrl_c());
    loop {
        let entries = tokio::select! {
            entries = follow.next() => entries?,
            _ = &mut stop => return Ok(()),
        };
        if entries.iter().any(|entry| print(entry).is_err()) {
            return Ok(());
        }
    }
}

/// The events that the options ask for.
fn request(args: &Events) -> ListEvents {
    ListEvents {
        kinds: args.kind.iter().copied().map(EventKind::from).collect(),
        volumes: args.volume.iter().cloned().collect(),
        allocs: args.alloc.iter().cloned().collect(),
        node: args.node.clone(),
        plugin: args.plugin.clone(),
        since: args.since.map(|span| clock::now().before(span)),
        ..ListEvents::default()
    }
}

/// Whether events of no namespace can match: those of nodes and plugins.
fn may_be_of_fleet(request: &ListEvents) -> bool {
    let is_of_namespace = !request.volumes.is_empty() || !request.allocs.is_empty();
    let kinds = &request.kinds;
    !is_of_namespace && (kinds.is_empty() || kinds.iter().any(|kind| kind.is_of_fleet()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn all_namespaces_are_asked_only_where_nodes_and_plugins_can_match() {
        for (line, expected) in [
            ("events", true),
            ("events --node n1", true),
            ("events --kind plugin,claim", true),
            ("events --kind claim,request", false),
            ("events --kind snapshot", false),
            ("events --volume data", false),
            ("events --alloc web-1 --node n1", false),
        ] {
            let cli = Cli::try_parse_from(["berth"].into_iter().chain(line.split(' '))).unwrap();
            let Command::Events(args) = &cli.command else { panic!("{cli:?}") };
            assert_eq!(may_be_of_fleet(&request(args)), expected, "{line}");
        }
    }
}
