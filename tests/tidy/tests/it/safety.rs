//! Every safety rule has a test that names it, in its name or in the comment above it.

use berth_tidy::repository::rust_files;
use berth_tidy::source::{Function, functions};

use crate::assert_none;

const RULES: [&str; 8] = [
    "Safety 1", "Safety 2", "Safety 3", "Safety 4", "Safety 5", "Safety 6", "Safety 7", "Safety 8",
];

/// Rules that no test names yet, and what is missing.
const NOT_YET: &[(&str, &str)] = &[];

#[test]
fn every_safety_rule_is_named_by_a_test() {
    // The tidy test itself speaks of rules without testing one.
    let files: Vec<_> = rust_files().filter(|file| !file.path.starts_with("tests/tidy/")).collect();
    let tests: Vec<Function<'_>> =
        files.iter().flat_map(|file| functions(&file.text)).filter(Function::is_test).collect();
    let mut breaches = Vec::new();
    for rule in RULES {
        let covered = tests.iter().any(|test| names(test, rule));
        match (covered, NOT_YET.iter().any(|(later, _)| *later == rule)) {
            (false, false) => breaches.push(format!("{rule} is named by no test")),
            (true, true) => breaches.push(format!("{rule} is covered now: remove it from NOT_YET")),
            _ => {}
        }
    }
    assert_none(breaches, "a safety rule that no test names is a wish");
}

/// `Safety 3` in the comment above, or `safety_3` in the name.
fn names(test: &Function<'_>, rule: &str) -> bool {
    let followed_by_digit = |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_digit());
    let mentions =
        |text: &str, rule: &str| text.split(rule).skip(1).any(|rest| !followed_by_digit(rest));
    test.heading.iter().any(|line| mentions(line, rule))
        || mentions(test.name, &rule.to_lowercase().replace(' ', "_"))
}
