//! Copies of buckets and streams: on one server, on three, on a cluster that forms, and after the
//! move from one server to three.

use std::time::Duration;

use async_nats::jetstream;
use berth_bus::replication::{CopiesReport, StreamCopies};
use berth_bus::restore::Backups;
use berth_bus::{Bus, Config, Copies, OpenError};
use berth_contract::bucket::{ALL, LEASES, VOLUMES};
use berth_contract::stream::EVENTS;
use berth_harness::dirs::Dir;
use berth_harness::nats::NatsServers;
use berth_harness::wait;
use tokio::time::timeout;

use crate::support::{PATIENCE, config, connect, listed, plain, set};

/// Elections and new copies take seconds each, on a machine that others use too.
const SETTLED: Duration = Duration::from_secs(90);

/// The name, the copies and the wanted copies of each stream that exists.
fn numbers(report: &CopiesReport) -> Vec<(&str, Option<u8>, u8)> {
    let each = report.streams.iter();
    each.map(|stream| (stream.stream.as_str(), stream.copies, stream.wanted)).collect()
}

/// The copies of a stream, by the server's own description.
async fn replicas(url: &str, stream: &str) -> usize {
    plain(url).await.get_stream(stream).await.unwrap().cached_info().config.num_replicas
}

#[tokio::test]
async fn one_server_gives_one_copy_and_that_is_enough() {
    let servers = NatsServers::start(1).await;
    let bus = connect(&servers.url()).await;
    assert_eq!(bus.copies(Copies::ByCluster).await.streams, [], "nothing is made by a look");
    let bucket = bus.bucket(&LEASES, Copies::ByCluster).await.unwrap();
    assert_eq!(bucket.drift(), []);
    assert_eq!(bus.events(&EVENTS, Copies::ByCluster).await.unwrap().drift(), []);
    let report = bus.copies(Copies::ByCluster).await;
    assert_eq!(
        numbers(&report),
        [
            ("BERTH_EVENTS", Some(1), 1),
            ("KV_berth-buckets", Some(1), 1),
            ("KV_berth-leases", Some(1), 1),
        ]
    );
    assert_eq!((report.cluster, report.servers.len()), (None, 1));
    assert!(report.servers.iter().all(|server| server.answers));
    assert!(report.streams.iter().all(StreamCopies::is_settled));
    // There is nothing to raise, and no server for a second copy.
    let raised = bus.raise_copies(None, SETTLED, |_| {}).await;
    assert_eq!(raised.short().count(), 0);
    let refused = timeout(PATIENCE, bus.raise_copies(Some(3), SETTLED * 9, |_| {})).await.unwrap();
    assert_eq!(refused.short().count(), 3, "{refused:?}");
    let problem = |stream: &str| {
        let listed = refused.streams.iter().find(|listed| listed.stream == stream);
        listed.unwrap().problem.clone().unwrap()
    };
    assert!(problem("KV_berth-leases").contains("non-clustered"), "{refused:?}");
    assert!(problem("BERTH_EVENTS").contains("nats stream rm BERTH_EVENTS"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_give_three_copies_and_one_may_be_lost() {
    let servers = NatsServers::start(3).await;
    let url = servers.url();
    let bus = connect(&url).await;
    let volumes = bus.bucket(&VOLUMES, Copies::ByCluster).await.unwrap();
    assert_eq!(volumes.drift(), []);
    assert_eq!(bus.events(&EVENTS, Copies::ByCluster).await.unwrap().drift(), []);
    for stream in ["KV_berth-volumes", "KV_berth-buckets", EVENTS.name] {
        assert_eq!(replicas(&url, stream).await, 3, "{stream}");
    }
    // A configured number replaces the cluster's, and is the wanted number from then on.
    let leases = bus.bucket(&LEASES, 1).await.unwrap();
    assert_eq!(leases.drift(), []);
    assert_eq!(replicas(&url, "KV_berth-leases").await, 1);
    assert_eq!(bus.copies(Copies::Exactly(1)).await.short().count(), 0);
    let report = bus.copies(Copies::ByCluster).await;
    assert_eq!(report.servers.len(), 3, "{report:?}");
    let short: Vec<&str> = report.short().map(|stream| stream.stream.as_str()).collect();
    assert_eq!(short, ["KV_berth-leases"]);
    set(&leases, "node.n1", "before").await;
    set(&volumes, "default.v.spec", "before").await;

    // The stream that lacks copies gets them, and no other stream is changed.
    let mut reports = 0;
    let raised = bus.raise_copies(None, SETTLED, |_| reports += 1).await;
    assert!(raised.streams.iter().all(StreamCopies::is_settled), "{raised:?}");
    assert!(reports >= 2, "progress was told {reports} times");
    assert_eq!(replicas(&url, "KV_berth-leases").await, 3);

    // Any server may be lost, also the one that kept the only copy.
    let lost = servers.leader_of("KV_berth-leases").await;
    servers.servers()[lost].kill9();
    let remaining = (0..3).filter(|server| *server != lost);
    let remaining =
        remaining.map(|server| servers.servers()[server].url()).collect::<Vec<_>>().join(",");
    // A leader that died does not answer, so each exchange is short and is tried often.
    let brief =
        Config { start_timeout: SETTLED, ..Config::new([remaining], "test/host/2").insecure() };
    let other = Bus::connect(brief).await.unwrap();
    for (spec, key) in [(&LEASES, "node.n1"), (&VOLUMES, "default.v.spec")] {
        let bucket = other.bucket(spec, Copies::ByCluster).await.unwrap();
        wait::until("the bucket answers and takes writes", SETTLED, async || {
            let entry = bucket.get(key).await.map_err(|error| error.to_string())?.unwrap();
            assert_eq!(entry.value.as_deref(), Some(&b"before"[..]), "{key} is lost");
            bucket.head(key).await.map_err(|error| error.to_string())
        })
        .await;
        set(&bucket, key, "after").await;
    }
    // The lost server still counts: no stream gets fewer copies because a server is away.
    wait::until("each stream has a leader and one follower again", SETTLED, async || {
        let report = other.copies(Copies::ByCluster).await;
        let answering = report.servers.iter().filter(|server| server.answers).count();
        let as_expected = |stream: &StreamCopies| {
            (stream.copies, stream.wanted, stream.in_sync) == (Some(3), 3, 2)
        };
        let is_so = answering == 2 && report.streams.iter().all(as_expected);
        if is_so { Ok(()) } else { Err(format!("{report:?}")) }
    })
    .await;
}

/// Two of three servers look like a small cluster: no stream gets one copy there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_forms_makes_no_stream_until_its_third_server_is_there() {
    let mut servers = NatsServers::start_incomplete(3).await;
    let url = servers.url();
    // Two servers have a leader, and would make a stream with one copy.
    let probe = jetstream::stream::Config {
        name: "PROBE".to_owned(),
        subjects: vec!["probe".to_owned()],
        ..jetstream::stream::Config::default()
    };
    let two = plain(&url).await;
    wait::until("two servers make streams", SETTLED, async || {
        two.create_stream(probe.clone()).await
    })
    .await;
    let brief = Config { start_timeout: Duration::from_secs(2), ..config(&url) };
    let bus = Bus::connect(brief).await.unwrap();
    let error = bus.bucket(&VOLUMES, Copies::ByCluster).await.unwrap_err();
    assert!(matches!(error, OpenError::TooFewServers { .. }), "{error:?}");
    for part in ["KV_berth-buckets", "cluster berth", "replicas = 1"] {
        assert!(error.to_string().contains(part), "{error} does not say {part}");
    }
    assert_eq!(bus.copies(Copies::ByCluster).await.streams, [], "nothing was made");

    // A service that starts meanwhile continues by itself once the third server is there.
    let patient = Bus::connect(Config { start_timeout: SETTLED, ..config(&url) }).await.unwrap();
    let opening = patient.bucket(&VOLUMES, Copies::ByCluster);
    let (opened, ()) = tokio::join!(opening, servers.complete());
    opened.unwrap();
    assert_eq!(replicas(&servers.url(), "KV_berth-volumes").await, 3);
}

/// The steps of docs/failover.md: a server that joins a cluster with streams of its own loses them,
/// so they are backed up before and restored after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_one_server_are_taken_to_three_and_raised() {
    let first_server = NatsServers::start(1).await;
    let bus = connect(&first_server.url()).await;
    for spec in &ALL {
        bus.bucket(spec, Copies::ByCluster).await.unwrap();
    }
    let volumes = bus.bucket(&VOLUMES, Copies::ByCluster).await.unwrap();
    set(&volumes, "default.v.spec", "1").await;
    let kept = listed(&volumes, ">").await;
    let backup = Dir::new("backup");
    let names = bus.back_up(backup.path(), |_| {}).await.unwrap();
    drop((volumes, bus, first_server));

    let three = NatsServers::start(3).await;
    let url = three.url();
    let backups = Backups::read(backup.path()).await.unwrap();
    connect(&url).await.restore_buckets(&backups, |_| {}).await.unwrap();
    // Services may be started first: restored streams keep their one copy, and services report
    // that.
    let bus = connect(&url).await;
    let volumes = bus.bucket(&VOLUMES, Copies::ByCluster).await.unwrap();
    assert_eq!(volumes.drift(), []);
    let report = bus.copies(Copies::ByCluster).await;
    assert_eq!(report.short().count(), names.len(), "{report:?}");
    let raised = bus.raise_copies(None, SETTLED, |_| {}).await;
    assert!(raised.streams.iter().all(StreamCopies::is_settled), "{raised:?}");
    for name in &names {
        assert_eq!(replicas(&url, &format!("KV_{name}")).await, 3, "{name}");
    }
    assert_eq!(listed(&volumes, ">").await, kept);
    set(&volumes, "default.v.spec", "2").await;

    // A number that is given is also applied if it is smaller.
    let lowered = bus.raise_copies(Some(1), SETTLED, |_| {}).await;
    assert!(lowered.streams.iter().all(|stream| stream.copies == Some(1)), "{lowered:?}");
    // More copies than there are servers are refused, with the server's reason.
    let refused = bus.raise_copies(Some(5), Duration::from_secs(3), |_| {}).await;
    assert_eq!(refused.short().count(), names.len(), "{refused:?}");
    assert!(refused.streams.iter().all(|stream| stream.problem.is_some()), "{refused:?}");
}
