//! Arguments and answers in the form of the log.
//!
//! Owns: cutting messages to the size of a line. Promises: a text has at most [`LONGEST_TEXT`]
//! bytes and says how much was cut; a list or map has at most [`MOST_ENTRIES`]; empty fields are
//! left out. Never: removes secrets; `berth-csi` writes a message's JSON without them.

use std::fmt::Write;

use serde::Serialize;
use serde_json::{Map, Value};

/// Longest text, in bytes. Longer than any path on Linux.
const LONGEST_TEXT: usize = 4096;
/// Most entries of a list or map.
const MOST_ENTRIES: usize = 64;

/// The message as JSON, bounded.
pub(crate) fn to_bounded_json(message: &impl Serialize) -> Value {
    // Serializing a CSI message cannot fail.
    bounded(serde_json::to_value(message).unwrap_or_default())
}

fn bounded(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(cut(text)),
        Value::Array(list) => list.into_iter().take(MOST_ENTRIES).map(bounded).collect(),
        Value::Object(map) => Value::Object(bounded_map(map)),
        other => other,
    }
}

fn bounded_map(map: Map<String, Value>) -> Map<String, Value> {
    let entries = map.into_iter().filter(|(_, value)| !is_empty(value)).take(MOST_ENTRIES);
    entries.map(|(key, value)| (cut(key), bounded(value))).collect()
}

/// Protobuf does not send these values either.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn cut(mut text: String) -> String {
    if text.len() > LONGEST_TEXT {
        let end = (0..=LONGEST_TEXT).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        let more = text.len() - end;
        text.truncate(end);
        _ = write!(text, "… and {more} bytes more");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_small_message_is_shown_whole_and_without_what_is_empty() {
        let message = json!({"a": "x", "b": {"c": [1, false]}, "d": {}, "e": "", "f": null});
        assert_eq!(to_bounded_json(&message), json!({"a": "x", "b": {"c": [1, false]}}));
    }

    #[test]
    fn whatever_its_size_a_message_is_shown_in_bounded_space() {
        let long = "ä".repeat(LONGEST_TEXT);
        let entries = |index: usize| (format!("{long}{index}"), vec![long.clone(); 100]);
        let message: BTreeMap<_, _> = (0..100).map(entries).collect();
        let text = to_bounded_json(&message).to_string();
        assert!(text.len() < (MOST_ENTRIES + 1) * (MOST_ENTRIES + 1) * (LONGEST_TEXT + 64));
        assert!(text.contains("… and 4096 bytes more"), "{}", &text[..100]);
    }
}
