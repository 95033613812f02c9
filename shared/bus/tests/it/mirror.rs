//! Mirrors stay equal to their bucket, whatever happens to either.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use berth_bus::{Bucket, Bus, Config, Fold, Mirror, MirrorError, MirrorOptions, ReadError};
use berth_harness::nats::Server;
use berth_harness::proxy::{Proxy, Wire};
use berth_harness::wait;
use tokio::time::Instant;

use crate::loss::write_until;
use crate::support::{
    FLEETING, Flag, Keys, LEASES, PATIENCE, STATE, agrees, config, connect, hurried, listed,
    mirror, one_bucket, plain, put, set, unset,
};

fn held(mirror: &Mirror<Keys>, key: &str) -> Option<String> {
    mirror.read(|keys| keys.0.get(key).map(|(_, value)| value.clone()))
}

#[tokio::test]
async fn a_mirror_reads_all_keys_and_then_follows() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    set(&bucket, "v.a", "1").await;
    set(&bucket, "v.a", "2").await;
    set(&bucket, "v.b", "gone").await;
    unset(&bucket, "v.b").await;
    let last = set(&bucket, "w.a", "3").await;
    let whole = mirror(&bucket, ">").await;
    assert_eq!(whole.read(Keys::clone), listed(&bucket, ">").await);
    assert_eq!((whole.applied(), whole.stale_since()), (last, None));
    let some = mirror(&bucket, "v.>").await;
    assert_eq!(some.read(|keys| keys.0.len()), 1);

    let mut changes = whole.subscribe();
    let revision = set(&bucket, "v.c", "4").await;
    whole.reach(revision, Instant::now() + PATIENCE).await.unwrap();
    assert_eq!(held(&whole, "v.c").as_deref(), Some("4"));
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    let revision = unset(&bucket, "v.a").await;
    changes.changed().await.unwrap();
    whole.reach(revision, Instant::now() + PATIENCE).await.unwrap();
    assert_eq!(held(&whole, "v.a"), None);
    agrees(&some, &bucket, "v.>").await;
}

#[tokio::test]
async fn an_empty_bucket_is_in_sync_at_once() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    let began = Instant::now();
    let empty = mirror(&bucket, ">").await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(empty.read(|keys| keys.0.len()), 0);
    set(&bucket, "other", "x").await;
    // The bucket has keys, but none below the filter.
    let empty = mirror(&bucket, "v.>").await;
    assert_eq!(empty.read(|keys| keys.0.len()), 0);
    let revision = set(&bucket, "v.a", "1").await;
    empty.reach(revision, Instant::now() + PATIENCE).await.unwrap();
    assert_eq!(held(&empty, "v.a").as_deref(), Some("1"));
}

#[tokio::test]
async fn a_revision_of_another_key_is_reached_too() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    let mirror = mirror(&bucket, "v.>").await;
    let other = set(&bucket, "w.a", "1").await;
    mirror.reach(other, Instant::now() + PATIENCE).await.unwrap();
    let soon = Instant::now() + Duration::from_millis(100);
    let error = mirror.reach(other + 1, soon).await.unwrap_err();
    assert!(matches!(error, MirrorError::Behind { .. }), "{error}");
}

#[tokio::test]
async fn an_own_commit_is_seen_at_once_and_never_undone() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    let mirror = mirror(&bucket, ">").await;
    for count in 0..200 {
        let value = count.to_string();
        let revision = set(&bucket, "k", &value).await;
        mirror.put("k", revision, value.as_bytes()).await;
        assert_eq!(held(&mirror, "k"), Some(value));
        let revision = unset(&bucket, "k").await;
        mirror.delete("k", revision).await;
        assert_eq!(held(&mirror, "k"), None, "older news brought it back");
    }
    agrees(&mirror, &bucket, ">").await;
}

