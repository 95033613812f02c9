//! Twelve situations in which a storage orchestrator once failed its users. Each test runs real
//! processes and the development driver, and ends with the judge over the drivers' logs.
//!
//! `s02` (failover of a dead node by a proof) and `s03` (a removed node) are in
//! [`gone_nodes`](crate::gone_nodes).

mod s01_failed_workload;
mod s04_drain;
mod s05_agent_restart;
mod s06_transient_errors;
mod s07_takeover;
mod s08_slow_stop;
mod s09_flips;
mod s10_hung_call;
mod s11_operator;
mod s12_derived_answers;
mod s12_namespaces;

use std::process::Output;
use std::time::Duration;

use berth_contract::message::alloc::{AllocStatus, StopAlloc};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::alloc::AllocState;
use berth_domain::volume::State;
use berth_domain::{AllocId, Namespace};
use berth_harness::wait;
use berth_integration::System;
use serde_json::{Value, json};

/// How long a step may take that is not slowed on purpose.
const SOON: Duration = Duration::from_secs(20);

/// A random number below `bound`.
fn drawn(bound: usize) -> usize {
    berth_service::clock::jitter() as usize % bound
}

/// A time in a line of the log, in microseconds.
fn us(call: &Value, field: &str) -> u64 {
    call[field].as_u64().expect(field)
}

/// The log's lines of this kind (`begin`, `end`) of an RPC's calls about a volume, in order of
/// time.
fn lines(system: &System, entry: &str, rpc: &str, volume: &str) -> Vec<Value> {
    let matches_all =
        |call: &Value| call["entry"] == entry && call["rpc"] == rpc && call["volume_id"] == volume;
    system.calls().into_iter().filter(matches_all).collect()
}

/// How many calls of an RPC about a volume have begun.
fn begun(system: &System, rpc: &str, volume: &str) -> usize {
    lines(system, "begin", rpc, volume).len()
}

/// The RPCs about a volume that change anything, in the order in which they began.
fn changes(system: &System, volume: &str) -> Vec<String> {
    let calls = system.calls();
    let is_begun = |call: &&Value| call["entry"] == "begin" && call["volume_id"] == volume;
    let rpcs = calls.iter().filter(is_begun).filter_map(|call| call["rpc"].as_str());
    let is_change = |rpc: &&str| rpc.contains("ublishVolume") || rpc.contains("tageVolume");
    rpcs.filter(is_change).map(str::to_owned).collect()
}

/// Plants the same faults in every node's driver.
fn plant(system: &System, faults: &Value) {
    for node in 0..system.options.nodes {
        system.plant(node, faults);
    }
}

/// Reports how an alloc has ended.
async fn ended(system: &System, alloc: &str, state: AllocState) -> AllocStatus {
    let stop = StopAlloc::new(AllocId::new(alloc).unwrap(), state, None);
    let subject = verb::AllocStop::subject(&Namespace::default());
    system.persist(&subject, &stop).await.unwrap()
}

/// Waits until an alloc's claim on the volume is in this state.
async fn claim_is(system: &System, volume: &str, alloc: &str, state: State) {
    wait::until(&format!("{alloc} is {state}"), SOON, || async {
        let claims = system.claims(volume).await.claims;
        let is_in_state =
            claims.iter().any(|claim| claim.alloc.as_str() == alloc && claim.state == state);
        if is_in_state { Ok(()) } else { Err(format!("{claims:?}")) }
    })
    .await;
}

/// Registers a volume as `System::volume` does, with `fields` besides.
async fn register(
    system: &System,
    id: &str,
    access: &[&str],
    fields: Value,
) -> Result<Value, Problem> {
    let capability: Vec<Value> = access.iter().map(|mode| json!({"access": mode})).collect();
    let mut document = json!({"id": id, "plugin": "dev.berth", "capability": capability});
    for (name, value) in fields.as_object().unwrap() {
        document[name] = value.clone();
    }
    system.persist(&verb::VolumeRegister::subject(&Namespace::default()), &document).await
}

/// Sends a detach of a volume without a retry.
async fn detach(system: &System, volume: &str, node: &str) -> Result<Value, Problem> {
    let body = json!({"id": volume, "node": node});
    system.ask(&verb::VolumeDetach::subject(&Namespace::default()), &body).await
}

/// Runs `berth` to its end.
async fn berth(system: &System, args: &[&str]) -> Output {
    let mut command = system.berth();
    command.args(["--nats", &system.url()]).args(args).kill_on_drop(true);
    tokio::time::timeout(Duration::from_secs(60), command.output()).await.unwrap().unwrap()
}
