//! Input, read whole: all its faults at once, by field.
//!
//! **Owns** how a JSON value becomes one of our types when a person or a stranger wrote it: volume
//! specs, requests on the bus, configuration. (Records we wrote ourselves are read by serde.)
//!
//! **Promises** every fault of the input in one pass, each with its path (`capability[1].access`),
//! and a value only when there is none. Of very many faults it lists the first, and says how many
//! more there are. An unknown field is a fault in a document and in a request
//! that changes something; other requests ignore it ([`Row::unknown`](crate::verb::Row::unknown)).
//!
//! **Never** panics, whatever the input.

mod fault;
mod forms;
mod values;

use std::fmt;
use std::ops::RangeInclusive;

use berth_domain::limits;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use fault::Fault;
pub(crate) use fault::FaultList;

/// What to do with a field that this version does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unknown {
    /// It is a fault: a typing error, or a wish that this version cannot fulfil.
    #[default]
    Fault,
    /// It is ignored: without it the answer is still true.
    Ignore,
}

/// A type that can be read from input.
pub trait Decode: Sized {
    /// Reads `value`, which is at the decoder's path. None after noting a fault.
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self>;

    /// The value of an absent field. None means that the field is required.
    fn absent() -> Option<Self> {
        None
    }

    /// As [`decode`](Self::decode), of an entry of a map. A map bounds all its texts together.
    fn decode_in_map(value: Value, decoder: &mut Decoder) -> Option<Self> {
        Self::decode(value, decoder)
    }
}

/// Fields that several types have in common, read from the same object as theirs.
pub trait Part: Sized {
    /// What they are called.
    const FIELDS: &'static [&'static str];

    /// Takes them out of the object; none after noting a fault.
    fn take(object: &mut Map<String, Value>, decoder: &mut Decoder) -> Option<Self>;
}

/// Reads a whole input.
pub fn decode<T: Decode>(value: Value, unknown: Unknown) -> Result<T, Vec<Fault>> {
    let mut decoder = Decoder { unknown, path: Vec::new(), faults: FaultList::default() };
    let whole = T::decode(value, &mut decoder);
    let faults = decoder.faults.into_vec();
    whole.filter(|_| faults.is_empty()).ok_or(faults)
}

/// Reads a message: JSON in bytes.
pub fn message<T: Decode>(body: &[u8], unknown: Unknown) -> Result<T, Vec<Fault>> {
    decode(json(body)?, unknown)
}

/// The JSON of a message's body; an empty one is an empty object, so that `nats req SUBJECT ''`
/// works where nothing is needed.
pub fn json(body: &[u8]) -> Result<Value, Vec<Fault>> {
    let whole = |problem: String| vec![Fault { path: String::new(), problem, line: None }];
    if body.len() > limits::MESSAGE_BYTES_MAX {
        return Err(whole(format!(
            "the body has {} bytes; at most {} are read",
            body.len(),
            limits::MESSAGE_BYTES_MAX
        )));
    }
    let body: &[u8] = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| whole(format!("the body is not JSON: {error}")))
}

/// The present path of a reading, and the faults so far.
#[derive(Debug)]
pub struct Decoder {
    unknown: Unknown,
    path: Vec<String>,
    faults: FaultList,
}

impl Decoder {
    /// Notes a fault at the present path.
    pub fn fault(&mut self, problem: impl fmt::Display) {
        self.faults.add(|| {
            let path = self.path.concat();
            let path = path.strip_prefix('.').unwrap_or(&path).to_owned();
            Fault { path, problem: problem.to_string(), line: None }
        });
    }

    /// Notes a fault at `path` below unless the condition holds, and says whether it does. Several
    /// are joined with `&`, which looks at all of them, rather than `&&`.
    pub fn demand(&mut self, holds: bool, path: &str, problem: impl fmt::Display) -> bool {
        if !holds {
            self.read_at(format!(".{path}"), |decoder| decoder.fault(problem));
        }
        holds
    }

    /// Reads the part at `segment` (`.name` or `[3]`) below the present path.
    pub fn read_at<T>(&mut self, segment: String, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(segment);
        let part = read(self);
        self.path.pop();
        part
    }

    /// Takes a field out of an object and reads it.
    pub fn field<T: Decode>(&mut self, object: &mut Map<String, Value>, name: &str) -> Option<T> {
        let value = object.remove(name);
        self.read_at(format!(".{name}"), |decoder| match value {
            // Null and absent are one: programs write either.
            None | Some(Value::Null) => T::absent().or_else(|| {
                decoder.fault("is missing");
                None
            }),
            Some(value) => T::decode(value, decoder),
        })
    }

    /// Takes a part out of an object, and adds its fields to what is known there.
    pub fn part<T: Part>(
        &mut self,
        object: &mut Map<String, Value>,
        known: &mut Vec<&'static str>,
    ) -> Option<T> {
        known.extend(T::FIELDS);
        T::take(object, self)
    }

