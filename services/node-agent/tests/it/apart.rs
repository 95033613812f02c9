//! Mount namespaces of tests' own, which must not hold what other tests release.
//!
//! Where the host's mounts are private, a new namespace copies them all, and for a moment really
//! holds the volumes of every test that runs beside this one. So that nothing is released in that
//! moment, releases share a lock of the machine, and who makes a namespace has it alone.

use std::env;
use std::fs::File;
use std::path::Path;

use berth_harness::process::Program;

/// Unmounts what lies below the directories of other tests, then becomes the rest of the line.
const LEAVE_OTHERS: &str = r#"
own=${1%/}; shift
awk -v own="$own/" 'index($5, "/tmp/berth-") == 1 && index($5, own) != 1 { print $5 }' \
    /proc/self/mountinfo | sort -r | while read -r at; do umount --lazy "$(printf %b "$at")"; done
exec "$@""#;

/// Held until dropped. A process that ends gives it back.
#[must_use]
pub struct Held(#[expect(dead_code, reason = "its drop counts")] File);

/// For a release: no namespace is made meanwhile.
pub async fn releases() -> Held {
    lock(File::lock_shared).await
}

/// For a new namespace, until it has only what it is to have: nothing is released meanwhile.
pub async fn alone() -> Held {
    lock(File::lock).await
}

async fn lock(how: fn(&File) -> std::io::Result<()>) -> Held {
    let wait = move || {
        let file = File::create(env::temp_dir().join("berth-tests-releases.lock")).unwrap();
        how(&file).unwrap();
        Held(file)
    };
    tokio::task::spawn_blocking(wait).await.unwrap()
}

/// What runs a program in a mount namespace of its own, which keeps of the tests' mounts those
/// below `own`.
pub fn wrapper(propagation: &str, own: &Path) -> Vec<String> {
    let own = own.to_str().unwrap().to_owned();
    let fixed =
        ["unshare", "--mount", "--propagation", propagation, "sh", "-c", LEAVE_OTHERS, "sh"];
    fixed.map(str::to_owned).into_iter().chain([own]).collect()
}

/// The same, for a shell script.
pub fn shell(name: &str, log: &Path, propagation: &str, own: &Path, script: &str) -> Program {
    let line = wrapper(propagation, own);
    Program::new(name, &line[0], log).args(&line[1..]).args(["sh", "-c", script])
}
