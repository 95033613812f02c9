//! The types of the wire as their own source tells them: fields, kinds and meanings.
//!
//! Promises that the text of a field in the reference is its doc comment in the source. That the
//! text is true is tested with real messages, in [`super::hold`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use berth_contract::message::secret::list_secret_calls;
use berth_contract::message::volume::{DOCUMENT_FIELDS, SEALED_FIELD};
use syn::{
    Attribute, Expr, Fields, GenericArgument, Item, ItemType, Lit, Meta, PathArguments, Type,
};

/// The document that registers a volume, which is read and written by hand.
pub const DOCUMENT: &str = "volume::RegisterVolume";

/// Every type that may stand in a message or record, by name; those of messages with their module
/// in front, `claim::Take`.
pub struct Source(BTreeMap<String, Shape>);

/// One type.
#[derive(Debug)]
pub struct Shape {
    pub meaning: String,
    pub form: Form,
}

#[derive(Debug)]
pub enum Form {
    Object(Vec<Field>),
    /// One of these.
    Choice(Vec<Variant>),
}

/// One variant of an enum.
#[derive(Debug, Clone)]
pub struct Variant {
    pub name: String,
    pub meaning: String,
    pub content: Content,
}

/// How a variant is written.
#[derive(Debug, Clone)]
pub enum Content {
    /// Its name, as a text.
    Name,
    /// An object whose only field is the name, with this value.
    Value(Kind),
    /// An object whose only field is the name; its value has these fields.
    Fields(Vec<Field>),
}

#[derive(Debug, Clone)]
pub struct Field {
    pub name: String,
    pub kind: Kind,
    pub optional: bool,
    pub meaning: String,
    /// Whether the fields of its type stand in its place.
    is_part: bool,
}

/// The kind of a part of a document that stands for `secrets` and `sealed_secrets`.
const SECRETS: Kind = Kind::Plain("secrets");

/// What a field holds.
#[derive(Debug, Clone)]
pub enum Kind {
    Plain(&'static str),
    Listed(Box<Kind>),
    Mapped(Box<Kind>),
    /// Another type, by its key in [`Source`].
    Named(String),
}

impl Shape {
    /// The names of its fields; none of what is no object.
    pub fn names(&self) -> Vec<&str> {
        match &self.form {
            Form::Object(fields) => fields.iter().map(|field| field.name.as_str()).collect(),
            Form::Choice(_) => Vec::new(),
        }
    }
}

impl Source {
    /// Reads the sources of the contract and of the domain.
    pub fn read() -> Self {
        let mut files = Vec::new();
        for (path, of_messages) in paths() {
            let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let items = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap().items;
            files.push((of_messages.then_some(module), items));
        }
        let mut names = Vec::new();
        for (module, items) in &files {
            names.extend(
                items
                    .iter()
                    .filter_map(|item| wire_name(item, items))
                    .map(|name| key(module.as_ref(), &name)),
            );
        }
        let mut types = BTreeMap::new();
        for (module, items) in &files {
            for item in items {
                let Some(name) = wire_name(item, items) else { continue };
                let name = key(module.as_ref(), &name);
                let shape = match item {
                    Item::Type(alias) => {
                        let of = aliased(alias, items).unwrap();
                        shape(of, Some(alias), module.as_ref(), &names)
                    }
                    item => shape(item, None, module.as_ref(), &names),
                };
                let before = types.insert(name.clone(), shape);
                assert!(before.is_none(), "two types are called {name}");
            }
        }
        Self(types).flattened()
    }

    /// The same, with the fields of each part in its place.
    fn flattened(self) -> Self {
        let flat = self.0.iter().map(|(name, shape)| {
            let form = match &shape.form {
                Form::Object(fields) => Form::Object(self.with_parts(fields)),
                Form::Choice(variants) => Form::Choice(variants.clone()),
            };
            (name.clone(), Shape { meaning: shape.meaning.clone(), form })
        });
        Self(flat.collect())
    }