    /// The object that `value` is to be.
    pub fn object(&mut self, value: Value) -> Option<Map<String, Value>> {
        match value {
            Value::Object(object) => Some(object),
            other => {
                self.fault(format!("is {}, not an object", kind(&other)));
                None
            }
        }
    }

    /// The fields of the object that `value` is to be.
    pub fn fields(&mut self, value: Value) -> Option<Fields<'_>> {
        let object = self.object(value)?;
        Some(Fields { decoder: self, object, known: Vec::new() })
    }

    /// The variant that `value` names, and what stands behind its name: of a text nothing, of an
    /// object the value of its only field.
    pub fn variant(
        &mut self,
        value: Value,
        known: &[&'static str],
    ) -> Option<(&'static str, Value)> {
        let find = |text: &str| known.iter().find(|name| **name == text).copied();
        let named = known.join(", ");
        match value {
            Value::String(text) => {
                let found = find(&text);
                if found.is_none() {
                    self.fault(format!("`{text}` is not known here; known are {named}"));
                }
                found.map(|name| (name, Value::Null))
            }
            Value::Object(mut object) => {
                let mut there = known.iter().filter(|name| object.contains_key(**name));
                let (found, surplus) = (there.next(), there.next());
                let variant = match (found, surplus) {
                    (Some(name), None) => object.remove(*name).map(|value| (*name, value)),
                    (None, _) => {
                        self.fault(format!("has none of the fields {named}"));
                        return None;
                    }
                    (Some(one), Some(other)) => {
                        self.fault(format!("has both `{one}` and `{other}`; give one of them"));
                        return None;
                    }
                };
                self.finish(&object, known);
                variant
            }
            other => {
                self.fault(format!("is {}, not one of {named}", kind(&other)));
                None
            }
        }
    }

    /// Faults for unknown fields, if they are faults here; `known` names the known ones.
    pub fn finish(&mut self, rest: &Map<String, Value>, known: &[&str]) {
        if self.unknown == Unknown::Ignore {
            return;
        }
        let known = known.join(", ");
        for name in rest.keys() {
            self.read_at(format!(".{name}"), |decoder| {
                decoder.fault(format_args!("is not known here; known are {known}"));
            });
        }
    }

    /// Reads by serde, for leaves whose own error says enough.
    pub fn leaf<T: DeserializeOwned>(&mut self, value: Value) -> Option<T> {
        match serde_json::from_value(value) {
            Ok(leaf) => Some(leaf),
            Err(error) => {
                self.fault(error);
                None
            }
        }
    }
}

