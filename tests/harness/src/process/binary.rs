//! Finding a binary of the workspace, as new as its sources.
//!
//! `make test` builds them all beforehand. A test run by hand builds what it needs, since an old
//! binary under a new test is worse than none.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use crate::repository;

/// The path of the workspace's binary `name`, built first when it is missing or older than a file
/// it is made from. Looked at once per test process.
///
/// # Panics
/// When there is none and it cannot be built.
pub fn binary(name: &str) -> PathBuf {
    static FOUND: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    // Held while building: tests that need the same binary at once wait for one build.
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let found = found.get_or_insert_default();
    if let Some(path) = found.get(name) {
        return path.clone();
    }
    let path = profile_dir().join(name);
    if !is_current(&path) {
        build(name);
    }
    assert!(path.is_file(), "{} was built, but is not there", path.display());
    found.insert(name.to_owned(), path.clone());
    path
}

/// The path of this program of the last release, where `tests/integration/last-release/build` has
/// built it.
pub fn binary_of_last_release(name: &str) -> Option<PathBuf> {
    let commit =
        fs::read_to_string(repository().join("tests/integration/last-release/commit")).ok()?;
    let target = profile_dir().parent()?.to_owned();
    let path = target.join("last-release").join(commit.trim()).join(name);
    path.is_file().then_some(path)
}

/// Where cargo puts the binaries of this build: tests run from `<there>/deps/<test>-<hash>`.
fn profile_dir() -> PathBuf {
    let test = std::env::current_exe().expect("a process knows its executable");
    let dir = test.ancestors().find(|dir| dir.ends_with("deps")).and_then(Path::parent);
    dir.unwrap_or_else(|| panic!("{} does not lie in cargo's target", test.display())).to_owned()
}

/// Whether the binary is there and no source named in cargo's `<name>.d` beside it is newer.
fn is_current(binary: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let (Some(built), Ok(sources)) =
        (modified(binary), fs::read_to_string(binary.with_extension("d")))
    else {
        return false;
    };
    let Some((_, sources)) = sources.split_once(": ") else { return false };
    let changed: Option<Vec<SystemTime>> =
        sources.split_whitespace().map(|path| modified(Path::new(path))).collect();
    changed.is_some_and(|times| times.iter().all(|time| *time <= built))
}

fn build(name: &str) {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(repository()).args(["build", "--quiet", "--bin", name]);
    if profile_dir().ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.status();
    assert!(
        status.as_ref().is_ok_and(ExitStatus::success),
        "{name} is missing or out of date, and building it failed ({status:?}); \
         try: cargo build --bin {name}"
    );
}
