//! `history.list`: events, read from the stream for callers that may not read it themselves.
//!
//! **Promises** that a reply has only events of the namespaces that the request's subject names.
//! The subject of an event names its namespace.
//!
//! **Never** decides anything by an event.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_bus::event::{Event as Message, Position, Query};
use berth_contract::decode::Fault;
use berth_contract::event::Event;
use berth_contract::message::history::{EventBody, EventEntry, EventKind, EventPage, ListEvents};
use berth_contract::problem::Problem;
use berth_contract::subject::{EventsOf, event_filter, refusal_filter};
use berth_domain::{AllocId, Namespace, NodeId, PluginId, Timestamp, VolumeId, limits};
use tokio::time::Instant;

use crate::store::state::State;

/// Longest time for reading a page. What was not read by then is on the next page.
const READ_MAX: Duration = Duration::from_secs(5);
/// A page is answered this long before the deadline.
const ANSWER_MARGIN: Duration = Duration::from_millis(250);
/// Events on one page, unless the request names another limit.
const PAGE_DEFAULT: usize = 100;

/// Where a page begins, and in which direction it is read, by its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// To events before this sequence.
    Older(u64),
    /// To events after this position.
    Newer(Position),
}

impl Direction {
    fn parse(token: &str) -> Option<Self> {
        if let Some(before) = token.strip_prefix("older.") {
            return Some(Self::Older(before.parse().ok()?));
        }
        let (sequence, stored) = token.strip_prefix("newer.")?.split_once('.')?;
        let stored = Timestamp::from_unix_ms(stored.parse().ok()?);
        Some(Self::Newer(Position { sequence: sequence.parse().ok()?, stored }))
    }

    fn token(self) -> String {
        match self {
            Self::Older(before) => format!("older.{before}"),
            Self::Newer(Position { sequence, stored }) => {
                format!("newer.{sequence}.{}", stored.unix_ms())
            }
        }
    }
}

/// A page of the events of a namespace, or of all.
pub async fn list_events(
    state: &State,
    namespace: Namespace,
    query: ListEvents,
    deadline: Instant,
) -> Result<EventPage, Problem> {
    let direction = check(&namespace, &query)?;
    let filters = filters(&namespace, &query);
    let time_left = deadline.saturating_duration_since(Instant::now());
    let limit = query.page.limit.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(PAGE_DEFAULT).min(limits::PAGE_MAX);
    let page = Query {
        last: limit,
        bytes: limits::PAGE_BYTES_MAX,
        since: query.since,
        ..Query::new(&filters, time_left.saturating_sub(ANSWER_MARGIN).min(READ_MAX))
    };
    let text = searched_text(&query);
    let keep = |message: &Message| {
        // Every event of Berth's fits a page.
        message.body.len() <= limits::PAGE_BYTES_MAX
            && contains(&message.body, &text)
            && EventBody::read(&message.body).is_some_and(|body| matches(&query, body.event()))
    };
    let log = state.events.log();
    let read = match direction {
        None => log.read(page, keep).await,
        Some(Direction::Older(before)) => {
            log.read(Query { before: Some(before), ..page }, keep).await
        }
        Some(Direction::Newer(from)) => {
            log.read_on(from, Query { last: limit.max(1), ..page }, keep).await
        }
    };
    let read = read?;
    let end = Direction::Newer(read.end).token();
    let next = if read.more { Some(end.clone()) } else { None };
    let next = next.or_else(|| read.older.map(|before| Direction::Older(before).token()));
    let entry = |message: Message| {
        let event = EventBody::read(&message.body)?;
        Some(EventEntry { sequence: message.sequence, stored: message.stored, event })
    };
    let events = read.events.into_iter().filter_map(entry).collect();
    Ok(EventPage { events, next, end, begins: read.begins })
}