/// The process was paused, for example, and another one deleted the key meanwhile.
#[tokio::test]
async fn an_own_commit_that_is_answered_late_brings_nothing_back() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    let mirror = mirror(&bucket, ">").await;
    let put = set(&bucket, "k", "1").await;
    let deleted = unset(&bucket, "k").await;
    mirror.reach(deleted, Instant::now() + PATIENCE).await.unwrap();
    mirror.put("k", put, b"1").await;
    assert_eq!(held(&mirror, "k"), None, "the answer brought it back");
    agrees(&mirror, &bucket, ">").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_taken_while_commits_never_pause() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    let mirror = mirror(&bucket, ">").await;
    let busy = Arc::new(AtomicBool::new(true));
    let writers = (0..32).map(|at| {
        let (bucket, mirror, busy) = (bucket.clone(), mirror.clone(), Arc::clone(&busy));
        tokio::spawn(async move {
            let key = format!("k.{at}");
            let (mut revision, mut count) = (0, 0_u64);
            while busy.load(Ordering::Relaxed) {
                let value = count.to_string();
                revision = bucket.commit(put(&key, &value, &key, revision)).await.unwrap();
                mirror.put(&key, revision, value.as_bytes()).await;
                count += 1;
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    for _ in 0..20 {
        let look = |keys: &Keys| keys.0.values().map(|(revision, _)| *revision).max();
        let (shows, newest) = mirror.snapshot(Instant::now() + PATIENCE, look).await.unwrap();
        assert!(newest.unwrap_or(0) <= shows, "{newest:?} is newer than {shows}");
    }
    busy.store(false, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    agrees(&mirror, &bucket, ">").await;
}

/// The watch brings nothing, so there is no snapshot; commits still go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_waits_holds_no_commit_back() {
    let server = Server::start().await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], server.port()));
    let proxy = Proxy::across(address, "bus", &Wire::default()).await;
    let bucket = connect(&proxy.url()).await.bucket(&STATE, 1).await.unwrap();
    let options = hurried();
    let mirror = Mirror::start(&bucket, ">", Keys::default(), options).await.unwrap();
    proxy.withhold(Some("KV_state"));
    let revision = set(&bucket, "k", "ahead").await;
    mirror.put("k", revision, b"ahead").await;
    let waiting = {
        let mirror = mirror.clone();
        tokio::spawn(async move { mirror.snapshot(Instant::now() + PATIENCE, |_| ()).await })
    };
    let mut stored = 0;
    while stored < 20 {
        let value = stored.to_string();
        let revision = set(&bucket, "k", &value).await;
        mirror.put("k", revision, value.as_bytes()).await;
        assert_eq!(held(&mirror, "k"), Some(value), "it is shown when it is answered");
        stored += 1;
    }
    assert!(!waiting.is_finished(), "commits waited for the snapshot");
    proxy.withhold(None);
    waiting.await.unwrap().unwrap();
    agrees(&mirror, &bucket, ">").await;
}

#[tokio::test]
async fn a_bucket_that_cannot_be_read_is_an_error_in_time() {
    let (server, _bus, bucket) = one_bucket(&STATE).await;
    server.kill9();
    let options = MirrorOptions { start_within: Duration::from_millis(700), ..hurried() };
    let error = Mirror::start(&bucket, ">", Keys::default(), options).await.unwrap_err();
    assert!(matches!(error, MirrorError::Start { .. }), "{error}");
}

#[tokio::test]
async fn a_restarted_server_is_followed_again_and_the_gap_is_shown() {
    let (server, _bus, bucket) = one_bucket(&STATE).await;
    set(&bucket, "k", "1").await;
    let mirror = mirror(&bucket, ">").await;
    server.kill9();
    wait::until("the mirror says that it is stale", PATIENCE, async || {
        mirror.stale_since().ok_or("it does not")
    })
    .await;
    assert_eq!(held(&mirror, "k").as_deref(), Some("1"), "it still answers");
    server.restart().await;
    wait::until("the bucket can be written", PATIENCE, async || bucket.head("k").await).await;
    set(&bucket, "k", "2").await;
    agrees(&mirror, &bucket, ">").await;
}

#[tokio::test]
async fn a_connection_that_falls_silent_is_noticed_within_a_few_heartbeats() {
    let server = Server::start().await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], server.port()));
    let proxy = Proxy::start(address).await;
    let hasty = Config { request_timeout: Duration::from_millis(300), ..config(&proxy.url()) };
    let bucket = Bus::connect(hasty).await.unwrap().bucket(&STATE, 1).await.unwrap();
    let sound = connect(&server.url()).await.bucket(&STATE, 1).await.unwrap();
    // Noticed by the heartbeats alone.
    let options = MirrorOptions { probe_every: PATIENCE, ..hurried() };
    let mirror = Mirror::start(&bucket, ">", Keys::default(), options).await.unwrap();
    proxy.half_open();
    let silent = Instant::now();
    wait::until("the silence is noticed", PATIENCE, async || {
        mirror.stale_since().ok_or("it is not")
    })
    .await;
    // Two and a half heartbeats of 200 ms, not the ten seconds of the client's own watch.
    assert!(silent.elapsed() < Duration::from_secs(3), "{:?}", silent.elapsed());
    set(&sound, "k", "written meanwhile").await;
    proxy.heal();
    agrees(&mirror, &sound, ">").await;
}

