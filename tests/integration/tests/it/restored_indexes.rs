//! A bucket is restored from a backup while services run. What the claim service finds in its
//! indexes is then what the backup has, and what a service finds that was started afterwards.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::claim::Grant;
use berth_contract::verb::{self, Verb};
use berth_domain::Namespace;
use berth_harness::dirs::Dir;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, Part, System};
use berth_service::clock;
use serde_json::{Value, json};

use crate::restored::admin_done;

const PATIENCE: Duration = Duration::from_secs(90);
/// The fields of an answer that follow from records alone.
const FIELDS: [&str; 7] = ["id", "namespace", "volume", "alloc", "node", "state", "used"];

/// The owner of all allocs.
const OWNER: &str = "team";

/// A list of the claim service, cut down to [`FIELDS`].
async fn list<V: Verb<To = Namespace>>(
    system: &System,
    (of, query): (&str, Value),
) -> Result<Value, String> {
    let answer: Result<Value, _> = system.ask(&V::subject(&Namespace::default()), &query).await;
    let answer = answer.map_err(|problem| problem.to_string())?;
    assert!(answer["next"].is_null(), "it fits on a page: {answer}");
    let entries = answer[of].as_array().expect("a list").iter().map(|entry| {
        FIELDS.iter().filter_map(|field| Some((*field, entry.get(field)?.clone()))).collect()
    });
    Ok(json!({"query": query, of: entries.collect::<Vec<Value>>()}))
}

/// What the indexes say, each as a list.
async fn read_indexes(system: &System) -> Result<Vec<Value>, String> {
    let mut lists = Vec::new();
    for node in ["n1", "n2"] {
        let on = |list: &'static str| (list, json!({"node": node}));
        lists.push(list::<verb::ClaimStatus>(system, on("claims")).await?);
        lists.push(list::<verb::VolumeList>(system, on("volumes")).await?);
        lists.push(list::<verb::AllocList>(system, on("allocs")).await?);
    }
    let plugin = || json!({"plugin": PLUGIN});
    lists.push(list::<verb::VolumeList>(system, ("volumes", plugin())).await?);
    lists.push(list::<verb::ClaimStatus>(system, ("claims", plugin())).await?);
    let owned = ("allocs", json!({"owner": OWNER}));
    lists.push(list::<verb::AllocList>(system, owned).await?);
    let closing = ("volumes", json!({"closing": true}));
    lists.push(list::<verb::VolumeList>(system, closing).await?);
    let ended = ("allocs", json!({"forgettable_before": clock::now()}));
    lists.push(list::<verb::AllocList>(system, ended).await?["allocs"].take());
    lists.push(list::<verb::ClassList>(system, ("classes", json!({}))).await?);
    Ok(lists)
}

async fn place(system: &System, alloc: &str, node: &str, volume: &str) {
    let volumes = json!([{"source": volume}]);
    let register = json!({"id": alloc, "node": node, "volumes": volumes, "owner": OWNER});
    let subject = verb::AllocRegister::subject(&Namespace::default());
    system.persist::<Value>(&subject, &register).await.expect("the alloc is registered");
}

async fn stop(system: &System, alloc: &str) {
    let subject = verb::AllocStop::subject(&Namespace::default());
    let stop = json!({"id": alloc, "owner": OWNER});
    system.persist::<Value>(&subject, &stop).await.expect("the alloc is stopped");
}

async fn take(system: &System, alloc: &str, node: &str, volume: &str) {
    let subject = verb::ClaimTake::subject(&Namespace::default());
    let take = json!({"alloc": alloc, "volume": volume, "node": node});
    system.persist::<Grant>(&subject, &take).await.expect("the claim is granted");
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_agree_with_a_fresh_start_when_buckets_are_restored_under_a_running_service() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 2, ..Options::default() }).await;
    system.class("fast", json!({"quota_volumes": 2, "default_size": "1MiB"})).await.unwrap();
    system.created("kept", json!({"class": "fast"})).await;
    let claimed = [("a", "n1", "one"), ("b", "n2", "two"), ("c", "n1", "closing")];
    for (alloc, node, volume) in claimed {
        system.volume(volume, &["single-node-writer"]).await;
        place(&system, alloc, node, volume).await;
        take(&system, alloc, node, volume).await;
    }
    // The collector would forget what has ended.
    system.kill9(Part::Gc);
    // It is closing until its claim is gone.
    system.deregister("closing", true).await.unwrap();
    place(&system, "ended", "n2", "kept").await;
    stop(&system, "ended").await;
    let backup = Dir::new("backup");
    let dir = backup.path().to_str().expect("a path in UTF-8");
    let before = read_indexes(&system).await.unwrap();
    admin_done(&system, &["bus", "backup", dir]).await;

    // Each index gets an entry, and loses those of the backup.
    system.created("more", json!({"class": "fast"})).await;
    check_quota_is_full(&system).await;
    for (alloc, _, volume) in claimed {
        stop(&system, alloc).await;
        system.freed(volume).await;
        assert!(system.deregister(volume, true).await.unwrap().gone, "{volume} has no claim");
    }
    for (alloc, node, volume) in [("d", "n1", "three"), ("e", "n2", "four")] {
        system.volume(volume, &["single-node-writer"]).await;
        place(&system, alloc, node, volume).await;
        take(&system, alloc, node, volume).await;
    }
    system.deregister("four", true).await.unwrap();
    let changed = read_indexes(&system).await.unwrap();
    for (now, before) in changed.iter().zip(&before) {
        assert_ne!(now, before, "each list has changed");
    }

    admin_done(&system, &["bus", "restore", dir, "--yes"]).await;
    let agrees = async || {
        let now = read_indexes(&system).await?;
        if now == before { Ok(()) } else { Err(format!("{now:#?}\nand before {before:#?}")) }
    };
    wait::until("the running service has what the backup has", PATIENCE, agrees).await;
    system.kill9_and_restart(Part::Claim).await;
    wait::until("a restarted service has the same", PATIENCE, agrees).await;

    // The quota has room for one, and the watcher finds what to release.
    system.created("other", json!({"class": "fast"})).await;
    check_quota_is_full(&system).await;
    for (alloc, _, volume) in claimed {
        stop(&system, alloc).await;
        system.settle(volume).await;
    }
}

async fn check_quota_is_full(system: &System) {
    let refused = system.create("beyond", json!({"class": "fast"})).await.unwrap_err();
    assert_eq!(refused.code, Code::QuotaExceeded, "{refused}");
}