/// The direction, or every fault of the request.
fn check(namespace: &Namespace, query: &ListEvents) -> Result<Option<Direction>, Problem> {
    let mut faults = Vec::new();
    let mut fault = |path: &str, problem: &str| {
        let (path, problem) = (path.to_owned(), problem.to_owned());
        faults.push(Fault { path, problem, line: None });
    };
    let direction = query.page.after.as_deref().map(Direction::parse);
    if direction == Some(None) {
        fault("after", "is no `next` and no `end` of a page of events");
    }
    let is_other = |only: &Namespace| only.is_wildcard() || only != namespace;
    if !namespace.is_wildcard() && query.only_namespace.as_ref().is_some_and(is_other) {
        fault("only_namespace", "differs from the namespace in the subject, which is not `=2A`");
    }
    if faults.is_empty() { Ok(direction.flatten()) } else { Err(Problem::bad_input(faults)) }
}

/// The fewest subjects that cover the events; no two of them overlap.
fn filters(namespace: &Namespace, query: &ListEvents) -> Vec<String> {
    let scopes = match &query.only_namespace {
        _ if !namespace.is_wildcard() => vec![EventsOf::Namespace(namespace)],
        None => vec![EventsOf::All],
        Some(only) if only.is_wildcard() => vec![EventsOf::All],
        Some(only) => vec![EventsOf::Namespace(only), EventsOf::None],
    };
    let mut subjects = BTreeSet::new();
    for scope in scopes {
        if query.kinds.is_empty() {
            // Kinds of a newer version are included.
            subjects.extend(each(scope, None, query.volumes.iter().map(VolumeId::as_str)));
        }
        for kind in &query.kinds {
            subjects.extend(filters_of_kind(scope, *kind, query));
        }
    }
    subjects.into_iter().collect()
}

fn filters_of_kind(scope: EventsOf<'_>, kind: EventKind, query: &ListEvents) -> Vec<String> {
    let name = Some(kind.as_str());
    match kind {
        EventKind::Request if !query.volumes.is_empty() => {
            query.volumes.iter().map(|volume| refusal_filter(scope, Some(volume), None)).collect()
        }
        EventKind::Request if !query.allocs.is_empty() => {
            query.allocs.iter().map(|alloc| refusal_filter(scope, None, Some(alloc))).collect()
        }
        EventKind::Request => vec![refusal_filter(scope, None, None)],
        EventKind::Volume | EventKind::Snapshot | EventKind::Claim | EventKind::Call => {
            each(scope, name, query.volumes.iter().map(VolumeId::as_str))
        }
        EventKind::Alloc => each(scope, name, query.allocs.iter().map(AllocId::as_str)),
        EventKind::Plugin => each(scope, name, query.plugin.iter().map(PluginId::as_str)),
        EventKind::Node => each(scope, name, query.node.iter().map(NodeId::as_str)),
    }
}

/// A filter for each id; one for all ids if none is given.
fn each<'a>(
    scope: EventsOf<'_>,
    kind: Option<&str>,
    ids: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    let filters: Vec<String> = ids.map(|id| event_filter(scope, kind, Some(id))).collect();
    if filters.is_empty() { vec![event_filter(scope, kind, None)] } else { filters }
}

/// A text that the JSON of each wanted event contains. An event without it need not be decoded.
fn searched_text(query: &ListEvents) -> Vec<u8> {
    let alloc = || match query.allocs.as_slice() {
        [alloc] => Some(alloc.as_str()),
        _ => None,
    };
    let text = query.trace.as_deref().or_else(alloc).unwrap_or_default();
    let text = serde_json::to_string(text).unwrap_or_default();
    text.trim_matches('"').as_bytes().to_vec()
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    text.is_empty() || body.windows(text.len()).any(|part| part == text)
}

/// Whether the event matches every given field.
fn matches(query: &ListEvents, event: &Event) -> bool {
    fn is_one_of<T: PartialEq>(wanted: &[T], actual: Option<&T>) -> bool {
        wanted.is_empty() || actual.is_some_and(|actual| wanted.contains(actual))
    }
    let of_trace = |trace: &String| {
        [&event.trace, &event.claim_trace].into_iter().any(|actual| actual.as_ref() == Some(trace))
    };
    is_one_of(&query.volumes, event.volume.as_ref())
        && is_one_of(&query.allocs, event.alloc.as_ref())
        && is_one_of(query.node.as_slice(), event.node.as_ref())
        && is_one_of(query.plugin.as_slice(), event.plugin.as_ref())
        && query.trace.as_ref().is_none_or(of_trace)
}

#[cfg(test)]
mod tests;
