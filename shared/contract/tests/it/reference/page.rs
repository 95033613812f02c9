//! The page as a whole, and the forms that its parts share.

use std::fmt::Write as _;
use std::fs;

use berth_contract::verb;

use super::source::Source;
use super::{endpoints, schema, stored, terms};

/// The whole page.
pub fn write() -> String {
    let mut page = Page { text: String::new(), source: Source::read() };
    terms::write(&mut page);
    endpoints::write(&mut page);
    stored::write(&mut page);
    terms::codes(&mut page);
    format!("{}\n", page.text.trim_end())
}

/// A page in the making.
pub struct Page {
    text: String,
    pub source: Source,
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

    /// An example in a golden file: what a test holds to be read back.
    pub fn example(&mut self, golden: &str) {
        let json = golden_file(golden).unwrap_or_else(|| panic!("no golden file {golden}.snap"));
        self.say(format!("```json\n{json}\n```"));
    }
}

/// The JSON in a golden file, if there is one.
pub fn golden_file(name: &str) -> Option<String> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/snapshots");
    let of = |module: &str| fs::read_to_string(format!("{dir}/it__{module}__{name}.snap")).ok();
    let text = of("messages").or_else(|| of("views")).or_else(|| of("records"))?;
    Some(text.splitn(3, "---\n").nth(2).unwrap().trim().to_owned())
}

/// A type, linked to its definition in the JSON Schema.
pub fn linked(name: &str) -> String {
    let definition = verb::definition(name);
    format!("[{definition}]({}#/$defs/{definition})", schema::FILE)
}
