//! Getting onto the bus and staying there.

use std::time::Duration;

use berth_bus::{Bus, Config, ConnectError, Credentials};
use berth_harness::nats::{NatsOptions, NatsServers, Server};
use berth_harness::ports::Port;
use berth_harness::proxy::Proxy;
use berth_harness::wait;
use tokio::time::Instant;

use crate::support::{PATIENCE, STATE, config, connect, mirror, one, put, set};

#[tokio::test]
async fn a_server_that_is_not_there_is_named_by_the_deadline() {
    let port = Port::reserve();
    let url = format!("nats://user:hunter2@{}", port.address());
    let config =
        Config { start_timeout: Duration::from_millis(700), ..Config::new([url], "test/h/1") };
    let began = Instant::now();
    let error = Bus::connect(config).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let said = error.to_string();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{said}");
    assert!(said.contains(&port.address().to_string()), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[tokio::test]
async fn a_server_that_starts_late_is_waited_for() {
    let server = Server::start().await;
    server.terminate().await;
    let connecting = tokio::spawn(Bus::connect(config(&server.url())));
    server.restart().await;
    assert!(connecting.await.unwrap().unwrap().connected());
}

/// The client's own pings would take a minute longer than is waited for here.
#[tokio::test]
async fn a_connection_that_carries_nothing_any_more_is_made_anew() {
    let server = Server::start().await;
    let sound = connect(&server.url()).await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], server.port()));
    let proxy = Proxy::start(address).await;
    let bus = connect(&proxy.url()).await;
    let bucket = bus.bucket(&STATE, 1).await.unwrap();
    set(&bucket, "k", "before").await;
    proxy.lose();
    assert!(!bus.flush(Duration::from_secs(1)).await && bus.connected(), "nothing shows it");
    wait::until("another connection is made", PATIENCE, async || {
        let connects = bus.counts().connects;
        if connects == 2 { Ok(()) } else { Err(connects) }
    })
    .await;
    wait::until("it carries", PATIENCE, async || {
        bucket.get("k").await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(sound.counts().connects, 1, "nobody doubts one that nobody used");
}

#[tokio::test]
async fn wrong_credentials_are_said_to_be_wrong() {
    let extra = "authorization { user: u, password: right }";
    let server = NatsServers::start_with(1, NatsOptions { extra, ..NatsOptions::default() }).await;
    let with = |password: &str| Config {
        credentials: Credentials::Password { user: "u".into(), password: password.into() },
        start_timeout: Duration::from_secs(2),
        ..config(&server.url())
    };
    let said = Bus::connect(with("wrong")).await.unwrap_err().to_string();
    assert!(said.contains("authorization violation"), "{said}");
    assert!(!said.contains("wrong"), "{said}");
    assert!(Bus::connect(with("right")).await.unwrap().connected());
}

#[tokio::test]
async fn the_seed_of_an_nkey_is_taken_from_a_file() {
    // A key pair made for this test alone.
    const SEED: &str = "SUAEIYF5XP7U5TK256NNI5PTD6MW2ZZUSUFAYAD34CLXEVQADLYDYRZVGY";
    const USER: &str = "UD4CSX7KCWU3EGIHUW5TUX3FRI5NPGMNXGWNXLKETLJMDJLERVHWLIQC";
    let extra = &format!("authorization {{ users: [{{ nkey: {USER} }}] }}");
    let server = NatsServers::start_with(1, NatsOptions { extra, ..NatsOptions::default() }).await;
    let dir = berth_harness::dirs::Dir::new("seed");
    let path = dir.join("test.nk");
    std::fs::write(&path, format!("{SEED}\n")).unwrap();
    let with =
        |path| Config { credentials: Credentials::NkeySeedFile(path), ..config(&server.url()) };
    assert!(Bus::connect(with(path)).await.unwrap().connected());
    let error = Bus::connect(with(dir.join("none.nk"))).await.unwrap_err();
    assert!(error.to_string().contains("none.nk"), "{error}");
}

#[tokio::test]
async fn a_refused_permission_is_counted_and_not_only_a_timeout() {
    let extra = "authorization { users: [{ user: u, password: p, permissions: {
        publish: { deny: [\"$KV.state.secret.>\"] } } }] }";
    let server = NatsServers::start_with(1, NatsOptions { extra, ..NatsOptions::default() }).await;
    let config = Config {
        credentials: Credentials::Password { user: "u".into(), password: "p".into() },
        commit_timeout: Duration::from_millis(300),
        request_timeout: Duration::from_millis(200),
        ..config(&server.url())
    };
    let bus = Bus::connect(config).await.unwrap();
    let bucket = bus.bucket(&STATE, 1).await.unwrap();
    let refused = bucket.commit(put("secret.a", "x", "secret.a", 0)).await;
    assert!(refused.is_err());
    wait::until("the violation is counted", PATIENCE, async || {
        let counts = bus.counts();
        if counts.permission_violations > 0 { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
}

#[tokio::test]
async fn answers_come_to_an_inbox_of_ones_own() {
    let extra = "authorization { users: [{ user: u, password: p, permissions: {
        subscribe: { allow: [\"_INBOX_test.>\"] } } }] }";
    let server = NatsServers::start_with(1, NatsOptions { extra, ..NatsOptions::default() }).await;
    let with = |inbox_prefix: Option<&str>| Config {
        credentials: Credentials::Password { user: "u".into(), password: "p".into() },
        inbox_prefix: inbox_prefix.map(str::to_owned),
        start_timeout: Duration::from_millis(500),
        request_timeout: Duration::from_millis(200),
        ..config(&server.url())
    };
    let bus = Bus::connect(with(Some("_INBOX_test"))).await.unwrap();
    let bucket = bus.bucket(&STATE, 1).await.unwrap();
    // Writes, reads, batched reads and consumers all answer there.
    set(&bucket, "k", "v").await;
    assert!(bucket.list(">").await.unwrap().settled);
    assert_eq!(mirror(&bucket, ">").await.applied(), 1);
    assert!(Bus::connect(with(None)).await.unwrap().bucket(&STATE, 1).await.is_err());
}

#[tokio::test]
async fn a_bus_comes_back_soon_after_its_server_does() {
    let (server, bus) = one().await;
    assert!(bus.connected());
    server.kill9();
    wait::until("the loss is noticed", PATIENCE, async || {
        if bus.connected() { Err("connected") } else { Ok(()) }
    })
    .await;
    server.restart().await;
    let back = Instant::now();
    wait::until(
        "it is back",
        PATIENCE,
        async || {
            if bus.connected() { Ok(()) } else { Err("disconnected") }
        },
    )
    .await;
    assert!(back.elapsed() < Duration::from_secs(3), "{:?}", back.elapsed());
    wait::until("both are counted", PATIENCE, async || {
        let counts = bus.counts();
        let both = counts.disconnects >= 1 && counts.connects >= 2;
        if both { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
}

#[tokio::test]
async fn a_drained_bus_is_gone_and_says_so() {
    let (server, bus) = one().await;
    bus.drain(PATIENCE).await;
    // Another one is not touched.
    assert!(connect(&server.url()).await.connected());
    let bucket = bus.bucket(&STATE, 1);
    let opened = tokio::time::timeout(Duration::from_secs(1), bucket).await;
    assert!(!matches!(opened, Ok(Ok(_))), "a drained bus opens nothing");
}
