//! `docs/asyncapi.json`: every verb, key and event subject as `AsyncAPI` 3.0.
//!
//! Promises one operation for each row of the verb table, made from that row. Payloads refer to
//! [`super::schema`].

use berth_contract::bucket::{self, BucketSpec};
use berth_contract::code::Code;
use berth_contract::header;
use berth_contract::stream::EVENTS;
use berth_contract::subject;
use berth_contract::verb::{self, COMMON_ERRORS, Row};
use serde_json::{Map, Value, json};

use super::{endpoints, schema, stored, terms};

/// The form of a sent subject: with the sender at its end, and a parameter for each token.
fn signed(form: &str) -> String {
    let form = form.replace("<by>", "<by kind>.<by name>");
    format!("{form}.<actor kind>.<actor name>")
}

/// The form of the subject of refused requests, before the sender.
fn refusal_form() -> String {
    subject::EVENT_FORM.replace("<kind>", subject::REFUSED).replace("<id>", "<vol>")
}

/// The whole document.
pub fn write() -> Value {
    let mut channels = Map::new();
    let mut operations = Map::new();
    for row in verb::ALL {
        let name = row.anchor();
        let request = message(&schema::reference(row.request), "requests");
        channels.insert(name.clone(), channel(&signed(row.subject), "request", request));
        let reply = json!({
            "address": null,
            "messages": {
                "reply": { "payload": schema::reference(row.reply) },
                "error": { "$ref": "#/components/messages/error" },
            },
        });
        channels.insert(format!("{name}-reply"), reply);
        operations.insert(name.clone(), operation(row, &name));
    }
    for (bucket, keys) in stored::all_keys() {
        let name = channel_name(&format!("{}.{}", bucket.name, keys.form));
        let value = schema::reference(keys.record);
        let value = match bucket {
            bucket::LEASES => value,
            _ => json!({ "allOf": [value, schema::reference("Record")] }),
        };
        let mut channel = kept(&bucket, keys.form, message(&value, "writes"));
        channel["x-example"] = json!(keys.one);
        channels.insert(name.clone(), channel);
        operations.insert(name.clone(), sent(&name));
    }
    let made = json!({
        "type": "object",
        "properties": { "created": {
            "anyOf": [{ "type": "string", "format": "date-time" }, { "const": "" }],
            "description": "When the bucket's stream was made. Empty where that is not known, and \
                in the value of the key `complete`, which stands for no bucket.",
        } },
        "required": ["created"],
        "description": "What is known of the bucket. An operator may replace the value by \
            `begin-anew`; see contract.md.",
    });
    let name = channel_name(&format!("{}.<bucket>", bucket::BUCKETS.name));
    channels.insert(name.clone(), kept(&bucket::BUCKETS, "<bucket>", json!({ "payload": made })));
    operations.insert(name.clone(), sent(&name));
    for (name, subject, what) in [
        (
            "events",
            subject::EVENT_FORM.to_owned(),
            "What happened to one thing. A token is `_` where the event is not about such a thing.",
        ),
        (
            "refusals",
            refusal_form(),
            "Refused requests, by the volume and the alloc that they name; `_` for neither. They \
                are part of `events`.",
        ),
    ] {
        let event = message(&schema::reference("Event"), "events");
        let mut events = channel(&signed(&subject), "event", event);
        events["description"] = json!(what);
        events["x-stream"] = json!({
            "name": EVENTS.name,
            "description": EVENTS.description,
            "subjects": EVENTS.subjects,
            "max_age_s": EVENTS.max_age.as_secs(),
            "max_bytes": EVENTS.max_bytes,
        });
        channels.insert(name.to_owned(), events);
        operations.insert(name.to_owned(), sent(name));
    }
    let common: Vec<&str> = COMMON_ERRORS.iter().copied().map(Code::as_str).collect();
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "Berth",
            "version": header::CONTRACT_VERSION.to_string(),
            "description": "What Berth's services answer, store and tell on NATS; the guide is \
                contract.md. `x-errors` of an operation are the codes of its own, and \
                `x-kind` says what it does with the records, as there.",
            "x-common-errors": common,
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": { "error": {
                "summary": "The request was not done.",
                "headers": headers("replies"),
                "payload": {
                    "type": "object",
                    "properties": { "error": schema::reference("Problem") },
                    "required": ["error"],
                },
            }},
            "schemas": {
                "requests": headers("requests"),
                "events": headers("events"),
                "writes": headers("writes"),
            },
        },
    })
}

/// The headers of one sort of message.
fn headers(sort: &str) -> Value {
    let mut properties = Map::new();
    for header in terms::headers() {
        if header.on.contains(&sort) {
            for name in header.names {
                let schema = json!({ "type": "string", "description": header.meaning });
                properties.insert((*name).to_owned(), schema);
            }
        }
    }
    json!({ "type": "object", "properties": properties })
}

fn message(payload: &Value, headers: &str) -> Value {
    let headers = format!("#/components/schemas/{headers}");
    json!({ "headers": { "$ref": headers }, "payload": payload })
}

/// A channel of a bucket's keys.
fn kept(bucket: &BucketSpec, form: &str, value: Value) -> Value {
    let mut channel = channel(&format!("$KV.{}.{form}", bucket.name), "record", value);
    channel["description"] = json!(bucket.description);
    channel["x-bucket"] = json!({
        "name": bucket.name,
        "stream": format!("KV_{}", bucket.name),
        "key": form,
        "writer": bucket.writer,
        "history": bucket.history,
        "marker_ttl_s": bucket.marker_ttl.as_secs(),
    });
    channel
}

fn operation(row: &Row, name: &str) -> Value {
    let errors: Vec<&str> = row.errors().map(Code::as_str).collect();
    let replies = format!("#/channels/{name}-reply");
    json!({
        "action": "receive",
        "summary": row.description,
        "channel": { "$ref": format!("#/channels/{name}") },
        "messages": [{ "$ref": format!("#/channels/{name}/messages/request") }],
        "reply": {
            "channel": { "$ref": replies },
            "messages": [
                { "$ref": format!("{replies}/messages/reply") },
                { "$ref": format!("{replies}/messages/error") },
            ],
        },
        "x-service": row.service.name,
        "x-endpoint": row.endpoint,
        "x-kind": endpoints::kind(row),
        "x-senders": row.senders.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "x-step": row.step,
        "x-errors": errors,
    })
}

fn sent(name: &str) -> Value {
    json!({ "action": "send", "channel": { "$ref": format!("#/channels/{name}") } })
}

/// A channel whose address has a parameter for each `<id>` of the subject.
fn channel(subject: &str, name: &str, message: Value) -> Value {
    let mut parameters = Map::new();
    let mut address = String::new();
    for (at, part) in subject.split('<').enumerate() {
        match part.split_once('>') {
            Some((id, rest)) if at > 0 => {
                let id = id.replace(' ', "-");
                address.extend(["{", &id, "}", rest]);
                parameters.insert(id, json!({ "description": "One token; see contract.md." }));
            }
            _ => address.push_str(part),
        }
    }
    let mut channel = json!({
        "address": address,
        "messages": { name: message },
    });
    if !parameters.is_empty() {
        channel["parameters"] = Value::Object(parameters);
    }
    channel
}

fn channel_name(key: &str) -> String {
    key.replace(['<', '>', '='], "").replace(['.', ' '], "-")
}
