//! A stream that was removed and restored from an older state while processes follow it.

use std::path::Path;
use std::time::Duration;

use berth_bus::restore::{Backups, BegunIncarnation};
use berth_bus::{Bucket, Bus, CommitError, Mirror, MirrorOptions, OpenError, Origin, ReadError};
use berth_contract::bucket::{ALL, ALLOCS, BucketSpec, VOLUMES};
use berth_harness::dirs::Dir;
use berth_harness::nats::{Server, raw, stock};
use berth_harness::proxy::{Point, Proxy, Side, Wire};
use berth_harness::wait;
use serde_json::json;
use tokio::time::Instant;

use crate::support::{
    Keys, PATIENCE, STATE, agrees, connect, mirror, one, one_bucket, plain, put, set, unset,
};

/// A bucket whose markers are soon old enough to be purged, and whose keys are guarded one by one.
const BRIEF: BucketSpec = BucketSpec { marker_ttl: Duration::from_secs(1), ..STATE };

/// A mirror that would notice a replaced stream only long after the test.
async fn unaware(bucket: &Bucket) -> Mirror<Keys> {
    let options = MirrorOptions { heartbeat: Duration::from_secs(60), ..MirrorOptions::default() };
    Mirror::start(bucket, ">", Keys::default(), options).await.unwrap()
}

/// Makes the stream again, with these keys at the revisions 1, 2, 3 …
async fn replace(server: &Server, keys: &[&str]) {
    plain(&server.url()).await.delete_stream("KV_state").await.unwrap();
    let bucket = connect(&server.url()).await.bucket(&STATE, 1).await.unwrap();
    for key in keys {
        set(&bucket, key, "restored").await;
    }
}

/// Seen: after a restore, a claim of the old bucket was written into the restored one. The head of
/// the restored subtree guarded a decision on the keys that memory still had.
#[tokio::test]
async fn no_head_is_returned_while_memory_differs_from_the_list_it_belongs_to() {
    let cases: [(&str, &[&str], &[&str]); 3] = [
        ("memory has a newer key", &["v.spec", "v.claim"], &["v.spec"]),
        ("memory has a newer value", &["o.1", "o.2", "v.spec"], &["v.spec", "o.1", "o.2", "o.3"]),
        ("memory lacks a key", &["v.spec", "o.1", "o.2"], &["v.spec", "v.claim"]),
    ];
    for (case, before, restored) in cases {
        let (server, _bus, bucket) = one_bucket(&STATE).await;
        for key in before {
            set(&bucket, key, "before").await;
        }
        let mirror = unaware(&bucket).await;
        assert!(mirror.read_again("v.>").await.unwrap().is_some(), "{case}: nothing has happened");
        replace(&server, restored).await;
        if let Some(head) = mirror.read_again("v.>").await.unwrap() {
            // As a service writes with that head.
            let written = bucket.commit(put("v.claim", "of memory", "v.>", head)).await;
            panic!("{case}: {head} guards {:?}: {written:?}", mirror.read(Keys::clone));
        }
    }
}

/// A service with memory of volumes, and a backup that is older than that memory.
struct Restoration {
    server: Server,
    bus: Bus,
    volumes: Bucket,
    mirror: Mirror<Keys>,
    backup: Dir,
    /// The revision of the claim that the backup lacks.
    late: u64,
}

impl Restoration {
    async fn new() -> Self {
        let (server, bus) = one().await;
        for spec in &ALL {
            bus.bucket(spec, 1).await.unwrap();
        }
        let volumes = bus.bucket(&VOLUMES, 1).await.unwrap();
        set(&volumes, "ns.v.spec", "1").await;
        let mirror = mirror(&volumes, ">").await;
        let backup = Dir::new("backup");
        bus.back_up(backup.path(), |_| {}).await.unwrap();
        set(&volumes, "ns.other.spec", "1").await;
        let late = set(&volumes, "ns.v.claim.a", "late").await;
        mirror.reach(late, Instant::now() + PATIENCE).await.unwrap();
        Self { server, bus, volumes, mirror, backup, late }
    }

    fn backup_of_volumes(&self) -> std::path::PathBuf {
        self.backup.path().join("volumes")
    }

