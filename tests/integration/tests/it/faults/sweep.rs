//! Runs collector sweeps until the record in question is gone.

use std::fmt::Display;

use berth_contract::bucket;
use berth_contract::code::Code;
use berth_contract::message::collect::{Force, Kind};
use berth_contract::message::registry::NodeStatus;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_domain::plugin::NodeState;
use berth_domain::volume::State;
use berth_harness::wait;
use berth_integration::System;
use serde_json::{Value, json};

use super::flow::PATIENCE;

/// Releases an unwanted claim, as far as that is possible without a watcher.
pub async fn claims(system: &System, volume: &str) {
    sweep_until(system, &Force::default(), || async {
        let claims = system.claims(volume).await.claims;
        match claims.first() {
            Some(claim) if claim.state == State::Taken => Err(format!("{claim:?}")),
            _ => Ok(()),
        }
    })
    .await;
}

/// Has the collector remove the record of an ended alloc.
pub async fn alloc(system: &System, alloc: &str) {
    sweep_until(system, &without_grace(&[Kind::Allocs]), || forgotten(system, alloc)).await;
}

/// Whether the alloc has no record. The error is its status.
pub async fn forgotten(system: &System, alloc: &str) -> Result<(), String> {
    let subject = verb::AllocStatus::subject(&Namespace::default());
    match system.persist::<Value>(&subject, &json!({"id": alloc})).await {
        Err(problem) if problem.code == Code::NoSuchAlloc => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// Has the collector remove a down node and its plugin instances, in either order.
pub async fn node(system: &System, node: &str) {
    let replicas = if system.options.servers == 1 { 1 } else { 3 };
    let plugins = system.bus.bucket(&bucket::PLUGINS, replicas).await.unwrap();
    let of_node = format!(".instance.{node}.");
    sweep_until(system, &without_grace(&[Kind::Nodes, Kind::Plugins]), || async {
        let nodes = system.nodes().await.map_err(|problem| problem.to_string())?.nodes;
        let status = nodes.into_iter().find(|status| status.id.as_str() == node);
        let listed = plugins.list(">").await.map_err(|error| error.to_string())?;
        let mut keys = listed.entries.into_iter().map(|entry| entry.key);
        match (status, keys.find(|key| key.contains(&of_node))) {
            (None, None) => Ok(()),
            remaining => Err(format!("{remaining:?}")),
        }
    })
    .await;
}

/// Waits until the node's status is down.
pub async fn down(system: &System, node: &str) {
    wait::until(&format!("{node} is down"), PATIENCE, || async {
        let nodes = system.nodes().await.map_err(|problem| problem.to_string())?.nodes;
        let is_node = |status: &&NodeStatus| status.id.as_str() == node;
        match nodes.iter().find(is_node) {
            Some(status) if status.state == NodeState::Down => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

fn without_grace(kinds: &[Kind]) -> Force {
    Force { kinds: kinds.to_vec(), grace_ms: Some(0) }
}

async fn sweep_until<S: Display, C: Future<Output = Result<(), S>>>(
    system: &System,
    force: &Force,
    check: impl Fn() -> C,
) {
    wait::until("the record is collected", PATIENCE, || async {
        let swept = system.ask::<Value>(&verb::GcForce::subject(&()), force).await;
        check().await.map_err(|remaining| format!("{remaining}; {swept:?}"))
    })
    .await;
}
