//! Finds a binary of the workspace that is as new as its sources.
//!
//! `make test` builds all binaries beforehand. A test that is run by hand builds those it needs,
//! since a test of an outdated binary misleads.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use crate::repository;

/// The path of the workspace's binary `name`, built first when it is missing or older than one of
/// its sources. Checked once per test process.
///
/// # Panics
/// When it cannot be built.
pub fn binary(name: &str) -> PathBuf {
    static FOUND: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    // Locked while building: tests that need the same binary wait for one build.
    let mut paths = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let paths = paths.get_or_insert_default();
    if let Some(path) = paths.get(name) {
        return path.clone();
    }
    let path = profile_dir().join(name);
    if !is_current(&path) {
        build(name);
    }
    assert!(path.is_file(), "{} was built, but is not there", path.display());
    paths.insert(name.to_owned(), path.clone());
    path
}

/// The path of this program of the last release, if `tests/integration/last-release/build` has
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

/// Whether the binary exists and no source named in cargo's `<name>.d` beside it is newer.
fn is_current(binary: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let (Some(built), Ok(sources)) =
        (modified(binary), fs::read_to_string(binary.with_extension("d")))
    else {
        return false;
    };
    let Some((_, sources)) = sources.split_once(": ") else { return false };
    let source_times: Option<Vec<SystemTime>> =
        sources.split_whitespace().map(|path| modified(Path::new(path))).collect();
    source_times.is_some_and(|times| times.iter().all(|time| *time <= built))
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
