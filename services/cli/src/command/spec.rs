//! Documents of volumes and classes: their examples, and reading a document with all its faults.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use berth_contract::decode::{Decode, Fault, Unknown, decode};
use berth_contract::document::{Document, Format};
use berth_contract::hint::quoted;
use berth_contract::message::class::{CLASS_FIELDS, PutClass};
use berth_contract::message::secret::Key;
use berth_contract::message::storage::{CREATE_FIELDS, Create};
use berth_contract::message::volume::{DOCUMENT_FIELDS, GivenSecrets, RegisterVolume};
use berth_contract::verb;
use berth_domain::{Namespace, VolumeKey, limits};
use berth_service::seal::seal;
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{data, print_note};
use crate::session::Session;

/// A kind of document that people write.
pub trait Specification: Decode {
    /// The example, in TOML with a comment for every field.
    const EXAMPLE: &'static str;
    /// The name of the example's file, without an extension.
    const NAME: &'static str;
    /// The command that prints the example.
    const INIT: &'static str;
    /// The command that sends the document, without `berth`.
    const SEND: &'static str;

    /// The namespace that the document names.
    fn namespace(&self) -> Option<&Namespace>;
}

impl Specification for RegisterVolume {
    const EXAMPLE: &'static str = include_str!("volume.toml");
    const NAME: &'static str = "volume";
    const INIT: &'static str = "berth volume init -";
    const SEND: &'static str = "volume register";

    fn namespace(&self) -> Option<&Namespace> {
        self.namespace.as_ref()
    }
}

impl Specification for Create {
    const EXAMPLE: &'static str = include_str!("create.toml");
    const NAME: &'static str = "volume";
    const INIT: &'static str = "berth volume init --create -";
    const SEND: &'static str = "volume create";

    fn namespace(&self) -> Option<&Namespace> {
        self.namespace.as_ref()
    }
}

impl Specification for PutClass {
    const EXAMPLE: &'static str = include_str!("class.toml");
    const NAME: &'static str = "class";
    const INIT: &'static str = "berth class init -";
    const SEND: &'static str = "class create";

    /// A class is of no namespace.
    fn namespace(&self) -> Option<&Namespace> {
        None
    }
}

/// The fields of a kind of document, and its commands.
struct DocumentKind {
    what: &'static str,
    fields: &'static [&'static str],
    send: &'static str,
    init: &'static str,
}

const KINDS: [DocumentKind; 3] = [
    DocumentKind {
        what: "a volume that is to be created",
        fields: &CREATE_FIELDS,
        send: Create::SEND,
        init: Create::INIT,
    },
    DocumentKind {
        what: "a volume that is at its storage already",
        fields: &DOCUMENT_FIELDS,
        send: RegisterVolume::SEND,
        init: RegisterVolume::INIT,
    },
    DocumentKind {
        what: "a class",
        fields: &CLASS_FIELDS,
        send: PutClass::SEND,
        init: PutClass::INIT,
    },
];

/// Advice about a document with faults. A document is of another kind if it has a field that only
/// that kind has, and no more unknown fields as that kind than as this one.
fn advise<T: Specification>(name: &str, document: Option<&Value>) -> String {
    let given_fields = document.and_then(Value::as_object);
    let given_fields: Vec<&str> =
        given_fields.into_iter().flat_map(|object| object.keys()).map(String::as_str).collect();
    let unknown =
        |fields: &[&str]| given_fields.iter().filter(|name| !fields.contains(name)).count();
    let own = KINDS.iter().find(|kind| kind.send == T::SEND).map_or(&[][..], |kind| kind.fields);
    let is_meant = |kind: &&DocumentKind| {
        let has_field =
            given_fields.iter().any(|field| kind.fields.contains(field) && !own.contains(field));
        has_field && unknown(kind.fields) <= unknown(own)
    };
    match KINDS.iter().filter(is_meant).min_by_key(|kind| unknown(kind.fields)) {
        Some(DocumentKind { what, send, init, .. }) => format!(
            "it looks like the document of {what}: `berth {send} {}`; `{init}` prints an example",
            quoted(name)
        ),
        None => format!("mend what is listed; `{}` prints an example", T::INIT),
    }
}

