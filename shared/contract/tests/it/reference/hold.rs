//! What the reference says of fields, held against what is really read and written.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::source::{Kind, Source};

static SOURCE: LazyLock<Source> = LazyLock::new(Source::read);

/// A message or record has no field that the reference does not name; what it calls optional may be
/// left out, and what it does not may not.
pub fn hold<T>(message: &Value, reads: impl Fn(&Value) -> bool) {
    let name = std::any::type_name::<T>();
    let name = name.split('<').next().unwrap();
    let mut parts = name.rsplit("::");
    let (own, module) = (parts.next().unwrap(), parts.next().unwrap());
    let of_messages = name.contains("::message::");
    let name = if of_messages { format!("{module}::{own}") } else { own.to_owned() };
    let fields = SOURCE.fields(&name);
    let Value::Object(object) = message else { panic!("{name} is no object") };
    let known: BTreeSet<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    for field in object.keys() {
        assert!(known.contains(field.as_str()), "{name}: {field} is not in the reference");
    }
    for field in fields {
        let without: Map<String, Value> =
            object.iter().filter(|(name, _)| **name != field.name).map(own_pair).collect();
        let reads = reads(&Value::Object(without));
        // Requests take a list or object that is not there for an empty one.
        let collection = matches!(field.kind, Kind::Listed(_) | Kind::Mapped(_));
        let said = format!("{name}.{}: optional is {}", field.name, field.optional);
        assert!(reads == field.optional || (reads && collection), "{said}, but it is not so");
    }
}

fn own_pair((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}
