//! Programs in mount namespaces of their own, which must not hold what other tests release.
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
const ENTER_NAMESPACE: &str = r#"
lock=$1; propagation=$2; own=${3%/}; shift 3
exec 9>"$lock"; flock 9
exec unshare --mount --propagation "$propagation" sh -c '
    own=$1; shift
    awk -v own="$own/" "index(\$5, \"/tmp/berth-\") == 1 && index(\$5, own) != 1 { print \$5 }" \
        /proc/self/mountinfo | sort -r |
        while read -r at; do umount --lazy "$(printf %b "$at")"; done
    exec 9>&- "$@"' sh "$own" "$@""#;

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
