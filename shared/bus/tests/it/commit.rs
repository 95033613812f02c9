//! The guarded write on one server.

use std::time::Duration;

use berth_bus::{Bus, CommitError, Config};
use berth_harness::nats::Server;
use berth_harness::wait;
use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::cable::Cable;
use crate::support::{
    FLEETING, PATIENCE, STATE, config, connect, delete, is_conflict, messages, one_bucket, put,
    set, text, unset,
};

#[tokio::test]
async fn one_volume_is_one_transaction_scope() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    let volume = "ns.v1.>";
    assert_eq!(bucket.commit(put("ns.v1.spec", "s", volume, 0)).await.unwrap(), 1);
    assert_eq!(bucket.commit(put("ns.v1.claim.a", "a", volume, 1)).await.unwrap(), 2);
    // A writer that read the head before claim a was written.
    assert!(is_conflict(&bucket.commit(put("ns.v1.claim.b", "b", volume, 1)).await));
    assert_eq!(bucket.get("ns.v1.claim.b").await.unwrap(), None);
    assert_eq!(bucket.commit(put("ns.v1.claim.b", "b", volume, 2)).await.unwrap(), 3);
    // The subtree of another volume is not affected.
    assert_eq!(bucket.commit(put("ns.v2.spec", "s", "ns.v2.>", 0)).await.unwrap(), 4);
    assert_eq!(bucket.head(volume).await.unwrap(), 3);
}

#[tokio::test]
async fn of_many_writes_with_one_revision_one_is_stored() {
    let (server, _bus, bucket) = one_bucket(&STATE).await;
    let url = server.url();
    let others = join_all((0..4).map(|_| connect(&url))).await;
    for round in 0..20 {
        let head = bucket.head("v.>").await.unwrap();
        let writes = (0..16).map(|writer| {
            let bus = &others[writer % others.len()];
            async move {
                let bucket = bus.bucket(&STATE, 1).await.unwrap();
                let (key, value) = (format!("v.{writer}"), format!("{round}"));
                bucket.commit(put(&key, &value, "v.>", head)).await
            }
        });
        let results = join_all(writes).await;
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
        assert_eq!(results.iter().filter(|result| is_conflict(result)).count(), 15, "{results:?}");
    }
}

#[tokio::test]
async fn a_record_says_which_operation_wrote_it() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    let mut write = put("k", "v", "k", 0);
    write.operation = "01J\r\nX: y";
    bucket.commit(write).await.unwrap();
    let entry = bucket.get("k").await.unwrap().unwrap();
    assert_eq!(entry.operation.as_deref(), Some("01J  X: y"));
    assert_eq!((entry.revision, text(&entry)), (1, "v"));
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let age = since.as_secs().abs_diff(entry.created.unix_ms() / 1000);
    assert!(age < 60, "it is dated {age} s off");
}

#[tokio::test]
async fn a_deleted_key_stays_deleted_when_its_marker_expires() {
    let (server, _bus, bucket) = one_bucket(&FLEETING).await;
    set(&bucket, "v.spec", "kept").await;
    set(&bucket, "v.claim", "first").await;
    set(&bucket, "v.claim", "second").await;
    let marker = unset(&bucket, "v.claim").await;
    let entry = bucket.get("v.claim").await.unwrap().unwrap();
    assert_eq!((entry.revision, entry.value), (marker, None));
    wait::until("the marker expires", PATIENCE, async || {
        match bucket.get("v.claim").await.unwrap() {
            None => Ok(()),
            Some(entry) if entry.value.is_none() => Err("the marker stands".to_owned()),
            Some(entry) => panic!("the key came back to life: {entry:?}"),
        }
    })
    .await;
    // No older value of the key is left below the marker.
    assert_eq!(messages(&server.url(), "fleeting").await, [(1, "v.spec".to_owned())]);
}

#[tokio::test]
async fn the_head_falls_when_a_marker_expires_and_one_read_mends_it() {
    let (_server, _bus, bucket) = one_bucket(&FLEETING).await;
    let spec = set(&bucket, "v.spec", "s").await;
    set(&bucket, "v.claim", "c").await;
    let marker = unset(&bucket, "v.claim").await;
    assert_eq!(bucket.head("v.>").await.unwrap(), marker);
    wait::until("the head falls", PATIENCE, async || {
        let head = bucket.head("v.>").await.unwrap();
        if head == spec { Ok(()) } else { Err(head) }
    })
    .await;
    assert_eq!(bucket.head(">").await.unwrap(), spec, "the bucket's own head has fallen, too");
    assert!(is_conflict(&bucket.commit(put("v.x", "x", "v.>", marker)).await));
    assert!(bucket.commit(put("v.x", "x", "v.>", spec)).await.is_ok());
}

#[tokio::test]
async fn a_key_is_written_anew_over_its_marker_by_the_markers_revision() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    set(&bucket, "k", "v").await;
    let marker = unset(&bucket, "k").await;
    assert!(is_conflict(&bucket.commit(put("k", "w", "k", 0)).await));
    assert!(bucket.commit(put("k", "w", "k", marker)).await.is_ok());
}

#[tokio::test]
async fn one_of_two_deletes_of_a_key_gets_a_conflict() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    let before = set(&bucket, "v.k", "v").await;
    let marker = bucket.commit(delete("v.k", "v.>", before)).await.unwrap();
    assert!(is_conflict(&bucket.commit(delete("v.k", "v.>", before)).await));
    // The same holds for a writer that saw an older revision, or that creates the key again.
    bucket.commit(put("v.k", "again", "v.>", marker)).await.unwrap();
    assert!(is_conflict(&bucket.commit(put("v.k", "stale", "v.>", before)).await));
    assert!(is_conflict(&bucket.commit(put("v.k", "stale", "v.>", 0)).await));
}

