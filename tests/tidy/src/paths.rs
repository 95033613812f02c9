//! The paths that a Rust file names, from text formatted by rustfmt and without comments.

use std::collections::BTreeSet;

/// A name that a `use` statement brings into a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// Where the statement says that the name is declared.
    pub path: Vec<String>,
    /// The name in this file; none for `*`.
    pub name: Option<String>,
    /// Whether the file passes the name on.
    pub is_public: bool,
}

/// The paths in a file.
#[derive(Debug, Default)]
pub struct Paths {
    /// Of its `use` statements.
    pub imports: Vec<Import>,
    /// Of its other code, such as `crate::show::table` or `Table`.
    pub inline: BTreeSet<Vec<String>>,
    /// The names that it calls.
    called: BTreeSet<String>,
}

impl Paths {
    /// Reads code without comments.
    pub fn read(code: &str) -> Self {
        let mut paths = Self::default();
        let mut rest = code;
        while let Some((before, statement, after)) = next_statement(rest) {
            paths.add_inline(before);
            if let Some((visibility, tree)) = statement.split_once("use ") {
                let is_public = !visibility.is_empty();
                collect(tree, &[], &mut |path, name| {
                    paths.imports.push(Import { path, name, is_public });
                });
            }
            rest = after;
        }
        paths.add_inline(rest);
        paths
    }

    /// Whether the code outside of `use` statements has this import's name. A local variable may
    /// have the name of a function that is only passed on.
    pub fn mentions(&self, import: &Import) -> bool {
        import.name.as_ref().is_some_and(|name| {
            let is_type = name.starts_with(char::is_uppercase);
            let is_named = || self.inline.iter().any(|path| path[0] == *name);
            self.called.contains(name) || ((is_type || !import.is_public) && is_named())
        })
    }

    /// Adds every path in this code. Fields and methods are none.
    fn add_inline(&mut self, code: &str) {
        let (mut rest, mut before) = (code, ' ');
        while let Some(letter) = rest.chars().next() {
            if !is_of_name(letter) {
                before = letter;
                rest = &rest[letter.len_utf8()..];
                continue;
            }
            let mut path = Vec::new();
            loop {
                let end = rest.find(|letter| !is_of_name(letter)).unwrap_or(rest.len());
                path.push(rest[..end].to_owned());
                rest = &rest[end..];
                match rest.strip_prefix("::") {
                    Some(after) if after.starts_with(is_of_name) => rest = after,
                    _ => break,
                }
            }
            let is_field = before == '.' && path.len() == 1;
            before = ' ';
            if is_field {
                continue;
            }
            if path.len() == 1 && rest.starts_with('(') {
                self.called.insert(path[0].clone());
            }
            self.inline.insert(path);
        }
    }
}

/// The code before the next `use` statement, the statement, and the code after it.
fn next_statement(code: &str) -> Option<(&str, &str, &str)> {
    let begins = |(at, _): (usize, &str)| {
        let line = code[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let before = code[line..at].trim_start();
        let is_statement = before.is_empty() || (before.starts_with("pub") && before.len() < 30);
        is_statement.then(|| at - before.len())
    };
    let begins = code.match_indices("use ").find_map(begins)?;
    let statement = &code[begins..];
    let end = statement.find(';')?;
    Some((&code[..begins], &statement[..end], &statement[end + 1..]))
}

/// Gives each path and name of a tree such as `a::{b::C, d as e, f::*}` to `found`.
fn collect(tree: &str, above: &[String], found: &mut dyn FnMut(Vec<String>, Option<String>)) {
    let names = |path: &str| -> Vec<String> {
        let below = path.split("::").filter(|name| !name.is_empty()).map(str::to_owned);
        above.iter().cloned().chain(below).collect()
    };
    let tree = tree.trim();
    if let Some((before, group)) = tree.split_once('{') {
        let path = names(before);
        let group = group.strip_suffix('}').unwrap_or(group);
        for part in parts(group) {
            collect(part, &path, found);
        }
        return;
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(it, as_)| (it, Some(as_)));
    let mut path = names(path);
    match path.last().map(String::as_str) {
        None => return,
        Some("*") => {
            path.pop();
            return found(path, None);
        }
        Some("self") => {
            path.pop();
        }
        Some(_) => {}
    }
    let name = alias.map(str::to_owned).or_else(|| path.last().cloned());
    found(path, name);
}

/// The parts of a group, split at commas outside of inner groups.
fn parts(group: &str) -> Vec<&str> {
    let (mut open, mut begins, mut parts) = (0, 0, Vec::new());
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => open += 1,
            '}' => open -= 1,
            ',' if open == 0 => {
                parts.push(&group[begins..at]);
                begins = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[begins..]);
    parts
}

pub(crate) fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_of_a_statement_is_read_with_its_path() {
        let paths = Paths::read(
            "pub(crate) use crate::a::{self, b::{C, D as E},\n    f::*};\nuse super::x;\n\
             fn f() {\n    use y::Z;\n}\n",
        );
        let shown: Vec<String> = paths
            .imports
            .iter()
            .map(|one| format!("{} {}", one.path.join("::"), one.name.as_deref().unwrap_or("*")))
            .collect();
        let expected =
            ["crate::a a", "crate::a::b::C C", "crate::a::b::D E", "crate::a::f *", "super::x x"];
        assert_eq!(shown[..5], expected);
        assert_eq!(shown[5], "y::Z Z");
    }

    #[test]
    fn code_names_paths_and_no_fields() {
        let paths = Paths::read("let a: Table = crate::show::table(&it.rows, ..X::new()).end();\n");
        let shown: Vec<String> = paths.inline.iter().map(|path| path.join("::")).collect();
        assert_eq!(shown, ["Table", "X::new", "a", "crate::show::table", "it", "let"]);
    }

    #[test]
    fn a_variable_does_not_mention_a_function_that_is_passed_on() {
        let paths = Paths::read(
            "pub use a::{alloc, claim, Claim};\nuse b::node;\nfn f(alloc: Claim) {\n    \
             claim().map(node);\n}\n",
        );
        let mentioned = paths.imports.iter().filter(|import| paths.mentions(import));
        let mentioned: Vec<_> = mentioned.filter_map(|import| import.name.as_deref()).collect();
        assert_eq!(mentioned, ["claim", "Claim", "node"]);
    }
}