    async fn is_lost(&self) {
        wait::until("the bucket is lost", PATIENCE, async || {
            match self.volumes.head("ns.v.>").await {
                Err(ReadError::Lost(_)) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    /// Waits until the bucket is served again, with the records that are in it.
    async fn is_served(&self) {
        wait::until("the bucket is served", PATIENCE, async || self.volumes.head(">").await).await;
        agrees(&self.mirror, &self.volumes, ">").await;
    }

    /// Has another program write to the bucket.
    async fn grow_past_what_was_seen(&self) {
        let other = plain(&self.server.url()).await.get_key_value(VOLUMES.name).await.unwrap();
        while self.newest().await <= self.late {
            other.put("ns.new.spec", "1".into()).await.unwrap();
        }
    }

    async fn newest(&self) -> u64 {
        let about = raw::ask(&self.server, "$JS.API.STREAM.INFO.KV_berth-volumes", &[], b"").await;
        about["state"]["last_seq"].as_u64().unwrap()
    }
}

async fn restore_volumes(server: &Server, dir: &Path) -> BegunIncarnation {
    let mut backups = Backups::read(dir).await.unwrap();
    backups.retain(|bucket| bucket == VOLUMES.name);
    let admin = connect(&server.url()).await;
    admin.restore_buckets(&backups, |_| {}).await.unwrap().remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_another_tool_restored_is_served_once_an_operator_has_accepted_it() {
    let restoration = Restoration::new().await;
    stock::restore(&restoration.server, &restoration.backup_of_volumes()).await;
    // Immediately, before the mirror has noticed, a decision from memory is not written.
    assert!(!matches!(restoration.mirror.read_again("ns.v.>").await, Ok(Some(_))));
    let written = restoration
        .volumes
        .commit(put("ns.v.claim.a", "of memory", "ns.v.>", restoration.late))
        .await;
    let is_refused =
        matches!(written, Err(CommitError::Lost { .. } | CommitError::Conflict { .. }));
    assert!(is_refused, "{written:?}");
    // A write that is stored below the highest seen revision is no success.
    let written = restoration.volumes.commit(put("ns.w.spec", "1", "ns.w.>", 0)).await;
    let is_doubted = matches!(written, Err(CommitError::Lost { .. } | CommitError::Unknown { .. }));
    assert!(is_doubted, "{written:?}");
    restoration.is_lost().await;
    let written = restoration.volumes.commit(put("ns.v.claim.a", "of memory", "ns.v.>", 1)).await;
    assert!(matches!(written, Err(CommitError::Lost { .. })), "{written:?}");
    assert!(!restoration.bus.find_faults(PATIENCE).await.is_empty());
    // The refusal remains when the stream has grown past the highest seen revision.
    restoration.grow_past_what_was_seen().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    restoration.is_lost().await;
    assert_eq!(
        restoration.mirror.read(|keys| keys.0["ns.v.claim.a"].1.clone()),
        "late",
        "nothing is read"
    );

    let accepted =
        connect(&restoration.server.url()).await.accept_bucket(VOLUMES.name).await.unwrap();
    assert!(accepted.above > restoration.late, "{accepted:?}");
    restoration.is_served().await;
    assert!(
        restoration.mirror.read(|keys| !keys.0.contains_key("ns.v.claim.a")),
        "nothing is kept"
    );
    assert_eq!(restoration.volumes.incarnation().origin, Origin::Accepted);
    assert!(set(&restoration.volumes, "ns.v.spec", "2").await > accepted.above);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_bucket_continues_above_every_earlier_revision() {
    let restoration = Restoration::new().await;
    let before = restoration.volumes.incarnation();
    let restored = restore_volumes(&restoration.server, restoration.backup.path()).await;
    assert!(
        restored.incarnation > before.number && restored.above > restoration.late,
        "{restored:?}"
    );
    restoration.is_served().await;
    assert!(
        restoration.mirror.read(|keys| !keys.0.contains_key("ns.v.claim.a")),
        "nothing is kept"
    );
    assert_eq!(restoration.volumes.incarnation().origin, Origin::Restored);
    let late = restoration
        .volumes
        .commit(put("ns.v.claim.a", "of memory", "ns.v.>", restoration.late))
        .await;
    assert!(matches!(late, Err(CommitError::Conflict { .. })), "{late:?}");
    assert!(set(&restoration.volumes, "ns.v.spec", "2").await > restored.above);
    assert_eq!(restoration.bus.find_faults(PATIENCE).await, Vec::<String>::new());
    // A second restore, of a backup that is older than the first restore.
    let second_restore = restore_volumes(&restoration.server, restoration.backup.path()).await;
    assert!(
        second_restore.incarnation > restored.incarnation && second_restore.above > restored.above
    );
    restoration.is_served().await;
}

/// Found by the model: a write that was decided before the restore, and sent after it, was stored
/// if the volume's subtree was as in the backup. It granted the volume beside a mount.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_guard_of_before_a_restore_holds_afterwards() {
    let restoration = Restoration::new().await;
    let spec = restoration.volumes.get("ns.v.spec").await.unwrap().unwrap().revision;
    for accepts in [false, true] {
        if accepts {
            stock::restore(&restoration.server, &restoration.backup_of_volumes()).await;
            restoration.is_lost().await;
            connect(&restoration.server.url()).await.accept_bucket(VOLUMES.name).await.unwrap();
        } else {
            restore_volumes(&restoration.server, restoration.backup.path()).await;
        }
        restoration.is_served().await;
        assert_eq!(restoration.volumes.get("ns.v.spec").await.unwrap().unwrap().revision, spec);
        let before =
            restoration.volumes.commit(put("ns.v.claim.b", "of before", "ns.v.>", spec)).await;
        assert!(matches!(before, Err(CommitError::Conflict { .. })), "{accepts}: {before:?}");
        let head = restoration.volumes.head("ns.v.>").await.unwrap();
        let after = restoration.volumes.commit(put("ns.v.claim.b", "of now", "ns.v.>", head)).await;
        assert!(after.unwrap() > head, "{accepts}");
    }
}

/// No process serves the bucket of a killed command, and the command finishes when it is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_is_killed_at_any_step_is_served_by_nobody_and_finishes_when_repeated() {
    for step in 0..3 {
        let restoration = Restoration::new().await;
        let mut backups = Backups::read(restoration.backup.path()).await.unwrap();
        backups.retain(|bucket| bucket == VOLUMES.name || bucket == ALLOCS.name);
        let admin = connect(&restoration.server.url()).await;
        let mut steps = 0;
        let killed = tokio::spawn(async move {
            let progress = |_| {
                steps += 1;
                assert!(steps <= [1, 3, 4][step], "killed");
            };
            admin.restore_buckets(&backups, progress).await
        });
        assert!(killed.await.unwrap_err().is_panic(), "{step}");
        restoration.is_lost().await;
        let opened = connect(&restoration.server.url()).await.bucket(&VOLUMES, 1).await;
        assert!(matches!(opened, Err(OpenError::Lost(_))), "{step}: {opened:?}");
        let mut backups = Backups::read(restoration.backup.path()).await.unwrap();
        backups.retain(|bucket| bucket == VOLUMES.name || bucket == ALLOCS.name);
        let admin = connect(&restoration.server.url()).await;
        let done = admin.restore_buckets(&backups, |_| {}).await.unwrap();
        assert!(
            done.iter().all(|incarnation| incarnation.above >= restoration.late),
            "{step}: {done:?}"
        );
        restoration.is_served().await;
    }
}

/// Seen with three servers that were parted and killed: the stream was there, and nothing in it.
/// The repeated command took it for restored, and all volumes were lost.
#[tokio::test]
async fn a_stream_that_a_restore_left_without_its_records_is_restored_again() {
    let site = Restoration::new().await;
    let restored = restore_volumes(&site.server, site.backup.path()).await;
    let jetstream = plain(&site.server.url()).await;
    let stream = jetstream.get_stream("KV_berth-volumes").await.unwrap();
    let config = stream.cached_info().config.clone();
    jetstream.delete_stream("KV_berth-volumes").await.unwrap();
    jetstream.create_stream(config).await.unwrap();
    let known = json!({"incarnation": 1, "highest": 9, "target": restored.incarnation});
    let progress = json!({ "berth-volumes": known }).to_string();
    std::fs::write(site.backup.path().join("restoring.json"), progress).unwrap();
    let again = restore_volumes(&site.server, site.backup.path()).await;
    assert_eq!(again.incarnation, restored.incarnation);
    let volumes = connect(&site.server.url()).await.bucket(&VOLUMES, 1).await.unwrap();
    assert!(volumes.get("ns.v.spec").await.unwrap().is_some(), "the record of the backup is gone");
}

/// Whether a process that starts now refuses the bucket.
async fn is_refused_at_a_start(server: &Server) -> Result<(), String> {
    match connect(&server.url()).await.bucket(&VOLUMES, 1).await {
        Err(OpenError::Lost(_)) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

async fn accept_volumes(server: &Server) -> BegunIncarnation {
    connect(&server.url()).await.accept_bucket(VOLUMES.name).await.unwrap()
}

/// Seen: the refusal was forgotten when the services that knew the bucket were started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_starts_after_a_fall_was_seen_refuses_the_bucket() {
    let restoration = Restoration::new().await;
    stock::restore(&restoration.server, &restoration.backup_of_volumes()).await;
    let fell = || async {
        restoration.is_lost().await;
        let started = || is_refused_at_a_start(&restoration.server);
        wait::until("a start is refused", PATIENCE, async || started().await).await;
    };
    fell().await;
    // The record of the fall may be lost, too, or set back to the backup's.
    stock::restore(&restoration.server, &restoration.backup.path().join("buckets")).await;
    fell().await;
    plain(&restoration.server.url()).await.delete_stream("KV_berth-buckets").await.unwrap();
    fell().await;
    restoration.is_lost().await;
    assert!(accept_volumes(&restoration.server).await.above > restoration.late);
    restoration.is_served().await;
    connect(&restoration.server.url()).await.bucket(&VOLUMES, 1).await.unwrap();
}

/// All processes were stopped while another tool restored the bucket, so none saw it fall.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_fell_while_no_process_ran_is_refused() {
    let restoration = Restoration::new().await;
    restoration.bus.drain(PATIENCE).await;
    stock::restore(&restoration.server, &restoration.backup_of_volumes()).await;
    is_refused_at_a_start(&restoration.server).await.unwrap();
    // Growth past the old end proves nothing.
    restoration.grow_past_what_was_seen().await;
    is_refused_at_a_start(&restoration.server).await.unwrap();
    assert!(accept_volumes(&restoration.server).await.above > restoration.late);
    connect(&restoration.server.url()).await.bucket(&VOLUMES, 1).await.unwrap();
}

/// A process that started before the fall was put on record learns of it later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_without_memory_learns_of_a_fall_that_others_saw() {
    let (server, bus) = one().await;
    let volumes = bus.bucket(&VOLUMES, 1).await.unwrap();
    let records = plain(&server.url()).await.get_key_value("berth-buckets").await.unwrap();
    let record = records.get(VOLUMES.name).await.unwrap().expect("the bucket is on record");
    let mut entry: serde_json::Value = serde_json::from_slice(&record).unwrap();
    entry["fell"] = "of a test".into();
    records.put(VOLUMES.name, entry.to_string().into()).await.unwrap();
    wait::until("the process refuses", PATIENCE * 3, async || match volumes.head(">").await {
        Err(ReadError::Lost(loss)) if loss.why.contains("of a test") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    // The process that saw the fall takes it back, or an operator accepts the bucket.
    records.put(VOLUMES.name, record.clone()).await.unwrap();
    wait::until("it serves", PATIENCE, async || volumes.head(">").await).await;
    records.put(VOLUMES.name, entry.to_string().into()).await.unwrap();
    wait::until("it refuses", PATIENCE * 3, async || {
        volumes.head(">").await.err().ok_or("it serves")
    })
    .await;
    accept_volumes(&server).await;
    wait::until("it serves", PATIENCE, async || volumes.head(">").await).await;
}

/// A collector that found a marker in the old stream would purge the value of the restored one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_that_was_decided_before_a_restore_purges_nothing() {
    let server = Server::start().await;
    let wire = Wire::default();
    let proxy = Proxy::across(server.address(), "collector", &wire).await;
    let bucket = connect(&proxy.url()).await.bucket(&BRIEF, 1).await.unwrap();
    set(&bucket, "v.spec", "1").await;
    unset(&bucket, "v.spec").await;
    // Until the marker is old, and the last comparison of the stream is outdated.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let read = "$JS.API.DIRECT.GET.KV_state".to_owned();
    wire.arm(Point { subjects: vec![read], at: 0, side: Side::After });
    let collector = bucket.clone();
    let purge = tokio::spawn(async move {
        collector.purge_deleted(&mut berth_bus::PurgePosition::default()).await
    });
    wire.tripped().await;
    replace(&server, &["v.spec"]).await;
    proxy.heal();
    let purged = purge.await.unwrap();
    let spec = connect(&server.url()).await.bucket(&STATE, 1).await.unwrap().get("v.spec").await;
    let spec = spec.unwrap().expect("its message is there");
    assert_eq!(spec.value.as_deref(), Some(&b"restored"[..]), "{purged:?}");
}
