//! Configuration: the shipped samples are valid. A bad one is refused with every fault at once and
//! exit code 64, and nothing starts.

use std::process::{Command, Output};

use berth_harness::dirs::Dir;
use berth_harness::process::binary;
use berth_harness::repository;

const SERVICES: [&str; 6] =
    ["claim", "plugin-registry", "volumewatcher", "gc", "node-agent", "docker"];

fn check(service: &str, file: &std::path::Path) -> Output {
    Command::new(binary(&format!("berth-{service}")))
        .arg("--check-config")
        .arg("--config")
        .arg(file)
        .output()
        .unwrap()
}

#[test]
fn every_sample_is_good_and_every_service_has_one() {
    let samples = repository().join("deploy/config");
    for service in SERVICES {
        let checked = check(service, &samples.join(format!("{service}.toml")));
        assert!(checked.status.success(), "{service}: {checked:?}");
    }
    let shipped = std::fs::read_dir(samples).unwrap().count();
    assert_eq!(shipped, SERVICES.len(), "a sample that no service reads");
}

#[test]
fn a_bad_file_is_refused_with_every_fault_and_its_line() {
    let dir = Dir::new("config");
    let file = dir.join("bad.toml");
    let text = "colour = 'red'\n[nats]\nreplicas = 2\nurls = 'x'\n[log]\nformat = 'xml'\n";
    std::fs::write(&file, text).unwrap();
    for service in SERVICES {
        let checked = check(service, &file);
        assert_eq!(checked.status.code(), Some(64), "{service}: {checked:?}");
        let printed = String::from_utf8(checked.stderr).unwrap();
        for fault in [
            "line 1: `colour`",
            "line 3: `nats.replicas`",
            "line 4: `nats.urls`",
            "line 6: `log.format`",
        ] {
            assert!(printed.contains(fault), "{service} does not name {fault}: {printed}");
        }
    }
}

#[test]
fn what_is_no_file_or_no_toml_is_refused() {
    let dir = Dir::new("config");
    let file = dir.join("bad.toml");
    std::fs::write(&file, "url = \"a\n[[[").unwrap();
    for service in SERVICES {
        for path in [&file, &dir.join("none.toml")] {
            assert_eq!(check(service, path).status.code(), Some(64), "{service} {path:?}");
        }
    }
}