#[tokio::test]
async fn keys_deleted_during_a_gap_longer_than_their_markers_are_noticed() {
    let server = Server::start().await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], server.port()));
    let proxy = Proxy::start(address).await;
    let bucket = connect(&proxy.url()).await.bucket(&FLEETING, 1).await.unwrap();
    let sound = connect(&server.url()).await.bucket(&FLEETING, 1).await.unwrap();
    for key in ["v.a", "v.b", "v.c"] {
        set(&sound, key, "1").await;
    }
    let mirror = mirror(&bucket, "v.>").await;
    assert_eq!(mirror.read(|keys| keys.0.len()), 3);
    proxy.cut();
    // Not the last key that the mirror applied, by which it could notice the gap.
    unset(&sound, "v.a").await;
    unset(&sound, "v.b").await;
    wait::until("the markers expire", PATIENCE, async || {
        let a = sound.get("v.a").await.unwrap();
        let b = sound.get("v.b").await.unwrap();
        if a.is_none() && b.is_none() { Ok(()) } else { Err(format!("{a:?} {b:?}")) }
    })
    .await;
    proxy.heal();
    agrees(&mirror, &sound, "v.>").await;
    assert_eq!(mirror.read(|keys| keys.0.len()), 1);
}

#[tokio::test]
async fn a_mirror_reads_a_bucket_that_was_made_again() {
    let (server, bus, bucket) = one_bucket(&STATE).await;
    for count in 0..20 {
        set(&bucket, &format!("old.{count}"), "old").await;
    }
    set(&bucket, "both", "old").await;
    let mirror = mirror(&bucket, ">").await;
    plain(&server.url()).await.delete_stream("KV_state").await.unwrap();
    let bucket = bus.bucket(&STATE, 1).await.unwrap();
    // Revisions begin at one again, far below the revisions that the mirror knows.
    set(&bucket, "both", "new").await;
    set(&bucket, "new", "new").await;
    agrees(&mirror, &bucket, ">").await;
    let next = set(&bucket, "both", "newer").await;
    mirror.reach(next, Instant::now() + PATIENCE).await.unwrap();
    assert_eq!(held(&mirror, "both").as_deref(), Some("newer"));
}

#[tokio::test]
async fn an_empty_mirror_reads_a_bucket_that_was_made_again() {
    let (server, bus, bucket) = one_bucket(&STATE).await;
    for count in 0..20 {
        set(&bucket, &format!("other.{count}"), "old").await;
    }
    let mirror = mirror(&bucket, "v.>").await;
    plain(&server.url()).await.delete_stream("KV_state").await.unwrap();
    let bucket = bus.bucket(&STATE, 1).await.unwrap();
    // As many messages as before, so that their number shows nothing; and no key of the mirror is
    // among them.
    set(&bucket, "v.a", "new").await;
    for count in 0..20 {
        set(&bucket, &format!("other.{count}"), "new").await;
    }
    agrees(&mirror, &bucket, "v.>").await;
}

