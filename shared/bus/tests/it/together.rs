//! Writes that are stored whole or not at all: a spec and the key that guards its handle.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use berth_bus::{Bucket, Bus, CommitError, Config};
use berth_harness::nats::{NatsServers, Server};
use berth_harness::wait;
use futures_util::future::join_all;
use tokio::time::sleep;

use crate::cable::Cable;
use crate::group::batched;
use crate::support::{
    Flag, PATIENCE, STATE, config, connect, delete, is_conflict, messages, one_bucket, put, set,
    text,
};

const MANY: usize = 200;
/// An election takes 4 to 9 s, and this machine may have two cores for three servers.
const ELECTION: Duration = Duration::from_secs(90);

/// Writes a volume's spec and the key of its handle, each under its own guard.
async fn pair(bucket: &Bucket, volume: &str, handle: &str) -> Result<u64, CommitError> {
    let (spec, below) = (format!("{volume}.spec"), format!("{volume}.>"));
    let writes = vec![put(&spec, volume, &below, 0), put(handle, volume, handle, 0)];
    bucket.commit_together(writes).await
}

#[tokio::test]
async fn writes_together_are_all_stored_or_none() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    let last = pair(&bucket, "ns.a", "handle.h").await.unwrap();
    let spec = bucket.get("ns.a.spec").await.unwrap().unwrap();
    let handle = bucket.get("handle.h").await.unwrap().unwrap();
    assert_eq!((spec.revision, handle.revision), (last - 1, last));
    // If either guard fails, neither is stored.
    let second = pair(&bucket, "ns.b", "handle.h").await;
    assert!(is_conflict(&second), "{second:?}");
    assert!(second.unwrap_err().to_string().contains("handle.h is no longer at revision 0"));
    let other_owner = pair(&bucket, "ns.a", "handle.other").await;
    assert!(is_conflict(&other_owner), "{other_owner:?}");
    assert_eq!(bucket.head("ns.b.>").await.unwrap(), 0);
    assert_eq!(bucket.head("handle.other").await.unwrap(), 0);
    // Both are deleted together, and another volume may have the handle from then on.
    let gone = vec![delete("ns.a.spec", "ns.a.>", last - 1), delete("handle.h", "handle.h", last)];
    let gone = bucket.commit_together(gone).await.unwrap();
    let writes = vec![put("ns.b.spec", "b", "ns.b.>", 0), put("handle.h", "b", "handle.h", gone)];
    bucket.commit_together(writes).await.unwrap();
    assert_eq!(text(&bucket.get("handle.h").await.unwrap().unwrap()), "b");
}

#[tokio::test]
async fn pairs_that_come_at_once_share_batches_and_of_rivals_one_wins() {
    let server = Server::start().await;
    let patient = Config { commit_timeout: PATIENCE, ..config(&server.url()) };
    let bus = Bus::connect(patient).await.unwrap();
    let bucket = bus.bucket(&STATE, 1).await.unwrap();
    let other = bus.bucket(&STATE, 1).await.unwrap();
    set(&bucket, "handle.taken", "x").await;
    // Four of five volumes have their own handle. All fifth ones use the same handle, in two
    // processes.
    let writes = (0..MANY).map(|at| {
        let bucket = if at % 2 == 0 { &bucket } else { &other };
        let handle = match at % 5 {
            0 => format!("handle.shared{}", at / 50),
            1 if at % 25 == 1 => "handle.taken".to_owned(),
            _ => format!("handle.h{at}"),
        };
        async move {
            let volume = format!("ns.v{at}");
            let written = pair(bucket, &volume, &handle).await;
            (volume, handle, written)
        }
    });
    let mut winners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (volume, handle, written) in join_all(writes).await {
        let spec = bucket.get(&format!("{volume}.spec")).await.unwrap();
        match written {
            Ok(last) => {
                assert_eq!(spec.unwrap().revision, last - 1, "{volume}");
                let holds = bucket.get(&handle).await.unwrap().unwrap();
                assert_eq!((holds.revision, text(&holds)), (last, volume.as_str()));
                winners.entry(handle).or_default().push(volume);
            }
            Err(CommitError::Conflict { .. }) => assert_eq!(spec, None, "{volume}"),
            Err(error) => panic!("{volume}: {error:?}"),
        }
    }
    assert!(winners.values().all(|won| won.len() == 1), "{winners:?}");
    assert!(!winners.contains_key("handle.taken"));
    assert_eq!(winners.len(), MANY - MANY / 5 - MANY / 25 + MANY / 50, "{winners:?}");
    assert_eq!(batched(&server.url(), "state").await, 2 * winners.len());
}

/// Writes two keys under one guard, which covers both.
async fn places(bucket: &Bucket) -> Result<u64, CommitError> {
    let writes = vec![put("ns.a.1", "1", "ns.a.>", 0), put("ns.a.2", "2", "ns.a.>", 0)];
    bucket.commit_together(writes).await
}

