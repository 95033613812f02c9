//! Programs in mount namespaces of their own, which must not hold what other tests release.
//!
//! Each test binary is in a namespace of its own already (`run-test.sh`, by `.cargo/config.toml`).
//! These programs are in another one each, with copies of the mounts of their binary's tests.
//!
//! Where the host's mounts are private, a new namespace copies them all, and for a moment really
//! holds the volumes of every test that runs beside this one. So that nothing is released in that
//! moment, releases share a lock of the machine, and a new namespace has it alone until it has
//! unmounted what it is not to have.

use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::process::Program;

/// Holds the lock, makes the namespace, and unmounts in it what lies below the directories of other
/// tests. Then gives the lock back and becomes the rest of the line.
const ENTER_NAMESPACE: &str = include_str!("../enter-namespace.sh");

/// The lock of all tests on this machine.
fn lock_file() -> PathBuf {
    env::temp_dir().join("berth-tests-releases.lock")
}

/// What runs a program in a mount namespace of its own, which keeps of the tests' mounts those
/// below `own`.
pub fn wrapper(propagation: &str, own: &Path) -> Vec<String> {
    let (lock, own) = (lock_file().display().to_string(), own.display().to_string());
    ["sh", "-c", ENTER_NAMESPACE, "sh", &lock, propagation, &own].map(str::to_owned).to_vec()
}

/// The same, for a shell script.
pub fn shell(name: &str, log: &Path, propagation: &str, own: &Path, script: &str) -> Program {
    let line = wrapper(propagation, own);
    Program::new(name, &line[0], log).args(&line[1..]).args(["sh", "-c", script])
}

/// While this lives, no namespace is made. A process that ends gives it back.
#[derive(Debug)]
#[must_use]
pub struct ReleaseLock(#[expect(dead_code, reason = "its drop counts")] File);

/// For the time of a release that must succeed at the first try.
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
    tokio::task::spawn_blocking(wait).await.expect("the lock is waited for without a panic")
}
