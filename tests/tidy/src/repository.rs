//! The files of the repository, read once each.

use std::fs;
use std::path::{Path, PathBuf};

/// Directories without source files.
const NOT_OURS: [&str; 4] = [".git", ".bin", ".berth", "target"];

/// What `make dist` builds, at the root only.
const PUBLISHED: &str = "dist";

/// A text file.
#[derive(Debug)]
pub struct File {
    /// The path relative to the root, with `/` between names.
    pub path: String,
    /// Its whole content.
    pub text: String,
}

impl File {
    /// Whether its name ends in `.<extension>`.
    pub fn is(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|its| its == extension)
    }
}

/// The root directory of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("tests/tidy lies two levels deep").to_path_buf()
}

/// Every text file, sorted by path.
pub fn files() -> Vec<File> {
    let mut files = Vec::new();
    collect(&root(), "", &mut files);
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

/// Every Rust file.
pub fn rust_files() -> impl Iterator<Item = File> {
    files().into_iter().filter(|file| file.is("rs"))
}

fn collect(dir: &Path, prefix: &str, files: &mut Vec<File>) {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    for entry in entries {
        let entry = entry.expect("a directory can be read to its end");
        let name = entry.file_name().into_string().expect("names in the repository are UTF-8");
        if NOT_OURS.contains(&name.as_str()) {
            continue;
        }
        let path = format!("{prefix}{name}");
        if path == PUBLISHED {
            continue;
        }
        let kind = entry.file_type().expect("an entry has a type");
        if kind.is_dir() {
            collect(&entry.path(), &format!("{path}/"), files);
        } else if kind.is_file()
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            files.push(File { path, text });
        }
    }
}
