//! The commands of the Makefile. Their packages are listed in one place, and printed where one is
//! missing; `make test` leaves no test binary out.

use std::os::unix::fs::symlink;
use std::process::Command;

use berth_tidy::repository::{files, root};
use cargo_metadata::MetadataCommand;

use crate::assert_none;

/// The only list of tools and packages.
const SETUP: &str = "deploy/setup";

/// Programs that the script itself calls, or that must stay in the path.
const PRESENT: [&str; 12] = [
    "bash",
    "env",
    "id",
    "awk",
    "sed",
    "sort",
    "head",
    "dirname",
    "timeout",
    "apt-cache",
    "apt-get",
    "gcc",
];

/// One command installs all missing packages, and is printed before anything is built.
#[test]
fn a_user_is_told_the_command_that_installs_what_is_missing() {
    let path = tempfile::tempdir().unwrap();
    for program in PRESENT {
        let at = ["/usr/bin", "/bin"].map(|dir| std::path::Path::new(dir).join(program));
        if let Some(at) = at.iter().find(|at| at.exists()) {
            symlink(at, path.path().join(program)).unwrap();
        }
    }
    // In a user namespace without a mapping, root becomes an unprivileged user too.
    let told = Command::new("/usr/bin/unshare")
        .args(["--user", "--", "/bin/bash"])
        .arg(root().join(SETUP))
        .arg("test")
        .env("PATH", path.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    if said.contains("unshare failed") {
        // The demo also needs user namespaces, and reports where the host has none.
        return;
    }
    assert_eq!(told.status.code(), Some(1), "{said}");
    let commands: Vec<&str> =
        said.lines().filter(|line| line.contains("apt-get install")).collect();
    let [command] = commands[..] else { panic!("not one command: {said}") };
    for package in ["git", "strace", "systemd", "docker-compose", "busybox-static"] {
        assert!(command.split(' ').any(|word| word == package), "{package} is missing: {said}");
    }
    assert!(!command.contains("jq"), "only test-peers needs jq: {said}");
    assert!(said.contains("as root"), "{said}");
}

#[test]
fn an_unknown_purpose_is_refused_with_those_there_are() {
    let told = Command::new(root().join(SETUP)).arg("everything").output().unwrap();
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert_eq!(told.status.code(), Some(1), "{said}");
    assert!(said.contains("demo lint test peers chaos bench"), "{said}");
}

/// A second list would be forgotten when the first one is extended.
#[test]
fn packages_are_listed_in_one_place() {
    let text = concat!("apt-get ", "install");
    let breaches = files().into_iter().filter(|file| {
        !file.is("md")
            && file.path != SETUP
            && !file.path.ends_with("it/setup.rs")
            && file.text.contains(text)
    });
    assert_none(breaches.map(|file| file.path).collect(), "packages are listed in deploy/setup");
}

/// A binary without a lane would never run.
#[test]
fn each_test_binary_has_a_lane() {
    let lanes = std::fs::read_to_string(root().join("tests/lanes.mk")).unwrap();
    let lanes = lanes.lines().find_map(|line| line.strip_prefix("LANES := ")).unwrap();
    let lanes: Vec<&str> = lanes.split(' ').chain(["it"]).collect();
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let targets = metadata.packages.into_iter().flat_map(|package| package.targets);
    let tests = targets.filter(cargo_metadata::Target::is_test);
    let without = tests.map(|test| test.name).filter(|name| !lanes.contains(&name.as_str()));
    assert_none(without.collect(), "a test binary is called `it`, or as a lane of tests/lanes.mk");
}
