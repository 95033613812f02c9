//! The second half of a delete: what is purged, what stays, and what a killed server restores.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_bus::{Bucket, PurgePosition};
use berth_contract::bucket::BucketSpec;
use berth_harness::nats::{Server, raw};
use berth_harness::wait;
use futures_util::future::join_all;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::support::{
    FLEETING, PATIENCE, STATE, agrees, connect, delete, is_conflict, messages, mirror, one_bucket,
    plain, put, set,
};

/// A bucket with history whose markers are soon old enough to be purged.
const BRIEF: BucketSpec = BucketSpec { name: "brief", marker_ttl: Duration::from_secs(1), ..STATE };

async fn deleted(bucket: &Bucket, key: &str, values: usize) -> u64 {
    let mut revision = bucket.head(key).await.unwrap();
    for value in 0..values {
        revision = bucket.commit(put(key, &value.to_string(), key, revision)).await.unwrap();
    }
    bucket.commit(delete(key, key, revision)).await.unwrap()
}

/// Purges until this many keys were purged.
async fn purge(bucket: &Bucket, place: &mut PurgePosition, mut keys: u64) {
    let purging = async {
        while keys > 0 {
            keys -= bucket.purge_deleted(place).await.unwrap();
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, purging).await.unwrap();
}

#[tokio::test]
async fn a_deleted_key_keeps_its_history_until_its_marker_is_old() {
    let (server, _bus, bucket) = one_bucket(&STATE).await;
    set(&bucket, "v.spec", "kept").await;
    let marker = deleted(&bucket, "v.claim", 2).await;
    let mut place = PurgePosition::default();
    for _ in 0..2 {
        assert_eq!(bucket.purge_deleted(&mut place).await.unwrap(), 0, "it is young");
    }
    let entry = bucket.get("v.claim").await.unwrap().unwrap();
    assert_eq!((entry.revision, entry.value), (marker, None));
    let keys: Vec<_> = messages(&server.url(), "state").await.into_iter().collect();
    let expected = ["v.spec", "v.claim", "v.claim", "v.claim"];
    assert_eq!(keys, (1..).zip(expected.map(str::to_owned)).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_marker_that_hides_a_value_does_not_expire_by_itself() {
    let (server, bus, bucket) = one_bucket(&BRIEF).await;
    let marker = deleted(&bucket, "v.claim", 1).await;
    // A marker that was stored later, and hides nothing, shows that there was time enough.
    let other = bus.bucket(&FLEETING, 1).await.unwrap();
    deleted(&other, "v.claim", 1).await;
    wait::until("the other marker expires", PATIENCE, async || {
        match other.get("v.claim").await.unwrap() {
            None => Ok(()),
            Some(_) => Err("it stands"),
        }
    })
    .await;
    assert_eq!(bucket.get("v.claim").await.unwrap().unwrap().revision, marker);
    assert_eq!(messages(&server.url(), "brief").await.len(), 2);
}

#[tokio::test]
async fn an_old_marker_goes_with_all_it_hides_and_nothing_else_does() {
    let (server, _bus, bucket) = one_bucket(&BRIEF).await;
    let followed = mirror(&bucket, "v.>").await;
    set(&bucket, "v.spec", "first").await;
    set(&bucket, "v.spec", "second").await;
    deleted(&bucket, "v.gone", 3).await;
    let marker = deleted(&bucket, "v.again", 3).await;
    // A key that was written again keeps the later value.
    bucket.commit(put("v.again", "anew", "v.again", marker)).await.unwrap();
    bucket.commit(put("v.again", "and again", "v.again", marker + 1)).await.unwrap();
    // More keys than one read has, with a marker at each end.
    let many: Vec<String> = (0..600).map(|count| format!("many.{count}")).collect();
    for some in many.chunks(100) {
        let writes = some.iter().map(|key| bucket.commit(put(key, key, key, 0)));
        assert!(join_all(writes).await.iter().all(Result::is_ok));
    }
    deleted(&bucket, "v.last", 1).await;
    let mut place = PurgePosition::default();
    purge(&bucket, &mut place, 3).await;
    let mut remaining: Vec<String> =
        messages(&server.url(), "brief").await.into_iter().map(|(_, key)| key).collect();
    remaining.retain(|key| !key.starts_with("many."));
    assert_eq!(remaining, ["v.spec", "v.spec", "v.again", "v.again"]);
    assert_eq!(bucket.list("many.>").await.unwrap().entries.len(), 600);
    // A follower has the same keys, and the next write is guarded by the last revision.
    agrees(&followed, &bucket, "v.>").await;
    assert_eq!(bucket.head("v.gone").await.unwrap(), 0);
    let last = bucket.head(">").await.unwrap();
    let newest = bucket.newest().await.unwrap();
    assert!(last < newest, "the head has fallen to {last}, and the newest revision not");
    bucket.commit(put("v.gone", "back", "v.gone", 0)).await.unwrap();
    assert_eq!(bucket.purge_deleted(&mut place).await.unwrap(), 0, "each is found once");
}

/// A guard over a subtree must not pass for a reader that missed a delete in it.
#[tokio::test]
async fn the_head_of_a_subtree_never_falls_to_an_earlier_revision() {
    const GUARDED: BucketSpec = BucketSpec { name: "guarded", guard_tokens: 1, ..BRIEF };
    let (server, _bus, bucket) = one_bucket(&GUARDED).await;
    set(&bucket, "v.spec", "1").await;
    let first_head = set(&bucket, "v.claim.b", "1").await;
    let marker = deleted(&bucket, "v.claim.a", 3).await;
    set(&bucket, "w.spec", "another subtree").await;
    let mut place = PurgePosition::default();
    let stored = async || messages(&server.url(), "guarded").await;
    let purge_to = async |place: &mut PurgePosition, count: usize| {
        let purging = async {
            while stored().await.len() > count {
                bucket.purge_deleted(place).await.unwrap();
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, purging).await.unwrap();
    };
    // The marker stays, with the values that it hides.
    sleep(GUARDED.marker_ttl).await;
    assert_eq!(bucket.purge_deleted(&mut place).await.unwrap(), 0);
    assert_eq!(stored().await.len(), 7);
    assert_eq!(bucket.purge_deleted(&mut PurgePosition::default()).await.unwrap(), 0, "by none");
    assert_eq!(bucket.head("v.>").await.unwrap(), marker);
    let late = bucket.commit(put("v.claim.b", "late", "v.>", first_head)).await;
    assert!(is_conflict(&late), "{late:?}");
    // A newer message is written there: the marker is purged when it is old.
    let newer = bucket.commit(put("v.claim.b", "2", "v.>", marker)).await.unwrap();
    purge_to(&mut place, 4).await;
    assert_eq!(bucket.head("v.>").await.unwrap(), newer);
    // When nothing else is left in the subtree, the last marker is purged, too.
    for key in ["v.claim.b", "v.spec"] {
        deleted(&bucket, key, 0).await;
    }
    purge_to(&mut place, 1).await;
    assert_eq!(bucket.head("v.>").await.unwrap(), 0);
}

#[tokio::test]
async fn a_purge_that_comes_late_or_twice_takes_nothing_that_came_since() {
    let (server, _bus, bucket) = one_bucket(&BRIEF).await;
    let marker = deleted(&bucket, "k", 2).await;
    let mut position = PurgePosition::default();
    purge(&bucket, &mut position, 1).await;
    bucket.commit(put("k", "anew", "k", 0)).await.unwrap();
    // The exact request of a collector that was paused, sent when it goes on.
    for before in [marker, marker + 1] {
        let request = json!({ "filter": "$KV.brief.k", "seq": before }).to_string();
        let answer =
            raw::ask(&server, "$JS.API.STREAM.PURGE.KV_brief", &[], request.as_bytes()).await;
        assert_eq!((&answer["success"], &answer["purged"]), (&json!(true), &json!(0)), "{answer}");
    }
    // Another replica, which has not searched yet, finds nothing to purge.
    assert_eq!(bucket.purge_deleted(&mut PurgePosition::default()).await.unwrap(), 0);
    assert_eq!(bucket.list(">").await.unwrap().entries.len(), 1);
}

#[tokio::test]
async fn a_stream_that_was_made_anew_is_looked_through_from_its_beginning() {
    let (server, bus, bucket) = one_bucket(&BRIEF).await;
    deleted(&bucket, "k", 5).await;
    let mut place = PurgePosition::default();
    purge(&bucket, &mut place, 1).await;
    plain(&server.url()).await.delete_stream("KV_brief").await.unwrap();
    let bucket = bus.bucket(&BRIEF, 1).await.unwrap();
    deleted(&bucket, "k", 1).await;
    purge(&bucket, &mut place, 1).await;
    assert!(bucket.list(">").await.unwrap().entries.is_empty());
}

#[tokio::test]
async fn the_marker_ttl_is_read_from_the_streams_settings() {
    let (_server, bus, bucket) = one_bucket(&BRIEF).await;
    assert_eq!(bucket.marker_ttl(), BRIEF.marker_ttl);
    let hour = BucketSpec { marker_ttl: Duration::from_secs(3600), ..BRIEF };
    let bucket = bus.bucket(&hour, 1).await.unwrap();
    assert_eq!(bucket.marker_ttl(), BRIEF.marker_ttl);
    assert_eq!(bucket.drift().len(), 1, "it is said that this was not what was wanted");
}

/// Whenever a server is killed, a deleted value never comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_within_a_purge_brings_no_deleted_value_back() {
    const KEYS: usize = 200;
    let keys: Vec<String> = (0..KEYS).map(|key| format!("k.{key}")).collect();
    let mut remaining = 0;
    for round in 0..4 {
        let server = Server::start().await;
        let bucket = connect(&server.url()).await.bucket(&BRIEF, 1).await.unwrap();
        join_all(keys.iter().map(|key| deleted(&bucket, key, 3))).await;
        sleep(BRIEF.marker_ttl).await;
        let purging = tokio::spawn({
            let bucket = bucket.clone();
            async move { bucket.purge_deleted(&mut PurgePosition::default()).await }
        });
        // Killed at another moment each time.
        while stored(&server).await >= 4 * KEYS - round * KEYS {
            tokio::task::yield_now().await;
        }
        server.kill9();
        purging.abort();
        server.restart().await;
        let bucket = connect(&server.url()).await.bucket(&BRIEF, 1).await.unwrap();
        assert_eq!(bucket.list(">").await.unwrap().entries, [], "round {round}");
        remaining += stored(&server).await;
        let purging = async {
            let mut place = PurgePosition::default();
            while stored(&server).await > 0 {
                bucket.purge_deleted(&mut place).await.unwrap();
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, purging).await.unwrap();
    }
    assert!(remaining > 0, "no server was killed before all was done");
}

/// The number of messages in the stream.
async fn stored(server: &Server) -> usize {
    let about = raw::ask(server, "$JS.API.STREAM.INFO.KV_brief", &[], b"").await;
    about["state"]["messages"].as_u64().unwrap().try_into().unwrap()
}

/// A server that is killed twice may forget a purge that is in one file with the values that it
/// removes (decision 0030).
#[tokio::test]
async fn a_marker_that_few_writes_have_followed_stays() {
    const AFTER: u64 = 10;
    let spec = BucketSpec { name: "followed", purged_after: AFTER, ..BRIEF };
    let (_server, bus, bucket) = one_bucket(&spec).await;
    let marker = deleted(&bucket, "a", 2).await;
    sleep(spec.marker_ttl).await;
    let mut place = PurgePosition::default();
    for count in 1..AFTER {
        set(&bucket, "other", &count.to_string()).await;
        assert_eq!(bucket.purge_deleted(&mut place).await.unwrap(), 0, "{count} writes");
    }
    // The stream's settings count, not those with which a process would have made it.
    let opened = bus.bucket(&BucketSpec { purged_after: 0, ..spec }, 1).await.unwrap();
    assert_eq!(opened.purge_deleted(&mut place).await.unwrap(), 0);
    assert_eq!(set(&bucket, "other", "last").await, marker + AFTER);
    assert_eq!(opened.purge_deleted(&mut place).await.unwrap(), 1);
}

/// A server that is killed twice may forget one request of two: then a value would be there
/// without its marker (decision 0030).
#[tokio::test]
async fn a_marker_leaves_with_its_values_in_one_request() {
    let (server, _bus, bucket) = one_bucket(&BRIEF).await;
    let client = plain(&server.url()).await;
    let mut requests = client.client().subscribe("$JS.API.STREAM.PURGE.>").await.unwrap();
    client.client().flush().await.unwrap();
    let markers = [deleted(&bucket, "a", 3).await, deleted(&bucket, "b", 0).await];
    purge(&bucket, &mut PurgePosition::default(), 2).await;
    let mut ends = BTreeSet::new();
    for _ in markers {
        let requests = timeout(PATIENCE, requests.next()).await.unwrap().unwrap();
        ends.insert(serde_json::from_slice::<Value>(&requests.payload).unwrap()["seq"].as_u64());
    }
    assert_eq!(ends, markers.map(|marker| Some(marker + 1)).into());
    client.client().flush().await.unwrap();
    assert!(requests.next().now_or_never().is_none(), "more was asked for");
    assert_eq!(messages(&server.url(), "brief").await.len(), 0);
}
