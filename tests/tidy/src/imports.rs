//! The uses between the files of a crate, read from `use` statements and inline paths.
//!
//! A path is followed to the file that declares the name, also through modules that only pass the
//! name on. Two things are no use of a file: a module that passes on a name of a module below it
//! (`mod child; pub use child::X`), and a path that only leads through the file's module. Test code
//! is left out: `#[cfg(test)] mod` blocks and files. A method called on a value cannot be seen.

use std::collections::{BTreeMap, BTreeSet};

use crate::inventory::locate;
use crate::paths::{Import, Paths, is_of_name};
use crate::repository::File;

/// For each node of a graph, such as a file or a module, the other nodes that it uses.
pub type Uses = BTreeMap<String, BTreeSet<String>>;

/// The uses between the files of each crate, by the crate's directory, such as `services/claim`.
/// Files are named by their paths below `src`.
pub fn file_uses(files: &[File]) -> BTreeMap<String, Uses> {
    let mut crates: BTreeMap<String, Vec<Source>> = BTreeMap::new();
    for (directory, source) in files.iter().filter_map(Source::read) {
        crates.entry(directory).or_default().push(source);
    }
    let uses = |sources: Vec<Source>| Crate::new(sources).uses();
    crates.into_iter().map(|(directory, sources)| (directory, uses(sources))).collect()
}

/// The uses between top-level modules that follow from the uses between their files.
pub fn module_uses(files: &Uses) -> Uses {
    let module = |file: &str| {
        let name = file.split('/').next().unwrap_or_default();
        let name = name.trim_end_matches(".rs");
        (!matches!(name, "lib" | "main")).then(|| name.to_owned())
    };
    let mut modules = Uses::new();
    for (file, used) in files {
        let Some(name) = module(file) else { continue };
        let used = used.iter().filter_map(|file| module(file)).filter(|other| *other != name);
        modules.entry(name.clone()).or_default().extend(used);
    }
    modules
}

/// The groups of nodes that use each other, directly or through others.
pub fn circles(uses: &Uses) -> Vec<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|node| (node.as_str(), reachable(uses, node))).collect();
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for (node, others) in &reached {
        let is_mutual = |other: &&str| reached.get(other).is_some_and(|all| all.contains(node));
        let circle: BTreeSet<&str> = others.iter().copied().filter(is_mutual).collect();
        if !circle.is_empty() && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

fn reachable<'a>(uses: &'a Uses, node: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = vec![node];
    while let Some(node) = next.pop() {
        for used in uses.get(node).into_iter().flatten() {
            if reached.insert(used.as_str()) {
                next.push(used);
            }
        }
    }
    reached
}

/// A file of a crate's library or program, without comments and test modules.
struct Source {
    /// Its path below `src`.
    path: String,
    modules: Vec<String>,
    text: String,
    paths: Paths,
    declared: BTreeSet<String>,
}

impl Source {
    fn read(file: &File) -> Option<(String, Self)> {
        let (directory, root, modules) = locate(&file.path)?;
        let path = file.path.strip_prefix(&root)?.trim_start_matches('/').to_owned();
        let is_source = file.is("rs") && root.ends_with("/src");
        is_source.then(|| {
            let text = code(&file.text);
            let (paths, declared) = (Paths::read(&text), declared_names(&text));
            (directory, Self { path, modules, text, paths, declared })
        })
    }
}

/// The names of the items in this code.
fn declared_names(code: &str) -> BTreeSet<String> {
    const KINDS: [&str; 9] =
        ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "macro_rules!"];
    let words: Vec<&str> = code.split_whitespace().collect();
    let declared = words.windows(2).filter(|pair| KINDS.contains(&pair[0]));
    let name = |word: &str| word.split(|letter| !is_of_name(letter)).next().map(str::to_owned);
    declared.filter_map(|pair| name(pair[1])).collect()
}

/// The files of a crate, and where its names are declared.
struct Crate {
    sources: Vec<Source>,
    /// The file of each module.
    modules: BTreeMap<Vec<String>, usize>,
}

