//! Each sample of `docs/inspect.md` is reproduced and compared with the output.
//!
//! Times, ids of attempts, process ids and paths differ from run to run, and count as equal. `…` in
//! a sample matches any text.

mod page;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command};
use std::time::Duration;

use berth_bus::{Bus, Call};
use berth_harness::{root, wait};
use berth_service::clock;
use nix::sys::signal::Signal;
use page::{Sample, samples};
use serde_json::{Value, json};

use crate::system::{SOON, System, signal};

/// Samples that need more than one machine's `berth dev`, and the tests that reproduce them.
const ELSEWHERE: [&str; 2] = [
    // Two of three servers away: `berth-integration`, `reads`.
    "berth volume status v --timeout 5s",
    // The disk of nats-server is full: `berth-integration`, `full_disk`.
    "berth claim status --volume data",
];

/// The commands whose samples the tests below reproduce.
const HERE: [&str; 14] = [
    "berth why ref",
    "berth why holder",
    "berth why next",
    "berth claim status --volume ref",
    "berth trace ref/r1",
    "berth claim status --volume line",
    "berth claim status --volume hung",
    "berth claim status --volume nfs",
    "berth plugin status",
    "berth plugin status dev.berth",
    "berth node status",
    "berth claim status --volume gone",
    "berth claim status --volume w",
    "berth claim status --timeout 3s",
];

#[test]
fn every_sample_of_a_command_is_made_to_happen() {
    let page_samples = samples();
    for sample in page_samples.iter().filter(|sample| sample.command.starts_with("berth ")) {
        let command = sample.command.as_str();
        let is_reproduced = HERE.contains(&command) || ELSEWHERE.contains(&command);
        assert!(is_reproduced || sample.lines.is_empty(), "no test makes `{command}` print this");
    }
    for command in HERE.into_iter().chain(ELSEWHERE) {
        assert!(
            page_samples.iter().any(|sample| sample.command == command),
            "`{command}` is not shown"
        );
    }
}

/// The sample of a command.
fn sample(command: &str) -> Sample {
    assert!(HERE.contains(&command), "{command} is not listed");
    samples().into_iter().find(|sample| sample.command == command).unwrap()
}

/// Waits until the command prints what the page shows.
async fn appears(system: &System, command: &str) {
    let sample = sample(command);
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    wait::until(&format!("`{command}` prints what docs/inspect.md shows"), SOON, async || {
        let ran = system.berth(&words);
        sample.missing(&format!("{}{}", ran.out, ran.err))
    })
    .await;
}

/// Waits until the commands together print what a block without a command shows.
async fn block_appears(system: &System, begins: &str, commands: &[&[&str]]) {
    let sample = page::block(begins);
    wait::until(&format!("the block {begins:?} appears"), SOON, async || {
        let printed: Vec<String> = commands.iter().map(|words| system.berth(words).out).collect();
        sample.missing(&printed.concat())
    })
    .await;
}

/// Compares the page's `nats micro info` of a controller with the service's answer. The host is in
/// the id and in the metadata, and the data has the fields that the page shows.
async fn statistics_look_so(system: &System) {
    let page = page::json("{\"errors\": {\"BERTH0004\"");
    let bus = Bus::connect(system.bus_config("samples")).await.unwrap();
    wait::until("the statistics look as the page shows", SOON, async || {
        let call = Call::within(clock::begin_trace(), Duration::from_secs(2));
        let answer = bus.request("$SRV.STATS.berth-controller", &json!({}), &call).await;
        let stats: Value = answer.map_err(|error| error.to_string())?;
        let wrong = || format!("{stats:#}");
        let node = stats["metadata"]["node"].as_str().ok_or_else(wrong)?;
        let id = stats["id"].as_str().ok_or_else(wrong)?;
        let endpoints = stats["endpoints"].as_array().ok_or_else(wrong)?;
        let hung = endpoints.iter().find(|endpoint| {
            let error = endpoint["last_error"].as_str().unwrap_or_default();
            error.starts_with("BERTH0207:controller.publish: plugin dev.berth has not answered an")
        });
        let fields = |data: &Value| data.as_object().map(|data| data.keys().cloned().collect());
        let is_so = hung.is_some_and(|hung| {
            let (shown, is): (Option<BTreeSet<String>>, _) = (fields(&page), fields(&hung["data"]));
            shown.is_some() && shown == is
        });
        let is_named = id.starts_with(&format!("{node}-dev_berth-"));
        if is_so && is_named { Ok(()) } else { Err(wrong()) }
    })
    .await;
    bus.drain(Duration::from_secs(1)).await;
}

