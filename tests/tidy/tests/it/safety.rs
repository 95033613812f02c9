//! Each safety rule and each invariant names a test that runs.

use std::collections::BTreeSet;

use berth_tidy::inventory::{TestPath, tests};
use berth_tidy::repository::{File, files};

use crate::assert_none;

const RULES: [&str; 8] = [
    "Safety 1", "Safety 2", "Safety 3", "Safety 4", "Safety 5", "Safety 6", "Safety 7", "Safety 8",
];

/// The tables of rules: their page, heading and least number of rows. A table whose heading was
/// changed would not be read.
const TABLES: [(&str, &str, usize); 2] =
    [("ARCHITECTURE.md", "## Safety rules", 8), ("docs/invariants.md", "# What always holds", 15)];

/// Tests of the tidy crate name rules without testing one.
fn real_tests(files: &[File]) -> Vec<TestPath> {
    tests(files).into_iter().filter(|test| test.directory != "tests/tidy").collect()
}

#[test]
fn every_safety_rule_is_named_by_a_test() {
    let tests = real_tests(&files());
    let missing = RULES.iter().filter(|rule| !tests.iter().any(|test| names(test, rule)));
    let breaches = missing.map(|rule| format!("{rule} is named by no test")).collect();
    assert_none(breaches, "a safety rule that no test names is a wish");
}

/// Whether the comment above the test contains `Safety 3`, or its name `safety_3`.
fn names(test: &TestPath, rule: &str) -> bool {
    let followed_by_digit = |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_digit());
    let mentions =
        |text: &str, rule: &str| text.split(rule).skip(1).any(|rest| !followed_by_digit(rest));
    test.heading.iter().any(|line| mentions(line, rule))
        || mentions(test.name(), &rule.to_lowercase().replace(' ', "_"))
}

#[test]
fn what_holds_a_rule_is_there_and_runs() {
    let files = files();
    let known = Known::of(&files);
    let mut breaches = Vec::new();
    for (path, heading, least) in TABLES {
        let page = files.iter().find(|file| file.path == path).unwrap();
        let rows = rows(&page.text, heading);
        if rows.len() < least {
            breaches.push(format!("{heading}: {} rows, of {least} at least", rows.len()));
        }
        for (rule, held_by) in rows {
            breaches.extend(known.breaches(held_by).map(|breach| format!("{rule}: {breach}")));
        }
    }
    assert_none(breaches, "the tables of rules name tests that are run");
}

/// First and last cell of each row of the table below a heading.
fn rows<'a>(page: &'a str, heading: &str) -> Vec<(&'a str, &'a str)> {
    let below = page.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
    let below = below.take_while(|line| !line.starts_with("## "));
    let cells = below.filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    let rows =
        cells.filter_map(|row| Some((row.split('|').next()?.trim(), row.rsplit('|').next()?)));
    rows.skip(2).collect()
}

/// The names that a cell may contain.
struct Known<'a> {
    files: &'a [File],
    tests: Vec<TestPath>,
    crates: BTreeSet<String>,
}

impl<'a> Known<'a> {
    fn of(files: &'a [File]) -> Self {
        let tests = real_tests(files);
        let manifests = files.iter().filter_map(|file| file.path.strip_suffix("/Cargo.toml"));
        let crates = manifests.filter_map(|directory| directory.rsplit('/').next());
        Self { files, tests, crates: crates.map(str::to_owned).collect() }
    }

    /// The names in a cell's backticks that do not exist. A name is a crate, followed by its tests
    /// or their modules; a file or directory; a rule of the judge; or a trouble of the model.
    fn breaches(&self, cell: &str) -> impl Iterator<Item = String> {
        let mut breaches = Vec::new();
        let mut has_any = false;
        for part in cell.split(';') {
            let mut krate = None;
            for name in part.split('`').skip(1).step_by(2) {
                if self.crates.contains(name) {
                    krate = Some(name);
                }
                let is_there = self.is_there(krate, name);
                has_any |= is_there;
                if !is_there {
                    breaches.push(format!("{name:?} is no test that runs{}", of(krate)));
                }
            }
        }
        if !has_any {
            breaches.push(format!("names nothing that holds it: {cell}"));
        }
        breaches.into_iter()
    }

    fn is_there(&self, krate: Option<&str>, name: &str) -> bool {
        let matches = |krate: &str, is_it: &dyn Fn(&TestPath) -> bool| {
            self.tests.iter().any(|test| test.krate() == krate && is_it(test))
        };
        if krate == Some(name) {
            return name == "tidy" || matches(name, &|_| true);
        }
        if name.contains(['/', '.']) {
            let is_it = |path: &str| {
                path.ends_with(&format!("/{name}")) || path.starts_with(&format!("{name}/"))
            };
            return self.files.iter().any(|file| is_it(&file.path));
        }
        if name.contains('-') {
            let rules = self.files.iter().find(|file| file.path == "shared/judge/src/rule.rs");
            return rules.is_some_and(|rules| rules.text.contains(&format!("{name:?}")));
        }
        if name.starts_with(char::is_uppercase) {
            // A trouble in the model's scenarios.
            let scenarios = |file: &&File| file.path.starts_with("tests/model/tests/");
            let trouble = format!("Trouble::{name}");
            return self.files.iter().filter(scenarios).any(|file| file.text.contains(&trouble));
        }
        match (krate, name.split_once("::")) {
            (Some(krate), _) => matches(krate, &|test| test.matches(name)),
            (None, Some((krate, path))) if self.crates.contains(krate) => {
                matches(krate, &|test| test.matches(path))
            }
            (None, _) => self.tests.iter().any(|test| test.matches(name)),
        }
    }
}

fn of(krate: Option<&str>) -> String {
    krate.map(|krate| format!(" in {krate}")).unwrap_or_default()
}

/// A manifest can switch off tests.
#[test]
fn no_crate_switches_its_tests_off() {
    let files = files();
    let manifests = files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    let breaches = manifests.flat_map(|file| {
        let off = ["test = false", "harness = false", "autotests = false"];
        let off = off.into_iter().filter(|line| file.text.lines().any(|one| one.trim() == *line));
        off.map(|line| format!("{}: {line}", file.path)).collect::<Vec<_>>()
    });
    assert_none(breaches.collect(), "every crate's tests are run");
}
