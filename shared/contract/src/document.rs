//! Documents that people write: volume specs and configuration, in TOML or JSON.
//!
//! **Owns** the way from text to a typed value with every fault at once, each with its line in
//! TOML.
//!
//! **Promises** that an unknown field is a fault, and that a document with a fault gives no value.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::decode::{Decode, Fault, FaultList, Unknown, decode};

/// How a document is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// TOML.
    Toml,
    /// JSON.
    Json,
}

impl Format {
    /// JSON when the text begins like an object, which no TOML document does.
    pub fn guess(text: &str) -> Self {
        if text.trim_start().starts_with('{') { Self::Json } else { Self::Toml }
    }
}

/// Reads a document whole.
pub fn read<T: Decode>(text: &str, format: Format) -> Result<T, Vec<Fault>> {
    let document = Document::parse(text, format)?;
    decode(document.value.clone(), Unknown::Fault).map_err(|faults| document.with_lines(faults))
}

/// A parsed document: the value, and the line of each path where the format has lines.
#[derive(Debug)]
pub struct Document {
    /// The value.
    pub value: Value,
    lines: BTreeMap<String, usize>,
}

impl Document {
    /// Parses text; every fault of form is reported, TOML's with their lines.
    pub fn parse(text: &str, format: Format) -> Result<Self, Vec<Fault>> {
        match format {
            Format::Json => parse_json(text),
            Format::Toml => parse_toml(text),
        }
    }

    /// Adds to each fault the line of its path, or of the nearest part of it that is written.
    pub fn with_lines(&self, faults: Vec<Fault>) -> Vec<Fault> {
        let line = |path: &str| {
            let mut path = path;
            loop {
                if let Some(line) = self.lines.get(path) {
                    return Some(*line);
                }
                path = &path[..path.rfind(['.', '['])?];
            }
        };
        faults
            .into_iter()
            .map(|fault| Fault { line: fault.line.or_else(|| line(&fault.path)), ..fault })
            .collect()
    }
}

fn parse_json(text: &str) -> Result<Document, Vec<Fault>> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(Document { value, lines: BTreeMap::new() }),
        Err(error) => Err(vec![Fault {
            path: String::new(),
            problem: format!("is not JSON: {error}"),
            line: Some(error.line()).filter(|line| *line > 0),
        }]),
    }
}

fn parse_toml(text: &str) -> Result<Document, Vec<Fault>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let lines = LineStarts::new(text);
    if !errors.is_empty() {
        let fault = |error: &toml::de::Error| Fault {
            path: String::new(),
            problem: format!("is not TOML: {}", error.message()),
            line: error.span().map(|span| lines.line_of(span.start)),
        };
        return Err(errors.iter().map(fault).collect::<FaultList>().into_vec());
    }
    let mut reader = TomlReader { starts: lines, lines: BTreeMap::new() };
    let value = reader.convert_table(table.get_ref(), "");
    Ok(Document { value, lines: reader.lines })
}

/// Where each line of a text begins. A document may have a fault in each of very many lines.
struct LineStarts(Vec<usize>);

impl LineStarts {
    fn new(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self(ends.map(|(at, _)| at + 1).collect())
    }

    /// The line of the byte at this place, from 1.
    fn line_of(&self, at: usize) -> usize {
        self.0.partition_point(|start| *start <= at) + 1
    }
}

/// Makes values of a parsed TOML document, and notes the line of each path.
struct TomlReader {
    starts: LineStarts,
    lines: BTreeMap<String, usize>,
}

