//! How far a bucket is, asked by a write that cannot pass.

use std::time::Duration;

use berth_bus::Ask;
use berth_harness::nats::Server;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::support::{STATE, messages, one_bucket, set, unset};

#[tokio::test]
async fn the_newest_revision_is_asked_without_a_read_or_a_message() {
    let (server, _bus, bucket) = one_bucket(&STATE).await;
    let mut reads = reads(&server).await;
    assert_eq!(bucket.newest_together(Ask::ByWrite).await.unwrap(), 0);
    for count in 1..=20 {
        set(&bucket, "v.k", "x").await;
        let deleted = unset(&bucket, "v.k").await;
        assert_eq!(bucket.newest_together(Ask::ByWrite).await.unwrap(), deleted, "{count}");
    }
    // `set` and `unset` read once each.
    for _ in 0..40 {
        timeout(Duration::from_secs(10), reads.next()).await.unwrap().unwrap();
    }
    let newest = bucket.newest_together(Ask::ByWrite).await.unwrap();
    let asked = join_all((0..100).map(|_| bucket.newest_together(Ask::ByWrite))).await;
    assert!(asked.into_iter().all(|answer| answer.unwrap() == newest));
    assert!(timeout(Duration::from_millis(200), reads.next()).await.is_err());
    assert_eq!(bucket.newest_together(Ask::ByRead).await.unwrap(), newest);
    let stored = messages(&server.url(), bucket.name()).await;
    assert!(stored.iter().all(|(_, subject)| subject.ends_with("v.k")), "{stored:?}");
}

/// Every read by `$JS.API` that anybody sends.
async fn reads(server: &Server) -> async_nats::Subscriber {
    let client = async_nats::connect(&server.url()).await.unwrap();
    let reads = client.subscribe("$JS.API.STREAM.MSG.GET.>").await.unwrap();
    // An answer of the server shows that it has the subscription.
    let info = client.request("$JS.API.INFO", Vec::new().into()).await.unwrap();
    assert!(!info.payload.is_empty());
    reads
}
