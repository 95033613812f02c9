//! The uses between top-level modules of a crate, read from `use` lines and inline paths.
//!
//! Test code is left out: `#[cfg(test)] mod` blocks and files.

use std::collections::{BTreeMap, BTreeSet};

use crate::inventory::locate;
use crate::repository::File;

/// For each top-level module of a crate, the other top-level modules that it uses.
pub type Imports = BTreeMap<String, BTreeSet<String>>;

/// The imports of each crate, by its directory, such as `services/claim`.
pub fn imports(files: &[File]) -> BTreeMap<String, Imports> {
    let sources: Vec<Source> = files.iter().filter_map(Source::read).collect();
    let mut crates: BTreeMap<String, Imports> = BTreeMap::new();
    for source in &sources {
        let imports = crates.entry(source.directory.clone()).or_default();
        if let Some(module) = source.modules.first() {
            imports.entry(module.clone()).or_default();
        }
    }
    for source in sources.iter().filter(|source| !source.is_test(&sources)) {
        let Some(imports) = crates.get_mut(&source.directory) else { continue };
        let Some(module) = source.modules.first() else { continue };
        let reexports = reexports(&sources, &source.directory);
        let mut used = BTreeSet::new();
        for name in names_below_root(&source.text, source.modules.len()) {
            let name = reexports.get(name).map_or(name, String::as_str);
            if name != module && imports.contains_key(name) {
                used.insert(name.to_owned());
            }
        }
        imports.entry(module.clone()).or_default().extend(used);
    }
    crates
}

/// The groups of modules that use each other, directly or through others.
pub fn cycles(imports: &Imports) -> Vec<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|module| (module.as_str(), reachable(imports, module))).collect();
    let mut cycles: Vec<BTreeSet<&str>> = Vec::new();
    for (module, others) in &reached {
        let is_mutual = |other: &&str| reached.get(other).is_some_and(|all| all.contains(module));
        let cycle: BTreeSet<&str> = others.iter().copied().filter(is_mutual).collect();
        if !cycle.is_empty() && !cycles.contains(&cycle) {
            cycles.push(cycle);
        }
    }
    cycles
}

fn reachable<'a>(imports: &'a Imports, module: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = vec![module];
    while let Some(module) = next.pop() {
        for used in imports.get(module).into_iter().flatten() {
            if reached.insert(used.as_str()) {
                next.push(used);
            }
        }
    }
    reached
}

/// A file of a crate's library or program, without comments and test modules.
struct Source {
    directory: String,
    modules: Vec<String>,
    text: String,
}

impl Source {
    fn read(file: &File) -> Option<Self> {
        let (directory, root, modules) = locate(&file.path)?;
        let is_source = file.is("rs") && root.ends_with("/src");
        is_source.then(|| Self { directory, modules, text: code(&file.text) })
    }

    /// Whether a module down to this one is declared for tests only.
    fn is_test(&self, all: &[Self]) -> bool {
        (1..=self.modules.len()).any(|depth| {
            let (above, name) = (&self.modules[..depth - 1], &self.modules[depth - 1]);
            let declared = format!("{TEST_ONLY}\nmod {name};");
            let mut parents = all.iter().filter(|one| one.directory == self.directory);
            parents.any(|one| one.modules == above && one.text.contains(&declared))
        })
    }
}

const TEST_ONLY: &str = "#[cfg(test)]";

/// The text without comments and without inline test modules.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//")).peekable();
    while let Some(line) = lines.next() {
        let next = lines.peek().copied().unwrap_or_default();
        if line == TEST_ONLY && next.starts_with("mod ") && next.ends_with('{') {
            // rustfmt puts the module's own brace at column 0.
            for line in lines.by_ref() {
                if line == "}" {
                    break;
                }
            }
        } else {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// The names that the crate's root imports from its modules, with their modules.
fn reexports(sources: &[Source], directory: &str) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let roots = sources.iter().filter(|one| one.directory == directory && one.modules.is_empty());
    for statement in roots.flat_map(|root| root.text.split(';')) {
        let Some((_, path)) = statement.split_once("pub use ") else { continue };
        let Some((module, rest)) = path.split_once("::") else { continue };
        let words = rest.split(|letter: char| !is_of_name(letter));
        names.extend(words.map(|word| (word.to_owned(), module.to_owned())));
    }
    names
}

/// The names right below the crate's root in a file that is `depth` modules deep.
fn names_below_root(text: &str, depth: usize) -> Vec<&str> {
    let mut names = Vec::new();
    let above = "super::".repeat(depth);
    for (start, prefix) in ["crate::", above.as_str()].iter().flat_map(|it| text.match_indices(it))
    {
        let before = text[..start].chars().next_back();
        if before.is_some_and(|letter| is_of_name(letter) || letter == ':') {
            continue;
        }
        let rest = &text[start + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(group) => names.extend(first_names(group)),
            None => names.extend(first_name(rest)),
        }
    }
    names
}

/// The first name of each path in a group, up to the brace that closes it.
fn first_names(group: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let (mut open, mut begins) = (1, 0);
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 || (letter == ',' && open == 1) {
            names.extend(first_name(&group[begins..at]));
            begins = at + 1;
        }
        if open == 0 {
            break;
        }
    }
    names
}

fn first_name(path: &str) -> Option<&str> {
    let path = path.trim_start();
    let end = path.find(|letter| !is_of_name(letter)).unwrap_or(path.len());
    (end > 0).then(|| &path[..end])
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Imports {
        let file = |(path, text): &(&str, &str)| File {
            path: format!("services/x/src/{path}"),
            text: (*text).to_owned(),
        };
        let files: Vec<File> = files.iter().map(file).collect();
        imports(&files).remove("services/x").unwrap()
    }

    fn row(imports: &Imports, module: &str) -> Vec<String> {
        imports[module].iter().cloned().collect()
    }

    #[test]
    fn every_way_to_name_another_module_counts() {
        let imports = read(&[
            ("lib.rs", "pub mod a;\npub use d::{Deep, Other};\n"),
            ("a/mod.rs", "use crate::{b::X, c::{Y, Z}};\n"),
            ("a/below.rs", "use super::super::e;\nuse super::own;\nuse crate::Deep;\n"),
            ("b.rs", "fn f() {\n    crate::c::call();\n    super::e::call();\n}\n"),
            ("c.rs", "// crate::a is only mentioned.\nuse other_crate::a;\n"),
            ("d.rs", ""),
            ("e.rs", ""),
        ]);
        assert_eq!(row(&imports, "a"), ["b", "c", "d", "e"]);
        assert_eq!(row(&imports, "b"), ["c", "e"]);
        assert!(row(&imports, "c").is_empty());
    }

    #[test]
    fn test_code_does_not_count() {
        let imports = read(&[
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a.rs", "#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n"),
            ("b.rs", "#[cfg(test)]\nmod tests;\n"),
            ("b/tests.rs", "use crate::a;\n"),
        ]);
        assert!(imports.values().all(BTreeSet::is_empty), "{imports:?}");
    }

    #[test]
    fn a_cycle_is_found_once_with_all_its_modules() {
        let imports = read(&[
            ("a.rs", "use crate::b;\n"),
            ("b.rs", "use crate::c;\n"),
            ("c.rs", "use crate::a;\nuse crate::leaf;\n"),
            ("leaf.rs", ""),
            ("top.rs", "use crate::a;\n"),
        ]);
        assert_eq!(cycles(&imports), [BTreeSet::from(["a", "b", "c"])]);
    }
}
