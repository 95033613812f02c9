//! Checks whether a word that looks like one of our names exists.

use std::fs;

use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::event::EventName;
use berth_contract::verb::{self, Row};
use berth_contract::{bucket, service, stream};

/// The nouns of steps and events. `node` is also a key of leases, and a page.
const NOUNS: [&str; 8] =
    ["volume", "claim", "alloc", "plugin", "secret", "gc", "agent", "controller"];

/// The program that the samples show as a plugin's process.
const DEVELOPMENT_DRIVER: &str = "berth-csi-dev";

/// The fault of a name; none when it has none, or when it is not ours.
pub fn fault(word: &str) -> Option<String> {
    let unless = |exists: bool, what: &str| (!exists).then(|| format!("there is no such {what}"));
    if let Some(name) = word.strip_prefix("endpoint ") {
        return unless(verb::ALL.iter().any(|row| row.endpoint == name), "endpoint");
    }
    if word.starts_with("berth.v1.") {
        let (asked, actor) = Actor::split(word);
        let word = if actor.is_some() { asked } else { word };
        return unless(endpoint_at(word).is_some() || is_event_subject(word), "subject");
    }
    if word.starts_with("berth.") {
        return unless(is_metric(word), "metric");
    }
    if let Some(name) = word.strip_prefix("KV_") {
        return unless(is_bucket(name), "stream");
    }
    if word.starts_with("berth-") {
        let is_service = service::ALL.iter().any(|service| service.name == word);
        let is_known = is_bucket(word) || is_service || word == DEVELOPMENT_DRIVER;
        return unless(is_known, "bucket, service or driver");
    }
    let digits =
        word.strip_prefix("BERTH").filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if digits.is_some() {
        return unless(Code::ALL.iter().any(|code| code.as_str() == word), "code");
    }
    let (noun, _) = word.split_once('.')?;
    if NOUNS.contains(&noun) {
        let is_step = verb::ALL.iter().any(|row| row.step == word);
        let is_event = EventName::ALL.iter().any(|event| event.as_str() == word);
        return unless(is_step || is_event, "step or event");
    }
    None
}

/// The endpoint that answers a request to a subject as it is sent, with its actor.
pub fn endpoint_of(request: &str) -> Option<&'static Row> {
    let (subject, actor) = Actor::split(request);
    actor.and_then(|_| endpoint_at(subject))
}

/// The endpoint that answers at a subject.
fn endpoint_at(subject: &str) -> Option<&'static Row> {
    let alike = |row: &&Row| {
        let (form, subject) = (row.subject.split('.'), subject.split('.'));
        form.clone().count() == subject.clone().count()
            && form.zip(subject).all(|(part, given)| part == given || part.starts_with('<'))
    };
    verb::ALL.iter().find(alike)
}

/// `berth.v1.event.<ns>.<kind>.<id>…`, of a kind that has events.
fn is_event_subject(subject: &str) -> bool {
    let kinds = EventName::ALL.iter().filter_map(|event| event.as_str().split_once('.'));
    let mut kinds = kinds.map(|(kind, _)| kind);
    let parts: Vec<&str> = subject.split('.').collect();
    let is_of_stream =
        stream::EVENTS.subjects.iter().any(|all| subject.starts_with(all.trim_end_matches('>')));
    let kind = match parts[..] {
        [_, _, _, _, kind, _] | [_, _, _, _, kind, _, _, _, _] => Some(kind),
        _ => None,
    };
    is_of_stream && kind.is_some_and(|kind| kinds.any(|of_stream| of_stream == kind))
}

fn is_bucket(name: &str) -> bool {
    bucket::ALL.iter().any(|bucket| bucket.name == name)
}

/// Metrics are checked against their own page.
fn is_metric(name: &str) -> bool {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    fs::read_to_string(file).unwrap().contains(&format!("`{name}`"))
}
