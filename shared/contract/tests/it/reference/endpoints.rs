//! Services and their endpoints.

use std::collections::BTreeMap;

use berth_contract::code::Code;
use berth_contract::message::volume::DOCUMENT_FIELDS;
use berth_contract::service;
use berth_contract::verb::{self, Effect, Row, Sender};

use super::page::{Page, golden_file, row};

/// The document that registers a volume: read by hand, and never written by us.
pub const DOCUMENT: &str = "volume::Register";

pub fn write(page: &mut Page) {
    page.say("## Services");
    page.say(
        "Each is a NATS micro service: `nats micro ls`, `nats micro info berth-claim`, `nats micro \
         stats berth-claim`. The `data` of an endpoint's statistics says how many requests are \
         under way (`in_flight` of `max_in_flight`) and how many were answered with which error \
         code (`errors`). Answers that only say to wait (BERTH0107, BERTH0108, BERTH0114, \
         BERTH0116) are no errors: `waits` counts them. An instance's id begins with its node and \
         plugin, or with its worker, as its metadata names them.",
    );
    let mut explained = BTreeMap::new();
    for service in service::ALL {
        page.say(format!("### {}", service.name));
        let writes = match service.writes().join("`, `") {
            none if none.is_empty() => "nothing".to_owned(),
            some => format!("`{some}`"),
        };
        page.say(format!("{}. Writes: {writes}.", service.description));
        let endpoints = verb::ALL.iter().filter(|one| one.service == service);
        let endpoints: Vec<&Row> = endpoints.collect();
        if endpoints.is_empty() {
            page.say("It answers no requests but those of `nats micro`.");
            continue;
        }
        let rows: Vec<[String; 3]> = endpoints
            .iter()
            .map(|one| {
                let name = format!("[{}](#{})", one.endpoint, one.anchor());
                [name, format!("`{}`", one.subject), one.description.to_owned()]
            })
            .collect();
        page.table(["endpoint", "subject", "what it does"], &rows);
        for endpoint in endpoints {
            explain(page, endpoint, &mut explained);
        }
    }
}

/// One endpoint; a message that was explained before is referred to.
fn explain(page: &mut Page, one: &Row, explained: &mut BTreeMap<&'static str, String>) {
    page.say(format!("### {}", one.anchor()));
    page.say(format!("{}.", one.description));
    let effect = match one.effect {
        Effect::Read => "It only reads",
        Effect::Change => "It changes something",
        Effect::BriefChange => "It changes records and calls no plugin",
        Effect::Report => "It says how its sender is, and is taken after its deadline, too",
    };
    let (sender, unknown) = match one.sender {
        Sender::Client if one.only_reads() => ("any client".to_owned(), "ignored"),
        Sender::Client => ("any client".to_owned(), "refused"),
        Sender::Service(service) => (format!("{} alone", service.name), "ignored"),
    };
    let (subject, step) = (one.subject, one.step);
    page.say(format!(
        "Subject `{subject}`; step `{step}` in errors and traces. {effect}; an unknown field is \
         {unknown}. Sent by {sender}."
    ));
    let errors: Vec<&str> = one.errors().map(Code::as_str).collect();
    if !errors.is_empty() {
        page.say(format!("Errors of its own: {}.", errors.join(", ")));
    }
    for (title, message, direction) in
        [("Request", one.request, "request"), ("Reply", one.reply, "reply")]
    {
        let title = format!("#### {title} of {}: `{message}`", one.anchor());
        if let Some(before) = explained.get(message) {
            page.say(title);
            page.say(format!("As explained at [{before}](#{before})."));
            continue;
        }
        explained.insert(message, one.anchor());
        page.say(title);
        if message == DOCUMENT {
            document(page);
            continue;
        }
        let meaning = page.source.get(message).meaning.clone();
        page.say(meaning);
        page.fields(message);
        page.say("For example");
        page.example(&golden(message, direction, one));
    }
}

/// The golden file that shows a message: of its endpoint, or of its type if several share it.
pub fn golden(message: &str, direction: &str, one: &Row) -> String {
    let own = format!("{direction}-{}", one.anchor());
    if golden_file(&own).is_some() {
        return own;
    }
    match message {
        "call::Call" | "call::Called" => format!("{direction}-call"),
        "alloc::AllocStatus" => "reply-alloc-status".to_owned(),
        _ => own,
    }
}

fn document(page: &mut Page) {
    page.say("The volume's document, as its owner writes it for `berth volume register`, in JSON.");
    let fixed = |name: &str, kind: &str, needed: &str, meaning: &str| {
        [format!("`{name}`"), kind.to_owned(), needed.to_owned(), meaning.to_owned()]
    };
    let rows: Vec<[String; 4]> = DOCUMENT_FIELDS
        .iter()
        .map(|name| match *name {
            "id" => fixed(name, "id", "", "The volume."),
            "namespace" => fixed(name, "id", "optional", "The subject's, if it is given at all."),
            "secrets" => fixed(
                name,
                "object of text",
                "optional",
                "Secrets for the plugin's calls. Absent, those it has stay; empty, they are taken \
                 away. `sealed_secrets`, made with the key of [secret-key](#secret-key), may stand \
                 in their place, so that nobody reads them on the way.",
            ),
            _ => {
                // One of several is written in the singular, as TOML's `[[capability]]` reads.
                let several = match *name {
                    "capability" => "capabilities",
                    "topology" => "topologies",
                    other => other,
                };
                let spec = page.source.fields("VolumeSpec").iter();
                let mut same = spec.filter(|field| field.name == several);
                let field = same.next().unwrap_or_else(|| panic!("what is {name}? say it here"));
                let [_, kind, needed, meaning] = row(field);
                [format!("`{name}`"), kind, needed, meaning]
            }
        })
        .collect();
    page.rows(&rows);
    page.say("For example");
    page.say(format!("```json\n{}\n```", include_str!("../volume.json").trim()));
}