    fn with_parts(&self, fields: &[Field]) -> Vec<Field> {
        let in_place = fields.iter().flat_map(|field| match &field.kind {
            Kind::Named(part) if field.is_part => self.part(part, field.optional),
            Kind::Plain("secrets") => secret_fields(&field.meaning).to_vec(),
            _ => vec![field.clone()],
        });
        in_place.collect()
    }

    /// The fields of a part, in the place of the field that holds it. Of a choice, those of each
    /// variant: none has to be there.
    fn part(&self, name: &str, may_be_absent: bool) -> Vec<Field> {
        let mut fields: Vec<Field> = match &self.0[name].form {
            Form::Object(fields) => self.with_parts(fields),
            Form::Choice(variants) => variants
                .iter()
                .flat_map(|variant| match &variant.content {
                    Content::Value(Kind::Named(name)) => self.part(name, true),
                    _ => panic!("a variant of {name} is no part"),
                })
                .collect(),
        };
        // Two variants may have a field of the same name.
        let mut names = BTreeSet::new();
        fields.retain(|field| names.insert(field.name.clone()));
        for field in &mut fields {
            field.optional |= may_be_absent;
        }
        fields
    }

    /// The type of this name; generic arguments make no difference.
    pub fn get(&self, name: &str) -> &Shape {
        let plain = name.split('<').next().unwrap_or(name);
        self.0.get(plain).unwrap_or_else(|| panic!("no source of a type {name}"))
    }

    /// The fields of a volume's document that its spec has, too, by their names in the document.
    /// The spec has only the id of its secrets.
    pub fn document_fields(&self) -> impl Iterator<Item = (&'static str, &Field)> {
        let spec = self.fields("VolumeSpec");
        let fields = DOCUMENT_FIELDS.into_iter().filter(|name| *name != "secrets");
        fields.filter_map(move |name| {
            let several = match name {
                "capability" => "capabilities",
                "topology" => "topologies",
                other => other,
            };
            Some((name, spec.iter().find(|field| field.name == several)?))
        })
    }

    /// The fields of the type of this name.
    pub fn fields(&self, name: &str) -> &[Field] {
        match &self.get(name).form {
            Form::Object(fields) => fields,
            Form::Choice(_) => panic!("{name} is no object"),
        }
    }
}

/// The fields that hold the secrets of a document, in either form.
pub fn secret_fields(meaning: &str) -> [Field; 2] {
    let field = |name: &str, kind, meaning: &str| Field {
        name: name.to_owned(),
        kind,
        optional: true,
        meaning: meaning.to_owned(),
        is_part: false,
    };
    let calls = list_secret_calls();
    let names = format!(
        "{meaning} A name has letters, digits, `-`, `_` and `.`. A name may begin with a call and \
         `/`: `create/password` goes to `CreateVolume` only, as `password`. The calls are {calls}."
    );
    let sealed = "In place of `secrets`, so that no other client reads them on the way: a \
        `secret.Envelope` as JSON, sealed for the key of secret-key in the form of NATS's xkeys.";
    [
        field("secrets", Kind::Mapped(Box::new(Kind::Plain("text"))), &names),
        field(SEALED_FIELD, Kind::Named("secret::Sealed".to_owned()), sealed),
    ]
}

/// The files that declare what goes over the wire, and whether they are the messages'.
fn paths() -> Vec<(PathBuf, bool)> {
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let single = ["decode/fault", "event", "lease", "level", "problem", "record", "trail"]
        .map(|name| format!("contract/src/{name}.rs"));
    let mut paths: Vec<_> = single.iter().map(|path| (crates.join(path), false)).collect();
    for dir in [
        "contract/src/message",
        "domain/src",
        "domain/src/plugin",
        "domain/src/volume",
        "domain/src/volume/call",
        "domain/src/volume/record",
        "domain/src/volume/storage",
    ] {
        let entries = fs::read_dir(crates.join(dir)).unwrap().map(|entry| entry.unwrap().path());
        let sources = entries.filter(|path| path.extension().is_some_and(|kind| kind == "rs"));
        paths.extend(sources.map(|path| (path, dir.ends_with("message"))));
    }
    paths
}

fn key(module: Option<&String>, name: &str) -> String {
    module.map_or_else(|| name.to_owned(), |module| format!("{module}::{name}"))
}

/// The name of a struct or enum that goes over the wire as it is declared.
fn wire_name(item: &Item, items: &[Item]) -> Option<String> {
    let (name, attrs) = match item {
        Item::Struct(item) if matches!(item.fields, Fields::Named(_)) => (&item.ident, &item.attrs),
        Item::Enum(item) => (&item.ident, &item.attrs),
        Item::Type(alias) => {
            return aliased(alias, items).map(|_| alias.ident.to_string());
        }
        _ => return None,
    };
    let derives = attrs.iter().filter(|attr| attr.path().is_ident("derive"));
    let is_sent = derives.map(tokens).any(|list| list.contains("Serialize"));
    // Its two fields stand in its place: see `secret_fields`.
    (is_sent && name != "SentSecrets").then(|| name.to_string())
}

/// The generic struct of the same file that an alias names.
fn aliased<'a>(alias: &ItemType, items: &'a [Item]) -> Option<&'a Item> {
    items.iter().find(|item| match item {
        Item::Struct(item) => is(&alias.ty, &item.ident.to_string()),
        _ => false,
    })
}

