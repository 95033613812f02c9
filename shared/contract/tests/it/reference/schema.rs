//! `docs/contract.schema.json`: the JSON Schema of every message, record and event.
//!
//! Promises that its definitions have the fields of [`Source`], which [`super::hold`] compares with
//! real messages. Each message and record carries its golden files in `examples`. The peer in
//! `tests/peers/nats_py` validates these, and what a running system says, with a library of others.

use std::collections::BTreeSet;

use berth_contract::code::Code;
use berth_contract::decode::Unknown;
use berth_contract::event::EventName;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, definition};
use berth_domain::limits;
use serde_json::{Map, Value, json};

use super::endpoints::golden;
use super::hold::EITHER;
use super::page::golden_file;
use super::source::{Content, DOCUMENT, Field, Form, Kind, Source, Variant};
use super::{problems, source, stored};

/// The name of the file beside `docs/contract.md`.
pub const FILE: &str = "contract.schema.json";

/// Golden files beside the one of each endpoint's request and reply.
const MORE_EXAMPLES: [(&str, &[&str]); 7] = [
    ("Event", &["event", "event-refused", "event-snapshot"]),
    ("secret::Envelope", &["sealed-envelope", "sealed-envelope-of-class"]),
    ("storage::Create", &["request-volume-create-of-class", "request-volume-create-copy"]),
    (
        "call::StorageCall",
        &[
            "request-controller-provision-delete",
            "request-controller-provision-expand",
            "request-controller-provision-modify",
            "request-controller-provision-snapshot",
            "request-controller-provision-delete-snapshot",
            "request-controller-provision-group",
            "request-controller-provision-delete-group",
        ],
    ),
    ("call::Called", &["reply-controller-provision-snapshot", "reply-controller-provision-group"]),
    (
        "storage_call::StorageQuery",
        &[
            "request-controller-query-snapshots",
            "request-controller-query-volume",
            "request-controller-query-capacity",
        ],
    ),
    ("storage::Externals", &["reply-volume-external-snapshots"]),
];

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
    for (name, goldens) in MORE_EXAMPLES {
        schemas.message(name, goldens);
    }
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

/// One of each code, and the golden files.
fn problems() -> Vec<Problem> {
    let golden = ["reply-problem", "reply-problem-of-input"];
    let golden = golden.map(|name| serde_json::from_str(&golden_file(name).unwrap()).unwrap());
    Code::ALL.iter().map(|code| problems::example(*code)).chain(golden).collect()
}

/// A size as a text: a whole number and perhaps a unit.
const SIZE_PATTERN: &str = "^ *[0-9]+ *([PTGMKptgmk][Ii][Bb]?|[PTGMKptgmk][Bb]|[TGMKBtgmkb])? *$";

fn size() -> Value {
    json!({
        "description": "A size: a whole number of bytes, or a text with a unit, such as `10GiB`.",
        "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": limits::VOLUME_BYTES_MAX },
            { "type": "string", "pattern": SIZE_PATTERN },
        ],
    })
}

/// Lists and maps of requests that must not be empty.
const NOT_EMPTY: [(&str, &str); 3] = [
    ("class::PutClass", "capability"),
    ("snapshot::CreateSnapshot", "volumes"),
    ("storage::Modify", "parameters"),
];

/// What the fields of a type do not say by themselves.
fn demand_more(name: &str, object: &mut Value) {
    for (_, field) in NOT_EMPTY.iter().filter(|(of, _)| *of == name) {
        let property = &mut object["properties"][field];
        let (kind, bound) = if property["items"].is_null() {
            ("object", "minProperties")
        } else {
            ("array", "minItems")
        };
        property["type"] = json!(kind);
        property[bound] = json!(1);
        let required = object["required"].as_array_mut().unwrap();
        if !required.contains(&json!(field)) {
            required.push(json!(field));
        }
    }
    for (_, fields) in EITHER.iter().filter(|(of, _)| *of == name) {
        let one = |field: &&str| json!({ "required": [field] });
        object["anyOf"] = json!(fields.iter().map(one).collect::<Vec<_>>());
    }
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
            Form::Choice(variants) => {
                let is_text = |one: &Variant| matches!(one.content, Content::Name);
                let kind = if variants.iter().all(is_text) {
                    json!("string")
                } else {
                    json!(["string", "object"])
                };
                let all: Vec<Value> = variants.iter().map(|one| self.variant(one)).collect();
                json!({ "type": kind, "oneOf": all })
            }
            Form::Object(fields) => {
                let is_request = verb::ALL.iter().any(|row| row.request == name);
                let named = fields.iter().map(|field| (field.name.as_str(), field));
                let mut object = self.object(named, is_request);
                demand_more(name, &mut object);
                object
            }
        };
        schema["description"] = json!(shape.meaning);
        schema
    }

    /// A variant of an enum: its name, or an object whose only field is the name.
    fn variant(&mut self, Variant { name, meaning, content }: &Variant) -> Value {
        let value = match content {
            Content::Name => None,
            Content::Value(kind) => Some(self.kind(kind)),
            Content::Fields(fields) => {
                let named = fields.iter().map(|field| (field.name.as_str(), field));
                Some(self.object(named, false))
            }
        };
        let mut variant = match value {
            None => json!({ "const": name }),
            Some(value) => {
                json!({ "type": "object", "properties": { name: value }, "required": [name] })
            }
        };
        if !meaning.is_empty() {
            variant["description"] = json!(meaning);
        }
        variant
    }

    /// Requests may leave out a list or an object that is empty.
    fn object<'n, 'f>(
        &mut self,
        fields: impl Iterator<Item = (&'n str, &'f Field)>,
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
        let source = self.source;
        let mut schema = self.object(source.document_fields(), false);
        let said = |mut schema: Value, meaning: &str| {
            schema["description"] = json!(meaning);
            schema
        };
        let id = self.kind(&Kind::Plain("id"));
        let namespace = or_null(id.clone());
        for (name, own) in [
            ("id", said(id, "The volume.")),
            ("namespace", said(namespace, "The subject's, if it is given at all.")),
        ] {
            schema["properties"][name] = own;
        }
        let meaning = "Secrets for the plugin's calls. Absent: those it has stay. Empty: they are \
            taken away.";
        for Field { name, kind, meaning, .. } in source::secret_fields(meaning) {
            let field = or_null(self.kind(&kind));
            schema["properties"][name] = said(field, &meaning);
        }
        schema["properties"]["capability"]["minItems"] = json!(1);
        schema["required"].as_array_mut().unwrap().insert(0, json!("id"));
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
            Kind::Plain("size") => {
                self.defs.entry("Size").or_insert_with(size);
                json!({ "$ref": "#/$defs/Size" })
            }
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
