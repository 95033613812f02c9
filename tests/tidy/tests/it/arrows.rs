//! The dependencies between crates: arrows point down only.

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

use crate::assert_none;

const HARNESS: &str = "berth-harness";
const HOST: &str = "berth-host";
const VERSION: &str = "berth-version";

const ALL_SHARED: &[&str] = &[
    "berth-domain",
    "berth-durable",
    "berth-host",
    "berth-version",
    "berth-contract",
    "berth-telemetry",
    "berth-bus",
    "berth-client",
    "berth-access",
    "berth-csi",
    "berth-explain",
    "berth-service",
];

/// Each crate of the workspace, and the workspace crates that it may use. Its tests may also use
/// the harness.
const MAY_USE: &[(&str, &[&str])] = &[
    ("berth-domain", &[]),
    // This crate knows the kernel and nothing of Berth: drivers, tests and judges may use it as
    // well.
    (HOST, &[]),
    (VERSION, &[]),
    ("berth-contract", &["berth-domain"]),
    ("berth-telemetry", &["berth-domain", "berth-contract"]),
    ("berth-bus", &["berth-domain", HOST, "berth-contract", "berth-telemetry"]),
    // This crate is for any client of the bus: it does not know how our services are run.
    ("berth-client", &["berth-domain", "berth-contract", "berth-bus"]),
    // This crate is pure: its callers gather the facts, and print the finding.
    ("berth-explain", &["berth-domain", "berth-contract"]),
    // Identities are made offline, on a machine without a bus.
    ("berth-access", &["berth-domain", "berth-contract"]),
    ("berth-csi", &["berth-domain", HOST, "berth-contract", "berth-telemetry"]),
    ("berth-durable", &[]),
    (
        "berth-service",
        &["berth-domain", HOST, VERSION, "berth-contract", "berth-telemetry", "berth-bus"],
    ),
    ("berth-claim", ALL_SHARED),
    ("berth-plugin-registry", ALL_SHARED),
    ("berth-volumewatcher", ALL_SHARED),
    ("berth-gc", ALL_SHARED),
    ("berth-node-agent", ALL_SHARED),
    ("berth-docker", ALL_SHARED),
    ("berth-cli", ALL_SHARED),
    // The judge reads logs, and must not be built from the driver that writes them.
    ("berth-judge", &["berth-csi"]),
    // It stands in front of any driver, and knows none. The judge is only a command of its program.
    ("berth-csi-proxy", &["berth-csi", "berth-judge", HOST, VERSION]),
    // This crate represents a storage vendor's driver, which knows CSI and nothing of Berth. The
    // proxy is built in before it: one process to start, and to kill. Its tests ask the judge.
    ("berth-csi-dev", &["berth-csi", "berth-csi-proxy", "berth-judge", HOST, VERSION]),
    // The man pages are made from the command lines of all programs.
    (
        "berth-manual",
        &[
            "berth-contract",
            "berth-service",
            "berth-cli",
            "berth-csi-dev",
            "berth-csi-proxy",
            VERSION,
        ],
    ),
    // The harness judges the others, so it must not be built from them.
    (HARNESS, &[HOST]),
    ("berth-tidy", &[]),
    // The model calls the claim service's own decisions about handles.
    (
        "berth-model",
        &["berth-domain", "berth-contract", "berth-bus", "berth-service", "berth-claim"],
    ),
    (
        "berth-integration",
        &[
            "berth-domain",
            "berth-contract",
            "berth-bus",
            "berth-access",
            "berth-client",
            "berth-csi",
            "berth-service",
            HOST,
            HARNESS,
        ],
    ),
    (
        "berth-conformance",
        &[
            "berth-domain",
            "berth-contract",
            "berth-bus",
            "berth-access",
            "berth-client",
            "berth-integration",
            HARNESS,
        ],
    ),
    ("berth-docker-tests", &["berth-integration", HOST, HARNESS]),
    (
        "berth-bench",
        &["berth-domain", "berth-contract", "berth-bus", "berth-access", "berth-client", HARNESS],
    ),
    // A thousand agents that run the agent's own code.
    (
        "berth-fleet",
        &[
            "berth-domain",
            "berth-contract",
            "berth-bus",
            "berth-access",
            "berth-csi",
            "berth-service",
            "berth-node-agent",
            VERSION,
        ],
    ),
    (
        "berth-chaos",
        &["berth-domain", "berth-contract", "berth-bus", "berth-access", "berth-service", HARNESS],
    ),
];

