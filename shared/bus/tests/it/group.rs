//! Many writes at once: stored together, each under its own guard and with its own outcome.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use berth_bus::{Bucket, Bus, CommitError, Config};
use berth_harness::nats::Server;
use berth_harness::wait;
use futures_util::future::join_all;
use tokio::time::sleep;

use crate::cable::Cable;
use crate::loss::{WriteOutcomes, is_true, write_until};
use crate::support::{
    Flag, PATIENCE, STATE, config, connect, is_conflict, messages, one_bucket, plain, put, set,
    text,
};

/// More writes than are sent alone.
const MANY: usize = 200;

/// Writes this many volumes at once, each under a guard over its own subtree.
async fn write_all(
    bucket: &Bucket,
    volumes: &[(String, u64)],
    key: &str,
) -> Vec<Result<u64, CommitError>> {
    join_all(volumes.iter().map(|(volume, revision)| async move {
        let (key, filter) = (format!("{volume}.{key}"), format!("{volume}.>"));
        bucket.commit(put(&key, volume, &filter, *revision)).await
    }))
    .await
}

fn fresh(prefix: &str) -> Vec<(String, u64)> {
    (0..MANY).map(|at| (format!("{prefix}{at}"), 0)).collect()
}

/// The number of stored messages that came in a batch.
pub async fn batched(url: &str, bucket: &str) -> usize {
    let stream = plain(url).await.get_stream(format!("KV_{bucket}")).await.unwrap();
    let mut batched = 0;
    for (sequence, _) in messages(url, bucket).await {
        let message = stream.get_raw_message(sequence).await.unwrap();
        batched += usize::from(message.headers.get("Nats-Batch-Id").is_some());
    }
    batched
}

#[tokio::test]
async fn each_of_many_writes_gets_its_own_revision() {
    let (server, _bus, bucket) = one_bucket(&STATE).await;
    let volumes = fresh("v");
    let written = write_all(&bucket, &volumes, "spec").await;
    let mut revisions = BTreeSet::new();
    for ((volume, _), written) in volumes.iter().zip(written) {
        let revision = written.unwrap();
        let entry = bucket.get(&format!("{volume}.spec")).await.unwrap().unwrap();
        assert_eq!((entry.revision, text(&entry)), (revision, volume.as_str()));
        assert_eq!(entry.operation.as_deref(), Some("op"));
        revisions.insert(revision);
    }
    assert_eq!(revisions.len(), MANY);
    let batched = batched(&server.url(), "state").await;
    assert!(batched > MANY / 2, "{batched} of {MANY} went together");
}

#[tokio::test]
async fn one_failed_guard_fails_no_other() {
    let (server, _bus, bucket) = one_bucket(&STATE).await;
    let volumes = fresh("v");
    let stale: BTreeSet<String> = (0..MANY).step_by(7).map(|at| format!("v{at}")).collect();
    for volume in &stale {
        set(&bucket, &format!("{volume}.other"), "x").await;
    }
    let written = write_all(&bucket, &volumes, "spec").await;
    for ((volume, _), written) in volumes.iter().zip(&written) {
        assert_eq!(is_conflict(written), stale.contains(volume), "{volume} {written:?}");
        assert_eq!(written.is_ok(), !stale.contains(volume), "{volume} {written:?}");
    }
    assert_eq!(messages(&server.url(), "state").await.len(), MANY);
}

#[tokio::test]
async fn of_many_writes_to_one_subtree_one_is_stored() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    for round in 0..5 {
        let mut heads = Vec::new();
        for volume in 0..4 {
            heads.push(bucket.head(&format!("v{volume}.>")).await.unwrap());
        }
        let writes = (0..MANY).map(|writer| {
            let (bucket, volume) = (&bucket, writer % 4);
            let (key, head) = (format!("v{volume}.{writer}"), heads[volume]);
            async move {
                let filter = format!("v{volume}.>");
                (volume, bucket.commit(put(&key, "x", &filter, head)).await)
            }
        });
        let written = join_all(writes).await;
        for volume in 0..4 {
            let of = |won: bool| {
                let count = written.iter().filter(|(of, result)| {
                    *of == volume && if won { result.is_ok() } else { is_conflict(result) }
                });
                count.count()
            };
            assert_eq!((of(true), of(false)), (1, MANY / 4 - 1), "round {round}: {written:?}");
        }
    }
}

