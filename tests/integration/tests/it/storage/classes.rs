//! Classes: limits, namespaces, quotas, and volumes that are created at their first use.

use berth_contract::code::Code;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_domain::volume::storage::Stage;
use berth_harness::root::or_skip;
use berth_integration::{Options, System};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_class_bounds_what_is_made_from_it() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let fast = json!({
        "min_size": "1MiB", "max_size": "8MiB", "default_size": "2MiB",
        "quota_volumes": 2, "quota_size": "9MiB",
    });
    system.class("fast", fast.clone()).await.unwrap();
    assert!(!system.class("fast", fast).await.unwrap().changed, "a repetition changes nothing");
    system.class("theirs", json!({"namespaces": ["team-a"]})).await.unwrap();

    let of = |class: &str| json!({"class": class});
    let unknown = system.create("no", of("slow")).await.unwrap_err();
    assert_eq!(unknown.code, Code::NoSuchClass, "{unknown}");
    let closed = system.create("no", of("theirs")).await.unwrap_err();
    assert_eq!(closed.code, Code::NoSuchClass, "another namespace's class is unknown: {closed}");
    let large = json!({"class": "fast", "size": "9MiB"});
    let large = system.create("no", large).await.unwrap_err();
    assert_eq!(large.code, Code::ClassRefused, "{large}");
    assert!(large.next.contains("`berth class status fast`"), "{large:?}");

    system.created("one", of("fast")).await;
    let status = system.volume_status("one").await.unwrap();
    assert_eq!(status.capacity_bytes, Some(2 << 20));
    let beyond = json!({"class": "fast", "size": "8MiB"});
    let beyond = system.create("no", beyond).await.unwrap_err();
    assert_eq!(beyond.code, Code::QuotaExceeded, "{beyond}");
    system.created("two", of("fast")).await;
    let third = system.create("no", of("fast")).await.unwrap_err();
    assert_eq!(third.code, Code::QuotaExceeded, "{third}");
    let grown = system.expand("one", json!({"size": "8MiB"})).await.unwrap_err();
    assert_eq!(grown.code, Code::QuotaExceeded, "an expansion counts, too: {grown}");

    let subject = verb::ClassDelete::subject(&());
    let used = system.ask::<Value>(&subject, &json!({"id": "fast"})).await.unwrap_err();
    assert_eq!(used.code, Code::ClassInUse, "{used}");
    system.deleted("one").await;
    system.deleted("two").await;
    system.persist::<Value>(&subject, &json!({"id": "fast"})).await.unwrap();
    system.judge();
}

/// Of many creations at once, the quota admits exactly its number.
#[tokio::test(flavor = "multi_thread")]
async fn a_quota_holds_under_a_race() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, replicas: 2, ..Options::default() }).await;
    system.class("few", json!({"quota_volumes": 3})).await.unwrap();
    let ids: Vec<String> = (0..8).map(|number| format!("v{number}")).collect();
    let requests = ids.iter().map(|id| system.create(id, json!({"class": "few"})));
    let results = futures_util::future::join_all(requests).await;
    let created = results.iter().filter(|result| result.is_ok()).count();
    let refused = results.iter().filter_map(|result| result.as_ref().err());
    for refused in refused {
        assert_eq!(refused.code, Code::QuotaExceeded, "{refused}");
    }
    assert_eq!(created, 3);
}

/// A volume that is created at its first use is where its first claim is.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_claim_says_where_a_volume_is_created() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |node| vec!["--topology".to_owned(), format!("zone=z{}", node + 1)];
    let system = System::start(Options { driver, ..Options::default() }).await;
    system.class("late", json!({"topology_policy": "first-use"})).await.unwrap();
    system.create("data", json!({"class": "late", "size": "1MiB"})).await.unwrap();
    let storage = system.staged_as("data", Stage::Unused).await;
    assert!(storage.failure.is_none(), "{storage:?}");
    system.assert_known().await;
    let mounted = system.run("a", 1, "data").await;
    assert!(!mounted.path.is_empty());
    let status = system.volume_status("data").await.unwrap();
    let zones: Vec<&String> =
        status.topologies.iter().flat_map(|topology| topology.values()).collect();
    assert_eq!(zones, ["z2"], "{status:?}");
    system.stop("a").await;
    system.settle("data").await;
    system.deleted("data").await;
    system.assert_known().await;
    let listed: Value =
        system.persist(&verb::ClassList::subject(&Namespace::default()), &json!({})).await.unwrap();
    assert_eq!(listed["classes"][0]["id"], "late");
}