/// The shape of a type. A generic field has the type that the alias gives, or else its default; one
/// that has neither is left out.
fn shape(
    item: &Item,
    alias: Option<&ItemType>,
    module: Option<&String>,
    names: &[String],
) -> Shape {
    match item {
        Item::Struct(item) => {
            let given = alias.and_then(|alias| match &*alias.ty {
                Type::Path(path) => arguments(&path.path.segments.last()?.arguments).pop(),
                _ => None,
            });
            let fields = item.fields.iter().filter_map(|one| {
                let mut generics = item.generics.type_params();
                let generic = generics.find(|generic| is(&one.ty, &generic.ident.to_string()));
                let ty = match generic {
                    None => &one.ty,
                    Some(generic) => given.or(generic.default.as_ref().map(|(_, ty)| ty))?,
                };
                Some(field(one, ty, module, names))
            });
            let attrs = alias.map_or(&item.attrs, |alias| &alias.attrs);
            Shape { meaning: meaning(attrs), form: Form::Object(fields.collect()) }
        }
        Item::Enum(item) => {
            let variants = item.variants.iter().map(|variant| Variant {
                name: renamed(&variant.attrs).unwrap_or_else(|| kebab(&variant.ident)),
                meaning: meaning(&variant.attrs),
                content: match &variant.fields {
                    Fields::Unit => Content::Name,
                    Fields::Unnamed(fields) => {
                        let one = fields.unnamed.first().unwrap();
                        Content::Value(kind(&one.ty, module, names))
                    }
                    Fields::Named(fields) => {
                        let fields =
                            fields.named.iter().map(|one| field(one, &one.ty, module, names));
                        Content::Fields(fields.collect())
                    }
                },
            });
            Shape { meaning: meaning(&item.attrs), form: Form::Choice(variants.collect()) }
        }
        _ => unreachable!("only structs and enums have a wire name"),
    }
}

fn field(field: &syn::Field, ty: &Type, module: Option<&String>, names: &[String]) -> Field {
    Field {
        name: renamed(&field.attrs).unwrap_or_else(|| field.ident.as_ref().unwrap().to_string()),
        kind: kind(ty, module, names),
        optional: is(ty, "Option") || says(&field.attrs, "default"),
        meaning: meaning(&field.attrs),
        is_part: says(&field.attrs, "flatten"),
    }
}

