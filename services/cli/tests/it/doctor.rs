//! `berth doctor` on a real system, and without one.

use std::fs;
use std::time::{Duration, Instant};

use berth_access::directory::FilePlace;
use berth_access::host::Host;
use berth_access::{Directory, LocalFleet, Role};
use berth_domain::Timestamp;
use berth_harness::dirs::Dir;
use berth_harness::nats::{NatsOptions, NatsServers, Server};
use berth_harness::{root, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::berth::{Ran, berth, run_with};
use crate::system::{SOON, System};

/// The report, with its exit code.
fn report(ran: &Ran) -> (i32, Value) {
    let report = serde_json::from_str(&ran.out);
    (ran.code, report.unwrap_or_else(|error| panic!("{error}: {ran:?}")))
}

/// The findings of a check, as `severity where: what`.
fn findings(report: &Value, check: &str) -> Vec<String> {
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|entry| entry["check"] == check).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entries = check["findings"].as_array().unwrap().iter();
    entries
        .map(|finding| {
            assert!(!finding["next"].as_array().unwrap().is_empty(), "nothing to try: {finding}");
            format!(
                "{} {}: {}",
                text(&finding["severity"]),
                text(&finding["where"]),
                text(&finding["what"])
            )
        })
        .collect()
}

/// Waits until the doctor exits with this code and a finding of the check contains the text.
async fn finds(system: &System, code: i32, check: &str, text: &str) {
    wait::until(&format!("the doctor says {text:?}"), SOON, async || {
        let ran = system.berth(&["doctor", "--json"]);
        let (exit, report) = report(&ran);
        let lines = findings(&report, check);
        if exit == code && lines.iter().any(|line| line.contains(text)) {
            return Ok(());
        }
        Err(format!("exit code {exit}, {check}: {lines:?}"))
    })
    .await;
}

async fn is_well(system: &System) {
    wait::until("the doctor finds nothing", SOON, async || {
        let ran = system.berth(&["doctor"]);
        if ran.code == 0 { Ok(()) } else { Err(format!("{}{}", ran.out, ran.err)) }
    })
    .await;
}

fn pid(system: &System, name: &str) -> Pid {
    let processes = system.processes();
    let process = processes.iter().find(|(known, _)| known == name);
    Pid::from_raw(process.unwrap_or_else(|| panic!("no {name}: {processes:?}")).1)
}

/// Stops a process while this value exists: `berth dev` would restart a killed process.
struct Frozen(Pid);

impl Frozen {
    fn new(pid: Pid) -> Self {
        kill(pid, Signal::SIGSTOP).unwrap();
        Self(pid)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

#[tokio::test]
async fn the_doctor_finds_what_is_wrong_with_a_system() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(2).await;
    is_well(&system).await;
    let ran = system.berth(&["doctor"]);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines.len(), 15, "a heading and fourteen checks: {ran:?}");
    assert!(lines[1..].iter().all(|line| line.contains("✓ well")), "{ran:?}");
    assert!(ran.out.contains("JetStream is on") && ran.out.contains("2 ready"), "{ran:?}");
    let quiet = system.berth(&["doctor", "--quiet"]);
    assert_eq!((quiet.code, quiet.out.as_str()), (0, "nothing is wrong\n"), "{quiet:?}");

    // A service that does not answer.
    let watcher = Frozen::new(pid(&system, "volumewatcher"));
    finds(&system, 2, "services", "berth-volumewatcher is there and does not answer").await;
    let text = system.berth(&["doctor", "--quiet"]);
    assert_eq!(text.code, 2, "{text:?}");
    assert!(text.out.contains("✗ services: ") && text.out.contains("next: "), "{text:?}");
    drop(watcher);
    is_well(&system).await;

    // A plugin's process hangs on one node, so its probe is not answered.
    let driver = Frozen::new(pid(&system, "driver-n2"));
    finds(&system, 2, "plugins", "plugin dev.berth").await;
    drop(driver);
    is_well(&system).await;

    // A plugin has ended, and its socket is gone. A directory in its place prevents a restart.
    let socket = system.state("run/n2.sock");
    fs::remove_file(&socket).unwrap();
    fs::create_dir(&socket).unwrap();
    kill(pid(&system, "driver-n2"), Signal::SIGKILL).unwrap();
    finds(&system, 2, "plugins", "plugin dev.berth is unhealthy on node n2").await;
    fs::remove_dir(&socket).unwrap();
    is_well(&system).await;

