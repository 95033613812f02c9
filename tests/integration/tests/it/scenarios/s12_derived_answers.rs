//! Derived answers are true: reads change nothing, a waiter wakes when its condition holds, and an
//! update loses no claim. (The registry's own tests check counts of plugin instances.)

use std::time::Duration;

use berth_contract::bucket;
use berth_contract::code::Code;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{SOON, lines, register};

/// The newest revision of each bucket.
async fn heads(system: &System) -> Vec<(&'static str, u64)> {
    let mut heads = Vec::new();
    // Leases are renewed all the time, so their bucket is left out.
    for spec in [&bucket::VOLUMES, &bucket::ALLOCS, &bucket::PLUGINS, &bucket::NODES] {
        let opened = system.bus.bucket(spec, 1).await.unwrap();
        heads.push((spec.name, opened.head(">").await.unwrap()));
    }
    heads
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_reads_change_nothing() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { secret: Some("s3"), ..Options::default() }).await;
    system.provision("data");
    let secrets = json!({"secrets": {"secret": "s3"}});
    register(&system, "data", &["multi-node-multi-writer"], secrets).await.unwrap();
    system.run("a", 0, "data").await;
    system.volume_status("data").await.unwrap();
    let before = wait::until("all is at rest", SOON, || async {
        let before = heads(&system).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        if heads(&system).await == before { Ok(before) } else { Err(format!("{before:?}")) }
    })
    .await;
    for namespace in [Namespace::default(), Namespace::new("*").unwrap()] {
        for (subject, body) in [
            (verb::VolumeStatus::subject(&namespace), json!({"id": "data"})),
            (verb::VolumeList::subject(&namespace), json!({})),
            (verb::ClaimStatus::subject(&namespace), json!({"volume": "data"})),
            (verb::AllocStatus::subject(&namespace), json!({"id": "a"})),
            (verb::AllocList::subject(&namespace), json!({})),
        ] {
            // Some records are absent in the namespace `*`: that is an answer, too.
            let _: Result<Value, _> = system.ask(&subject, &body).await;
        }
    }
    let (plugins, nodes) = (verb::PluginStatus::subject(&()), verb::NodeStatus::subject(&()));
    for subject in [plugins, nodes, verb::SecretKey::subject(&())] {
        let _: Value = system.ask(&subject, &json!({})).await.unwrap();
    }
    assert_eq!(heads(&system).await, before);
    // The secrets are unchanged: the next node mounts the volume with them.
    system.run("b", 1, "data").await;
    for alloc in ["a", "b"] {
        system.stop(alloc).await;
    }
    system.settle("data").await;
}

/// A waiter for an unregistered volume gets it after its registration.
#[tokio::test(flavor = "multi_thread")]
async fn s12_a_missing_volume_is_waited_for_and_found_within_a_second() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.provision("data");
    system.alloc("a", 0, "data", false).await;
    let refused = system.mount("a", 0, "data").await.unwrap_err();
    assert_eq!(refused.code, Code::NoSuchVolume, "a request without `wait` is refused: {refused}");
    let registered = async {
        // Longer than one request of the agent, so that the agent has retried meanwhile.
        tokio::time::sleep(Duration::from_millis(5_500)).await;
        register(&system, "data", &["single-node-writer"], json!({})).await.unwrap();
        Instant::now()
    };
    mounted_soon_after(&system, registered).await;
    system.stop("a").await;
    system.settle("data").await;
}

/// Checks that the waiter has the volume soon after `can_be_had` returns.
async fn mounted_soon_after(system: &System, can_be_had: impl Future<Output = Instant>) {
    let mounted = async { (system.mount_in_turn("a", 0, "data").await, Instant::now()) };
    let ((mounted, mounted_at), possible_since) = tokio::join!(mounted, can_be_had);
    mounted.unwrap();
    let took = mounted_at.saturating_duration_since(possible_since);
    // One second for the waiter to wake, and the time of the mount.
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// A waiter for an unhealthy plugin gets the volume when the plugin is healthy.
#[tokio::test(flavor = "multi_thread")]
async fn s12_an_unhealthy_plugin_is_waited_for() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.kill9(Part::Driver(0));
    wait::until("the plugin is unhealthy", SOON, || async {
        let plugins = system.plugins().await.map_err(|problem| problem.to_string())?;
        let healthy = plugins.plugins[0].nodes.healthy;
        if healthy == 0 { Ok(()) } else { Err(format!("{healthy} healthy")) }
    })
    .await;
    system.alloc("a", 0, "data", false).await;
    let mend = async {
        wait::until("the agent waits for the plugin", SOON, || async {
            let log = system.daemon(Part::Agent(0)).log();
            if log.contains("not granted yet") { Ok(()) } else { Err("the agent does not wait") }
        })
        .await;
        system.restart(Part::Driver(0));
        system.healthy().await;
        Instant::now()
    };
    mounted_soon_after(&system, mend).await;
    system.stop("a").await;
    system.settle("data").await;
}

/// Claims come and go during the slow validation of an update. The update is stored, and each claim
/// keeps its latest state.
#[tokio::test(flavor = "multi_thread")]
async fn s12_a_slow_update_loses_no_claim_and_brings_none_back() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { patience_ms: 20_000, ..Options::default() };
    let system = System::start(options).await;
    system.volume("data", &["multi-node-multi-writer"]).await;
    system.run("goes", 0, "data").await;
    system.run("stays", 1, "data").await;
    system.hold("ValidateVolumeCapabilities");
    let meanwhile = async {
        system.under_way("ValidateVolumeCapabilities").await;
        system.run("comes", 0, "data").await;
        system.stop("goes").await;
        wait::until("the claim of `goes` is gone", SOON, || async {
            let claims = system.claims("data").await.claims;
            let goes = claims.iter().any(|claim| claim.alloc.as_str() == "goes");
            if goes { Err(format!("{claims:?}")) } else { Ok(()) }
        })
        .await;
        let ended = lines(&system, "end", "ValidateVolumeCapabilities", "data").len();
        assert_eq!(ended, 1, "the update is still being validated");
        system.let_go();
    };
    // Of a change of the name alone, the plugin would not be asked.
    let changes = json!({"name": "anew", "capacity_bytes": 1_048_576});
    let update = register(&system, "data", &["multi-node-multi-writer"], changes);
    let (updated, ()) = tokio::join!(update, meanwhile);
    assert_eq!(updated.unwrap()["changed"], true);

    let status = system.volume_status("data").await.unwrap();
    assert_eq!(status.name, "anew");
    let claims: Vec<&str> = status.claims.iter().map(|claim| claim.alloc.as_str()).collect();
    assert_eq!(claims, ["comes", "stays"]);
    for alloc in ["comes", "stays"] {
        system.stop(alloc).await;
    }
    system.settle("data").await;
}