/// An object whose fields are read one by one. Each name is written once: what was read is known.
#[derive(Debug)]
pub struct Fields<'a> {
    decoder: &'a mut Decoder,
    object: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Fields<'_> {
    /// Reads a field.
    pub fn field<T: Decode>(&mut self, name: &'static str) -> Option<T> {
        self.known.push(name);
        self.decoder.field(&mut self.object, name)
    }

    /// Reads the fields of a part, such as the page of a list.
    pub fn part<T: Part>(&mut self) -> Option<T> {
        self.decoder.part(&mut self.object, &mut self.known)
    }

    /// Whether a field that was not read yet is there. Null and absent are one.
    pub fn has(&self, name: &str) -> bool {
        self.object.get(name).is_some_and(|value| !value.is_null())
    }

    /// Reads a number within a range. `default` is the value of an absent field.
    pub fn number(
        &mut self,
        name: &'static str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let number = self.field::<Option<u64>>(name)?.unwrap_or(default);
        let problem = format!("must be from {} to {}", range.start(), range.end());
        self.decoder.demand(range.contains(&number), name, problem).then_some(number)
    }

    /// Notes a fault if the object has a field that an earlier version knew. Says whether it has
    /// none.
    pub fn refuse(&mut self, name: &str, problem: impl fmt::Display) -> bool {
        let is_absent = self.object.remove(name).is_none();
        self.decoder.demand(is_absent, name, problem)
    }

    /// Faults for what was not read, if such are faults here. `others` are fields that are read
    /// elsewhere.
    pub fn finish(mut self, others: &[&'static str]) {
        self.known.extend(others);
        self.decoder.finish(&self.object, &self.known);
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::VolumeId;
    use serde_json::json;

    use super::*;
    use crate::{decode_struct, decode_variants};

    #[derive(Debug, PartialEq)]
    enum Sample {
        Whole(SamplePart),
        Fields { many: u32, note: Option<String> },
        Name,
    }
    decode_variants!(Sample {
        "whole" => Whole(SamplePart),
        "fields" => Fields { many = 1, note },
        "name" => Name,
    });

    #[derive(Debug, PartialEq)]
    struct SamplePart {
        volume: VolumeId,
        many: u32,
    }
    decode_struct!(SamplePart { volume, many = 1 });

    #[derive(Debug, PartialEq)]
    struct Whole {
        parts: Vec<SamplePart>,
        note: Option<String>,
    }
    decode_struct!(Whole { parts, note });

    #[test]
    fn every_fault_comes_at_once_with_its_path() {
        let input = json!({
            "parts": [{"volume": "", "many": -1}, {"volume": "v"}, {"many": 2, "colour": 1}],
            "note": 7, "x": {}
        });
        let faults = decode::<Whole>(input, Unknown::Fault).unwrap_err();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(
            paths,
            ["parts[0].volume", "parts[0].many", "parts[2].volume", "parts[2].colour", "note", "x"]
        );
    }

    #[test]
    fn of_very_many_faults_the_first_are_listed_and_the_others_are_counted() {
        let most = limits::FAULTS_MAX;
        for (unknown, listed, last) in [
            (most - 1, most - 1, "is not known here; known are"),
            (most, most, "is not known here; known are"),
            (most + 1, most + 1, "1 more were found"),
            (100_000, most + 1, "99900 more were found"),
        ] {
            let fields = (0..unknown).map(|at| (format!("x{at:06}"), json!(1)));
            let mut object: Map<String, Value> = fields.collect();
            object.insert("name".to_owned(), Value::Null);
            let faults = decode::<Sample>(Value::Object(object), Unknown::Fault).unwrap_err();
            assert_eq!(faults.len(), listed, "{unknown}");
            let text = &faults.last().unwrap().problem;
            assert!(text.starts_with(last), "{unknown}: {text}");
            assert_eq!(faults[0].path, "x000000");
        }
    }

    /// A hundred faults with the whole of a long name each are more than an answer carries.
    #[test]
    fn a_fault_cuts_what_it_repeats_of_the_input() {
        let input = json!({"name": "n", "x".repeat(1 << 20): 1});
        let faults = decode::<Sample>(input, Unknown::Fault).unwrap_err();
        assert_eq!(faults.len(), 1);
        let Fault { path, problem, .. } = &faults[0];
        let most = limits::TEXT_BYTES_MAX;
        assert!(path.len() <= most && problem.len() <= most, "{}", path.len());
    }

    #[test]
    fn a_message_ignores_what_it_does_not_know() {
        let whole: Whole =
            message(br#"{"parts":[{"volume":"v","new":1}],"newer":true}"#, Unknown::Ignore)
                .unwrap();
        let volume = VolumeId::new("v").unwrap();
        assert_eq!(whole, Whole { parts: vec![SamplePart { volume, many: 1 }], note: None });
    }

    #[test]
    fn a_variant_is_a_text_or_the_only_field_of_an_object() {
        let read = |value: Value| decode::<Sample>(value, Unknown::Fault);
        let volume = VolumeId::new("v").unwrap();
        for (value, expected) in [
            (json!("name"), Sample::Name),
            (json!({"whole": {"volume": "v"}}), Sample::Whole(SamplePart { volume, many: 1 })),
            (json!({"fields": {}}), Sample::Fields { many: 1, note: None }),
            (json!({"fields": {"many": 2}}), Sample::Fields { many: 2, note: None }),
        ] {
            assert_eq!(read(value).unwrap(), expected);
        }
        for (value, expected) in [
            (json!("nome"), vec!["`nome` is not known here; known are whole, fields, name"]),
            (json!({}), vec!["has none of the fields whole, fields, name"]),
            (json!(["name"]), vec!["is a list, not one of whole, fields, name"]),
            (
                json!({"fields": {}, "name": null}),
                vec!["has both `fields` and `name`; give one of them"],
            ),
            (
                json!({"fields": {"many": -1, "x": 1}, "y": 2}),
                vec![
                    "`y` is not known here; known are whole, fields, name",
                    "`fields.many` invalid value: integer `-1`, expected u32",
                    "`fields.x` is not known here; known are many, note",
                ],
            ),
        ] {
            let faults = read(value).unwrap_err();
            let said: Vec<String> = faults.iter().map(ToString::to_string).collect();
            assert_eq!(said, expected);
        }
        let newer = json!({"fields": {"many": 2, "x": 1}, "y": 2});
        let expected = Sample::Fields { many: 2, note: None };
        assert_eq!(decode::<Sample>(newer, Unknown::Ignore).unwrap(), expected);
    }

    #[test]
    fn what_is_no_json_is_one_fault() {
        for body in [&b"{"[..], b"\xff\xfe", b"[1,2]", b"null", b"7"] {
            assert_eq!(message::<Whole>(body, Unknown::Ignore).unwrap_err().len(), 1, "{body:?}");
        }
    }
}
