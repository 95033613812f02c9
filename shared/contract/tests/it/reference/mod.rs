//! `docs/contract.md`, its JSON Schema and its `AsyncAPI` document: the whole wire, for authors
//! of clients that do not use this code.
//!
//! Promises that they are complete, because they are made from what there is: endpoints from their
//! tables, subjects and keys from their constructors, fields from the source of the types, examples
//! from the golden files, which are held to be read back. They are rewritten by
//! `BERTH_WRITE_DOCS=1 cargo test -p berth-contract`.

mod asyncapi;
mod endpoints;
pub mod hold;
mod lists;
mod page;
mod problems;
mod requests;
mod schema;
mod source;
mod stored;
mod terms;

use std::collections::BTreeSet;
use std::fs;

use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::event::{Event, EventName};
use berth_contract::problem::Problem;
use berth_contract::service::CLAIM;
use berth_contract::verb::{self, SubjectPart};
use serde_json::Value;

use crate::sample;

#[test]
fn the_contract_page_is_current() {
    current("contract.md", &page::write());
}

#[test]
fn the_json_schema_is_current() {
    current(schema::FILE, &pretty(&schema::write(&source::Source::read())));
}

#[test]
fn the_asyncapi_document_is_current() {
    current("asyncapi.json", &pretty(&asyncapi::write()));
}

fn pretty(document: &Value) -> String {
    format!("{}\n", serde_json::to_string_pretty(document).unwrap())
}

/// Complains when a file in `docs` is not what the types say, and writes it when told so.
fn current(name: &str, text: &str) {
    let file = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("BERTH_WRITE_DOCS").is_some() {
        fs::write(&file, text).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(written == text, "{name}: run BERTH_WRITE_DOCS=1 cargo test -p berth-contract");
}

/// What a reader finds in the schema is what a client gets, and reads.
#[test]
fn every_error_in_the_schema_decodes_to_its_code() {
    let schema = schema::write(&source::Source::read());
    let shown = schema["$defs"]["Problem"]["examples"].as_array().unwrap();
    for (code, shown) in Code::ALL.iter().zip(shown) {
        let problem: Problem = serde_json::from_value(shown.clone()).unwrap();
        assert_eq!(problem, problems::example(*code));
        assert_eq!(problem.code, *code);
        // A reply may know better that it helps to ask again, and never that it does not.
        assert!(problem.retryable || !code.retryable(), "{problem}");
    }
}

/// The subjects that services and agents send to match the addresses of their channels, and only
/// refusals match both channels of events.
#[test]
fn real_subjects_match_the_channels() {
    let document = asyncapi::write();
    let matches = |channel: &str, subject: &str| {
        let address = document["channels"][channel]["address"].as_str().unwrap();
        let (form, tokens) = (address.split('.'), subject.split('.'));
        form.clone().count() == tokens.clone().count()
            && form.zip(tokens).all(|(form, token)| form.starts_with('{') || form == token)
    };
    let senders = [Actor::service(CLAIM), Actor::Node(sample::node_id()), Actor::user("a.b")];
    for (name, sender) in
        EventName::ALL.iter().flat_map(|name| senders.iter().map(move |s| (name, s)))
    {
        for by in [None, Some("user.anna".to_owned())] {
            let event = Event { event: *name, by, ..sample::event() };
            let subject = sender.sign(&event.subject());
            assert!(matches("events", &subject), "{subject}");
            assert_eq!(
                matches("refusals", &subject),
                *name == EventName::RequestRefused,
                "{subject}"
            );
        }
    }
    for row in verb::ALL {
        let parts = [
            SubjectPart::Namespace(&sample::namespace()),
            SubjectPart::Node(&sample::node_id()),
            SubjectPart::Plugin(&sample::plugin()),
        ];
        let subject = Actor::user("anna").sign(&row.subject_for(&parts));
        assert!(matches(&row.anchor(), &subject), "{subject}");
    }
}

/// Each reference leads to a definition, and each definition is led to.
#[test]
fn the_documents_refer_to_what_there_is() {
    let schema = schema::write(&source::Source::read());
    let asyncapi = asyncapi::write();
    let mut used = BTreeSet::new();
    references(&schema, &mut used);
    references(&asyncapi, &mut used);
    for reference in &used {
        let (file, pointer) = reference.split_once('#').unwrap();
        let document =
            if file.is_empty() && !pointer.starts_with("/$defs") { &asyncapi } else { &schema };
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    for name in schema["$defs"].as_object().unwrap().keys() {
        let is_used = used.iter().any(|one| one.ends_with(&format!("#/$defs/{name}")));
        assert!(is_used || name == "secret.Envelope", "{name} is used nowhere");
    }
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                found.insert(reference.clone());
            }
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}
