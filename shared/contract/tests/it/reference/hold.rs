//! What the reference says of fields, held against what is really read and written.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use berth_contract::message::call::{ClaimCall, StorageCall};
use serde_json::{Map, Value};

use super::source::{Content, DOCUMENT, Field, Form, Kind, Source};

/// Requests that need one of these fields, each of which is optional by itself.
pub const EITHER: [(&str, [&str; 2]); 2] =
    [("storage::Create", ["class", "plugin"]), ("storage::ListCapacities", ["class", "plugin"])];

static SOURCE: LazyLock<Source> = LazyLock::new(Source::read);

/// A message or record has no field that the reference does not name; what it calls optional may be
/// left out, and what it does not may not.
pub fn hold<T>(message: &Value, reads: impl Fn(&Value) -> bool) {
    let name = match std::any::type_name::<T>() {
        name if name == std::any::type_name::<ClaimCall>() => "call::ClaimCall".to_owned(),
        name if name == std::any::type_name::<StorageCall>() => "call::StorageCall".to_owned(),
        name => source_name(name.split('<').next().unwrap()),
    };
    let fields = SOURCE.fields(&name);
    let Value::Object(object) = message else { panic!("{name} is no object") };
    let known: BTreeSet<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    for field in object.keys() {
        assert!(known.contains(field.as_str()), "{name}: {field} is not in the reference");
    }
    for (field, value) in fields.iter().filter_map(|one| Some((one, object.get(&one.name)?))) {
        hold_kind(&field.kind, value, &format!("{name}.{}", field.name));
    }
    let is_either =
        |field: &str| EITHER.iter().any(|(of, all)| *of == name && all.contains(&field));
    for field in fields.iter().filter(|field| !is_either(&field.name)) {
        let without: Map<String, Value> =
            object.iter().filter(|(name, _)| **name != field.name).map(own_pair).collect();
        let reads = reads(&Value::Object(without));
        // Requests take a list or object that is not there for an empty one.
        let collection = matches!(field.kind, Kind::Listed(_) | Kind::Mapped(_));
        let said = format!("{name}.{}: optional is {}", field.name, field.optional);
        assert!(reads == field.optional || (reads && collection), "{said}, but it is not so");
    }
}

/// The name of a type without arguments, as [`Source`] has it.
fn source_name(path: &str) -> String {
    let mut parts = path.rsplit("::");
    let (own, module) = (parts.next().unwrap(), parts.next().unwrap());
    let of_messages = path.contains("::message::");
    if of_messages { format!("{module}::{own}") } else { own.to_owned() }
}

/// A value has the form that the reference tells, at every depth.
fn hold_kind(kind: &Kind, value: &Value, at: &str) {
    let is_of_kind = match (kind, value) {
        (_, Value::Null) => true,
        (Kind::Plain("true or false"), value) => value.is_boolean(),
        (Kind::Plain("whole number"), value) => value.is_u64(),
        (Kind::Plain("number"), value) => value.is_i64(),
        (Kind::Plain("size"), value) => value.is_u64() || value.is_string(),
        (Kind::Plain(_), value) => value.is_string(),
        (Kind::Listed(item), Value::Array(items)) => {
            for (place, one) in items.iter().enumerate() {
                hold_kind(item, one, &format!("{at}[{place}]"));
            }
            true
        }
        (Kind::Mapped(item), Value::Object(entries)) => {
            for (key, one) in entries {
                hold_kind(item, one, &format!("{at}.{key}"));
            }
            true
        }
        // What a document holds is tested where it is read.
        (Kind::Named(name), value) if name == DOCUMENT => value.is_object(),
        (Kind::Named(name), value) => hold_form(&SOURCE.get(name).form, value, at),
        _ => false,
    };
    assert!(is_of_kind, "{at} is {value}, not {kind:?}");
}

fn hold_form(form: &Form, value: &Value, at: &str) -> bool {
    match (form, value) {
        (Form::Object(fields), Value::Object(object)) => {
            hold_fields(fields, object, at);
            true
        }
        (Form::Choice(variants), Value::String(name)) => {
            variants.iter().any(|one| one.name == *name && matches!(one.content, Content::Name))
        }
        (Form::Choice(variants), Value::Object(object)) => {
            let (name, value) = object.iter().next().unwrap();
            let found = variants.iter().find(|one| one.name == *name);
            let at = format!("{at}.{name}");
            match found.map(|one| &one.content) {
                Some(Content::Value(kind)) => hold_kind(kind, value, &at),
                Some(Content::Fields(fields)) => {
                    hold_fields(fields, value.as_object().unwrap(), &at);
                }
                Some(Content::Name) | None => return false,
            }
            object.len() == 1
        }
        _ => false,
    }
}

fn hold_fields(fields: &[Field], object: &Map<String, Value>, at: &str) {
    for (name, value) in object {
        let field = fields.iter().find(|field| field.name == *name);
        let field = field.unwrap_or_else(|| panic!("{at}.{name} is not in the reference"));
        hold_kind(&field.kind, value, &format!("{at}.{name}"));
    }
    let missing = fields.iter().find(|field| !field.optional && !object.contains_key(&field.name));
    assert!(missing.is_none(), "{at} lacks {missing:?}");
}

fn own_pair((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}