#[tokio::test]
async fn a_store_set_back_to_an_earlier_state_is_read_anew_when_it_is_accepted() {
    let server = Server::start().await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], server.port()));
    let proxy = Proxy::start(address).await;
    let bucket = connect(&proxy.url()).await.bucket(&STATE, 1).await.unwrap();
    set(&bucket, "k", "1").await;
    let store = server.daemon().log_path().parent().unwrap().join("store");
    let backup = berth_harness::dirs::Dir::new("backup");
    server.terminate().await;
    copy(&store, backup.path());
    server.restart().await;
    wait::until("it is back", PATIENCE, async || bucket.head("k").await).await;
    set(&bucket, "k", "2").await;
    set(&bucket, "lost", "1").await;
    let mirror = mirror(&bucket, ">").await;
    assert_eq!(held(&mirror, "lost").as_deref(), Some("1"));

    // The stream's creation time is the same, its later messages are gone, and as many others have
    // come before the mirror compares it again: only the times of the messages differ.
    proxy.cut();
    server.terminate().await;
    std::fs::remove_dir_all(&store).unwrap();
    std::fs::create_dir(&store).unwrap();
    copy(backup.path(), &store);
    server.restart().await;
    let sound = connect(&server.url()).await.bucket(&STATE, 1).await.unwrap();
    set(&sound, "k", "other").await;
    assert_eq!(set(&sound, "kept", "other").await, mirror.applied());
    proxy.heal();
    wait::until("the bucket is lost", PATIENCE, async || match bucket.head("k").await {
        Err(ReadError::Lost(_)) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert_eq!(held(&mirror, "lost").as_deref(), Some("1"), "nothing was read from it");
    connect(&server.url()).await.accept_bucket("state").await.unwrap();
    wait::until("it is served", PATIENCE, async || bucket.head(">").await).await;
    wait::until("and readable", PATIENCE, async || sound.head(">").await).await;
    agrees(&mirror, &sound, ">").await;
    assert_eq!(held(&mirror, "lost"), None);
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[tokio::test]
async fn a_consumer_deleted_by_somebody_is_replaced() {
    let (server, _bus, bucket) = one_bucket(&STATE).await;
    let mirror = mirror(&bucket, ">").await;
    let stream = plain(&server.url()).await.get_stream("KV_state").await.unwrap();
    let names: Vec<_> = futures_util::StreamExt::collect::<Vec<_>>(stream.consumer_names()).await;
    assert_eq!(names.len(), 1, "a mirror is one consumer");
    let name = names[0].as_ref().unwrap();
    assert!(name.starts_with("test-host-1-"), "it is named after its connection: {name}");
    stream.delete_consumer(name).await.unwrap();
    set(&bucket, "k", "v").await;
    agrees(&mirror, &bucket, ">").await;
}

#[tokio::test]
async fn a_consumer_that_lives_but_falls_behind_is_replaced() {
    let (server, _bus, bucket) = one_bucket(&STATE).await;
    let mirror = mirror(&bucket, ">").await;
    let stream = plain(&server.url()).await.get_stream("KV_state").await.unwrap();
    let names: Vec<_> = futures_util::StreamExt::collect::<Vec<_>>(stream.consumer_names()).await;
    let tomorrow = std::time::SystemTime::now() + Duration::from_secs(24 * 3600);
    // A paused consumer sends heartbeats and nothing else, like a consumer on a replica that hangs.
    let paused = stream.pause_consumer(names[0].as_ref().unwrap(), tomorrow.into()).await.unwrap();
    assert!(paused.paused);
    set(&bucket, "k", "v").await;
    agrees(&mirror, &bucket, ">").await;
}

/// A fold with a defect: it panics at one value, once.
#[derive(Default)]
struct Brittle(Keys, bool);

impl Fold for Brittle {
    fn put(&mut self, key: &str, revision: u64, value: &[u8]) {
        if value == b"poison" && !std::mem::replace(&mut self.1, true) {
            self.0.0.clear();
            panic!("as this test wants it");
        }
        self.0.put(key, revision, value);
    }
    fn delete(&mut self, key: &str, revision: u64) {
        self.0.delete(key, revision);
    }
}

#[tokio::test]
async fn a_fold_that_panicked_receives_every_key_again() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    set(&bucket, "a", "1").await;
    let mirror = Mirror::start(&bucket, ">", Brittle::default(), hurried()).await.unwrap();
    set(&bucket, "b", "poison").await;
    set(&bucket, "c", "3").await;
    let expected = listed(&bucket, ">").await;
    wait::until("it is current again", PATIENCE, async || {
        let held = mirror.read(|fold| fold.0.clone());
        let current = mirror.stale_since().is_none() && held == expected;
        if current { Ok(()) } else { Err(format!("{held:?}")) }
    })
    .await;
}

#[tokio::test]
async fn consumers_do_not_pile_up() {
    let (server, _bus, bucket) = one_bucket(&STATE).await;
    let options = MirrorOptions { check_every: Duration::from_millis(20), ..hurried() };
    let mirror = Mirror::start(&bucket, ">", Keys::default(), options).await.unwrap();
    let stream = plain(&server.url()).await.get_stream("KV_state").await.unwrap();
    for _ in 0..20 {
        let revision = set(&bucket, "k", "v").await;
        mirror.reach(revision, Instant::now() + PATIENCE).await.unwrap();
        let count = stream.get_info().await.unwrap().state.consumer_count;
        assert!(count <= 3, "{count} consumers of one mirror");
    }
    drop(mirror);
    wait::until("the last one goes with the mirror", PATIENCE, async || {
        match stream.get_info().await.unwrap().state.consumer_count {
            0 => Ok(()),
            count => Err(count),
        }
    })
    .await;
}

#[tokio::test]
async fn a_mirror_reads_everything_again_now_and_then_without_being_stale() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    let options = MirrorOptions { check_every: Duration::from_millis(300), ..hurried() };
    let mirror = Mirror::start(&bucket, ">", Keys::default(), options).await.unwrap();
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < Duration::from_secs(3) {
        let key = format!("k{}", count % 7);
        let revision = set(&bucket, &key, &count.to_string()).await;
        mirror.put(&key, revision, count.to_string().as_bytes()).await;
        if count % 3 == 0 {
            mirror.delete(&key, unset(&bucket, &key).await).await;
        }
        assert_eq!(mirror.stale_since(), None, "a reading out of habit is no gap");
        count += 1;
    }
    agrees(&mirror, &bucket, ">").await;
    mirror.reach(bucket.head(">").await.unwrap(), Instant::now() + PATIENCE).await.unwrap();
    // Reading the same keys again is no change.
    let mut changes = mirror.subscribe();
    changes.mark_unchanged();
    tokio::time::sleep(options.check_every * 3).await;
    assert!(!changes.has_changed().unwrap());
}

