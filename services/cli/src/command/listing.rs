//! Lists and single records: shown once, or again on each change (`--watch`).
//!
//! **Promises** that a change is shown when the service answers a long poll with it, that nothing
//! is printed while nothing changes, and that Ctrl-C or a closed pipe ends it without an error.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use berth_contract::message::alloc::AllocStub;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::paged::PagedReply;
use berth_contract::message::query::LongPoll;
use berth_contract::message::registry::{NodeStatus, PluginStatus};
use berth_contract::message::snapshot::SnapshotStub;
use berth_contract::message::volume::VolumeStub;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb};
use berth_service::clock;
use serde::Serialize;
use serde_json::Value;
use tokio::signal::ctrl_c;
use tokio::time::{Instant, sleep};

use crate::args::ListView;
use crate::failure::Failure;
use crate::output::{more, print_note};
use crate::session::Session;
use crate::show::{self, Listed, headings};
use crate::table::column_index;

/// Duration of one long poll. Changes without a revision, such as the health of a volume's plugin,
/// are seen with the next poll.
const POLL: Duration = Duration::from_secs(5);
/// The same on a terminal, which shows the age of things.
const POLL_TERMINAL: Duration = Duration::from_secs(1);
/// How long after its own wait a poll times out.
const POLL_MARGIN: Duration = Duration::from_secs(5);
/// The shortest time between two polls, so that a busy list does not flood a terminal.
const POLL_REST: Duration = Duration::from_millis(200);
/// Pause after an error before the next request.
const ERROR_REST: Duration = Duration::from_secs(1);
/// Fields whose changes mean nothing to a reader.
const IGNORED_FIELDS: [&str; 2] = ["index", "clock_skew_ms"];
/// Moves the cursor to the corner of the terminal and clears it.
const CLEAR_TERMINAL: &str = "\u{1b}[H\u{1b}[2J";

/// An answer, and what the next long poll needs.
#[derive(Debug)]
pub struct PollAnswer<T> {
    /// What is shown.
    pub shown: T,
    /// The revision of the answer.
    pub index: u64,
    /// The start of the next page.
    pub next: Option<String>,
}

/// A verb whose reply is a page of a list.
pub trait ListVerb: Verb<Reply: PagedReply> {
    /// What is listed.
    type Entry;

    /// The entries of a page.
    fn entries(page: &Self::Reply) -> &[Self::Entry];

    /// The revision of a page.
    fn index(page: &Self::Reply) -> u64;
}

macro_rules! list_verbs {
    ($($verb:ident => $entries:ident: $entry:ty),* $(,)?) => {$(
        impl ListVerb for verb::$verb {
            type Entry = $entry;

            fn entries(page: &Self::Reply) -> &[$entry] {
                &page.$entries
            }

            fn index(page: &Self::Reply) -> u64 {
                page.index
            }
        }
    )*};
}

list_verbs!(
    AllocList => allocs: AllocStub,
    ClaimStatus => claims: ClaimStatus,
    NodeStatus => nodes: NodeStatus,
    PluginStatus => plugins: PluginStatus,
    SnapshotList => snapshots: SnapshotStub,
    VolumeList => volumes: VolumeStub,
);

/// Shows the entries that the verb lists. `none`, if given, is printed in place of an empty list.
pub async fn list<V: ListVerb<Entry: Listed>>(
    session: &Session,
    to: &V::To,
    view: &ListView,
    none: Option<&str>,
    request: impl Fn(LongPoll) -> V::Request,
) -> Result<(), Failure> {
    let sort = view.sort.as_deref();
    check_sort::<V::Entry>(sort)?;
    let ask = async |newer| {
        let shown = ask_newer::<V>(session, to, &request(newer), newer).await?;
        Ok(PollAnswer { index: V::index(&shown), next: shown.next_page(), shown })
    };
    let table = |page: &V::Reply| match (V::entries(page), none) {
        ([], Some(none)) => format!("{none}\n"),
        (entries, _) => show::list(entries, sort, clock::now()),
    };
    show(session, view.watch, ask, table).await
}