#[tokio::test]
async fn a_bucket_without_batches_stores_each_write_alone() {
    let server = Server::start().await;
    let url = server.url();
    let context = plain(&url).await;
    let bus = connect(&url).await;
    bus.bucket(&STATE, 1).await.unwrap();
    let mut stream = context.get_stream("KV_state").await.unwrap();
    let mut config = stream.info().await.unwrap().config.clone();
    config.allow_atomic_publish = false;
    context.update_stream(config).await.unwrap();
    let bucket = bus.bucket(&STATE, 1).await.unwrap();
    let written = write_all(&bucket, &fresh("v"), "spec").await;
    assert!(written.iter().all(Result::is_ok), "{written:?}");
    assert_eq!(batched(&url, "state").await, 0);
}

/// Breaks the connection while many writes are in progress, and checks the outcome of each.
async fn broken(break_it: impl Fn(&Cable)) {
    let server = Server::start().await;
    let cable = Cable::to(&server).await;
    let patient = Config { commit_timeout: PATIENCE, ..config(&cable.url()) };
    let bus = Bus::connect(patient).await.unwrap();
    let cut = bus.bucket(&STATE, 1).await.unwrap();
    let volumes = fresh("v");
    break_it(&cable);
    let (written, ()) = tokio::join!(write_all(&cut, &volumes, "spec"), async {
        // Long enough for every write that can arrive.
        sleep(Duration::from_millis(300)).await;
        cable.cut();
        wait::until("the loss is noticed", PATIENCE, async || {
            if bus.connected() { Err("connected") } else { Ok(()) }
        })
        .await;
        cable.heal();
    });
    let sound = connect(&server.url()).await.bucket(&STATE, 1).await.unwrap();
    let mut stored = 0;
    for ((volume, _), written) in volumes.iter().zip(written) {
        let entry = sound.get(&format!("{volume}.spec")).await.unwrap();
        match (written, entry) {
            (Ok(revision), Some(entry)) => {
                assert_eq!((entry.revision, text(&entry)), (revision, volume.as_str()));
                stored += 1;
            }
            // It waited for other writes, and was not sent.
            (Err(CommitError::Unavailable { .. }), None) => {}
            (written, entry) => panic!("{volume}: {written:?}, and there stands {entry:?}"),
        }
    }
    let messages = messages(&server.url(), "state").await.len();
    assert_eq!(messages, stored, "each is stored once");
    // The writes that were sent alone, and at least one batch.
    assert!(stored >= 64, "{stored} of {MANY}");
}

#[tokio::test]
async fn each_of_many_lost_acknowledgements_is_resolved() {
    broken(Cable::deafen).await;
}

#[tokio::test]
async fn each_of_many_lost_writes_is_sent_again() {
    broken(Cable::mute).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_batches_loses_nothing_and_no_result_lies() {
    let server = Server::start().await;
    let stop = Flag::new(AtomicBool::new(false));
    let bucket = connect(&server.url()).await.bucket(&STATE, 1).await.unwrap();
    let writers: Vec<_> = (0..MANY)
        .map(|writer| {
            let (bucket, stop) = (bucket.clone(), Flag::clone(&stop));
            tokio::spawn(
                async move { write_until(&bucket, &format!("v{writer}"), writer, &stop).await },
            )
        })
        .collect();
    for kill in 0..2 {
        let head = bucket.head(">").await.unwrap();
        wait::until("the writers write", PATIENCE, async || {
            let now = bucket.head(">").await.map_err(|error| error.to_string())?;
            if now > head + 600 { Ok(()) } else { Err(format!("{now} in round {kill}")) }
        })
        .await;
        server.kill9();
        server.restart().await;
        wait::until("it is back", PATIENCE, async || bucket.head(">").await).await;
    }
    stop.store(true, Ordering::Relaxed);
    let outcomes: Vec<WriteOutcomes> =
        join_all(writers).await.into_iter().map(Result::unwrap).collect();
    is_true(&outcomes, &server.url(), "state").await;
    assert!(batched(&server.url(), "state").await > 0);
}