/// Seen: a reading of all keys took 3 s, and every reader that waited for the mirror gave up.
#[tokio::test]
async fn nobody_waits_while_all_keys_are_compared() {
    let (server, _bus, bucket) = one_bucket(&STATE).await;
    for key in 0..3000 {
        set(&bucket, &format!("k{key}"), "v").await;
    }
    let options = MirrorOptions { check_every: Duration::from_millis(500), ..hurried() };
    let mirror = Mirror::start(&bucket, ">", Keys::default(), options).await.unwrap();
    let stream = plain(&server.url()).await.get_stream("KV_state").await.unwrap();
    let is_comparing = async || stream.get_info().await.unwrap().state.consumer_count > 1;
    let (began, mut followed) = (Instant::now(), 0);
    while followed < 20 {
        assert!(began.elapsed() < PATIENCE, "followed {followed} times during comparisons");
        let before = is_comparing().await;
        let revision = set(&bucket, "k", "v").await;
        mirror.reach(revision, Instant::now() + PATIENCE).await.unwrap();
        followed += u32::from(before && is_comparing().await);
    }
    assert_eq!(mirror.stale_since(), None);
}

/// The feed says nothing of a message that is removed by hand.
#[tokio::test]
async fn a_key_that_was_removed_by_hand_is_noticed() {
    let (server, _bus, bucket) = one_bucket(&STATE).await;
    set(&bucket, "a", "1").await;
    set(&bucket, "b", "2").await;
    let options = MirrorOptions { check_every: Duration::from_millis(200), ..hurried() };
    let mirror = Mirror::start(&bucket, ">", Keys::default(), options).await.unwrap();
    let stream = plain(&server.url()).await.get_stream("KV_state").await.unwrap();
    stream.purge().filter("$KV.state.a").await.unwrap();
    wait::until("it is gone here, too", PATIENCE, async || {
        if held(&mirror, "a").is_none() { Ok(()) } else { Err("it is still there") }
    })
    .await;
    agrees(&mirror, &bucket, ">").await;
}

