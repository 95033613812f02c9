//! `docs/contract.schema.json`: the JSON Schema of every message, record and event.
//!
//! Promises that its definitions have the fields of [`Source`], which [`super::hold`] compares with
//! real messages. Each message and record carries its golden files in `examples`. The peer in
//! `tests/peers/nats_py` validates these, and what a running system says, with a library of others.

use std::collections::BTreeSet;

use berth_contract::code::Code;
use berth_contract::decode::Unknown;
use berth_contract::event::EventName;
use berth_contract::message::volume::{DOCUMENT_FIELDS, SEALED_FIELD};
use berth_contract::problem::Problem;
use berth_contract::verb;
use serde_json::{Map, Value, json};

use super::endpoints::{DOCUMENT, golden};
use super::page::golden_file;
use super::source::{Field, Form, Kind, Source};
use super::{problems, stored};

/// The name of the file beside `docs/contract.md`.
pub const FILE: &str = "contract.schema.json";

/// The whole document.
pub fn write(source: &Source) -> Value {
    let mut schemas = Schemas { source, defs: Map::new(), open: Vec::new() };
    for row in verb::ALL {
        schemas.message(row.request, &[&golden(row.request, "request", row)]);
        schemas.message(row.reply, &[&golden(row.reply, "reply", row)]);
    }
    for (_, keys) in stored::all_keys() {
        schemas.message(keys.record, keys.goldens);
    }
    schemas.message("Event", &["event", "event-refused"]);
    schemas.message("secret::Envelope", &["sealed-envelope"]);
    schemas.define("Problem");
    schemas.defs["Problem"]["examples"] = json!(problems());
    schemas.define("Record");
    schemas.finish();
    for row in verb::ALL.iter().filter(|row| row.unknown() == Unknown::Fault) {
        schemas.defs[&definition(row.request)]["additionalProperties"] = json!(false);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Berth's messages, records and events",
        "description": "Each definition is one type; contract.md and asyncapi.json say where it is \
            used. `null` means absent. An id has 1 to 256 bytes, and no control characters. A time \
            is in UTC with milliseconds. A service ignores unknown fields, but refuses them at any \
            depth of a request whose definition says `additionalProperties: false`. Clients \
            ignore unknown fields of replies and records.",
        "$defs": schemas.defs,
    })
}

/// The reference to a type's definition, for other documents in `docs`.
pub fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{FILE}#/$defs/{}", definition(name)) })
}

/// The name of a type's definition.
pub fn definition(name: &str) -> String {
    name.split('<').next().unwrap_or(name).replace("::", ".")
}

/// One of each code, and the golden files.
fn problems() -> Vec<Problem> {
    let golden = ["reply-problem", "reply-problem-of-input"];
    let golden = golden.map(|name| serde_json::from_str(&golden_file(name).unwrap()).unwrap());
    Code::ALL.iter().map(|code| problems::example(*code)).chain(golden).collect()
}

/// The same, or `null`.
fn or_null(mut schema: Value) -> Value {
    match (schema.get("type").cloned(), schema.get("enum")) {
        (Some(plain), None) => {
            schema["type"] = json!([plain, "null"]);
            schema
        }
        _ => json!({ "anyOf": [schema, { "type": "null" }] }),
    }
}

struct Schemas<'a> {
    source: &'a Source,
    defs: Map<String, Value>,
    /// The types that a definition refers to and that have none yet.
    open: Vec<String>,
}