/// `nats sub` prints an event as `berth events --json` does.
fn an_event_looks_so(system: &System) {
    let shown = page::json("{\"event\":\"claim.failed\"");
    let ran = system.berth(&["events", "--volume", "gone", "--json"]);
    let mut events = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let failed = events.find(|event| event["event"] == "claim.failed").unwrap();
    for field in shown.as_object().unwrap().keys() {
        assert!(failed.get(field).is_some(), "no {field} in {failed}");
    }
    let detail = failed["detail"].as_str().unwrap();
    assert!(detail.starts_with("agent.detach: the agent of node n2"), "{failed}");
    assert_eq!(shown["service"], failed["service"]);
}

fn plant(system: &System, faults: &Value) {
    fs::write(system.state("faults.json"), faults.to_string()).unwrap();
}

fn pid(system: &System, name: &str) -> u32 {
    let process_entry = system.processes().into_iter().find(|(process, _)| process == name);
    u32::try_from(process_entry.unwrap().1).unwrap()
}

fn run<'a>(node: &'a str, alloc: &'a str, volume: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let run = ["run", "--node", node, "--alloc", alloc, "--volume", volume];
    [&run[..], more].concat()
}

/// Ends a run that the test no longer needs.
fn end(mut run: Child) {
    signal(run.id(), Signal::SIGTERM);
    run.wait().unwrap();
}

#[tokio::test]
async fn claims_that_hang_or_wait_look_as_the_page_shows() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(2).await;
    for volume in ["ref", "line", "hung", "nfs"] {
        system.volume(volume, "single-node-writer");
    }
    let refuses = json!({"rpc": "ControllerUnpublishVolume", "volume": "ref",
        "code": "FAILED_PRECONDITION"});
    let hangs = |rpc: &str, volume: &str| json!({"rpc": rpc, "volume": volume, "hang": true});
    let attach = hangs("ControllerPublishVolume", "hung");
    let stage = hangs("NodeStageVolume", "nfs");
    plant(&system, &json!([refuses, attach, stage]));

    // The storage refuses, and a worker is killed meanwhile.
    let behind = ["--no-wait-release", "--", "true"];
    let ran = system.berth(&run("n2", "r1", "ref", &behind));
    assert_eq!(ran.code, 0, "{ran:?}");
    appears(&system, "berth why ref").await;
    appears(&system, "berth claim status --volume ref").await;
    block_appears(
        &system,
        "    last error: controller.unpublish: ControllerUnpublish",
        &[&["claim", "status", "--volume", "ref"]],
    )
    .await;
    signal(pid(&system, "volumewatcher"), Signal::SIGKILL);
    appears(&system, "berth trace ref/r1").await;

    // A claim in the queue.
    let holder = system.spawn(&run("n1", "holder", "line", &["--", "sleep", "600"]));
    system.claims_become("line", &["taken holder"]).await;
    let next_run = system.spawn(&run("n2", "next", "line", &["--wait", "--", "true"]));
    system.claims_become("line", &["taken holder", "waiting next"]).await;
    appears(&system, "berth why holder").await;
    appears(&system, "berth why next").await;
    appears(&system, "berth claim status --volume line").await;

    // A plugin that hangs in an attach: the status of a node names the host.
    let hung = system.spawn(&run("n1", "hung1", "hung", &["--", "true"]));
    appears(&system, "berth claim status --volume hung").await;
    let nodes: &[&[&str]] = &[&["node", "status", "n1"], &["node", "status", "n2"]];
    block_appears(&system, "under way for what is not mounted here:", nodes).await;

    statistics_look_so(&system).await;

    // A plugin that hangs in a mount.
    let mounts = system.spawn(&run("n1", "m1", "nfs", &["--", "true"]));
    appears(&system, "berth claim status --volume nfs").await;

    plant(&system, &json!([]));
    for run in [hung, next_run, holder, mounts] {
        end(run);
    }
    for volume in ["ref", "line", "hung", "nfs"] {
        system.claims_become(volume, &[]).await;
    }
    system.stop().await;
}

