//! Every test of the repository that `cargo test` runs, by crate and path.

use crate::repository::File;
use crate::source::{Function, functions};

/// A test.
#[derive(Debug, PartialEq, Eq)]
pub struct TestPath {
    /// The directory of the test's crate, such as `services/claim`.
    pub directory: String,
    /// The modules and the name of the test, as `cargo test` prints them.
    pub path: Vec<String>,
    /// The doc comments and attributes above the test.
    pub heading: Vec<String>,
}

impl TestPath {
    /// The name of the test's crate, without `berth-`.
    pub fn krate(&self) -> &str {
        self.directory.rsplit('/').next().unwrap_or_default()
    }

    /// Its own name.
    pub fn name(&self) -> &str {
        self.path.last().map(String::as_str).unwrap_or_default()
    }

    /// Whether the parts of `pattern` occur consecutively in the test's path. A `*` matches any
    /// letters.
    pub fn matches(&self, pattern: &str) -> bool {
        let words: Vec<&str> = pattern.split("::").collect();
        let fits = |part: &[String]| part.iter().zip(&words).all(|(name, word)| fits(name, word));
        self.path.windows(words.len()).any(fits)
    }
}

/// The tests in these files. A file that no module declares is not compiled, so it has none.
pub fn tests(files: &[File]) -> Vec<TestPath> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        let Some((directory, root, modules)) = locate(&file.path) else { continue };
        if !is_compiled(files, &root, &modules) {
            continue;
        }
        for function in functions(&file.text).into_iter().filter(Function::is_test) {
            let mut path = modules.clone();
            path.extend(module_around(&file.text, function.line).map(str::to_owned));
            path.push(function.name.to_owned());
            let heading = function.heading.iter().map(|line| (*line).to_owned()).collect();
            found.push(TestPath { directory: directory.clone(), path, heading });
        }
    }
    found
}

/// The directory of a file's crate, that of its target's sources, and its modules below that.
pub(crate) fn locate(path: &str) -> Option<(String, String, Vec<String>)> {
    let names: Vec<&str> = path.split('/').collect();
    let (directory, rest) = names.split_at_checked(2)?;
    let (root, below) = match rest {
        ["src", below @ ..] => ("src", below),
        ["tests", "it", below @ ..] => ("tests/it", below),
        _ => return None,
    };
    let mut modules: Vec<_> =
        below.iter().map(|name| name.trim_end_matches(".rs").to_owned()).collect();
    if modules.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        modules.pop();
    }
    let directory = directory.join("/");
    Some((directory.clone(), format!("{directory}/{root}"), modules))
}

/// Whether each of these modules is declared in its parent, at least for tests.
fn is_compiled(files: &[File], root: &str, modules: &[String]) -> bool {
    (0..modules.len()).all(|depth| {
        let (above, name) = (modules[..depth].join("/"), &modules[depth]);
        let parents = if depth == 0 {
            vec![format!("{root}/lib.rs"), format!("{root}/main.rs")]
        } else {
            vec![format!("{root}/{above}.rs"), format!("{root}/{above}/mod.rs")]
        };
        let parents = files.iter().filter(|file| parents.contains(&file.path));
        parents.into_iter().any(|parent| declares(&parent.text, name))
    })
}

fn declares(text: &str, module: &str) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().enumerate().any(|(at, line)| {
        let is_it = line.strip_suffix(';').and_then(|line| line.rsplit_once("mod "));
        let is_it = is_it.is_some_and(|(before, name)| {
            name == module && (before.is_empty() || before.starts_with("pub"))
        });
        let condition = at.checked_sub(1).map(|before| lines[before]).unwrap_or_default();
        is_it && (!condition.starts_with("#[cfg(") || condition == "#[cfg(test)]")
    })
}

/// The inline module of a file around this line, counted from 1.
fn module_around(text: &str, line: usize) -> Option<&str> {
    let before = text.lines().take(line).filter(|line| !line.starts_with(' '));
    before.fold(None, |around, line| match line.strip_prefix("mod ") {
        Some(rest) => rest.strip_suffix(" {").or(around),
        None if line == "}" => None,
        None => around,
    })
}

fn fits(name: &str, word: &str) -> bool {
    match word.split_once('*') {
        None => name == word,
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn only_tests_that_are_compiled_and_not_ignored_count() {
        let test = |name: &str| format!("#[test]\nfn {name}() {{\n}}\n");
        let inner = "mod tests {\n    #[test]\n    fn inside() {\n    }\n}\n";
        let files = [
            file("services/a/src/lib.rs", "pub mod plan;\n#[cfg(feature = \"x\")]\nmod gated;\n"),
            file("services/a/src/plan.rs", inner),
            file("services/a/src/gated.rs", &test("not_built")),
            file("services/a/tests/it/main.rs", "mod known;\n"),
            file("services/a/tests/it/known/mod.rs", &test("outside")),
            file("services/a/tests/it/forgotten.rs", &test("never_run")),
            file("services/a/tests/it/known/off.rs", &format!("#[ignore]\n{}", test("off"))),
        ];
        let tests = tests(&files);
        let paths: Vec<_> = tests.iter().map(|test| test.path.join("::")).collect();
        assert_eq!(paths, ["plan::tests::inside", "known::outside"]);
        assert_eq!(tests[0].krate(), "a");
    }

    #[test]
    fn a_pattern_names_words_that_follow_each_other() {
        let path = ["faults", "calls", "the_agent_is_killed"].map(str::to_owned).to_vec();
        let test = TestPath { directory: "tests/x".to_owned(), path, heading: Vec::new() };
        for pattern in ["faults::*", "calls", "the_agent_*", "faults::calls::the_agent_is_killed"] {
            assert!(test.matches(pattern), "{pattern}");
        }
        for pattern in ["fault", "faults::the_agent_is_killed", "the_driver_*", "killed"] {
            assert!(!test.matches(pattern), "{pattern}");
        }
    }
}
