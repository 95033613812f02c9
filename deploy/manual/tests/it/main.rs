//! The man pages, as they are packaged.

use std::collections::BTreeSet;
use std::fs;

/// Every program has a page, and so has every command of `berth`.
#[test]
fn every_program_and_every_command_has_a_page() {
    let directory = tempfile::tempdir().unwrap();
    berth_manual::write_pages(directory.path()).unwrap();
    let files = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name());
    let pages: BTreeSet<String> = files.map(|name| name.into_string().unwrap()).collect();
    for page in [
        "berth.1",
        "berth-volume-register.1",
        "berth-run.1",
        "berth-csi-dev.1",
        "berth-csi-dev-judge.1",
        "berth-csi-proxy-serve.1",
        "berth-claim.8",
        "berth-plugin-registry.8",
        "berth-volumewatcher.8",
        "berth-gc.8",
        "berth-node-agent.8",
        "berth-docker.8",
    ] {
        assert!(pages.contains(page), "{page} is missing: {pages:?}");
    }
    let claim = fs::read_to_string(directory.path().join("berth-claim.8")).unwrap();
    assert!(claim.contains("check\\-config") && claim.contains("64 bad configuration"), "{claim}");
}