#[tokio::test]
async fn a_plugin_that_is_down_looks_as_the_page_shows() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(2).await;
    for volume in ["pd", "new"] {
        system.volume(volume, "single-node-writer");
    }
    let held = system.spawn(&run("n1", "p1", "pd", &["--", "sleep", "600"]));
    system.claims_become("pd", &["taken p1"]).await;
    let down = |rpc: &str| json!({"rpc": rpc, "code": "UNAVAILABLE"});
    plant(&system, &json!([down("GetPluginInfo"), down("Probe")]));
    appears(&system, "berth plugin status").await;
    appears(&system, "berth plugin status dev.berth").await;

    let mut begins = system.spawn(&run("n1", "later", "new", &["--", "true"]));
    let block = page::block("claim.take: the plugin cannot serve the volume there");
    let printed_lines = BufReader::new(begins.stderr.take().unwrap()).lines();
    let mut printed_lines = printed_lines.map(Result::unwrap).map(|line| {
        // The step follows the time.
        line.trim().split_once(": ").map(|(_, rest)| rest.to_owned()).unwrap_or_default()
    });
    assert!(printed_lines.any(|line| block.missing(&line).is_ok()), "{block:?}");
    end(begins);

    end(held);
    let status: &[&[&str]] = &[&["claim", "status", "--volume", "pd"]];
    block_appears(&system, "pd      p1", status).await;
    plant(&system, &json!([]));
    system.claims_become("pd", &[]).await;
    system.claims_become("new", &[]).await;
    system.stop().await;
}

#[tokio::test]
async fn samples_of_absent_services_match_the_page() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(2).await;
    for volume in ["gone", "w"] {
        system.volume(volume, "single-node-writer");
    }
    // A node whose agent is stopped.
    let held = system.spawn(&run("n2", "g1", "gone", &["--no-wait-release", "--", "sleep", "600"]));
    system.claims_become("gone", &["taken g1"]).await;
    let agent = pid(&system, "agent-n2");
    signal(agent, Signal::SIGSTOP);
    end(held);
    appears(&system, "berth node status").await;
    appears(&system, "berth claim status --volume gone").await;
    an_event_looks_so(&system);
    signal(agent, Signal::SIGCONT);
    system.claims_become("gone", &[]).await;

    // The volumewatcher is stopped.
    let watcher = pid(&system, "volumewatcher");
    signal(watcher, Signal::SIGSTOP);
    let ran = system.berth(&run("n1", "w1", "w", &["--no-wait-release", "--", "true"]));
    assert_eq!(ran.code, 0, "{ran:?}");
    appears(&system, "berth claim status --volume w").await;
    signal(watcher, Signal::SIGCONT);
    system.claims_become("w", &[]).await;

    // The bus is stopped.
    let server = pid(&system, "nats-server");
    signal(server, Signal::SIGSTOP);
    appears(&system, "berth claim status --timeout 3s").await;
    signal(server, Signal::SIGCONT);
    system.claims_become("w", &[]).await;
    system.stop().await;
}

/// The stock `nats` CLI, where this machine has it: what it prints of our records and statistics.
#[tokio::test]
async fn the_nats_cli_prints_what_the_page_shows() {
    let Some(nats) = nats_cli() else { return };
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(1).await;
    system.volume("h", "single-node-writer");
    let unmount = json!({"rpc": "NodeUnpublishVolume", "volume": "h", "hang": true});
    plant(&system, &json!([unmount]));
    let ran = system.berth(&run("n1", "h1", "h", &["--no-wait-release", "--", "true"]));
    assert_eq!(ran.code, 0, "{ran:?}");
    let page_samples = samples();
    let command = "nats kv get berth-volumes default.h.claim.h1";
    let shown = page_samples.iter().find(|sample| sample.command == command).unwrap();
    wait::until("the record looks as the page shows", SOON, async || {
        let mut get = Command::new(&nats);
        get.envs(system.nats_variables()).args(["kv", "get", "berth-volumes"]);
        let printed = get.arg("default.h.claim.h1").output().unwrap();
        shown.missing(&String::from_utf8_lossy(&printed.stdout))
    })
    .await;
    plant(&system, &json!([]));
    system.claims_become("h", &[]).await;
    system.stop().await;
}

/// In the path, or in the directory that `BERTH_NATS_CLI` names.
fn nats_cli() -> Option<std::path::PathBuf> {
    let dirs = [std::env::var("BERTH_NATS_CLI"), std::env::var("PATH")];
    let dirs = dirs.into_iter().flatten().collect::<Vec<_>>().join(":");
    let found_cli =
        std::env::split_paths(&dirs).map(|dir| dir.join("nats")).find(|nats| nats.is_file());
    if found_cli.is_none() {
        eprintln!("skipped: no `nats` CLI in PATH nor in the directory BERTH_NATS_CLI");
    }
    found_cli
}