/// Refuses a column that the list lacks, before a request is sent.
pub fn check_sort<T: Listed>(sort: Option<&str>) -> Result<(), Failure> {
    let columns = headings::<T>();
    let Some(name) = sort else { return Ok(()) };
    match column_index(&columns, name) {
        Some(_) => Ok(()),
        None => Err(Failure::usage(
            format_args!("there is no column {name:?} to sort by"),
            format_args!("sort by one of: {}", columns.join(", ").to_lowercase()),
        )),
    }
}

/// Sends requests as [`Session::ask_service`] does. A long poll is one request, whose deadline
/// includes its wait.
pub async fn ask_newer<V: Verb>(
    session: &Session,
    to: &V::To,
    request: &V::Request,
    newer: LongPoll,
) -> Result<V::Reply, Failure> {
    if newer.than.is_none() {
        return session.ask_service::<V>(to, request).await;
    }
    let waits = Duration::from_millis(newer.wait_ms.unwrap_or_default());
    let until = Instant::now() + waits + POLL_MARGIN;
    Ok(session.once::<V>(to, request, until).await?)
}

/// Shows the answer of `ask`; with `watch` again on each change, until Ctrl-C.
pub async fn show<T: Serialize>(
    session: &Session,
    watch: bool,
    ask: impl AsyncFn(LongPoll) -> Result<PollAnswer<T>, Failure>,
    table: impl Fn(&T) -> String,
) -> Result<(), Failure> {
    let mut answer = ask(LongPoll::default()).await?;
    if !watch {
        session.output.reply(&answer.shown, &table);
        more(answer.next.as_ref());
        return Ok(());
    }
    let redraws = !session.output.json && io::stdout().is_terminal();
    let poll = if redraws { POLL_TERMINAL } else { POLL };
    let wait_ms = u64::try_from(poll.as_millis()).ok();
    let mut stop = std::pin::pin!(ctrl_c());
    let (mut last, mut told) = (Value::Null, None);
    loop {
        let now = comparable(&answer.shown);
        if redraws || now != last {
            let before = match (redraws, last.is_null()) {
                (true, _) => CLEAR_TERMINAL,
                (false, true) => "",
                (false, false) if session.output.json => "",
                (false, false) => "\n",
            };
            if session.output.again(before, &answer.shown, &table).is_err() {
                return Ok(());
            }
            last = now;
        }
        let newer = LongPoll { than: Some(answer.index), wait_ms };
        let next = tokio::select! {
            next = async { sleep(POLL_REST).await; ask(newer).await } => next,
            _ = &mut stop => return Ok(()),
        };
        match next {
            Ok(next) => (answer, told) = (next, None),
            Err(Failure::Problem(problem)) if problem.retryable => {
                tell_once(&mut told, &problem);
                tokio::select! {
                    () = sleep(ERROR_REST) => {}
                    _ = &mut stop => return Ok(()),
                }
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Prints why nothing can be shown now, once for each reason.
fn tell_once(printed_code: &mut Option<berth_contract::code::Code>, problem: &Problem) {
    if printed_code.replace(problem.code) != Some(problem.code) {
        print_note(format_args!("  {problem}; asking again"));
    }
}

/// The answer without fields that change all the time.
fn comparable(shown: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(shown).unwrap_or_default();
    strip(&mut value);
    value
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for field in IGNORED_FIELDS {
                fields.remove(field);
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(values) => values.iter_mut().for_each(strip),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_changed_index_or_clock_skew_is_no_change() {
        let at = |index: u64, skew: i64, state: &str| {
            comparable(&json!({
                "index": index,
                "nodes": [{"id": "n1", "clock_skew_ms": skew, "state": state}],
            }))
        };
        assert_eq!(at(1, 2, "ready"), at(9, -3, "ready"));
        assert_ne!(at(1, 2, "ready"), at(1, 2, "down"));
    }

    #[test]
    fn an_unknown_column_is_refused_with_the_known_columns() {
        assert!(check_sort::<ClaimStatus>(Some("next try")).is_ok());
        let refused = check_sort::<ClaimStatus>(Some("age")).unwrap_err().to_string();
        assert!(refused.contains("tries, next try"), "{refused}");
    }
}