/// Writes the example to the file, or to stdout for `-`.
pub fn write_example<T: Specification>(file: Option<&Path>, json: bool) -> Result<(), Failure> {
    let text = if json { example_json::<T>()? } else { T::EXAMPLE.to_owned() };
    let extension = if json { "json" } else { "toml" };
    let default = PathBuf::from(T::NAME).with_extension(extension);
    let file = file.unwrap_or(&default);
    if file == Path::new("-") {
        data(text.trim_end());
        return Ok(());
    }
    let name = file.display();
    let created = OpenOptions::new().write(true).create_new(true).open(file);
    created.and_then(|mut created| created.write_all(text.as_bytes())).map_err(|error| {
        let next = match error.kind() {
            ErrorKind::AlreadyExists => "name another file, or - for stdout",
            _ => "name a file in a directory that you may write",
        };
        Failure::local(format!("{name} cannot be written: {error}"), next)
    })?;
    print_note(format_args!("wrote {name}; edit it, then: berth {} {name}", T::SEND));
    Ok(())
}

/// The example in JSON, which has no comments.
pub fn example_json<T: Specification>() -> Result<String, Failure> {
    let name = format!("{}.toml", T::NAME);
    let document = Document::parse(T::EXAMPLE, Format::Toml)
        .map_err(|faults| Failure::Document { next: advise::<T>(&name, None), name, faults })?;
    Ok(format!("{:#}\n", document.value))
}

/// A document without a fault.
#[derive(Debug)]
pub struct Spec<T> {
    /// Its source: a file, or `-`.
    pub name: String,
    /// The document as it is sent over the bus, and the lines of its fields.
    pub document: Document,
    /// What it says.
    pub request: T,
}

impl<T: Specification> Spec<T> {
    /// Reads the document in `file`, or on stdin for `-`.
    pub fn load(file: &Path) -> Result<Self, Failure> {
        let name = file.display().to_string();
        let text = read(file).map_err(|error| {
            let next = format!(
                "name a file with a {}'s document; `{}` prints an example",
                T::NAME,
                T::INIT
            );
            Failure::local(format!("{name} cannot be read: {error}"), next)
        })?;
        Self::parse(name, &text)
    }

    /// Reads the document's text, TOML or JSON.
    pub fn parse(name: String, text: &str) -> Result<Self, Failure> {
        let fail = |faults, document: Option<&Value>| {
            let next = advise::<T>(&name, document);
            Failure::Document { name: name.clone(), faults, next }
        };
        let document = Document::parse(text, Format::guess(text));
        let document = document.map_err(|faults| fail(faults, None))?;
        let request = decode(document.value.clone(), Unknown::Fault)
            .map_err(|faults| fail(document.with_lines(faults), Some(&document.value)))?;
        Ok(Self { name, document, request })
    }

    /// The namespace of the request. The document and the command line must agree where both name
    /// one.
    pub fn namespace(&self, from_command_line: Option<&Namespace>) -> Result<Namespace, Failure> {
        match (self.request.namespace(), from_command_line) {
            (Some(own), Some(from_command_line)) if own != from_command_line => {
                let problem = format!("is {own}, but the command line says {from_command_line}");
                let fault = Fault { path: "namespace".to_owned(), problem, line: None };
                Err(self.faulty(vec![fault]))
            }
            (Some(own), _) => Ok(own.clone()),
            (None, from_command_line) => Ok(from_command_line.cloned().unwrap_or_default()),
        }
    }

    /// Faults that a service found in this document, with the document's lines.
    pub fn faulty(&self, faults: Vec<Fault>) -> Failure {
        let faults = self.document.with_lines(faults);
        let next = advise::<T>(&self.name, Some(&self.document.value));
        Failure::Document { name: self.name.clone(), faults, next }
    }

