//! Renewals of many leases at once: stored together, each with its own TTL, guard and outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_bus::lease::{LeaseStore as _, LeaseTerms};
use berth_bus::{Bucket, LeaseError};
use berth_harness::wait;
use bytes::Bytes;
use futures_util::future::join_all;

use crate::support::{LEASES, PATIENCE, messages, one_bucket, plain, text, trace, unset};

/// More renewals than writes that are sent alone.
const MANY: usize = 200;
/// Rounds of renewals, each right after the one before, so that they take several ticks.
const ROUNDS: usize = 12;
/// How often that is tried. A busy machine may pause before the last round for so long that its
/// renewals count as the first ones.
const TRIES: usize = 8;

const LONG: Duration = Duration::from_secs(600);

/// The leases of many holders, each with its revision.
type Held = BTreeMap<String, u64>;

fn terms(key: &str, ttl: Duration) -> LeaseTerms<Bytes> {
    LeaseTerms { key: key.to_owned(), value: "holder".into(), ttl, trace: trace() }
}

async fn acquire_many(bucket: &Bucket) -> Held {
    let keys = (0..MANY).map(|at| format!("node.n{at}"));
    let held = keys.map(async |key| {
        let revision = bucket.hold(&terms(&key, LONG), None, PATIENCE).await.unwrap();
        (key, revision)
    });
    join_all(held).await.into_iter().collect()
}

async fn renew_all(
    bucket: &Bucket,
    held: &Held,
    ttl: Duration,
) -> BTreeMap<String, Result<u64, LeaseError>> {
    let renewed = held.iter().map(async |(key, revision)| {
        (key.clone(), bucket.renew(&terms(key, ttl), *revision, PATIENCE).await)
    });
    join_all(renewed).await.into_iter().collect()
}

/// By which writes the newest value of each lease was stored: the id of a batch, or a revision.
async fn writes(url: &str) -> BTreeSet<String> {
    let stream = plain(url).await.get_stream("KV_leases").await.unwrap();
    let mut writes = BTreeSet::new();
    for (revision, _) in messages(url, "leases").await {
        let message = stream.get_raw_message(revision).await.unwrap();
        let batch = message.headers.get("Nats-Batch-Id").map(ToString::to_string);
        writes.insert(batch.unwrap_or_else(|| revision.to_string()));
    }
    writes
}

#[tokio::test]
async fn the_renewals_of_a_tick_are_one_write() {
    let (server, _bus, bucket) = one_bucket(&LEASES).await;
    let mut held = acquire_many(&bucket).await;
    let mut fewest = usize::MAX;
    for _ in 0..TRIES {
        for _ in 0..ROUNDS {
            let renewed = renew_all(&bucket, &held, LONG).await;
            held = renewed.into_iter().map(|(key, revision)| (key, revision.unwrap())).collect();
        }
        fewest = fewest.min(writes(&server.url()).await.len());
        if fewest == 1 {
            break;
        }
    }
    assert_eq!(fewest, 1, "{MANY} renewals at once are so many writes");
    for (key, revision) in &held {
        let entry = bucket.get(key).await.unwrap().unwrap();
        assert_eq!((entry.revision, text(&entry), entry.has_ttl), (*revision, "holder", true));
        assert_eq!(entry.operation.as_deref(), Some("lease.hold"));
    }
}

#[tokio::test]
async fn a_renewal_among_few_is_stored_alone() {
    let (server, _bus, bucket) = one_bucket(&LEASES).await;
    let mut revision = bucket.hold(&terms("node.n1", LONG), None, PATIENCE).await.unwrap();
    for _ in 0..3 {
        revision = bucket.renew(&terms("node.n1", LONG), revision, PATIENCE).await.unwrap();
    }
    assert_eq!(writes(&server.url()).await, [revision.to_string()].into());
}

#[tokio::test]
async fn of_renewals_together_those_of_ended_leases_fail_alone() {
    let (_server, _bus, bucket) = one_bucket(&LEASES).await;
    let mut held = acquire_many(&bucket).await;
    for round in 0..ROUNDS {
        let (released, taken) = (format!("node.n{round}"), format!("node.n{}", 100 + round));
        unset(&bucket, &released).await;
        let next = LeaseTerms { value: "next".into(), ..terms(&taken, LONG) };
        let over = held[&taken];
        let fence = bucket.hold(&next, Some(over), PATIENCE).await.unwrap();
        let mut renewed = renew_all(&bucket, &held, LONG).await;
        let lost = renewed.remove(&released).unwrap();
        assert!(matches!(lost, Err(LeaseError::Lost { .. })), "{lost:?}");
        assert!(bucket.get(&released).await.unwrap().unwrap().value.is_none(), "it stays ended");
        let Err(LeaseError::Held { holder, .. }) = renewed.remove(&taken).unwrap() else {
            panic!("another process has taken {taken}");
        };
        assert_eq!((holder.revision, text(&holder)), (fence, "next"));
        held = renewed.into_iter().map(|(key, revision)| (key, revision.unwrap())).collect();
    }
}

#[tokio::test]
async fn leases_that_were_renewed_together_expire() {
    let (_server, _bus, bucket) = one_bucket(&LEASES).await;
    let mut held = acquire_many(&bucket).await;
    for _ in 0..2 {
        let renewed = renew_all(&bucket, &held, Duration::from_secs(2)).await;
        held = renewed.into_iter().map(|(key, revision)| (key, revision.unwrap())).collect();
    }
    wait::until("all have expired", PATIENCE, async || {
        let left = bucket.list("node.>").await.unwrap().entries.len();
        if left == 0 { Ok(()) } else { Err(format!("{left} are held")) }
    })
    .await;
    let renewed = renew_all(&bucket, &held, LONG).await;
    let revived: Vec<_> = renewed.iter().filter(|(_, revision)| revision.is_ok()).collect();
    assert!(revived.is_empty(), "{revived:?}");
}
