//! Deleted records stay deleted and leave the bus for good, whichever process is killed.

use std::time::Duration;

use berth_contract::bucket::{self, BucketSpec};
use berth_harness::nats::raw;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use serde_json::{Map, Value, json};

use super::flow::PATIENCE;
use super::sweep;

/// A bucket's subjects that contain the name, and the number of messages on each.
async fn message_counts(system: &System, spec: &BucketSpec, name: &str) -> Value {
    let subject = format!("$JS.API.STREAM.INFO.KV_{}", spec.name);
    let all = json!({"subjects_filter": ">"}).to_string();
    let mut info = raw::ask(&system.servers()[0], &subject, &[], all.as_bytes()).await;
    let mut subjects = info["state"]["subjects"].take();
    if let Some(subjects) = subjects.as_object_mut() {
        subjects.retain(|subject, _| subject.contains(name));
    }
    subjects
}

async fn await_purged(system: &System, spec: &BucketSpec, name: &str) {
    wait::until(&format!("{name} has left {}", spec.name), PATIENCE, async || {
        let counts = message_counts(system, spec, name).await;
        if counts.as_object().is_none_or(Map::is_empty) { Ok(()) } else { Err(counts) }
    })
    .await;
}

/// Claims and releases the volume once.
async fn use_once(system: &System, alloc: &str) {
    system.run(alloc, 0, "data").await;
    system.stop(alloc).await;
    system.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freed_claim_shows_its_steps_until_its_marker_is_old() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    use_once(&system, "a").await;
    let counts = message_counts(&system, &bucket::VOLUMES, ".claim.a").await;
    let steps = counts["$KV.berth-volumes.default.data.claim.a"].as_u64().unwrap();
    assert!(steps >= 4, "a grant, a release, its calls and a delete: {counts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_leaves_the_bus_whoever_is_killed() {
    if !or_skip("real mounts") {
        return;
    }
    let marker_ttl = Some(Duration::from_secs(1));
    let system = System::start(Options { nodes: 1, marker_ttl, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    for part in [Part::Nats, Part::Claim] {
        use_once(&system, "a").await;
        system.kill9_and_restart(part).await;
        // The last release stays until there is a newer write: the guard's head revision must not
        // decrease.
        use_once(&system, "b").await;
        await_purged(&system, &bucket::VOLUMES, ".claim.a").await;
        assert_eq!(system.claims("data").await.claims.len(), 0, "after {part:?} was killed");
        for alloc in ["a", "b"] {
            sweep::alloc(&system, alloc).await;
            await_purged(&system, &bucket::ALLOCS, &format!(".{alloc}")).await;
        }
    }
    // The volume, and the alloc that was registered again, are unchanged.
    use_once(&system, "a").await;
    system.kill9(Part::Agent(0));
    sweep::down(&system, "n1").await;
    sweep::node(&system, "n1").await;
    system.kill9_and_restart(Part::Registry).await;
    await_purged(&system, &bucket::NODES, ".n1").await;
    await_purged(&system, &bucket::PLUGINS, ".n1.").await;
    system.deregister("data", false).await.unwrap();
    await_purged(&system, &bucket::VOLUMES, ".data.").await;
    // No restart restores any of it.
    for part in [Part::Nats, Part::Claim, Part::Registry] {
        system.kill9_and_restart(part).await;
    }
    wait::until("the services answer again", PATIENCE, async || {
        let volumes = system.volumes().await.map_err(|problem| problem.to_string())?;
        let nodes = system.nodes().await.map_err(|problem| problem.to_string())?;
        assert_eq!((volumes.volumes.len(), nodes.nodes.len()), (0, 0));
        Ok::<_, String>(())
    })
    .await;
}
