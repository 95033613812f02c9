//! A volume's document: the example of `volume init`, and reading a document with all its faults.

use std::io::{self, Read as _};
use std::path::Path;

use berth_contract::decode::{Fault, Unknown, decode};
use berth_contract::document::{Document, Format};
use berth_contract::message::volume::Register;
use berth_domain::{Namespace, limits};

use crate::failure::Failure;

/// The example, in TOML with a comment for every field.
pub const EXAMPLE: &str = include_str!("volume.toml");

/// The example in JSON, which has no comments.
pub fn example_json() -> Result<String, Failure> {
    let document = Document::parse(EXAMPLE, Format::Toml)
        .map_err(|faults| Failure::Document { name: "volume.toml".to_owned(), faults })?;
    Ok(format!("{:#}\n", document.value))
}

/// A document without a fault.
#[derive(Debug)]
pub struct Spec {
    /// Its source: a file, or `-`.
    pub name: String,
    /// The document as it is sent over the bus, and the lines of its fields.
    pub document: Document,
    /// What it says.
    pub register: Register,
}

impl Spec {
    /// Reads the document in `file`, or on stdin for `-`.
    pub fn load(file: &Path) -> Result<Self, Failure> {
        let name = file.display().to_string();
        let text = read(file).map_err(|error| {
            let next =
                "name a file with a volume's document; `berth volume init` writes an example";
            Failure::local(format!("{name} cannot be read: {error}"), next)
        })?;
        Self::parse(name, &text)
    }

    /// Reads the document's text, TOML or JSON.
    pub fn parse(name: String, text: &str) -> Result<Self, Failure> {
        let fail = |faults| Failure::Document { name: name.clone(), faults };
        let document = Document::parse(text, Format::guess(text)).map_err(&fail)?;
        let register = decode(document.value.clone(), Unknown::Fault)
            .map_err(|faults| fail(document.with_lines(faults)))?;
        Ok(Self { name, document, register })
    }

    /// The namespace of the request. The document and the command line must agree where both name
    /// one.
    pub fn namespace(&self, asked: Option<&Namespace>) -> Result<Namespace, Failure> {
        match (&self.register.namespace, asked) {
            (Some(own), Some(asked)) if own != asked => {
                let problem = format!("is {own}, but the command line says {asked}");
                let fault = Fault { path: "namespace".to_owned(), problem, line: None };
                Err(self.faulty(vec![fault]))
            }
            (Some(own), _) => Ok(own.clone()),
            (None, asked) => Ok(asked.cloned().unwrap_or_default()),
        }
    }

    /// Faults that a service found in this document, with its lines.
    pub fn faulty(&self, faults: Vec<Fault>) -> Failure {
        Failure::Document { name: self.name.clone(), faults: self.document.with_lines(faults) }
    }
}

fn read(file: &Path) -> io::Result<String> {
    let most = limits::MESSAGE_BYTES_MAX as u64;
    let mut text = String::new();
    if file == Path::new("-") {
        io::stdin().lock().take(most).read_to_string(&mut text)?;
    } else {
        std::fs::File::open(file)?.take(most).read_to_string(&mut text)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_accepted_as_it_stands_in_both_forms() {
        let toml = Spec::parse("volume.toml".to_owned(), EXAMPLE).unwrap();
        let json = Spec::parse("volume.json".to_owned(), &example_json().unwrap()).unwrap();
        assert_eq!(toml.register, json.register);
    }

    /// Each field that a user uncomments is accepted.
    #[test]
    fn the_example_with_every_comment_taken_away_is_accepted_and_names_every_field() {
        let is_field = |line: &&str| {
            let field = line.trim_start_matches("# ");
            field.starts_with('[') || (field.contains(" = ") && !field.contains(". "))
        };
        let edited: Vec<&str> =
            EXAMPLE.lines().filter(is_field).map(|line| line.trim_start_matches("# ")).collect();
        let spec = Spec::parse("volume.toml".to_owned(), &edited.join("\n")).unwrap();
        let given: Vec<&String> = spec.document.value.as_object().unwrap().keys().collect();
        for field in berth_contract::message::volume::DOCUMENT_FIELDS {
            assert!(given.iter().any(|name| *name == field), "{field} is not in the example");
        }
        assert_eq!(spec.register.spec.capabilities.len(), 2);
    }

    #[test]
    fn the_namespace_is_said_once_or_alike() {
        let spec = Spec::parse("f".to_owned(), &format!("namespace = 'a'\n{EXAMPLE}")).unwrap();
        let (a, b) = (Namespace::new("a").unwrap(), Namespace::new("b").unwrap());
        assert_eq!(spec.namespace(None), Ok(a.clone()));
        assert_eq!(spec.namespace(Some(&a)), Ok(a));
        let failure = spec.namespace(Some(&b)).unwrap_err().to_string();
        assert!(failure.starts_with("f:1: namespace: is a, but"), "{failure}");
        let spec = Spec::parse("f".to_owned(), EXAMPLE).unwrap();
        assert_eq!(spec.namespace(None), Ok(Namespace::default()));
        assert_eq!(spec.namespace(Some(&b)), Ok(b));
    }
}