#[tokio::test]
async fn a_wrong_write_is_refused_and_not_retried() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    let began = Instant::now();
    let large = "x".repeat(2 * 1024 * 1024);
    for (key, value, filter) in [
        ("a..b", "v", "a.>"), // passes the client's own check and fails as an outage
        ("a b", "v", "a b"),
        ("a.*", "v", "a.*"),
        ("a", "v", "b"),
        ("a.b", "v", "c.>"),
        ("a.b", "v", "a.>.b"),
        ("a.b", large.as_str(), "a.b"),
    ] {
        let result = bucket.commit(put(key, value, filter, 0)).await;
        assert!(matches!(result, Err(CommitError::Refused { .. })), "{key} {filter}: {result:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(bucket.head(">").await.unwrap(), 0);
}

#[tokio::test]
async fn a_write_while_disconnected_fails_at_once_and_is_never_delivered() {
    let (server, bus, bucket) = one_bucket(&STATE).await;
    let before = set(&bucket, "k", "before").await;
    server.kill9();
    wait::until("the loss is noticed", PATIENCE, async || {
        if bus.connected() { Err("connected") } else { Ok(()) }
    })
    .await;
    let began = Instant::now();
    for _ in 0..100 {
        let result = bucket.commit(put("k", "late", "k", before)).await;
        assert!(matches!(result, Err(CommitError::Unavailable { .. })), "{result:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    server.restart().await;
    let reread = wait::until("it is back", PATIENCE, async || {
        bucket.commit(put("k", "after", "k", before)).await
    })
    .await;
    assert_eq!(reread, before + 1, "nothing was stored in between");
    // Writes that the client still held would arrive now.
    sleep(Duration::from_millis(300)).await;
    assert_eq!(text(&bucket.get("k").await.unwrap().unwrap()), "after");
}

#[tokio::test]
async fn a_write_to_a_deleted_stream_is_surely_not_stored() {
    let server = Server::start().await;
    let config = Config { commit_timeout: Duration::from_millis(800), ..config(&server.url()) };
    let bus = Bus::connect(config).await.unwrap();
    let bucket = bus.bucket(&STATE, 1).await.unwrap();
    crate::support::plain(&server.url()).await.delete_stream("KV_state").await.unwrap();
    let result = bucket.commit(put("k", "v", "k", 0)).await;
    assert!(matches!(result, Err(CommitError::Unavailable { .. })), "{result:?}");
}

#[tokio::test]
async fn a_write_waits_for_a_missing_leader_until_its_timeout() {
    let (server, _bus, bucket) = one_bucket(&STATE).await;
    let plain = crate::support::plain(&server.url()).await;
    let config = plain.get_stream("KV_state").await.unwrap().cached_info().config.clone();
    plain.delete_stream("KV_state").await.unwrap();
    let write = put("k", "v", "k", 0);
    let (written, _) = tokio::join!(bucket.commit(write), async {
        // An election leaves a stream without a leader for longer; shortened here.
        sleep(Duration::from_millis(700)).await;
        plain.create_stream(config).await.unwrap()
    });
    assert_eq!(written.unwrap(), 1);
}

#[tokio::test]
async fn a_value_may_be_anything_that_fits() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    let bytes: Vec<u8> = (0..=255).cycle().take(900 * 1024).collect();
    let mut write = put("k", "", "k", 0);
    write.change = berth_bus::Change::Put(Bytes::from(bytes.clone()));
    bucket.commit(write).await.unwrap();
    assert_eq!(bucket.get("k").await.unwrap().unwrap().value.unwrap(), bytes);
    let empty = bucket.commit(put("e", "", "e", 0)).await.unwrap();
    let entry = bucket.get("e").await.unwrap().unwrap();
    assert_eq!((entry.revision, entry.value), (empty, Some(Bytes::new())), "empty is no marker");
    let marker = bucket.commit(delete("e", "e", empty)).await.unwrap();
    assert_eq!(bucket.get("e").await.unwrap().unwrap().revision, marker);
}

/// A caller waits for its write for most of its time. Operators are told of the server before that:
/// two lost acknowledgements of a write that is not there are enough.
#[tokio::test]
async fn a_server_that_stores_nothing_is_known_while_the_write_is_still_tried() {
    let server = Server::start().await;
    let cable = Cable::to(&server).await;
    let answers = Duration::from_millis(500);
    let config =
        Config { request_timeout: answers, commit_timeout: 4 * PATIENCE, ..config(&cable.url()) };
    let bus = Bus::connect(config).await.unwrap();
    let bucket = bus.bucket(&STATE, 1).await.unwrap();
    set(&bucket, "k", "before").await;
    assert_eq!(bucket.store_fault(), None);
    cable.lose_writes();
    let writer = bucket.clone();
    let write = tokio::spawn(async move { writer.commit(put("k", "after", "k", 1)).await });
    wait::until("the fault is known", PATIENCE, async || {
        bucket.store_fault().ok_or("no fault is known")
    })
    .await;
    assert!(!write.is_finished(), "only once it was given up: {:?}", write.await);
    cable.heal();
    assert_eq!(write.await.unwrap().unwrap(), 2);
    assert_eq!(bucket.store_fault(), None, "the write was stored");
}
