//! `berth events`: past events, and new ones.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_bus::event::{LAST_MAX, Query};
use berth_contract::event::Event;
use berth_contract::stream::EVENTS;
use berth_contract::subject::{EventsOf, event_filter, refusal_filter};
use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeId};
use berth_service::clock;
use tokio::signal::ctrl_c;

use crate::args::{Events, Kind};
use crate::failure::Failure;
use crate::output::{self, print_note};
use crate::session::Session;
use crate::show::{self, StoredEvent, Zone};

/// How many events are shown without an option.
const LAST: usize = 50;
/// How long reading may take without a `--timeout`: the stream may hold its 256 MiB.
pub(super) const READING: Duration = Duration::from_secs(30);

/// Prints the newest events, oldest first; then, with `--follow`, each new one.
pub async fn events(args: &Events, session: &Session) -> Result<(), Failure> {
    let log = session.bus.event_log(&EVENTS);
    let filters = filters(args, &session.namespace);
    let last = match (args.last, args.since) {
        (Some(last), _) => usize::from(last),
        (None, Some(_)) => LAST_MAX,
        (None, None) => LAST,
    };
    let query = Query {
        filters: &filters,
        last,
        since: args.since.map(|span| clock::now().before(span)),
        within: session.timeout.unwrap_or(READING),
    };
    let read = |body: &[u8]| StoredEvent::read(body).filter(|told| matches(args, &told.event));
    let stored = log.read(query, |event| read(&event.body).is_some()).await;
    let stored = stored.map_err(|error| error.into_problem("events"))?;
    if stored.more && args.last.is_none() && args.since.is_some() {
        print_note(format_args!(
            "only the newest {last} are shown; see others with a shorter --since"
        ));
    }
    let zone = Zone::local();
    let print = |told: StoredEvent| {
        output::line(&if session.output.json { told.json } else { show::event(&told, &zone) })
    };
    for told in stored.events.iter().filter_map(|event| read(&event.body)) {
        if print(told).is_err() {
            return Ok(());
        }
    }
    if !args.follow {
        return Ok(());
    }
    let mut feed = log.follow_from(&filters, stored.next);
    let mut stop = std::pin::pin!(ctrl_c());
    loop {
        let event = tokio::select! {
            event = feed.next() => event,
            _ = &mut stop => return Ok(()),
        };
        if let Some(told) = read(&event.body)
            && print(told).is_err()
        {
            // The reader of stdout closed it.
            return Ok(());
        }
    }
}

/// The fewest subjects that cover the requested events; no two of them overlap.
fn filters(args: &Events, namespace: &Namespace) -> Vec<String> {
    let of = events_of(namespace);
    let volume = args.volume.as_ref().map(VolumeId::as_str);
    if args.kind.is_empty() {
        // Kinds of a newer version are included.
        let own = event_filter(of, None, volume);
        return match (volume, of) {
            (Some(_), _) => vec![own, refusal_filter(of, args.volume.as_ref(), None)],
            (None, EventsOf::All) => vec![own],
            (None, _) => vec![event_filter(EventsOf::None, None, None), own],
        };
    }
    let of_kind = |kind: Kind| {
        let (of, id) = match kind {
            Kind::Request => {
                return refusal_filter(of, args.volume.as_ref(), args.alloc.as_ref());
            }
            Kind::Volume | Kind::Claim | Kind::Call => (of, volume),
            Kind::Alloc => (of, args.alloc.as_ref().map(AllocId::as_str)),
            Kind::Plugin => (EventsOf::None, args.plugin.as_ref().map(PluginId::as_str)),
            Kind::Node => (EventsOf::None, args.node.as_ref().map(NodeId::as_str)),
        };
        event_filter(of, Some(kind.as_str()), id)
    };
    // Each subject once, however often its option was given.
    let said: BTreeSet<Kind> = args.kind.iter().copied().collect();
    said.into_iter().map(of_kind).collect()
}

/// The events of a namespace; `*` means all namespaces.
pub(super) fn events_of(namespace: &Namespace) -> EventsOf<'_> {
    if namespace.as_str() == "*" { EventsOf::All } else { EventsOf::Namespace(namespace) }
}

/// Whether an event matches all options.
fn matches(args: &Events, event: &Event) -> bool {
    fn is_wanted<T: PartialEq>(asked: Option<&T>, found: Option<&T>) -> bool {
        asked.is_none() || asked == found
    }
    is_wanted(args.volume.as_ref(), event.volume.as_ref())
        && is_wanted(args.alloc.as_ref(), event.alloc.as_ref())
        && is_wanted(args.node.as_ref(), event.node.as_ref())
        && is_wanted(args.plugin.as_ref(), event.plugin.as_ref())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn filters_of(line: &str) -> Vec<String> {
        let cli = Cli::try_parse_from(["berth", "events"].into_iter().chain(line.split(' ')));
        let cli = cli.unwrap();
        let Command::Events(args) = &cli.command else { panic!("{cli:?}") };
        let all = filters(args, &cli.global.namespace());
        all.iter()
            .map(|filter| filter.strip_prefix("berth.v1.event.").unwrap().to_owned())
            .collect()
    }

    #[test]
    fn subjects_narrow_down_what_is_read_and_never_overlap() {
        for (line, expected) in [
            ("--namespace default", &["_.>", "default.>"][..]),
            ("--namespace *", &["*.>"]),
            ("--volume a.b", &["default.*.a=2Eb.*.*", "default.request.a=2Eb.*.*.*"]),
            ("--namespace * --volume v", &["*.*.v.*.*", "*.request.v.*.*.*"]),
            ("--kind request --volume v", &["default.request.v.*.*.*"]),
            ("--kind request,alloc --alloc a", &["default.alloc.a.*.*", "default.request.*.a.*.*"]),
            ("--kind claim,call,claim --volume v", &["default.claim.v.*.*", "default.call.v.*.*"]),
            ("--kind alloc --alloc web-1", &["default.alloc.web-1.*.*"]),
            ("--kind plugin,node --node n1", &["_.plugin.>", "_.node.n1.*.*"]),
            ("--alloc web-1", &["_.>", "default.>"]),
        ] {
            assert_eq!(filters_of(line), expected, "{line}");
        }
    }
}
