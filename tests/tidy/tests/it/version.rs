//! What `deploy/version` says of a commit, a tag, changed files, and sources without git.

use std::fs;
use std::path::Path;
use std::process::Command;

use berth_tidy::repository::root;

/// The time of the commits here: 2026-11-28 12:34:56 UTC.
const COMMITTED: &str = "2026-11-28T12:34:56Z";

fn git(dir: &Path, args: &[&str]) {
    let done = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@b"])
        .args(args)
        .current_dir(dir)
        .env("GIT_COMMITTER_DATE", COMMITTED)
        .output()
        .unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A repository with one commit: the script, and what it reads.
fn repository() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("deploy")).unwrap();
    for file in ["deploy/version", "deploy/commit", ".gitattributes", "Cargo.toml"] {
        fs::copy(root().join(file), dir.path().join(file)).unwrap();
    }
    write_number(dir.path(), "0.3.0");
    git(dir.path(), &["init", "--quiet"]);
    git(dir.path(), &["add", "--all"]);
    git(dir.path(), &["commit", "--quiet", "--message=one"]);
    dir
}

fn write_number(dir: &Path, number: &str) {
    let text = format!("[workspace.package]\nversion = \"{number}\"\n[other]\nversion = \"9\"\n");
    fs::write(dir.join("Cargo.toml"), text).unwrap();
}

/// What the script prints in each form; none where it refuses.
fn told(dir: &Path) -> Option<[String; 3]> {
    let tell = |form: &str| {
        let said = Command::new(dir.join("deploy/version")).arg(form).output().unwrap();
        said.status.success().then(|| String::from_utf8(said.stdout).unwrap().trim().to_owned())
    };
    Some([tell("program")?, tell("debian")?, tell("image")?])
}

fn head(dir: &Path) -> String {
    let said = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(dir).output().unwrap();
    String::from_utf8(said.stdout).unwrap()[..8].to_owned()
}

fn is_newer(newer: &str, older: &str) -> bool {
    let args = ["--compare-versions", newer, "gt", older];
    Command::new("dpkg").args(args).status().unwrap().success()
}

/// As `git archive` hands sources out.
fn archive(dir: &Path) -> tempfile::TempDir {
    let sources = tempfile::tempdir().unwrap();
    let script =
        format!("git archive HEAD | tar --extract --directory {}", sources.path().display());
    let made = Command::new("bash").args(["-c", &script]).current_dir(dir).status().unwrap();
    assert!(made.success());
    sources
}

#[test]
fn a_version_names_the_commit_and_packages_sort_by_its_time() {
    let dir = repository();
    let hash = head(dir.path());
    let of_commit = [
        format!("0.3.0+g{hash}"),
        format!("0.3.0+20261128123456.g{hash}-1"),
        format!("0.3.0-g{hash}"),
    ];
    assert_eq!(told(dir.path()).unwrap(), of_commit);
    assert_eq!(told(archive(dir.path()).path()).unwrap(), of_commit, "without git");
    assert!(is_newer(&of_commit[1], "0.3.0-1"), "of the release before");
    assert!(is_newer("0.3.1-1", &of_commit[1]), "of the release after");

    fs::write(dir.path().join("deploy/commit"), "changed\n").unwrap();
    git(dir.path(), &["checkout", "--quiet", "deploy/commit"]);
    assert_eq!(told(dir.path()).unwrap(), of_commit, "changed, and restored");
    write_number(dir.path(), "0.3.1");
    let [program, debian, image] = told(dir.path()).unwrap();
    assert_eq!([program, image], [format!("0.3.1+g{hash}.dirty"), format!("0.3.1-g{hash}.dirty")]);
    assert!(is_newer(&debian, &of_commit[1]), "{debian}");
}

#[test]
fn a_tag_is_a_release_of_the_number_that_cargo_has() {
    let dir = repository();
    git(dir.path(), &["tag", "v0.3.0"]);
    let release = ["0.3.0", "0.3.0-1", "0.3.0"].map(str::to_owned);
    assert_eq!(told(dir.path()).unwrap(), release);
    assert_eq!(told(archive(dir.path()).path()).unwrap(), release, "without git");
    git(dir.path(), &["tag", "--delete", "v0.3.0"]);
    git(dir.path(), &["tag", "v0.4.0"]);
    assert_eq!(told(dir.path()), None);
}

#[test]
fn sources_that_know_no_commit_say_so() {
    let dir = repository();
    fs::remove_dir_all(dir.path().join(".git")).unwrap();
    let [program, debian, _] = told(dir.path()).unwrap();
    assert_eq!(program, "0.3.0+unknown");
    assert!(is_newer(&debian, "0.3.0-1"), "{debian}");
}
