//! Writes whose acknowledgement is lost, and servers that die under a stream of writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use berth_bus::{Bucket, Bus, CommitError, Config};
use berth_harness::nats::{Server, raw};
use berth_harness::wait;
use futures_util::future::join_all;
use tokio::time::sleep;

use crate::cable::Cable;
use crate::support::{
    Flag, PATIENCE, STATE, config, connect, delete, is_conflict, messages, put, set, text,
};

/// A server, a bus behind a cable that can lose one direction, and an undisturbed bus.
struct LossyBus {
    server: Server,
    cable: Cable,
    bus: Bus,
    cut: Bucket,
    sound: Bucket,
}

impl LossyBus {
    async fn new() -> Self {
        let server = Server::start().await;
        let cable = Cable::to(&server).await;
        // An exchange whose acknowledgement is lost ends only when the cable is cut.
        let patient = Config { commit_timeout: PATIENCE, ..config(&cable.url()) };
        let bus = Bus::connect(patient).await.unwrap();
        let cut = bus.bucket(&STATE, 1).await.unwrap();
        let sound = connect(&server.url()).await.bucket(&STATE, 1).await.unwrap();
        Self { server, cable, bus, cut, sound }
    }

    /// Loses the server's answers, waits until the write is stored, and breaks the connection.
    async fn lose_ack(&self, stored: impl AsyncFn() -> bool) {
        wait::until("the write is stored", PATIENCE, async || {
            if stored().await { Ok(()) } else { Err("not yet") }
        })
        .await;
        self.break_cable().await;
    }

    async fn break_cable(&self) {
        self.cable.cut();
        wait::until("the loss is noticed", PATIENCE, async || {
            if self.bus.connected() { Err("connected") } else { Ok(()) }
        })
        .await;
    }
}

#[tokio::test]
async fn a_lost_acknowledgement_is_resolved() {
    let scene = LossyBus::new().await;
    let spec = set(&scene.sound, "v.spec", "s").await;
    scene.cable.deafen();
    let (written, ()) =
        tokio::join!(scene.cut.commit(put("v.claim", "mine", "v.>", spec)), async {
            scene.lose_ack(async || scene.sound.get("v.claim").await.unwrap().is_some()).await;
            scene.cable.heal();
        });
    let revision = written.unwrap();
    let entry = scene.sound.get("v.claim").await.unwrap().unwrap();
    assert_eq!((revision, text(&entry)), (entry.revision, "mine"));
    assert_eq!(messages(&scene.server.url(), "state").await.len(), 2, "it is stored once");
}

#[tokio::test]
async fn a_lost_write_is_sent_again() {
    let scene = LossyBus::new().await;
    scene.cable.mute();
    let (written, ()) = tokio::join!(scene.cut.commit(put("k", "mine", "k", 0)), async {
        // Long enough for the write to be lost; that it is not stored shows that it was.
        sleep(Duration::from_millis(200)).await;
        assert_eq!(scene.sound.get("k").await.unwrap(), None);
        scene.break_cable().await;
        scene.cable.heal();
    });
    let entry = scene.sound.get("k").await.unwrap().unwrap();
    assert_eq!((written.unwrap(), text(&entry)), (entry.revision, "mine"));
}

#[tokio::test]
async fn a_lost_delete_is_resolved() {
    let scene = LossyBus::new().await;
    let before = set(&scene.sound, "k", "v").await;
    scene.cable.deafen();
    let (deleted, ()) = tokio::join!(scene.cut.commit(delete("k", "k", before)), async {
        let gone = async || scene.sound.get("k").await.unwrap().unwrap().value.is_none();
        scene.lose_ack(gone).await;
        scene.cable.heal();
    });
    assert_eq!(deleted.unwrap(), scene.sound.get("k").await.unwrap().unwrap().revision);
}

#[tokio::test]
async fn a_write_that_was_stored_and_overwritten_is_still_known_as_stored() {
    let scene = LossyBus::new().await;
    scene.cable.deafen();
    let (written, mine) = tokio::join!(scene.cut.commit(put("v.a", "mine", "v.>", 0)), async {
        scene.lose_ack(async || scene.sound.get("v.a").await.unwrap().is_some()).await;
        let mine = scene.sound.head("v.>").await.unwrap();
        // Another service writes on top of it, under the same operation id, before the first writer
        // reads.
        let next = scene.sound.commit(put("v.a", "theirs", "v.>", mine)).await.unwrap();
        scene.sound.commit(put("v.b", "theirs", "v.>", next)).await.unwrap();
        scene.cable.heal();
        mine
    });
    assert_eq!(written.unwrap(), mine);
}

#[tokio::test]
async fn a_write_whose_key_was_deleted_since_is_still_known_as_stored() {
    let scene = LossyBus::new().await;
    scene.cable.deafen();
    let (written, mine) = tokio::join!(scene.cut.commit(put("k", "mine", "k", 0)), async {
        scene.lose_ack(async || scene.sound.get("k").await.unwrap().is_some()).await;
        let mine = scene.sound.head("k").await.unwrap();
        scene.sound.commit(delete("k", "k", mine)).await.unwrap();
        scene.cable.heal();
        mine
    });
    assert_eq!(written.unwrap(), mine);
}