/// Overwrites its key again and again; returns the revision of each write.
async fn overwrite(bucket: &Bucket, key: &'static str, stop: &Flag) -> Vec<u64> {
    let mut revisions = vec![0];
    while !stop.load(Ordering::Relaxed) {
        let head = revisions[revisions.len() - 1];
        revisions.push(bucket.commit(put(key, key, key, head)).await.unwrap());
    }
    revisions
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_of_one_revision_while_all_keys_are_read_again() {
    // The bucket keeps one value of each key: the value that was applied last is always overwritten
    // soon.
    let (_server, _bus, bucket) = one_bucket(&LEASES).await;
    let options = MirrorOptions { check_every: Duration::from_millis(20), ..hurried() };
    let mirror = Mirror::start(&bucket, ">", Keys::default(), options).await.unwrap();
    let stop = Flag::new(AtomicBool::new(false));
    let keys = ["a", "b", "c"];
    let writers = keys.map(|key| {
        let (bucket, stop) = (bucket.clone(), Flag::clone(&stop));
        tokio::spawn(async move { overwrite(&bucket, key, &stop).await })
    });
    let mut pictures = Vec::new();
    let began = Instant::now();
    let mut known_revision = 0;
    while began.elapsed() < Duration::from_secs(3) {
        pictures.push(mirror.snapshot(began + PATIENCE, Keys::clone).await.unwrap());
        // A key that is written while the others are read is not counted as missing.
        let held = mirror.read(|keys| keys.0.len());
        assert!(held >= known_revision, "{held} keys where {known_revision} were");
        known_revision = held;
    }
    stop.store(true, Ordering::Relaxed);
    for (key, writer) in keys.iter().zip(writers) {
        let revisions = writer.await.unwrap();
        let mut last = 0;
        for (at, picture) in &pictures {
            assert!(*at >= last, "a picture at {at} was taken after one at {last}");
            last = *at;
            let newest = revisions[revisions.partition_point(|revision| revision <= at) - 1];
            let shown = picture.0.get(*key).map_or(0, |(revision, _)| *revision);
            assert_eq!(shown, newest, "{key} in a picture at {at}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirrors_equal_the_list_after_chaos() {
    let server = Server::start().await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], server.port()));
    let proxy = Proxy::start(address).await;
    let bucket = connect(&server.url()).await.bucket(&STATE, 1).await.unwrap();
    let shaken = connect(&proxy.url()).await.bucket(&STATE, 1).await.unwrap();
    let mirrors = [mirror(&bucket, ">").await, mirror(&shaken, ">").await];
    let stop = Flag::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (bucket, stop) = (bucket.clone(), Flag::clone(&stop));
            tokio::spawn(
                async move { write_until(&bucket, &format!("v{writer}"), writer, &stop).await },
            )
        })
        .collect();
    for round in 0..4 {
        let head = bucket.head(">").await.unwrap();
        if round % 2 == 0 {
            proxy.cut();
        } else {
            server.kill9();
            server.restart().await;
        }
        wait::until("writes go on", PATIENCE, async || match bucket.head(">").await {
            Ok(now) if now > head + 100 => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        proxy.heal();
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    for mirror in &mirrors {
        agrees(mirror, &bucket, ">").await;
    }
    assert!(bucket.commit(put("end", "end", "end", 0)).await.is_ok());
}