    // A job expects one more instance: a warning.
    let expect = ["plugin", "expect", "dev.berth", "job"];
    let ran = system.berth(&[&expect[..], &["--controllers", "3"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    finds(&system, 1, "plugins", "2 of 3 controllers run").await;
    assert_eq!(system.berth(&expect).code, 0);
    is_well(&system).await;

    // The agent of a node does not answer, then its node is down and a claim is stuck because of
    // that.
    system.volume("data", "single-node-writer");
    let mut held = system.spawn(&["run", "--node", "n2", "--volume", "data", "--", "sleep", "600"]);
    wait::until("the volume is mounted", SOON, async || {
        let ran = system.berth(&["volume", "status", "data"]);
        if ran.out.contains("mounted") { Ok(()) } else { Err(ran.out) }
    })
    .await;
    let agent = Frozen::new(pid(&system, "agent-n2"));
    finds(&system, 2, "nodes", "the agent of node n2").await;
    finds(&system, 2, "nodes", "node n2 is down").await;
    kill(Pid::from_raw(i32::try_from(held.id()).unwrap()), Signal::SIGTERM).unwrap();
    finds(&system, 2, "claims", "unpublishing on n2: node n2 is down").await;
    drop(agent);
    held.wait().unwrap();
    system.claims_become("data", &[]).await;
    is_well(&system).await;
    system.stop().await;
}

#[test]
fn without_a_bus_the_doctor_says_so_and_is_quick() {
    let began = Instant::now();
    let ran = berth(&["--nats", "nats://127.0.0.1:1", "doctor", "--json"]);
    let (code, report) = report(&ran);
    assert_eq!(code, 2, "{ran:?}");
    assert!(findings(&report, "bus")[0].contains("no connection to nats-server"), "{ran:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    // A malformed address is a fault of the command line.
    let ran = berth(&["--nats", "http://127.0.0.1:1", "doctor"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
}

#[tokio::test]
async fn a_bus_without_services_is_a_fault_of_each() {
    let server = Server::start().await;
    let ran = berth(&["--nats", &server.url(), "doctor", "--json"]);
    let (code, report) = report(&ran);
    assert_eq!(code, 2, "{ran:?}");
    assert!(findings(&report, "bus").is_empty(), "{ran:?}");
    let services = findings(&report, "services").join("\n");
    for name in ["berth-claim", "berth-plugin-registry", "berth-volumewatcher", "berth-gc"] {
        assert!(services.contains(&format!("no {name} answers")), "{services}");
    }
    let streams = findings(&report, "streams");
    assert_eq!(streams.len(), 8, "{streams:?}");
    assert!(findings(&report, "nodes")[0].starts_with("warning node.status: not known"), "{ran:?}");
}

/// Starts a server whose fleet was made at this time. Returns also the variables with which `berth`
/// connects as an operator.
async fn start_fleet_of(made: Timestamp, dir: &Dir) -> (NatsServers, Vec<(&'static str, String)>) {
    let path = dir.join("access");
    Directory::create(&path, &[Host::parse("berth").unwrap()], &FilePlace::InDirectory, made)
        .unwrap();
    let fleet = LocalFleet::open(&path).unwrap();
    let extra = &fleet.server_config("berth").unwrap();
    let servers = NatsServers::start_with(1, NatsOptions { extra, ..NatsOptions::default() }).await;
    let creds = fleet.creds(&Role::Admin { name: "root".to_owned() }).unwrap();
    let variables = [
        ("BERTH_NATS_URL", servers.first().url()),
        ("BERTH_CREDS", creds.display().to_string()),
        ("BERTH_TLSCA", fleet.ca().display().to_string()),
        ("BERTH_INSECURE", "false".to_owned()),
    ];
    (servers, variables.to_vec())
}

#[tokio::test]
async fn ends_of_real_certificates_are_read_in_the_handshake() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let now = berth_service::clock::now();
    for (age, found) in [
        (1, None),
        // A server's certificate is valid for two years, an authority for ten.
        (2 * 365 - 10, Some("warning server 127.0.0.1:PORT: server 127.0.0.1:PORT expires in ")),
        (2 * 365 + 1, Some("fault server 127.0.0.1:PORT: server 127.0.0.1:PORT expired ")),
        (10 * 365 + 1, Some("fault authority 1 of CA: authority 1 of CA expired ")),
    ] {
        let dir = Dir::new("doctor");
        let (servers, variables) = start_fleet_of(now.before(DAY * age), &dir).await;
        let ran = run_with(&variables, &["doctor", "--json", "--timeout", "2s"], "");
        let (code, report) = report(&ran);
        assert_eq!(code, 2, "there are no services: {ran:?}");
        let lines = findings(&report, "expiry").join("\n");
        let lines = lines.replace(&servers.first().port().to_string(), "PORT");
        let lines = lines.replace(&variables[2].1, "CA");
        match found {
            None => assert_eq!(lines, "", "{ran:?}"),
            Some(expected) => assert!(lines.contains(expected), "{lines}\n{ran:?}"),
        }
    }
}