/// Breaks the connection while two keys are written together.
async fn broken(
    break_it: impl Fn(&Cable),
    write: impl AsyncFnOnce(&Bucket) -> Result<u64, CommitError>,
) {
    let server = Server::start().await;
    let cable = Cable::to(&server).await;
    let patient = Config { commit_timeout: PATIENCE, ..config(&cable.url()) };
    let bus = Bus::connect(patient).await.unwrap();
    let cut = bus.bucket(&STATE, 1).await.unwrap();
    break_it(&cable);
    let (written, ()) = tokio::join!(write(&cut), async {
        sleep(Duration::from_millis(300)).await;
        cable.cut();
        wait::until("the loss is noticed", PATIENCE, async || {
            if bus.connected() { Err("connected") } else { Ok(()) }
        })
        .await;
        cable.heal();
    });
    let stored = messages(&server.url(), "state").await;
    assert_eq!(stored.len(), 2, "each is stored once");
    assert_eq!(written.unwrap(), stored[1].0);
}

#[tokio::test]
async fn a_pair_whose_acknowledgement_is_lost_is_found_as_a_pair() {
    broken(Cable::deafen, async |bucket| pair(bucket, "ns.a", "handle.h").await).await;
    broken(Cable::deafen, places).await;
}

#[tokio::test]
async fn a_pair_that_is_lost_is_sent_again() {
    broken(Cable::mute, async |bucket| pair(bucket, "ns.a", "handle.h").await).await;
    broken(Cable::mute, places).await;
}

/// Writes new pairs until `stop` is set; returns the outcome of each.
async fn write_pairs(bucket: Bucket, writer: usize, stop: Flag) -> Vec<(String, Option<bool>)> {
    let mut outcomes = Vec::new();
    for count in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("{writer}-{count}");
        let written = pair(&bucket, &format!("ns.{name}"), &format!("handle.{name}")).await;
        outcomes.push((
            name,
            match written {
                Ok(_) => Some(true),
                Err(CommitError::Unavailable { .. }) => Some(false),
                Err(CommitError::Unknown { .. }) => None,
                Err(error) => panic!("{error:?}"),
            },
        ));
        // Paused between pairs, because every pair is checked in the end.
        sleep(Duration::from_millis(5)).await;
    }
    outcomes
}

async fn are_whole(outcomes: Vec<Vec<(String, Option<bool>)>>, url: &str) -> usize {
    let stored: BTreeMap<String, u64> =
        messages(url, "state").await.into_iter().map(|(at, key)| (key, at)).collect();
    let mut count = 0;
    for (name, outcomes) in outcomes.into_iter().flatten() {
        let spec = stored.get(&format!("ns.{name}.spec"));
        let handle = stored.get(&format!("handle.{name}"));
        assert_eq!(spec.is_some(), handle.is_some(), "{name} is stored by half, told {outcomes:?}");
        if let Some(outcomes) = outcomes {
            assert_eq!(spec.is_some(), outcomes, "{name}");
        }
        count += usize::from(spec.is_some());
    }
    assert_eq!(stored.len(), 2 * count);
    count
}

async fn more_are_written(bucket: &Bucket, more: u64) {
    let head = wait::until("it can be read", ELECTION, async || bucket.head(">").await).await;
    wait::until("the writers write", ELECTION, async || {
        let now = bucket.head(">").await.map_err(|error| error.to_string())?;
        if now > head + more { Ok(()) } else { Err(format!("{now} after {head}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_pairs_stores_none_by_half() {
    let server = Server::start().await;
    let stop = Flag::new(AtomicBool::new(false));
    let bucket = connect(&server.url()).await.bucket(&STATE, 1).await.unwrap();
    let writers: Vec<_> = (0..40)
        .map(|writer| tokio::spawn(write_pairs(bucket.clone(), writer, Flag::clone(&stop))))
        .collect();
    for _ in 0..6 {
        more_are_written(&bucket, 300).await;
        server.kill9();
        server.restart().await;
    }
    stop.store(true, Ordering::Relaxed);
    let outcomes = join_all(writers).await.into_iter().map(Result::unwrap).collect();
    let stored = are_whole(outcomes, &server.url()).await;
    assert!(stored > 800, "{stored}");
}

/// As one server does it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_take_writes_under_one_guard() {
    let cluster = NatsServers::start(3).await;
    let bucket = connect(&cluster.url()).await.bucket(&STATE, 3).await.unwrap();
    let mut revision = 0;
    for many in [2, 128] {
        let keys: Vec<String> = (0..many).map(|at| format!("ns.a.{at}")).collect();
        let together = |guard| keys.iter().map(|key| put(key, "x", "ns.a.>", guard)).collect();
        if revision > 0 {
            let refused = bucket.commit_together(together(revision - 1)).await;
            assert!(is_conflict(&refused), "{refused:?}");
        }
        let stored = bucket.commit_together(together(revision)).await.unwrap();
        assert_eq!(stored, revision + many);
        revision = stored;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_killed_under_pairs_stores_none_by_half() {
    let cluster = NatsServers::start(3).await;
    let stop = Flag::new(AtomicBool::new(false));
    let bucket = connect(&cluster.url()).await.bucket(&STATE, 3).await.unwrap();
    let writers: Vec<_> = (0..40)
        .map(|writer| tokio::spawn(write_pairs(bucket.clone(), writer, Flag::clone(&stop))))
        .collect();
    for _ in 0..2 {
        more_are_written(&bucket, 300).await;
        let leader = cluster.leader_of("KV_state").await;
        cluster.servers()[leader].kill9();
        more_are_written(&bucket, 100).await;
        cluster.servers()[leader].restart().await;
    }
    stop.store(true, Ordering::Relaxed);
    let outcomes = join_all(writers).await.into_iter().map(Result::unwrap).collect();
    let stored = are_whole(outcomes, &cluster.url()).await;
    assert!(stored > 300, "{stored}");
}