#[tokio::test]
async fn a_lost_write_that_another_came_before_is_a_conflict() {
    let scene = LossyBus::new().await;
    scene.cable.mute();
    let (written, ()) = tokio::join!(scene.cut.commit(put("v.a", "mine", "v.>", 0)), async {
        sleep(Duration::from_millis(200)).await;
        // A write of the same operation, as when a request is handled twice, is still another
        // write.
        scene.sound.commit(put("v.a", "theirs", "v.>", 0)).await.unwrap();
        scene.break_cable().await;
        scene.cable.heal();
    });
    assert!(is_conflict(&written), "{written:?}");
    assert_eq!(text(&scene.sound.get("v.a").await.unwrap().unwrap()), "theirs");
}

#[tokio::test]
async fn a_write_that_was_pushed_out_of_the_history_is_no_conflict() {
    let scene = LossyBus::new().await;
    scene.cable.deafen();
    let (written, ()) = tokio::join!(scene.cut.commit(put("k", "mine", "k", 0)), async {
        scene.lose_ack(async || scene.sound.get("k").await.unwrap().is_some()).await;
        // An operator's `nats kv purge` removes the history, and this write with it.
        let purge = [("KV-Operation", "PURGE"), ("Nats-Rollup", "sub")];
        let marker = raw::ask(&scene.server, "$KV.state.k", &purge, b"").await;
        let marker = marker["seq"].as_u64().unwrap();
        scene.sound.commit(put("k", "theirs", "k", marker)).await.unwrap();
        scene.cable.heal();
    });
    assert!(matches!(written, Err(CommitError::Unknown { .. })), "{written:?}");
}

#[tokio::test]
async fn a_server_that_stays_away_makes_a_lost_write_unknown_in_time() {
    let server = Server::start().await;
    let cable = Cable::to(&server).await;
    let hurried = Config {
        commit_timeout: Duration::from_secs(1),
        request_timeout: Duration::from_millis(300),
        ..config(&cable.url())
    };
    let bucket = Bus::connect(hurried).await.unwrap().bucket(&STATE, 1).await.unwrap();
    cable.deafen();
    let written = tokio::time::timeout(PATIENCE, bucket.commit(put("k", "v", "k", 0))).await;
    assert!(matches!(written, Ok(Err(CommitError::Unknown { .. }))), "{written:?}");
}

/// The outcomes of one writer's writes, by key.
#[derive(Debug, Default)]
pub struct WriteOutcomes {
    pub stored: Vec<(String, u64)>,
    pub not_stored: Vec<(String, CommitError)>,
    pub unknown: Vec<String>,
}

/// Writes new keys below `prefix`, under a guard over all of it, until `stop` is set.
pub async fn write_until(
    bucket: &Bucket,
    prefix: &str,
    writer: usize,
    stop: &Flag,
) -> WriteOutcomes {
    let filter = format!("{prefix}.>");
    let mut outcomes = WriteOutcomes::default();
    let mut head = 0;
    for count in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("{prefix}.{writer}-{count}");
        match bucket.commit(put(&key, &key, &filter, head)).await {
            Ok(revision) => {
                head = revision;
                outcomes.stored.push((key, revision));
                // Paused between writes, because every one of them is checked in the end.
                sleep(Duration::from_millis(2)).await;
                continue;
            }
            Err(CommitError::Unknown { .. }) => outcomes.unknown.push(key),
            Err(error @ (CommitError::Conflict { .. } | CommitError::Unavailable { .. })) => {
                outcomes.not_stored.push((key, error));
                sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{key}: {error}"),
        }
        head = bucket.head(&filter).await.unwrap_or(head);
    }
    outcomes
}

/// Compares the outcomes that the writers got with the stored keys.
pub async fn is_true(all_outcomes: &[WriteOutcomes], url: &str, name: &str) {
    let messages = messages(url, name).await;
    let mut stored = std::collections::HashMap::new();
    for (revision, key) in messages {
        let twice = stored.insert(key.clone(), revision);
        assert_eq!(twice, None, "{key} is stored twice");
    }
    let mut known_stored = 0;
    for all_outcomes in all_outcomes {
        for (key, revision) in &all_outcomes.stored {
            assert_eq!(stored.get(key), Some(revision), "{key} was acknowledged");
        }
        for (key, error) in &all_outcomes.not_stored {
            assert_eq!(stored.get(key), None, "{key} was said not to be stored: {error:?}");
        }
        known_stored += all_outcomes.stored.len();
        known_stored += all_outcomes.unknown.iter().filter(|key| stored.contains_key(*key)).count();
    }
    assert_eq!(known_stored, stored.len(), "each stored key is of a write of this test");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_again_and_again_loses_nothing_and_no_result_lies() {
    let server = Server::start().await;
    let stop = Flag::new(AtomicBool::new(false));
    let bus = connect(&server.url()).await;
    let bucket = bus.bucket(&STATE, 1).await.unwrap();
    let writers: Vec<_> = (0..6)
        .map(|writer| {
            let (bucket, stop) = (bucket.clone(), Flag::clone(&stop));
            // Two writers of each kind share a volume, so that real conflicts are among the
            // results.
            tokio::spawn(async move {
                write_until(&bucket, &format!("v{}", writer / 2), writer, &stop).await
            })
        })
        .collect();
    for kill in 0..3 {
        let head = bucket.head(">").await.unwrap();
        wait::until("the writers write", PATIENCE, async || {
            let now = bucket.head(">").await.map_err(|error| error.to_string())?;
            if now > head + 200 { Ok(()) } else { Err(format!("{now} in round {kill}")) }
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
    assert!(outcomes.iter().map(|outcomes| outcomes.stored.len()).sum::<usize>() > 600);
}
