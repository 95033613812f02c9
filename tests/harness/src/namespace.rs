//! Programs in mount namespaces of their own.
//!
//! Where the host's mounts are private, a new namespace copies them all, and for a moment really
//! holds the volumes of every test that runs beside this one.

use std::path::Path;

use crate::process::Program;

/// Unmounts what lies below the directories of other tests, then becomes the rest of the line.
const LEAVE_OTHERS: &str = r#"
own=${1%/}; shift
awk -v own="$own/" 'index($5, "/tmp/berth-") == 1 && index($5, own) != 1 { print $5 }' \
    /proc/self/mountinfo | sort -r | while read -r at; do umount --lazy "$(printf %b "$at")"; done
exec "$@""#;

/// What runs a program in a mount namespace of its own, which keeps of the tests' mounts those
/// below `own`.
pub fn wrapper(propagation: &str, own: &Path) -> Vec<String> {
    let own = own.to_string_lossy().into_owned();
    let fixed =
        ["unshare", "--mount", "--propagation", propagation, "sh", "-c", LEAVE_OTHERS, "sh"];
    fixed.map(str::to_owned).into_iter().chain([own]).collect()
}

/// The same, for a shell script.
pub fn shell(name: &str, log: &Path, propagation: &str, own: &Path, script: &str) -> Program {
    let line = wrapper(propagation, own);
    Program::new(name, &line[0], log).args(&line[1..]).args(["sh", "-c", script])
}
