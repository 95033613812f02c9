//! Requests with a field more than any version knows.

use serde_json::{Value, json};

/// A field of no version.
const UNKNOWN: &str = "of_no_version";
/// Objects whose field names are the caller's own: no name is unknown there.
const MAPS: [&str; 11] = [
    "attributes",
    "context",
    "meta",
    "mutable_parameters",
    "parameters",
    "paths",
    "publish_context",
    "secrets",
    "topologies",
    "topology",
    "usable_from",
];

/// The request with an unknown field in one of its objects, once for each of them; with the path of
/// the field.
pub fn widened(sample: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    collect_objects(sample, "", "", &mut found);
    let widen = |(path, pointer): (String, String)| {
        let mut wider = sample.clone();
        wider.pointer_mut(&pointer).unwrap()[UNKNOWN] = json!({"deep": [1]});
        (path, wider)
    };
    found.into_iter().map(widen).collect()
}

fn collect_objects(value: &Value, at: &str, pointer: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            let path = format!("{at}.{UNKNOWN}").trim_start_matches('.').to_owned();
            found.push((path, pointer.to_owned()));
            for (name, inner) in fields.iter().filter(|(name, _)| !MAPS.contains(&name.as_str())) {
                let at = format!("{at}.{name}");
                collect_objects(inner, &at, &format!("{pointer}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                let at = format!("{at}[{index}]");
                collect_objects(inner, &at, &format!("{pointer}/{index}"), found);
            }
        }
        _ => {}
    }
}
