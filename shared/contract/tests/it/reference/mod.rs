//! `docs/contract.md`, its JSON Schema and its AsyncAPI document: the whole wire, for whoever speaks
//! it without this code.
//!
//! Promises that they are complete, because they are made from what there is: endpoints from their
//! tables, subjects and keys from their constructors, fields from the source of the types, examples
//! from the golden files, which are held to be read back. They are rewritten by
//! `BERTH_WRITE_DOCS=1 cargo test -p berth-contract`.

mod asyncapi;
mod endpoints;
pub mod hold;
mod lists;
mod page;
mod problems;
mod requests;
mod schema;
mod source;
mod stored;
mod terms;

use std::fs;

use berth_contract::code::Code;
use berth_contract::lease::{Holder, Leader};
use berth_contract::problem::Problem;
use serde_json::Value;

use crate::sample;

#[test]
fn the_contract_page_is_current() {
    current("contract.md", &page::write());
}

#[test]
fn the_json_schema_is_current() {
    current(schema::FILE, &pretty(&schema::write(&source::Source::read())));
}

#[test]
fn the_asyncapi_document_is_current() {
    current("asyncapi.json", &pretty(&asyncapi::write()));
}

fn pretty(document: &Value) -> String {
    format!("{}\n", serde_json::to_string_pretty(document).unwrap())
}

/// Complains when a file in `docs` is not what the types say, and writes it when told so.
fn current(name: &str, text: &str) {
    let file = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("BERTH_WRITE_DOCS").is_some() {
        fs::write(&file, text).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(written == text, "{name}: run BERTH_WRITE_DOCS=1 cargo test -p berth-contract");
}

/// The JSON that stands on the page below a heading.
fn json_below(page: &str, heading: &str) -> Value {
    let (_, below) =
        page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{heading}"));
    let below = below.split("\n#").next().unwrap();
    let (_, json) = below.split_once("```json\n").unwrap_or_else(|| panic!("{heading}: no JSON"));
    serde_json::from_str(json.split_once("\n```").unwrap().0).unwrap()
}

/// What a reader finds on the page is what a client gets, and reads.
#[test]
fn every_error_on_the_page_decodes_to_its_code() {
    let page = page::write();
    for code in Code::ALL {
        let reply = json_below(&page, &format!("### {code}"));
        let problem: Problem = serde_json::from_value(reply["error"].clone()).unwrap();
        assert_eq!(problem, problems::example(*code));
        assert_eq!(problem.code, *code);
        // A reply may know better that it helps to ask again, and never that it does not.
        assert!(problem.retryable || !code.retryable(), "{problem}");
    }
}

#[test]
fn every_lease_on_the_page_decodes() {
    let page = page::write();
    let node = json_below(&page, "#### Key `node.<node>`: `Holder`");
    assert_eq!(serde_json::from_value::<Holder>(node).unwrap(), sample::holder());
    let leader = json_below(&page, "#### Key `leader.<service>`: `Leader`");
    assert_eq!(serde_json::from_value::<Leader>(leader).unwrap(), sample::leader());
}