impl Crate {
    fn new(mut sources: Vec<Source>) -> Self {
        // Of a library and a program in one directory, the library has the modules.
        sources.sort_by_key(|source| source.path == "main.rs");
        let mut modules = BTreeMap::new();
        for (at, source) in sources.iter().enumerate() {
            modules.entry(source.modules.clone()).or_insert(at);
        }
        Self { sources, modules }
    }

    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (at, source) in self.sources.iter().enumerate() {
            let targets = if self.is_test(source) { BTreeSet::new() } else { self.used_by(at) };
            let others = targets.into_iter().filter(|target| *target != at);
            let names = others.map(|target| self.sources[target].path.clone());
            uses.insert(source.path.clone(), names.collect());
        }
        uses
    }

    fn used_by(&self, at: usize) -> BTreeSet<usize> {
        let source = &self.sources[at];
        let mut used = BTreeSet::new();
        for import in &source.paths.imports {
            // The import of a module says nothing: the paths through it are followed.
            let Some(target) = self.declaring_file(at, &import.path, 0) else { continue };
            let is_below = self.sources[target].modules.starts_with(&source.modules);
            if !is_below || source.paths.mentions(import) {
                used.insert(target);
            }
        }
        // A name alone is that of an import, or one of those that `*` imports.
        let has_glob = source.paths.imports.iter().any(|import| import.name.is_none());
        let inline = source.paths.inline.iter().filter(|path| path.len() > 1 || has_glob);
        used.extend(inline.filter_map(|path| self.declaring_file(at, path, 0)));
        used
    }

    /// The file that declares what a path in the file `at` names; none for modules and for what
    /// other crates declare.
    fn declaring_file(&self, at: usize, path: &[String], depth: usize) -> Option<usize> {
        // Modules may pass names on to each other.
        if depth > 8 {
            return None;
        }
        let (name, rest) = path.split_first()?;
        let here = &self.sources[at];
        match name.as_str() {
            "crate" => return self.declaring_file(self.module(&[])?, rest, depth),
            "self" => return self.declaring_file(at, rest, depth),
            "super" => {
                let above = here.modules.split_last()?.1;
                return self.declaring_file(self.module(above)?, rest, depth);
            }
            _ => {}
        }
        let below: Vec<String> = here.modules.iter().chain([name]).cloned().collect();
        if let Some(child) = self.module(&below) {
            return self.declaring_file(child, rest, depth);
        }
        if here.declared.contains(name) {
            return Some(at);
        }
        let imported = |import: &&Import| import.name.as_ref() == Some(name);
        if let Some(import) = here.paths.imports.iter().find(imported) {
            let whole: Vec<String> = import.path.iter().chain(rest).cloned().collect();
            // A name of another crate may be that of a module below, too.
            let itself = import.path == [name.clone()];
            return if itself { None } else { self.declaring_file(at, &whole, depth + 1) };
        }
        let globs = here.paths.imports.iter().filter(|import| import.name.is_none());
        globs.into_iter().find_map(|glob| {
            let whole: Vec<String> = glob.path.iter().chain(path).cloned().collect();
            self.declaring_file(at, &whole, depth + 1)
        })
    }

    fn module(&self, modules: &[String]) -> Option<usize> {
        self.modules.get(modules).copied()
    }

    /// Whether a module down to this one is declared for tests only.
    fn is_test(&self, source: &Source) -> bool {
        (1..=source.modules.len()).any(|depth| {
            let (above, name) = (&source.modules[..depth - 1], &source.modules[depth - 1]);
            let declared = format!("{TEST_ONLY}\nmod {name};");
            self.module(above).is_some_and(|parent| self.sources[parent].text.contains(&declared))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Uses {
        let file = |(path, text): &(&str, &str)| File {
            path: format!("services/x/src/{path}"),
            text: (*text).to_owned(),
        };
        let files: Vec<File> = files.iter().map(file).collect();
        file_uses(&files).remove("services/x").unwrap()
    }

    fn row<'a>(uses: &'a Uses, file: &str) -> Vec<&'a str> {
        uses[file].iter().map(String::as_str).collect()
    }

    #[test]
    fn every_way_to_name_another_file_counts() {
        let uses = read(&[
            ("lib.rs", "pub mod a;\npub use d::{Deep, Other};\n"),
            ("a/mod.rs", "use crate::{b::X, c::{Y, Z}};\n"),
            ("a/below.rs", "use super::super::e::E;\nuse super::own;\nuse crate::Deep;\n"),
            ("b.rs", "struct X;\nfn f() {\n    crate::c::call();\n    super::e::call();\n}\n"),
            ("c.rs", "// crate::a is only mentioned.\nuse other_crate::a;\nstruct Y;\nstruct Z;\n"),
            ("d.rs", "struct Deep;\nfn call() {}\n"),
            ("e.rs", "struct E;\nuse crate::d;\nfn call() {\n    d::call();\n}\n"),
        ]);
        assert_eq!(row(&uses, "a/mod.rs"), ["b.rs", "c.rs"]);
        assert_eq!(row(&uses, "a/below.rs"), ["d.rs", "e.rs"]);
        assert!(row(&uses, "c.rs").is_empty());
        assert_eq!(row(&uses, "e.rs"), ["d.rs"]);
        let modules = module_uses(&uses);
        assert_eq!(row(&modules, "a"), ["b", "c", "d", "e"]);
        assert!(!modules.contains_key("lib"));
    }

    #[test]
    fn a_name_is_followed_to_the_file_that_declares_it() {
        let uses = read(&[
            ("lib.rs", "mod shelf;\nmod user;\n"),
            ("shelf/mod.rs", "mod one;\nmod two;\npub use one::One;\npub use two::*;\n"),
            ("shelf/one.rs", "pub struct One;\n"),
            ("shelf/two.rs", "pub enum Two {}\n"),
            ("user.rs", "use crate::shelf::{self, One};\nfn f(_: One, _: shelf::Two) {}\n"),
        ]);
        assert!(row(&uses, "shelf/mod.rs").is_empty(), "it only passes names on");
        assert_eq!(row(&uses, "user.rs"), ["shelf/one.rs", "shelf/two.rs"]);
    }

    #[test]
    fn a_parent_and_its_child_are_a_circle_if_each_uses_the_other() {
        let child = "use super::Shared;\nfn work(_: Shared) {}\n";
        let parent = |uses: &str| {
            read(&[("p/mod.rs", &format!("mod child;\n{uses}")), ("p/child.rs", child)])
        };
        let calls = "struct Shared;\nfn f() {\n    child::work();\n}\n";
        assert_eq!(circles(&parent(calls)), [BTreeSet::from(["p/child.rs", "p/mod.rs"])]);
        let imports = "use child::work;\nstruct Shared;\nfn f() {\n    work();\n}\n";
        assert_eq!(circles(&parent(imports)).len(), 1);
        assert!(circles(&parent("pub use child::work;\nstruct Shared;\n")).is_empty());
    }

    #[test]
    fn test_code_does_not_count() {
        let uses = read(&[
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a.rs", "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\nstruct A;\n"),
            ("b.rs", "#[cfg(test)]\nmod tests;\nstruct B;\n"),
            ("b/tests.rs", "use crate::a::A;\n"),
        ]);
        assert!(uses.values().all(BTreeSet::is_empty), "{uses:?}");
    }

    #[test]
    fn a_circle_is_found_once_with_all_its_files() {
        let uses = read(&[
            ("a.rs", "use crate::b::X;\nstruct X;\n"),
            ("b.rs", "use crate::c::X;\nstruct X;\n"),
            ("c.rs", "use crate::a::X;\nuse crate::leaf::X;\nstruct X;\n"),
            ("leaf.rs", "struct X;\n"),
            ("top.rs", "use crate::a::X;\n"),
            ("lib.rs", ""),
        ]);
        assert_eq!(circles(&uses), [BTreeSet::from(["a.rs", "b.rs", "c.rs"])]);
    }
}
