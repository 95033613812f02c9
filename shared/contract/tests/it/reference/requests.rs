//! Every field of every request, held for each version of the contract.
//!
//! An older service refuses a field that it does not know, and can say that it is older only when
//! the request states a newer version (decision 0028). So a changed field set needs a new version.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use berth_contract::header::CONTRACT_VERSION;
use berth_contract::message::volume::DOCUMENT_FIELDS;
use berth_contract::verb;

use super::source::{Content, DOCUMENT, Field, Form, Kind, Source, Variant};

/// The file that lists the requests of a version. It is never written over.
fn file(version: u32) -> PathBuf {
    let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/requests"));
    dir.join(format!("v{version}.txt"))
}

/// What one type of request may say: one line for each field, by its path from the request.
fn lines(source: &Source) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for row in verb::ALL {
        let at = format!("{} {}", row.step, row.request);
        lines.insert(at.clone());
        add(source, &Kind::Named(row.request.to_owned()), &at, &mut lines);
    }
    lines
}

fn add(source: &Source, kind: &Kind, at: &str, lines: &mut BTreeSet<String>) {
    match kind {
        Kind::Plain(name) => drop(lines.insert(format!("{at}: {name}"))),
        Kind::Listed(inner) => add(source, inner, &format!("{at}[]"), lines),
        Kind::Mapped(inner) => add(source, inner, &format!("{at}{{}}"), lines),
        Kind::Named(name) if name == DOCUMENT => {
            for name in DOCUMENT_FIELDS {
                lines.insert(format!("{at} .{name}"));
            }
            for (name, field) in source.document_fields() {
                add(source, &field.kind, &format!("{at} .{name}"), lines);
            }
        }
        Kind::Named(name) => match &source.get(name).form {
            Form::Object(fields) => add_fields(source, fields, at, lines),
            Form::Choice(variants) => {
                for Variant { name, content, .. } in variants {
                    let at_variant = format!("{at} .{name}");
                    match content {
                        Content::Name => drop(lines.insert(format!("{at}: {name}"))),
                        Content::Value(kind) => add(source, kind, &at_variant, lines),
                        Content::Fields(fields) => add_fields(source, fields, &at_variant, lines),
                    }
                }
            }
        },
    }
}

fn add_fields(source: &Source, fields: &[Field], at: &str, lines: &mut BTreeSet<String>) {
    for field in fields {
        add(source, &field.kind, &format!("{at} .{}", field.name), lines);
    }
}

/// What to do about requests that are not those of the version; none when there is nothing to do.
fn fault(version: u32, known: &BTreeSet<String>, now: &BTreeSet<String>) -> Option<String> {
    let signed = |sign: char, lines: Vec<&String>| -> Vec<String> {
        lines.into_iter().map(|line| format!("{sign} {line}")).collect()
    };
    let added = signed('+', now.difference(known).collect());
    let removed = signed('-', known.difference(now).collect());
    let changes = [added, removed].concat();
    (!changes.is_empty()).then(|| {
        format!(
            "the requests are not those of contract version {version}:\n{}\n\
             Raise CONTRACT_VERSION in shared/contract/src/header.rs to {}, then run \
             BERTH_WRITE_DOCS=1 cargo test -p berth-contract. An older service can then say that \
             it is older when it refuses the request. Only if no release speaks version {version} \
             yet: delete {} instead, and run the same command.",
            changes.join("\n"),
            version + 1,
            file(version).display(),
        )
    })
}

#[test]
fn a_changed_request_has_a_new_contract_version() {
    let now = lines(&Source::read());
    let path = file(CONTRACT_VERSION);
    if std::env::var_os("BERTH_WRITE_DOCS").is_some() && !path.exists() {
        let text = now.iter().fold(String::new(), |text, line| text + line + "\n");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let known = fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!(
            "{}: {error}; the version is new: run BERTH_WRITE_DOCS=1 cargo test -p berth-contract",
            path.display()
        )
    });
    let known = known.lines().map(str::to_owned).collect();
    if let Some(fault) = fault(CONTRACT_VERSION, &known, &now) {
        panic!("{fault}");
    }
    for version in 1..=CONTRACT_VERSION {
        assert!(file(version).exists(), "the requests of version {version} are kept");
    }
}

#[test]
fn a_field_more_is_told_with_what_to_do() {
    let now = lines(&Source::read());
    let mut before = now.clone();
    assert!(before.remove("claim.take claim::Take .alloc: id"), "{now:#?}");
    let fault = fault(7, &before, &now).unwrap();
    for part in ["+ claim.take claim::Take .alloc: id", "CONTRACT_VERSION", "to 8", "v7.txt"] {
        assert!(fault.contains(part), "{part}: {fault}");
    }
}