impl Schemas<'_> {
    /// Defines a message or record, with its golden files as examples.
    fn message(&mut self, name: &str, goldens: &[&str]) {
        self.define(name);
        let texts: Vec<String> = match name {
            DOCUMENT => vec![include_str!("../volume.json").to_owned()],
            _ => goldens.iter().filter_map(|golden| golden_file(golden)).collect(),
        };
        let examples = &mut self.defs[&definition(name)]["examples"];
        if examples.is_null() {
            *examples = json!([]);
        }
        let examples = examples.as_array_mut().unwrap();
        for text in texts {
            let example = serde_json::from_str(&text).unwrap();
            if !examples.contains(&example) {
                examples.push(example);
            }
        }
        assert!(!examples.is_empty(), "{name}: there is no golden file of {goldens:?}");
    }

    fn finish(&mut self) {
        while let Some(name) = self.open.pop() {
            self.define(&name);
        }
    }

    fn define(&mut self, name: &str) {
        if self.defs.contains_key(&definition(name)) {
            return;
        }
        let schema = if name == DOCUMENT { self.document() } else { self.type_of(name) };
        self.defs.insert(definition(name), schema);
    }

    fn type_of(&mut self, name: &str) -> Value {
        let shape = self.source.get(name);
        let mut schema = match &shape.form {
            Form::Choice(choices) => {
                let one = |(value, meaning): &(String, String)| match meaning.as_str() {
                    "" => json!({ "const": value }),
                    _ => json!({ "const": value, "description": meaning }),
                };
                json!({ "type": "string", "oneOf": choices.iter().map(one).collect::<Vec<_>>() })
            }
            Form::Object(fields) => {
                let is_request = verb::ALL.iter().any(|row| row.request == name);
                let fields = fields.iter().map(|field| (field.name.as_str(), field));
                self.object(fields, is_request)
            }
        };
        schema["description"] = json!(shape.meaning);
        schema
    }

    /// Requests may leave out a list or an object that is empty.
    fn object<'f>(
        &mut self,
        fields: impl Iterator<Item = (&'f str, &'f Field)>,
        is_request: bool,
    ) -> Value {
        let (mut properties, mut required) = (Map::new(), BTreeSet::new());
        for (name, field) in fields {
            let collection = matches!(field.kind, Kind::Listed(_) | Kind::Mapped(_));
            let optional = field.optional || (is_request && collection);
            let mut schema = self.kind(&field.kind);
            if optional {
                schema = or_null(schema);
            } else {
                required.insert(name.to_owned());
            }
            schema["description"] = json!(field.meaning);
            properties.insert(name.to_owned(), schema);
        }
        json!({ "type": "object", "properties": properties, "required": required })
    }

    /// A volume's document has the fields of a spec, and a few of its own.
    fn document(&mut self) -> Value {
        let spec = self.source.fields("VolumeSpec");
        let fields = DOCUMENT_FIELDS.iter().filter_map(|name| {
            let several = match *name {
                "capability" => "capabilities",
                "topology" => "topologies",
                other => other,
            };
            Some((*name, spec.iter().find(|field| field.name == several)?))
        });
        let mut schema = self.object(fields, false);
        let said = |mut schema: Value, meaning: &str| {
            schema["description"] = json!(meaning);
            schema
        };
        let id = self.kind(&Kind::Plain("id"));
        let sealed = self.kind(&Kind::Named("secret::Sealed".to_owned()));
        let namespace = or_null(id.clone());
        let secrets = or_null(self.kind(&Kind::Mapped(Box::new(Kind::Plain("text")))));
        for (name, own) in [
            ("id", said(id, "The volume.")),
            ("namespace", said(namespace, "The subject's, if it is given at all.")),
            (
                "secrets",
                said(
                    secrets,
                    "Secrets for the plugin's calls. Absent, those it has stay; empty, they are \
                     taken away. Names are of letters, digits, `-`, `_` and `.`.",
                ),
            ),
            (
                SEALED_FIELD,
                said(
                    sealed,
                    "In place of `secrets`, so that nobody reads them on the way: a \
                     `secret.Envelope` as JSON, sealed for the key of secret-key in the form of \
                     NATS's xkeys.",
                ),
            ),
        ] {
            schema["properties"][name] = own;
        }
        schema["properties"]["capability"]["minItems"] = json!(1);
        let required = schema["required"].as_array_mut().unwrap();
        required.retain(|name| name != "secrets");
        required.insert(0, json!("id"));
        said(
            schema,
            "The volume's document, as its owner writes it for `berth volume register`, in JSON.",
        )
    }

    fn kind(&mut self, kind: &Kind) -> Value {
        match kind {
            Kind::Plain("true or false") => json!({ "type": "boolean" }),
            Kind::Plain("whole number") => json!({ "type": "integer", "minimum": 0 }),
            Kind::Plain("number") => json!({ "type": "integer" }),
            Kind::Plain("time") => json!({ "type": "string", "format": "date-time" }),
            Kind::Plain("id") => json!({ "type": "string", "minLength": 1, "maxLength": 256 }),
            Kind::Plain("code") => {
                let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
                json!({ "type": "string", "enum": codes })
            }
            Kind::Plain("event") => {
                let names: Vec<String> = EventName::ALL.iter().map(ToString::to_string).collect();
                json!({ "type": "string", "enum": names })
            }
            Kind::Plain("traceparent") => {
                json!({ "type": "string", "pattern": "^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$" })
            }
            Kind::Plain(_) => json!({ "type": "string" }),
            Kind::Listed(item) => json!({ "type": "array", "items": self.kind(item) }),
            Kind::Mapped(item) => {
                json!({ "type": "object", "additionalProperties": self.kind(item) })
            }
            Kind::Named(name) => {
                self.open.push(name.clone());
                json!({ "$ref": format!("#/$defs/{}", definition(name)) })
            }
        }
    }
}
