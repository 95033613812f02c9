//! As much of Rust's syntax as the rules need, from text formatted by rustfmt: a function ends at
//! the first closing brace with the indentation of its first line.

/// A function in a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its name.
    pub name: &'a str,
    /// The first line of the function, counted from 1.
    pub line: usize,
    /// From signature to closing brace.
    pub lines: usize,
    /// The doc comments and attributes right above the function, in order.
    pub heading: Vec<&'a str>,
}

impl Function<'_> {
    /// Whether an attribute makes it a test that `cargo test` runs.
    pub fn is_test(&self) -> bool {
        let has = |attribute: &str| self.heading.iter().any(|line| line.starts_with(attribute));
        (has("#[test]") || has("#[tokio::test")) && !has("#[ignore") && !has("#[cfg(")
    }
}

/// Every function in the text, nested ones included.
pub fn functions(text: &str) -> Vec<Function<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let is_heading = |line: &&&str| {
            let line = line.trim_start();
            line.starts_with("///") || line.starts_with("#[")
        };
        let mut heading: Vec<&str> =
            lines[..index].iter().rev().take_while(is_heading).map(|line| line.trim()).collect();
        heading.reverse();
        let rest = lines[index..].iter();
        let lines = 1 + rest.take_while(|later| !ends_function(later, indent(line))).count();
        found.push(Function { name, line: index + 1, lines, heading });
    }
    found
}

/// Every type and trait that the text declares, with its line, counted from 1. An indented `type`
/// belongs to a trait or an implementation, and is left out.
pub fn types(text: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let declared = after_visibility(line).and_then(|rest| {
            let kinds = ["struct ", "enum ", "union ", "trait "];
            let rest_of_type = || rest.strip_prefix("type ").filter(|_| indent(line) == 0);
            kinds.iter().find_map(|kind| rest.strip_prefix(kind)).or_else(rest_of_type)
        });
        // A macro's `$name` is left out.
        if let Some(name) = declared.map(leading_name).filter(|name| !name.is_empty()) {
            found.push((name, index + 1));
        }
    }
    found
}

/// Places where the program takes a text for people apart, with their lines, counted from 1: a call
/// such as `message.contains(…)`.
pub fn readings_of_text(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut chain = String::new();
    for (index, line) in text.lines().enumerate() {
        // A chain that rustfmt broke is one.
        if !line.trim_start().starts_with('.') {
            chain.clear();
        }
        let before = chain.len();
        chain.push_str(line.trim());
        for reader in READERS {
            for (at, _) in chain.match_indices(reader).filter(|(at, _)| *at >= before) {
                if TEXTS.contains(&receiver(&chain[..at])) {
                    found.push((index + 1, format!("{}{reader}", receiver(&chain[..at]))));
                }
            }
        }
    }
    found
}

/// What takes a text apart.
const READERS: [&str; 7] = [
    ".contains(",
    ".starts_with(",
    ".ends_with(",
    ".split",
    ".strip_prefix(",
    ".strip_suffix(",
    ".find(",
];

/// How texts for people are called.
const TEXTS: [&str; 8] =
    ["error", "hint", "message", "next", "problem", "reason", "waits_for", "words"];

/// The name of what a method is called on: `message` of `problem.message.as_str()`.
fn receiver(chain: &str) -> &str {
    const SAME_TEXT: [&str; 8] = [
        "as_deref",
        "as_ref",
        "as_str",
        "to_lowercase",
        "to_owned",
        "to_string",
        "trim",
        "unwrap_or_default",
    ];
    let mut rest = chain;
    loop {
        rest = rest.trim_end_matches(['(', ')', '?']);
        let start = rest.rfind(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let name = &rest[start.map_or(0, |at| at + 1)..];
        match rest[..rest.len() - name.len()].strip_suffix('.') {
            Some(before) if SAME_TEXT.contains(&name) => rest = before,
            _ => return name,
        }
    }
}

fn function_name(line: &str) -> Option<&str> {
    let mut rest = after_visibility(line)?;
    for word in ["const ", "async "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    rest.strip_prefix("fn ").map(leading_name)
}

fn after_visibility(line: &str) -> Option<&str> {
    let line = line.trim_start();
    match line.strip_prefix("pub(") {
        Some(after) => Some(after.split_once(") ")?.1),
        None => Some(line.strip_prefix("pub ").unwrap_or(line)),
    }
}

fn leading_name(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    &text[..end.unwrap_or(text.len())]
}

/// The last line of a function: its brace, or its semicolon when it has no body.
fn ends_function(line: &str, indent_of_function: usize) -> bool {
    indent(line) == indent_of_function && (line.ends_with('}') || line.ends_with(';'))
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r"//! Sample.
trait Shape {
    fn declared(&self) -> u8;
    fn declared_wide(
        &self,
    ) -> u8;
    fn short(&self) {}
}

/// Doc.
/// More.
#[tokio::test]
pub(crate) async fn outer() {
    const fn inner() {
        call();
    }
    if yes {
        call();
    }
}
";

    #[test]
    fn functions_are_found_with_their_length_and_heading() {
        let found: Vec<_> = functions(SAMPLE).iter().map(|f| (f.name, f.line, f.lines)).collect();
        let expected = [
            ("declared", 3, 1),
            ("declared_wide", 4, 3),
            ("short", 7, 1),
            ("outer", 13, 8),
            ("inner", 14, 3),
        ];
        assert_eq!(found, expected);
        let functions = functions(SAMPLE);
        assert_eq!(functions[3].heading, ["/// Doc.", "/// More.", "#[tokio::test]"]);
        assert!(functions[3].is_test() && !functions[4].is_test());
    }

    #[test]
    fn types_are_found_with_their_line() {
        let text = "pub struct Open<'a> {\n    pub(super) enum Inner {}\n}\ntype Short = u8;\n\
                    trait Shape {\n    type Output;\n}\nstruct $name;\nstruct Unit;\n\
                    // enum Words\nlet kind = enumerate();\n";
        let expected = [("Open", 1), ("Inner", 2), ("Short", 4), ("Shape", 5), ("Unit", 9)];
        assert_eq!(types(text), expected);
    }

    #[test]
    fn a_text_that_is_taken_apart_is_found_across_lines() {
        let text = "if problem.message.as_str().contains(\"x\") {}\nlet key = failure.error()\n    \
                    .to_lowercase()\n    .split_whitespace();\nids.contains(&id);\n\
                    failure.processes.iter().find(|one| one.is());\nmessages.contains(\"x\");\n";
        let expected = [(1, "message.contains(".to_owned()), (4, "error.split".to_owned())];
        assert_eq!(readings_of_text(text), expected);
    }

    #[test]
    fn a_function_that_is_not_run_is_no_test() {
        let is_test =
            |attributes: &str| functions(&format!("{attributes}\nfn it() {{}}\n"))[0].is_test();
        assert!(is_test("#[test]") && is_test("#[tokio::test(flavor = \"multi_thread\")]"));
        for none in
            ["#[cfg(test)]", "/// A test.", "#[test]\n#[ignore = \"later\"]", "#[ignore]\n#[test]"]
        {
            assert!(!is_test(none), "{none}");
        }
    }
}