fn kind(ty: &Type, module: Option<&String>, names: &[String]) -> Kind {
    let Type::Path(path) = ty else { panic!("a field of a message is no named type") };
    let last = path.path.segments.last().unwrap();
    let name = last.ident.to_string();
    let inner = || kind(arguments(&last.arguments).last().unwrap(), module, names);
    match name.as_str() {
        "String" => Kind::Plain("text"),
        "bool" => Kind::Plain("true or false"),
        "u32" | "u64" | "usize" => Kind::Plain("whole number"),
        "i64" => Kind::Plain("number"),
        "Timestamp" => Kind::Plain("time"),
        "TraceContext" => Kind::Plain("traceparent"),
        "Code" | "ErrorCode" => Kind::Plain("code"),
        "GrpcCode" => Kind::Plain("gRPC code"),
        "EventName" => Kind::Plain("event"),
        "EventBody" => Kind::Named("Event".to_owned()),
        "RegisterVolume" => Kind::Named(DOCUMENT.to_owned()),
        "Size" => Kind::Plain("size"),
        "Secrets" | "Topology" => Kind::Mapped(Box::new(Kind::Plain("text"))),
        "SentSecrets" => SECRETS,
        "Option" | "Box" | "Interned" => inner(),
        "Vec" | "BTreeSet" => Kind::Listed(Box::new(inner())),
        "BTreeMap" => Kind::Mapped(Box::new(inner())),
        _ => {
            let own = key(module, &name);
            let elsewhere = |key: &&String| key.ends_with(&format!("::{name}"));
            let found = names.iter().find(|key| **key == own);
            let found = found.or_else(|| names.iter().find(|key| **key == name));
            match found.or_else(|| names.iter().find(elsewhere)) {
                Some(found) => Kind::Named(found.clone()),
                None if name.ends_with("Id") || name == "Namespace" => Kind::Plain("id"),
                None => panic!("what kind of thing is {name}? say it here"),
            }
        }
    }
}

fn arguments(arguments: &PathArguments) -> Vec<&Type> {
    let PathArguments::AngleBracketed(list) = arguments else { return Vec::new() };
    let types = list.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    });
    types.collect()
}

fn is(ty: &Type, name: &str) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().unwrap().ident == name)
}

/// The text of an attribute's list, such as `default, rename = "type"`.
fn tokens(attr: &Attribute) -> String {
    match &attr.meta {
        Meta::List(list) => list.tokens.to_string(),
        _ => String::new(),
    }
}

/// Whether a field has this serde attribute.
fn says(attrs: &[Attribute], what: &str) -> bool {
    let serde = attrs.iter().filter(|attr| attr.path().is_ident("serde"));
    serde.map(tokens).any(|list| list.contains(what))
}

fn renamed(attrs: &[Attribute]) -> Option<String> {
    let serde = attrs.iter().filter(|attr| attr.path().is_ident("serde"));
    serde.map(tokens).find_map(|list| {
        let (_, after) = list.split_once("rename = \"")?;
        Some(after.split_once('"')?.0.to_owned())
    })
}

fn kebab(ident: &syn::Ident) -> String {
    let mut name = String::new();
    for letter in ident.to_string().chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// The doc comment, as one line without the paths of Rust's links.
fn meaning(attrs: &[Attribute]) -> String {
    let lines = attrs.iter().filter(|attr| attr.path().is_ident("doc")).filter_map(|attr| {
        let Meta::NameValue(pair) = &attr.meta else { return None };
        let Expr::Lit(literal) = &pair.value else { return None };
        let Lit::Str(text) = &literal.lit else { return None };
        Some(text.value().trim().to_owned())
    });
    let text = lines.collect::<Vec<_>>().join(" ");
    let mut plain = String::new();
    let mut rest = text.as_str();
    // `[words](path::of::rust)` is for rustdoc; here the words alone stand.
    while let Some((before, after)) = rest.split_once("](") {
        let (words, link) = (before.rsplit_once('[').unwrap(), after.split_once(')').unwrap());
        plain.push_str(words.0);
        plain.push_str(words.1);
        rest = link.1;
    }
    plain.push_str(rest);
    let plain = without_requirements(&plain);
    plain.replace("[`", "`").replace("`]", "`").trim().to_owned()
}

/// Without the ids of requirements, such as ` (A5)`, which are for those who work on the code.
fn without_requirements(text: &str) -> String {
    let mut parts = text.split(" (");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((id, rest)) if is_requirement(id) => plain.push_str(rest),
            _ => plain.extend([" (", part]),
        }
    }
    plain
}

fn is_requirement(id: &str) -> bool {
    let number = id.strip_prefix(|letter: char| letter.is_ascii_uppercase()).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}
