//! `docs/contract.md`: the whole wire, for whoever speaks it without this code.
//!
//! Promises that it is complete, because it is made from what there is: endpoints from their
//! tables, subjects and keys from their constructors, fields from the source of the types, examples
//! from the golden files, which are held to be read back. It is rewritten by
//! `BERTH_WRITE_DOCS=1 cargo test -p berth-contract`.

mod endpoints;
pub mod hold;
mod page;
mod source;
mod stored;
mod terms;

use std::fs;

#[test]
fn the_contract_page_is_current() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/contract.md");
    let page = page::write();
    if std::env::var_os("BERTH_WRITE_DOCS").is_some() {
        fs::write(file, &page).unwrap();
    }
    let written = fs::read_to_string(file).unwrap_or_default();
    assert!(written == page, "run BERTH_WRITE_DOCS=1 cargo test -p berth-contract");
}
