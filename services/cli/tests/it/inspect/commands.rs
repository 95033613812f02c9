//! Checks whether a command exists: `berth` by its own parser, `nats` by Berth's names in it.

use std::fs;

use berth_cli::args::Cli;
use berth_contract::bucket::{self, BucketSpec};
use berth_contract::verb::{self, Row};
use berth_contract::{key, service};
use clap::Parser as _;
use clap::error::ErrorKind;
use serde_json::Value;

use super::{check, words};

/// The fault of a command; none when it has none.
pub fn fault(command: &str) -> Option<String> {
    let (words, comment) = words::split(command);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.first() {
        Some(&"berth") => berth(&words),
        _ => nats(&words[1..], comment),
    }
}

/// The parser's error. Missing arguments are allowed: a reader adds them.
fn berth(words: &[&str]) -> Option<String> {
    let error = Cli::try_parse_from(words).err()?;
    match error.kind() {
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => None,
        _ => Some(error.to_string()),
    }
}

fn nats(words: &[&str], comment: &str) -> Option<String> {
    let named: Vec<&str> = words.iter().copied().filter(|word| !word.starts_with('-')).collect();
    match *named {
        // The program itself, and its commands about the server alone, name nothing of Berth.
        [] | ["micro", "ls"] | ["server", ..] => None,
        ["kv", "ls" | "get" | "watch" | "history", name, ref keys @ ..] => {
            of_bucket(name, keys, comment)
        }
        ["stream", "info", stream] => check::fault(stream),
        ["micro", "info" | "stats" | "ping", name] | ["micro", "info" | "stats", name, _] => {
            let is_service = service::ALL.iter().any(|service| service.name == name);
            (!is_service).then(|| format!("there is no service {name}"))
        }
        ["micro", "req", service, name, body] => {
            let of = |row: &&Row| row.service.name == service && row.endpoint == name;
            request_fault(verb::ALL.iter().find(of), body)
        }
        ["req", subject, body] => request_fault(check::endpoint_of(subject), body),
        // An event's subject ends with the actor, so without a wildcard nothing would arrive.
        ["sub", subject] => match subject.strip_suffix(".>") {
            Some(events) => check::fault(events),
            None => Some("a filter for events ends in `.>`, which covers every actor".to_owned()),
        },
        _ => Some("no command that this test knows; teach it".to_owned()),
    }
}

/// A bucket, its keys, and the keys in the comment behind the command.
fn of_bucket(name: &str, keys: &[&str], comment: &str) -> Option<String> {
    let Some(bucket) = bucket::ALL.iter().find(|bucket| bucket.name == name) else {
        return Some(format!("there is no bucket {name}"));
    };
    // A value in braces may follow a key in the comment.
    let comment = comment.split('{').next().unwrap_or_default();
    let commented_keys = comment.split_whitespace().map(|word| word.trim_matches([',', ':', ';']));
    let commented_keys = commented_keys.filter(|word| word.contains('.'));
    let mut all_keys = keys.iter().copied().chain(commented_keys);
    let wrong = all_keys.find(|key| !is_key(bucket, key))?;
    Some(format!("{wrong} is no key of bucket {name}"))
}

/// Whether this is a key of the bucket, or a filter over a volume's keys, with `<…>` for any id.
fn is_key(bucket: &BucketSpec, key: &str) -> bool {
    let plain = key.replace(['<', '>'], "");
    let key = match key.strip_suffix(".>") {
        Some(volume) => format!("{volume}.spec"),
        None => plain,
    };
    match *bucket {
        bucket::VOLUMES => key::parse_volume(&key).is_some(),
        bucket::ALLOCS => key::parse_alloc(&key).is_some(),
        bucket::SECRETS => key::parse_secrets(&key).is_some(),
        bucket::PLUGINS => key::parse_instance(&key).is_some() || key::parse_job(&key).is_some(),
        bucket::NODES => key::parse_node(&key).is_some(),
        _ => {
            let leads = |service: &service::ServiceName| service.lease == Some(key.as_str());
            key::parse_node_lease(&key).is_some() || service::ALL.iter().any(leads)
        }
    }
}

/// The fault of a request to an endpoint.
fn request_fault(endpoint: Option<&Row>, body: &str) -> Option<String> {
    let Some(endpoint) = endpoint else { return Some("there is no such endpoint".to_owned()) };
    let Ok(Value::Object(body)) = serde_json::from_str(body) else {
        return Some("the body is no JSON object".to_owned());
    };
    let known_fields = fields(endpoint);
    let unknown = body.keys().find(|field| !known_fields.contains(field))?;
    Some(format!("{} takes no {unknown}, but {known_fields:?}", endpoint.endpoint))
}

/// The fields of an endpoint's request, by the contract's JSON Schema, which is generated.
fn fields(endpoint: &Row) -> Vec<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/contract.schema.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let request = &schema["$defs"][endpoint.request.replace("::", ".")];
    request["properties"].as_object().unwrap().keys().cloned().collect()
}
