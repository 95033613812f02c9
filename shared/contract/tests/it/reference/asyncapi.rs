//! `docs/asyncapi.json`: every verb, key and event subject as AsyncAPI 3.0.
//!
//! Promises one operation for each row of the verb table, made from that row. Payloads refer to
//! [`super::schema`].

use berth_contract::code::Code;
use berth_contract::verb::{self, COMMON_ERRORS, Row};
use berth_contract::{header, stream};
use serde_json::{Map, Value, json};

use super::{schema, stored};

/// The whole document.
pub fn write() -> Value {
    let mut channels = Map::new();
    let mut operations = Map::new();
    for row in verb::ALL {
        let name = row.anchor();
        channels
            .insert(name.clone(), channel(row.subject, "request", &schema::reference(row.request)));
        let replies = json!({
            "address": null,
            "messages": {
                "reply": { "payload": schema::reference(row.reply) },
                "error": { "$ref": "#/components/messages/error" },
            },
        });
        channels.insert(format!("{name}-reply"), replies);
        operations.insert(name.clone(), operation(row, &name));
    }
    for (bucket, form, record) in stored::forms() {
        let name = channel_name(&format!("{bucket}.{form}"));
        let address = format!("$KV.{bucket}.{form}");
        channels.insert(name.clone(), channel(&address, "record", &schema::reference(record)));
        operations.insert(name.clone(), sent(&name));
    }
    let event = schema::reference("Event");
    let mut events = channel("berth.v1.event.<ns>.<kind>.<id>", "event", &event);
    events["description"] = json!(stream::EVENTS.description);
    channels.insert("events".to_owned(), events);
    operations.insert("events".to_owned(), sent("events"));
    let common: Vec<&str> = COMMON_ERRORS.iter().copied().map(Code::as_str).collect();
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "Berth",
            "version": header::CONTRACT_VERSION.to_string(),
            "description": "What Berth's services answer, store and tell on NATS; the guide is \
                contract.md. `x-errors` of an operation are the codes of its own.",
            "x-common-errors": common,
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {
                "error": {
                    "description": "The request was not done.",
                    "payload": {
                        "type": "object",
                        "properties": { "error": schema::reference("Problem") },
                        "required": ["error"],
                    },
                },
            },
        },
    })
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
        "x-step": row.step,
        "x-errors": errors,
    })
}

fn sent(name: &str) -> Value {
    json!({ "action": "send", "channel": { "$ref": format!("#/channels/{name}") } })
}

/// A channel whose address has a parameter for each `<id>` of the subject.
fn channel(subject: &str, message: &str, payload: &Value) -> Value {
    let mut parameters = Map::new();
    let mut address = String::new();
    for (at, part) in subject.split('<').enumerate() {
        match part.split_once('>') {
            Some((id, rest)) if at > 0 => {
                let id = id.replace(' ', "-");
                address.push_str(&format!("{{{id}}}{rest}"));
                parameters.insert(id, json!({ "description": "One token; see contract.md." }));
            }
            _ => address.push_str(part),
        }
    }
    let mut channel = json!({
        "address": address,
        "messages": { message: { "payload": payload } },
    });
    if !parameters.is_empty() {
        channel["parameters"] = Value::Object(parameters);
    }
    channel
}

fn channel_name(key: &str) -> String {
    key.replace(['<', '>', '='], "").replace(['.', ' '], "-")
}