/// External crates that only one of our crates may use, or few.
const KEPT_BEHIND: &[(&str, &[&str])] = &[
    // The harness talks to servers without the crate that it judges.
    ("async-nats", &["berth-bus", HARNESS]),
    ("procfs", &[HOST]),
    ("rustix", &[HOST]),
    ("fjall", &["berth-durable"]),
    ("opentelemetry", &["berth-telemetry"]),
    ("opentelemetry-http", &["berth-telemetry"]),
    ("opentelemetry-otlp", &["berth-telemetry"]),
    ("opentelemetry-prometheus", &["berth-telemetry"]),
    // The harness's collector receives what other processes send.
    ("opentelemetry-proto", &[HARNESS]),
    ("opentelemetry_sdk", &["berth-telemetry"]),
    ("prometheus", &["berth-telemetry"]),
    ("rcgen", &["berth-access"]),
    // `berth doctor` reads the certificates of servers.
    ("tokio-rustls", &["berth-cli"]),
    ("prost", &["berth-csi", "berth-csi-proxy", HARNESS]),
    ("tonic", &["berth-csi", "berth-csi-dev", "berth-csi-proxy", HARNESS]),
    ("tonic-prost", &["berth-csi"]),
];

/// Crates that pure crates may not use: no clock, no randomness, no I/O, no waiting.
const NOT_IN: &[(&str, &[&str])] = &[
    ("berth-domain", &["tokio", "futures-util", "rand", "nix", "tracing"]),
    ("berth-contract", &["tokio", "futures-util", "nix", "tracing"]),
    ("berth-explain", &["tokio", "futures-util", "rand", "nix", "tracing"]),
];

fn packages() -> Vec<Package> {
    let manifest = berth_tidy::repository::root().join("Cargo.toml");
    let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec().unwrap();
    metadata.packages
}

/// The row of a table with this key.
fn row<'a>(table: &[(&str, &'a [&'a str])], key: &str) -> Option<&'a [&'a str]> {
    table.iter().find(|(name, _)| *name == key).map(|(_, values)| *values)
}

#[test]
fn arrows_between_our_crates_point_down_only() {
    let mut breaches = Vec::new();
    for package in packages() {
        let Some(may_use) = row(MAY_USE, &package.name) else {
            breaches.push(format!("{} has no row in MAY_USE", package.name));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|d| d.name.starts_with("berth-")) {
            let in_tests = dependency.kind == DependencyKind::Development;
            let harness = in_tests && dependency.name == HARNESS;
            if !harness && !may_use.contains(&dependency.name.as_str()) {
                breaches.push(format!("{} uses {}", package.name, dependency.name));
            }
        }
    }
    assert_none(breaches, "arrows point down only (MAY_USE)");
}

#[test]
fn the_table_names_no_crate_that_is_gone() {
    let packages = packages();
    let gone = MAY_USE.iter().map(|(name, _)| *name);
    let gone = gone.filter(|name| !packages.iter().any(|package| package.name == *name));
    assert_none(gone.map(str::to_owned).collect(), "rows of MAY_USE without a crate");
}

#[test]
fn crates_from_outside_stay_behind_ours() {
    let mut breaches = Vec::new();
    for package in packages() {
        for dependency in &package.dependencies {
            let owners = row(KEPT_BEHIND, &dependency.name);
            if owners.is_some_and(|owners| !owners.contains(&package.name.as_str())) {
                breaches.push(format!("{} uses {}", package.name, dependency.name));
            }
        }
    }
    assert_none(breaches, "only its owner may use a crate that is kept behind it (KEPT_BEHIND)");
}

#[test]
fn pure_crates_stay_pure() {
    let mut breaches = Vec::new();
    for package in packages() {
        let forbidden = row(NOT_IN, &package.name).unwrap_or_default();
        for dependency in &package.dependencies {
            let ships = dependency.kind != DependencyKind::Development;
            if ships && forbidden.contains(&dependency.name.as_str()) {
                breaches.push(format!("{} uses {}", package.name, dependency.name));
            }
        }
    }
    assert_none(breaches, "pure crates do without clocks, chance, IO and waiting (NOT_IN)");
}

#[test]
fn every_version_and_feature_is_said_once_in_the_root() {
    let mut breaches = Vec::new();
    for file in berth_tidy::repository::files() {
        if file.path == "Cargo.toml" || !file.path.ends_with("Cargo.toml") {
            continue;
        }
        let mut in_dependencies = false;
        for line in file.text.lines() {
            if let Some(section) = line.strip_prefix('[') {
                in_dependencies = section.ends_with("dependencies]");
            } else if in_dependencies && line.contains('=') && !line.contains("workspace = true") {
                breaches.push(format!("{}: {line}", file.path));
            }
        }
    }
    assert_none(breaches, "dependencies are taken from the workspace");
}
