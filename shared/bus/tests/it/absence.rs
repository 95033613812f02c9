//! Reported absences, by servers that may have been deposed.

use std::time::Duration;

use berth_bus::{Bus, Config, Guard};
use berth_harness::nats::{NatsOptions, NatsServers};
use berth_harness::root::or_skip;
use berth_harness::wait;
use tokio::time::Instant;

use crate::support::{PATIENCE, STATE, connect, messages, one_bucket, set, text, trace, unset};

const DISK: u64 = 64 << 20;
/// An election takes 4 to 9 s; this machine has two cores for three servers.
const ELECTION: Duration = Duration::from_secs(90);
/// A leader notices within 10 to 20 s that it has no quorum.
const DEPOSED: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_single_server_confirms_an_absence_without_a_write() {
    let (server, _bus, bucket) = one_bucket(&STATE).await;
    set(&bucket, "v.a", "a").await;
    let marker = unset(&bucket, "v.a").await;
    assert_eq!(bucket.get_surely("v.a", trace()).await.unwrap(), None);
    assert_eq!(bucket.get_surely("v.b", trace()).await.unwrap(), None);
    let guard = Guard { filter: "v.>", revision: marker };
    assert_eq!(bucket.confirm_absence("v.b", guard, trace()).await.unwrap(), Some(marker));
    assert_eq!(messages(&server.url(), "state").await.last(), Some(&(marker, "v.a".to_owned())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deposed_leader_confirms_nothing() {
    if !or_skip("disks of their own") {
        return;
    }
    let more = NatsOptions { disk_bytes: Some(DISK), breakable: true, ..NatsOptions::default() };
    let cluster = NatsServers::start_with(3, more).await;
    let stream = "KV_state";
    let first = connect(&cluster.url()).await.bucket(&STATE, 3).await.unwrap();
    set(&first, "v.before", "1").await;
    let leader = cluster.leader_of(stream).await;
    let others: Vec<usize> = (0..3).filter(|server| *server != leader).collect();
    let at_leader = quick(&cluster.servers()[leader].url()).await.bucket(&STATE, 3).await.unwrap();
    let at_other = connect(&cluster.servers()[others[0]].url()).await;
    let at_other = at_other.bucket(&STATE, 3).await.unwrap();

    for other in &others {
        cluster.part(leader, *other);
    }
    wait::until("the other two elect another", ELECTION, async || {
        let now = cluster.leader_seen_by(others[0], stream).await;
        if now.as_ref().is_ok_and(|now| *now != leader) { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    let written = set(&at_other, "v.new", "2").await;
    let end = Instant::now() + DEPOSED;
    let mut stale = 0;
    while Instant::now() < end {
        stale += u32::from(at_leader.get("v.new").await.is_ok_and(|entry| entry.is_none()));
        let absent = at_leader.get_surely("v.new", trace()).await;
        assert!(absent.is_err(), "parted from the others, and it says {absent:?}");
    }
    println!("the deposed leader said {stale} times that a key is absent which had been written");

    for other in &others {
        cluster.join(leader, *other);
    }
    let entry = wait::until("the bucket is whole again", ELECTION, async || {
        at_leader.get_surely("v.new", trace()).await
    })
    .await
    .unwrap();
    assert_eq!((entry.revision, text(&entry)), (written, "2"));
    // An absence that was read before another process wrote is not confirmed.
    let guard = Guard { filter: "v.>", revision: written - 1 };
    let old = wait::until("it is answered", PATIENCE, async || {
        at_leader.confirm_absence("v.no", guard, trace()).await
    });
    assert_eq!(old.await, None);
    assert_eq!(at_leader.get_surely("v.no", trace()).await.unwrap(), None);
    let newest = messages(&cluster.url(), "state").await.pop();
    assert_eq!(newest.map(|(_, key)| key), Some("v.no".to_owned()), "it is written down");
}

/// A bus that gives up soon when there is no quorum.
async fn quick(url: &str) -> Bus {
    let second = Duration::from_secs(1);
    let config = Config::new([url], "test/host/1").insecure();
    Bus::connect(Config { commit_timeout: second, request_timeout: second, ..config })
        .await
        .unwrap()
}
