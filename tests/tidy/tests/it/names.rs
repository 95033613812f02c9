//! Names that carry no information.

use std::collections::BTreeMap;

use berth_tidy::repository::{files, rust_files};
use berth_tidy::source::{functions, types};

use crate::assert_none;

/// A module with such a name accepts any content, and grows.
const SAYS_NOTHING: [&str; 10] =
    ["common", "core", "helper", "helpers", "manager", "misc", "shared", "types", "util", "utils"];

/// A type with such a name can be anything: `grep` finds ten of them.
const GENERIC_TYPES: [&str; 21] = [
    "Answer", "Around", "Asked", "Found", "Given", "Held", "Known", "Lane", "Left", "Line", "Look",
    "Made", "Parts", "Place", "Said", "Seen", "Shared", "Standing", "Told", "Wanted", "Who",
];

/// A search for a function with such a name has too many results.
const UNSEARCHABLE_FUNCTIONS: [&str; 16] = [
    "all", "ask", "asked", "at", "here", "is", "known", "look", "note", "of", "one", "said", "say",
    "seen", "tell", "told",
];

#[test]
fn a_search_finds_each_function() {
    let mut breaches = Vec::new();
    for file in rust_files() {
        let is_ours = file.path.starts_with("services/") || file.path.starts_with("shared/");
        if !is_ours || !file.path.contains("/src/") || file.path.contains("/tests") {
            continue;
        }
        let program = file.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for function in functions(program) {
            if UNSEARCHABLE_FUNCTIONS.contains(&function.name) {
                breaches.push(format!("{}:{}: {}", file.path, function.line, function.name));
            }
        }
    }
    assert_none(breaches, "a function is a verb with its object, not");
}

#[test]
fn no_type_has_a_generic_name() {
    let is_generic = |(_, name): &(String, String)| GENERIC_TYPES.contains(&name.as_str());
    let breaches = declared_types().into_iter().filter(|(id, _)| is_generic(id));
    let breaches = breaches.map(|((_, name), places)| format!("{}: {name}", places.join(", ")));
    assert_none(breaches.collect(), "a type's name says what it is without its path, not");
}

#[test]
fn type_names_are_unique_in_their_crate() {
    let breaches = declared_types().into_iter().filter(|(_, at)| at.len() > 1);
    let breaches = breaches.map(|((_, name), places)| format!("{name}: {}", places.join(", ")));
    assert_none(breaches.collect(), "a crate has one type of each name");
}

/// Where each type is declared, by the directory of its crate and its name.
fn declared_types() -> BTreeMap<(String, String), Vec<String>> {
    let mut declared: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for file in rust_files() {
        let Some((directory, _)) = file.path.split_once("/src/") else { continue };
        if !directory.starts_with("services/") && !directory.starts_with("shared/") {
            continue;
        }
        for (name, line) in types(&file.text) {
            let id = (directory.to_owned(), name.to_owned());
            declared.entry(id).or_default().push(format!("{}:{line}", file.path));
        }
    }
    declared
}

#[test]
fn no_crate_or_module_has_a_name_that_says_nothing() {
    let mut breaches = Vec::new();
    for file in files() {
        // The directory of the shared crates is not itself a crate.
        let path = file.path.strip_prefix("shared/").unwrap_or(&file.path);
        if !file.is("rs") && !path.ends_with("Cargo.toml") {
            continue;
        }
        for part in path.split('/') {
            let name = part.trim_end_matches(".rs");
            if SAYS_NOTHING.contains(&name) {
                breaches.push(file.path.clone());
            }
        }
    }
    assert_none(breaches, "name it after what it owns, not");
}