impl TomlReader {
    fn convert_table(&mut self, table: &DeTable<'_>, path: &str) -> Value {
        let mut object = Map::new();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let at = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            self.lines.insert(at.clone(), self.starts.line_of(key.span().start));
            object.insert(name.to_owned(), self.convert(value, &at));
        }
        Value::Object(object)
    }

    fn convert(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Value {
        match value.get_ref() {
            DeValue::String(string) => Value::String(string.to_string()),
            DeValue::Boolean(boolean) => Value::Bool(*boolean),
            DeValue::Integer(integer) => {
                let digits = integer.as_str();
                i64::from_str_radix(digits, integer.radix())
                    .map(Number::from)
                    .or_else(|_| u64::from_str_radix(digits, integer.radix()).map(Number::from))
                    // Beyond 64 bits it stays text. A reader that needs a number reports the fault.
                    .map_or_else(|_| Value::String(digits.to_owned()), Value::Number)
            }
            DeValue::Float(float) => float
                .as_str()
                .parse()
                .ok()
                .and_then(Number::from_f64)
                .map_or_else(|| Value::String(float.as_str().to_owned()), Value::Number),
            DeValue::Datetime(time) => Value::String(time.to_string()),
            DeValue::Array(items) => {
                let mut list = Vec::new();
                for (at, item) in items.iter().enumerate() {
                    let at = format!("{path}[{at}]");
                    self.lines.insert(at.clone(), self.starts.line_of(item.span().start));
                    list.push(self.convert(item, &at));
                }
                Value::Array(list)
            }
            DeValue::Table(table) => self.convert_table(table, path),
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::limits::FAULTS_MAX;

    use super::*;
    use crate::message::volume::RegisterVolume;

    #[test]
    fn a_volume_in_toml_and_in_json_is_the_same() {
        let toml = "id = \"data\"\nplugin = \"dev.berth\"\ncapacity_bytes = 1_000\n\
            [[capability]]\naccess = \"single-node-writer\"\n[mount]\nfs_type = \"ext4\"\n";
        let json = r#"{"id":"data","plugin":"dev.berth","capacity_bytes":1000,
            "capability":[{"access":"single-node-writer","attachment":"file-system"}],
            "mount":{"fs_type":"ext4","flags":[]}}"#;
        let from_toml: RegisterVolume = read(toml, Format::guess(toml)).unwrap();
        let from_json: RegisterVolume = read(json, Format::guess(json)).unwrap();
        assert_eq!(from_toml, from_json);
    }

    #[test]
    fn every_fault_of_a_bad_spec_comes_at_once_with_its_line() {
        let text = "id = \"\"\ncolour = \"red\"\ncapacity_bytes = -1\n\n[[capability]]\n\
            access = \"single-writer\"\n\n\
            [[capability]]\naccess = \"single-node-writer\"\nx = 1\n\n\
            [mount]\nflags = [\"ro\", 7]\n";
        let faults = read::<RegisterVolume>(text, Format::Toml).unwrap_err();
        let found: Vec<(&str, Option<usize>)> =
            faults.iter().map(|fault| (fault.path.as_str(), fault.line)).collect();
        assert_eq!(
            found,
            [
                ("id", Some(1)),
                ("plugin", None),
                ("capability[0].access", Some(6)),
                ("capability[1].x", Some(10)),
                ("mount.flags[1]", Some(13)),
                ("capacity_bytes", Some(3)),
                ("colour", Some(2)),
            ]
        );
    }

    #[test]
    fn what_is_no_document_says_where() {
        let faults = read::<RegisterVolume>("id = \"a\nplugin = [", Format::Toml).unwrap_err();
        assert!(faults.iter().all(|fault| fault.line.is_some()), "{faults:?}");
        let faults = read::<RegisterVolume>("{\n\"id\": }", Format::Json).unwrap_err();
        assert_eq!(faults[0].line, Some(2));
    }

    /// Each line counted the lines above it: ten times as many took a hundred times as long, these
    /// 2500 s.
    #[test]
    fn very_many_faulty_lines_are_read_at_once() {
        let lines = |value: &str| {
            let lines: Vec<String> = (0..200_000).map(|at| format!("x{at:06} = {value}")).collect();
            lines.join("\n")
        };
        let began = std::time::Instant::now();
        for text in [lines("1"), lines("")] {
            let faults = read::<RegisterVolume>(&text, Format::Toml).unwrap_err();
            assert_eq!(faults.len(), FAULTS_MAX + 1, "{:?}", faults.last());
        }
        assert!(began.elapsed().as_secs() < 200, "{:?}", began.elapsed());
    }

    #[test]
    fn a_spec_that_makes_no_sense_is_refused() {
        for (text, path) in [
            ("id='a'\nplugin='p'\n", "capability"),
            ("id='a'\nplugin='p'\ncapability=[]\n", "capability"),
            (
                "id='a'\nplugin='p'\n[[capability]]\naccess='single-node-writer'\n\
                 [[capability]]\naccess='single-node-writer'\n",
                "capability[1]",
            ),
            (
                "id='a'\nplugin='p'\nmount={fs_type='xfs'}\n\
                 [[capability]]\naccess='single-node-writer'\nattachment='block-device'\n",
                "mount",
            ),
            (
                "id='a'\nplugin='p'\nexternal_id=''\n[[capability]]\naccess='single-node-writer'\n",
                "external_id",
            ),
        ] {
            let faults = read::<RegisterVolume>(text, Format::Toml).unwrap_err();
            assert_eq!(faults.len(), 1, "{text}: {faults:?}");
            assert_eq!(faults[0].path, path);
        }
    }
}
