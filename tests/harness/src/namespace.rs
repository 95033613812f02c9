//! Programs in mount namespaces of their own, which must not hold volumes that other tests release.
//!
//! Each test binary already has its own namespace (`run-test.sh`, by `.cargo/config.toml`). Each of
//! these programs has another one, with copies of the mounts of its binary's tests.
//!
//! A new namespace starts with a copy of each mount, so it holds the volumes of every parallel
//! test. Releases therefore hold a lock of the machine shared. The program that makes a namespace
//! holds the lock exclusively until it has unmounted the copies of other tests' mounts.

use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::process::Program;

/// Takes the lock, makes the namespace, and unmounts the mounts of other tests in it. Then releases
/// the lock and becomes the program of the remaining arguments.
const ENTER_NAMESPACE: &str = include_str!("../enter-namespace.sh");

/// The lock of all tests on this machine.
fn lock_file() -> PathBuf {
    env::temp_dir().join("berth-tests-releases.lock")
}

/// The command line that runs a program in a mount namespace of its own. Of the tests' mounts it
/// keeps those below `own`.
pub fn wrapper(propagation: &str, own: &Path) -> Vec<String> {
    let (lock, own) = (lock_file().display().to_string(), own.display().to_string());
    ["sh", "-c", ENTER_NAMESPACE, "sh", &lock, propagation, &own].map(str::to_owned).to_vec()
}

/// A shell script in a mount namespace of its own, as [`wrapper`] makes it.
pub fn shell(name: &str, log: &Path, propagation: &str, own: &Path, script: &str) -> Program {
    let line = wrapper(propagation, own);
    Program::new(name, &line[0], log).args(&line[1..]).args(["sh", "-c", script])
}

/// While this lives, no namespace is made. The kernel releases it when the process ends.
#[derive(Debug)]
#[must_use]
pub struct ReleaseLock(#[expect(dead_code, reason = "its drop unlocks")] File);

/// Takes the lock for a release that must succeed at the first attempt.
///
/// # Panics
/// Where the lock's file cannot be made or locked.
pub async fn lock_for_release() -> ReleaseLock {
    let wait = || {
        let file =
            File::create(lock_file()).expect("a file can be made in the temporary directory");
        file.lock_shared().expect("a file of ours can be locked");
        ReleaseLock(file)
    };
    tokio::task::spawn_blocking(wait).await.expect("the wait for the lock does not panic")
}
