//! Input, read whole: all its faults at once, by field.
//!
//! **Owns** how a JSON value becomes one of our types when a person or a stranger wrote it: volume
//! specs, requests on the bus, configuration. (Records we wrote ourselves are read by serde.)
//!
//! **Promises** every fault of the input in one pass, each with its path (`capability[1].access`),
//! and a value only when there is none. An unknown field is a fault in a document and in a request
//! that changes something; other requests ignore it ([`Row::unknown`](crate::verb::Row::unknown)).
//!
//! **Never** panics, whatever the input.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use berth_domain::limits;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One thing wrong with an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Where, such as `capability[1].access`; empty for the whole.
    pub path: String,
    /// What is wrong, and what would be right.
    pub problem: String,
    /// The line in the document, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "`{}` ", self.path)?;
        }
        f.write_str(&self.problem)
    }
}

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
    let mut decoder = Decoder { unknown, path: Vec::new(), faults: Vec::new() };
    match T::decode(value, &mut decoder) {
        Some(whole) if decoder.faults.is_empty() => Ok(whole),
        _ => Err(decoder.faults),
    }
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
    faults: Vec<Fault>,
}

impl Decoder {
    /// Notes a fault at the present path.
    pub fn fault(&mut self, problem: impl fmt::Display) {
        let path = self.path.concat();
        let path = path.strip_prefix('.').unwrap_or(&path).to_owned();
        self.faults.push(Fault { path, problem: problem.to_string(), line: None });
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

    /// Faults for unknown fields, if they are faults here; `known` names the known ones.
    pub fn finish(&mut self, rest: &Map<String, Value>, known: &[&str]) {
        if self.unknown == Unknown::Ignore {
            return;
        }
        for name in rest.keys() {
            self.read_at(format!(".{name}"), |decoder| {
                decoder.fault(format!("is not known here; known are {}", known.join(", ")));
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

impl Decode for String {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        match value {
            Value::String(text) if text.len() <= limits::TEXT_BYTES_MAX => Some(text),
            Value::String(text) => {
                decoder.fault(format!(
                    "has {} bytes; at most {} are taken",
                    text.len(),
                    limits::TEXT_BYTES_MAX
                ));
                None
            }
            other => {
                decoder.fault(format!("is {}, not a string", kind(&other)));
                None
            }
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        T::decode(value, decoder).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        list(value, limits::LIST_MAX, decoder)
    }

    fn absent() -> Option<Self> {
        Some(Self::new())
    }
}

/// A set names things of one volume, of which there may be as many as it has claims.
impl<T: Decode + Ord> Decode for BTreeSet<T> {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        list(value, limits::CLAIMS_MAX, decoder).map(BTreeSet::from_iter)
    }

    fn absent() -> Option<Self> {
        Some(Self::new())
    }
}

fn list<T: Decode>(value: Value, most: usize, decoder: &mut Decoder) -> Option<Vec<T>> {
    let Value::Array(items) = value else {
        decoder.fault(format!("is {}, not a list", kind(&value)));
        return None;
    };
    if items.len() > most {
        decoder.fault(format!("has {} entries; at most {most} are taken", items.len()));
        return None;
    }
    // Every entry is read, also after a faulty one: all faults at once.
    let read: Vec<Option<T>> = items
        .into_iter()
        .enumerate()
        .map(|(at, item)| decoder.read_at(format!("[{at}]"), |decoder| T::decode(item, decoder)))
        .collect();
    read.into_iter().collect()
}

impl<T: Decode> Decode for BTreeMap<String, T> {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let object = decoder.object(value)?;
        let bytes: usize =
            object.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
        if object.len() > limits::MAP_ENTRIES_MAX || bytes > limits::MAP_BYTES_MAX {
            decoder.fault(format!(
                "has {} entries of {bytes} bytes; at most {} of {} are taken",
                object.len(),
                limits::MAP_ENTRIES_MAX,
                limits::MAP_BYTES_MAX
            ));
            return None;
        }
        let read: Vec<Option<(String, T)>> = object
            .into_iter()
            .map(|(key, value)| {
                let at = format!(".{key}");
                decoder.read_at(at, |decoder| T::decode(value, decoder)).map(|value| (key, value))
            })
            .collect();
        read.into_iter().collect()
    }

    fn absent() -> Option<Self> {
        Some(Self::new())
    }
}

/// Reads leaves by their serde form.
#[macro_export]
macro_rules! decode_leaf {
    ($($name:ty),* $(,)?) => {$(
        impl $crate::decode::Decode for $name {
            fn decode(
                value: serde_json::Value,
                decoder: &mut $crate::decode::Decoder,
            ) -> Option<Self> {
                decoder.leaf(value)
            }
        }
    )*};
}

/// Reads fields that several types have in common, by their own names or by others.
#[macro_export]
macro_rules! decode_part {
    ($name:ty { $($field:ident $(as $called:literal)?),* $(,)? }) => {
        impl $crate::decode::Part for $name {
            const FIELDS: &'static [&'static str] =
                &[$($crate::decode_part!(@called $field $($called)?)),*];

            fn take(
                object: &mut serde_json::Map<String, serde_json::Value>,
                decoder: &mut $crate::decode::Decoder,
            ) -> Option<Self> {
                $(let $field =
                    decoder.field(object, $crate::decode_part!(@called $field $($called)?));)*
                Some(Self { $($field: $field?),* })
            }
        }
    };
    (@called $field:ident) => { stringify!($field) };
    (@called $field:ident $called:literal) => { $called };
}

/// Reads a struct field by field. `= default` replaces an absent field, and the string after `as`
/// is the field's name in messages. Parts that it has in common with others
/// ([`Part`](crate::decode::Part)) stand behind a `+`.
#[macro_export]
macro_rules! decode_struct {
    ($name:ty {}) => {
        impl $crate::decode::Decode for $name {
            fn decode(
                value: serde_json::Value,
                decoder: &mut $crate::decode::Decoder,
            ) -> Option<Self> {
                let object = decoder.object(value)?;
                decoder.finish(&object, &[]);
                Some(Self {})
            }
        }
    };
    ($name:ty { $($field:ident $(as $called:literal)? $(= $default:expr)?),* $(,)? }) => {
        impl $crate::decode::Decode for $name {
            fn decode(
                value: serde_json::Value,
                decoder: &mut $crate::decode::Decoder,
            ) -> Option<Self> {
                let mut object = decoder.object(value)?;
                $(let $field = $crate::decode_struct!(
                    @field decoder, object,
                    $crate::decode_part!(@called $field $($called)?) $(, $default)?
                );)*
                decoder.finish(
                    &object,
                    &[$($crate::decode_part!(@called $field $($called)?)),*],
                );
                Some(Self { $($field: $field?),* })
            }
        }
    };
    (
        $name:ty { $($field:ident $(as $called:literal)? $(= $default:expr)?),* $(,)? }
            + $($part:ident),+
    ) => {
        impl $crate::decode::Decode for $name {
            fn decode(
                value: serde_json::Value,
                decoder: &mut $crate::decode::Decoder,
            ) -> Option<Self> {
                let mut object = decoder.object(value)?;
                let mut known = vec![$($crate::decode_part!(@called $field $($called)?)),*];
                $(let $field = $crate::decode_struct!(
                    @field decoder, object,
                    $crate::decode_part!(@called $field $($called)?) $(, $default)?
                );)*
                $(let $part = decoder.part(&mut object, &mut known);)+
                decoder.finish(&object, &known);
                Some(Self { $($field: $field?,)* $($part: $part?),+ })
            }
        }
    };
    (@field $decoder:ident, $object:ident, $called:expr) => {
        $decoder.field(&mut $object, $called)
    };
    (@field $decoder:ident, $object:ident, $called:expr, $default:expr) => {
        match $decoder.field::<Option<_>>(&mut $object, $called) {
            Some(None) => Some($default),
            Some(some) => some,
            None => None,
        }
    };
}

decode_leaf!(
    bool,
    u32,
    u64,
    i64,
    berth_domain::AllocId,
    berth_domain::AttemptId,
    berth_domain::JobId,
    berth_domain::Namespace,
    berth_domain::NodeId,
    berth_domain::OwnerId,
    berth_domain::PluginId,
    berth_domain::VolumeId,
    berth_domain::WorkerId,
    berth_domain::Timestamp,
);

#[cfg(test)]
mod tests {
    use berth_domain::VolumeId;
    use serde_json::json;

    use super::*;

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
    fn a_message_ignores_what_it_does_not_know() {
        let whole: Whole =
            message(br#"{"parts":[{"volume":"v","new":1}],"newer":true}"#, Unknown::Ignore)
                .unwrap();
        let volume = VolumeId::new("v").unwrap();
        assert_eq!(whole, Whole { parts: vec![SamplePart { volume, many: 1 }], note: None });
    }

    #[test]
    fn what_is_no_json_is_one_fault() {
        for body in [&b"{"[..], b"\xff\xfe", b"[1,2]", b"null", b"7"] {
            assert_eq!(message::<Whole>(body, Unknown::Ignore).unwrap_err().len(), 1, "{body:?}");
        }
    }
}
