//! Reading faults.
//!
//! Owns: the form of an array of faults. Promises: one answer names everything that is wrong, entry
//! by entry and field by field, in plain words. Never: takes a part of what is faulty.

use serde_json::{Map, Value};

use super::Fault;

/// The faults in a JSON array, or everything that is wrong with it.
pub fn parse(text: &str) -> Result<Vec<Fault>, Vec<String>> {
    let value: Value = serde_json::from_str(text).map_err(|error| vec![error.to_string()])?;
    let Value::Array(entries) = value else {
        return Err(vec!["faults are an array, even one: [{\"code\": \"ABORTED\"}]".to_owned()]);
    };
    let mut faults = Vec::new();
    let mut wrong = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        match parse_entry(entry) {
            Ok(fault) => faults.push(fault),
            Err(all) => wrong.extend(all.iter().map(|one| format!("entry {}: {one}", index + 1))),
        }
    }
    if wrong.is_empty() { Ok(faults) } else { Err(wrong) }
}

fn parse_entry(entry: Value) -> Result<Fault, Vec<String>> {
    let Value::Object(fields) = entry else { return Err(vec!["is no object".to_owned()]) };
    // Each field by itself, so that the first that is wrong does not hide the others.
    let alone = |(name, value): (&String, &Value)| {
        let field = Map::from_iter([(name.clone(), value.clone())]);
        let fault = serde_json::from_value::<Fault>(field.into());
        fault.err().map(|error| say(name, &error.to_string()))
    };
    let wrong: Vec<_> = fields.iter().filter_map(alone).collect();
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let fault: Fault =
        serde_json::from_value(fields.into()).map_err(|error| vec![error.to_string()])?;
    let contradictions = fault.contradictions();
    if contradictions.is_empty() { Ok(fault) } else { Err(contradictions) }
}

/// The decoder names an unknown field itself, and of a wrong value only what it should be.
fn say(name: &str, error: &str) -> String {
    if error.starts_with("unknown field") { error.to_owned() } else { format!("{name}: {error}") }
}
