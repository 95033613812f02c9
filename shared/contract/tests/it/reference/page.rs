//! The page as a whole, and the forms that its parts share.

use std::fmt::Write as _;
use std::fs;

use super::source::{Field, Form, Kind, Source};
use super::{endpoints, stored, terms};

/// The whole page.
pub fn write() -> String {
    let mut page = Page { text: String::new(), source: Source::read(), shared: Vec::new() };
    terms::write(&mut page);
    endpoints::write(&mut page);
    stored::write(&mut page);
    page.shared_types();
    terms::codes(&mut page);
    format!("{}\n", page.text.trim_end())
}

/// A page in the making.
pub struct Page {
    text: String,
    pub source: Source,
    /// The types that were named so far, each once: they are explained further down.
    shared: Vec<String>,
}

impl Page {
    /// A paragraph, a heading or a list, and an empty line.
    pub fn say(&mut self, text: impl AsRef<str>) {
        self.text.push_str(text.as_ref().trim());
        self.text.push_str("\n\n");
    }

    /// A table; its cells are Markdown.
    pub fn table<const N: usize>(&mut self, head: [&str; N], rows: &[[String; N]]) {
        let mut table = format!("| {} |\n|{}\n", head.join(" | "), " --- |".repeat(N));
        for row in rows {
            writeln!(table, "| {} |", row.join(" | ")).unwrap();
        }
        self.say(table);
    }

    /// The fields of an object.
    pub fn fields(&mut self, name: &str) {
        let rows: Vec<[String; 4]> = self.source.fields(name).iter().map(row).collect();
        let named = self.source.fields(name).iter().filter_map(|field| named(&field.kind));
        let named: Vec<String> = named.map(str::to_owned).collect();
        self.rows(&rows);
        for name in named {
            self.share(&name);
        }
    }

    /// The fields of an object, as rows.
    pub fn rows(&mut self, rows: &[[String; 4]]) {
        if rows.is_empty() {
            self.say("No fields: `{}`.");
        } else {
            self.table(["field", "kind", "", "meaning"], rows);
        }
    }

    /// Has a type explained further down.
    fn share(&mut self, name: &str) {
        if !self.shared.iter().any(|known| known == name) {
            self.shared.push(name.to_owned());
        }
    }

    /// An example in a golden file: what a test holds to be read back.
    pub fn example(&mut self, golden: &str) {
        let json = golden_file(golden).unwrap_or_else(|| panic!("no golden file {golden}.snap"));
        self.say(format!("```json\n{json}\n```"));
    }

    /// The types that were named and are no message of their own.
    fn shared_types(&mut self) {
        self.say("## Types");
        self.say("What fields of messages and records are made of.");
        let mut at = 0;
        while let Some(name) = self.shared.get(at).cloned() {
            at += 1;
            self.say(format!("### {}", heading(&name)));
            let shape = self.source.get(&name);
            let meaning = shape.meaning.clone();
            if let Form::Choice(choices) = &shape.form {
                let row =
                    |(name, meaning): &(String, String)| [format!("`{name}`"), meaning.clone()];
                let rows: Vec<[String; 2]> = choices.iter().map(row).collect();
                self.say(format!("{meaning} One of these texts:"));
                self.table(["value", "meaning"], &rows);
            } else {
                self.say(meaning);
                self.fields(&name);
            }
        }
    }
}

/// The JSON in a golden file, if there is one.
pub fn golden_file(name: &str) -> Option<String> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/snapshots");
    let of = |module: &str| fs::read_to_string(format!("{dir}/it__{module}__{name}.snap")).ok();
    let text = of("messages").or_else(|| of("views")).or_else(|| of("records"))?;
    Some(text.splitn(3, "---\n").nth(2).unwrap().trim().to_owned())
}

/// A field as a row of its table.
pub fn row(field: &Field) -> [String; 4] {
    let needed = if field.optional { "optional" } else { "" };
    [format!("`{}`", field.name), kind(&field.kind), needed.to_owned(), field.meaning.clone()]
}

fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Plain(plain) => (*plain).to_owned(),
        Kind::Listed(of) => format!("list of {}", self::kind(of)),
        Kind::Mapped(of) => format!("object of {}", self::kind(of)),
        Kind::Named(name) => {
            let heading = heading(name);
            format!("[{heading}](#{})", heading.to_lowercase())
        }
    }
}

fn named(kind: &Kind) -> Option<&str> {
    match kind {
        Kind::Plain(_) => None,
        Kind::Listed(of) | Kind::Mapped(of) => named(of),
        Kind::Named(name) => Some(name),
    }
}

/// A type without its module: shared types have names of their own.
fn heading(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}