    /// The failure of the request. The service checks more rules than this program: its faults are
    /// shown like ours.
    pub fn explain(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Problem(problem) if !problem.faults.is_empty() => self.faulty(problem.faults),
            other => other,
        }
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

/// The secrets as they are sent over the bus: sealed with the claim service's public key.
pub async fn seal_secrets(
    session: &Session,
    key: &VolumeKey,
    given: GivenSecrets,
) -> Result<GivenSecrets, Failure> {
    let secrets = match given {
        GivenSecrets::Plain(secrets) if !secrets.0.is_empty() => secrets,
        given => return Ok(given),
    };
    let answer = session.ask_service::<verb::SecretKey>(&(), &Key {}).await?;
    let sealed = seal(key, secrets, &answer.key).map_err(|error| {
        Failure::local(error, "look at the log of berth-claim: its answer is no key")
    })?;
    Ok(GivenSecrets::Sealed(sealed))
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use berth_contract::message::volume::SEALED_FIELD;

    use super::*;

    fn parse<T: Specification>(text: &str) -> Spec<T> {
        Spec::parse("f".to_owned(), text).unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn the_example_is_accepted_in_both_forms<T: Specification + PartialEq + Debug>() {
        let json = example_json::<T>().unwrap();
        assert_eq!(parse::<T>(T::EXAMPLE).request, parse::<T>(&json).request);
    }

    #[test]
    fn the_examples_are_accepted_as_they_stand() {
        the_example_is_accepted_in_both_forms::<RegisterVolume>();
        the_example_is_accepted_in_both_forms::<Create>();
        the_example_is_accepted_in_both_forms::<PutClass>();
    }

    /// The example without its comment signs. Lines of prose stay comments.
    fn uncommented<T: Specification>() -> String {
        let is_field = |line: &&str| {
            let field = line.trim_start_matches("# ");
            field.starts_with('[') || (field.contains(" = ") && !field.contains(". "))
        };
        let lines = T::EXAMPLE.lines().filter(is_field);
        lines.map(|line| line.trim_start_matches("# ")).collect::<Vec<_>>().join("\n")
    }

    fn names_every_field(document: &Document, fields: &[&str], except: &[&str]) {
        let given: Vec<&String> = document.value.as_object().unwrap().keys().collect();
        for field in fields.iter().filter(|field| !except.contains(field)) {
            assert!(given.iter().any(|name| name == field), "{field} is not in the example");
        }
    }

    /// Each field that a user uncomments is accepted.
    #[test]
    fn the_examples_name_every_field() {
        let spec = parse::<RegisterVolume>(&uncommented::<RegisterVolume>());
        names_every_field(&spec.document, &DOCUMENT_FIELDS, &[]);
        assert_eq!(spec.request.spec.capabilities.len(), 2);
        let spec = parse::<PutClass>(&uncommented::<PutClass>());
        names_every_field(&spec.document, &CLASS_FIELDS, &[SEALED_FIELD]);
    }

    /// A document with a class leaves out the fields that the class has, so a document with all
    /// fields has faults for exactly those.
    #[test]
    fn the_example_of_a_creation_names_every_field() {
        let text = uncommented::<Create>();
        let document = Document::parse(&text, Format::Toml).unwrap();
        names_every_field(&document, &CREATE_FIELDS, &["for_alloc", SEALED_FIELD]);
        let faults = decode::<Create>(document.value.clone(), Unknown::Fault).unwrap_err();
        assert!(faults.iter().all(|fault| fault.problem.contains("the class says")), "{faults:?}");
        let without_class = text.replace("class = \"fast\"", "");
        parse::<Create>(&without_class);
    }

    #[test]
    fn a_document_of_another_kind_is_refused_with_the_command_for_its_kind() {
        fn refusal<T: Specification + Debug>(text: &str) -> String {
            Spec::<T>::parse("a b.toml".to_owned(), text).unwrap_err().to_string()
        }
        let class = "id = 'fast'\nplugin = 'p'\nmin_size = '1GiB'\n[[capability]]\n\
                     access = 'single-node-writer'\n";
        let create = "id = 'data'\nclass = 'fast'\nsize = '1GiB'\n";
        let register = "id = 'data'\nplugin = 'p'\nexternal_id = 'vol-1'\n[[capability]]\n\
                        access = 'single-node-writer'\n";
        for (refusal, command) in [
            (refusal::<Create>(class), "`berth class create 'a b.toml'`; `berth class init -`"),
            (refusal::<RegisterVolume>(class), "`berth class create 'a b.toml'`"),
            (refusal::<PutClass>(create), "`berth volume create 'a b.toml'`"),
            (refusal::<RegisterVolume>(create), "`berth volume create 'a b.toml'`"),
            (refusal::<PutClass>(register), "`berth volume register 'a b.toml'`"),
            (refusal::<Create>(register), "`berth volume register 'a b.toml'`"),
            (
                refusal::<Create>("id = ''\nclass = 'fast'\n"),
                "mend what is listed; `berth volume init",
            ),
        ] {
            assert!(refusal.contains(command), "{command}: {refusal}");
        }
    }

    #[test]
    fn the_namespace_is_said_once_or_alike() {
        let example = RegisterVolume::EXAMPLE;
        let spec = parse::<RegisterVolume>(&format!("namespace = 'a'\n{example}"));
        let (a, b) = (Namespace::new("a").unwrap(), Namespace::new("b").unwrap());
        assert_eq!(spec.namespace(None), Ok(a.clone()));
        assert_eq!(spec.namespace(Some(&a)), Ok(a));
        let failure = spec.namespace(Some(&b)).unwrap_err().to_string();
        assert!(failure.starts_with("f:1: namespace: is a, but"), "{failure}");
        let spec = parse::<RegisterVolume>(example);
        assert_eq!(spec.namespace(None), Ok(Namespace::default()));
        assert_eq!(spec.namespace(Some(&b)), Ok(b));
    }
}
