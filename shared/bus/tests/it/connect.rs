//! Connecting to the bus, and staying connected.

use std::time::Duration;

use berth_bus::{Bus, Call, Config, ConnectError, Credentials, RequestError};
use berth_harness::nats::{NatsOptions, NatsServers, Server};
use berth_harness::ports::Port;
use berth_harness::proxy::Proxy;
use berth_harness::wait;
use serde_json::Value;
use tokio::time::Instant;

use crate::support::{PATIENCE, STATE, config, connect, mirror, one, set, trace};

#[tokio::test]
async fn an_unreachable_server_is_named_by_the_deadline() {
    let port = Port::reserve();
    let url = format!("nats://user:hunter2@{}", port.address());
    let config = Config {
        start_timeout: Duration::from_millis(700),
        ..Config::new([url], "test/h/1").insecure()
    };
    let began = Instant::now();
    let error = Bus::connect(config).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let text = error.to_string();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{text}");
    assert!(text.contains(&port.address().to_string()), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn a_server_that_starts_late_is_waited_for() {
    let server = Server::start().await;
    server.terminate().await;
    let connecting = tokio::spawn(Bus::connect(config(&server.url())));
    server.restart().await;
    assert!(connecting.await.unwrap().unwrap().connected());
}

/// The client's own pings would take a minute longer than the test waits.
#[tokio::test]
async fn a_connection_that_carries_nothing_is_replaced() {
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
async fn wrong_credentials_are_reported_at_once() {
    let extra = "authorization { user: u, password: right }";
    let server = NatsServers::start_with(1, NatsOptions { extra, ..NatsOptions::default() }).await;
    let with = |password: &str| Config {
        credentials: Credentials::Password { user: "u".into(), password: password.into() },
        start_timeout: PATIENCE,
        ..config(&server.url())
    };
    let began = Instant::now();
    let error = Bus::connect(with("wrong")).await.unwrap_err();
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    let text = error.to_string();
    assert!(matches!(error, ConnectError::Refused { .. }), "{text}");
    assert!(text.contains("authorization violation"), "{text}");
    assert!(!text.contains("wrong"), "{text}");
    assert!(Bus::connect(with("right")).await.unwrap().connected());
    let address = |credentials: &str| format!("nats://{credentials}@{}", server.first().address());
    assert!(Bus::connect(config(&address("u:right"))).await.unwrap().connected());
    assert!(Bus::connect(config(&address("u:r%69ght"))).await.unwrap().connected());
    assert!(Bus::connect(config(&address("u:other"))).await.is_err());
}

#[tokio::test]
async fn the_seed_of_an_nkey_is_taken_from_a_file() {
    // A key pair that was made for this test.
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
async fn a_refused_permission_ends_its_exchange_at_once_and_is_counted() {
    let extra = "authorization { users: [{ user: u, password: p, permissions: {
        publish: { deny: [\"$KV.state.secret.>\", \"forbidden.>\", \"$JS.API.STREAM.INFO.*\"]
        } } }] }";
    let server = NatsServers::start_with(1, NatsOptions { extra, ..NatsOptions::default() }).await;
    let config = |user: &str| Config {
        credentials: Credentials::Password { user: user.into(), password: "p".into() },
        commit_timeout: PATIENCE,
        start_timeout: PATIENCE,
        request_timeout: PATIENCE,
        ..config(&server.url())
    };
    let bus = Bus::connect(config("u")).await.unwrap();
    let began = Instant::now();
    let call = Call::within(trace(), PATIENCE);
    let requests = (0..8).map(|_| bus.request::<Value>("forbidden", "", &call));
    for refused in futures_util::future::join_all(requests).await {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, RequestError::NotAllowed { .. }), "{refused}");
    }
    let surveyed = bus.survey::<Value>("forbidden.q", PATIENCE).await.unwrap_err();
    assert!(matches!(surveyed, RequestError::NotAllowed { .. }), "{surveyed}");
    let opened = bus.bucket(&STATE, 1).await.unwrap_err();
    assert!(opened.to_string().contains("refuses"), "{opened}");
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    assert!(bus.counts().permission_violations >= 9, "{:?}", bus.counts());
    // Allowed messages are not affected.
    assert!(bus.flush(PATIENCE).await);
}

#[tokio::test]
async fn answers_come_to_the_inbox_of_the_identity() {
    let of = |key: &nkeys::KeyPair| {
        let key = key.public_key();
        format!(
            "{{ nkey: {key}, permissions: {{ subscribe: {{ allow: [\"_INBOX.{key}.>\"] }} }} }}"
        )
    };
    let key = nkeys::KeyPair::new_user();
    let extra = format!(
        "authorization {{ users: [{}, {{ user: u, password: p, permissions: {{ subscribe: {{ \
         deny: [\"_INBOX.>\"] }} }} }}] }}",
        of(&key)
    );
    let options = NatsOptions { extra: &extra, ..NatsOptions::default() };
    let server = NatsServers::start_with(1, options).await;
    let dir = berth_harness::dirs::Dir::new("seed");
    let seed = dir.join("test.nk");
    std::fs::write(&seed, key.seed().unwrap()).unwrap();
    let with = |credentials| Config {
        credentials,
        start_timeout: PATIENCE,
        request_timeout: PATIENCE,
        ..config(&server.url())
    };
    let bus = Bus::connect(with(Credentials::NkeySeedFile(seed))).await.unwrap();
    let bucket = bus.bucket(&STATE, 1).await.unwrap();
    // Writes, reads, batched reads and consumers all answer to the identity's own inbox.
    set(&bucket, "k", "v").await;
    assert!(bucket.list(">").await.unwrap().settled);
    assert_eq!(mirror(&bucket, ">").await.applied(), 1);
    let password = Credentials::Password { user: "u".into(), password: "p".into() };
    let deaf = Bus::connect(with(password)).await.unwrap();
    let began = Instant::now();
    assert!(deaf.bucket(&STATE, 1).await.is_err());
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
}

/// After a restart of the server each connection subscribes to its inbox again.
#[tokio::test]
async fn a_restarted_server_answers_an_identity_again() {
    let key = nkeys::KeyPair::new_user();
    let inbox = format!("_INBOX.{}.>", key.public_key());
    let extra = format!(
        "authorization {{ users: [{{ nkey: {}, permissions: {{ subscribe: {{ allow: [\"{inbox}\"] \
         }} }} }}] }}",
        key.public_key()
    );
    let options = NatsOptions { extra: &extra, ..NatsOptions::default() };
    let server = NatsServers::start_with(1, options).await;
    let dir = berth_harness::dirs::Dir::new("seed");
    let seed = dir.join("test.nk");
    std::fs::write(&seed, key.seed().unwrap()).unwrap();
    let credentials = Credentials::NkeySeedFile(seed);
    let bus = Bus::connect(Config { credentials, ..config(&server.url()) }).await.unwrap();
    for _ in 0..5 {
        assert!(bus.flush(PATIENCE).await);
        server.first().kill9();
        server.first().restart().await;
        wait::until("the server answers", PATIENCE, async || {
            let answers = bus.flush(Duration::from_millis(500)).await;
            if answers { Ok(()) } else { Err(format!("{:?}", bus.counts())) }
        })
        .await;
    }
}

/// A new identity is put in place before its program is restarted (docs/install.md), and the server
/// is restarted in between.
#[tokio::test]
async fn a_running_program_keeps_its_key_when_its_file_gets_another() {
    let keys = [nkeys::KeyPair::new_user(), nkeys::KeyPair::new_user()];
    let users = keys.each_ref().map(|key| {
        let key = key.public_key();
        format!(
            "{{ nkey: {key}, permissions: {{ subscribe: {{ allow: [\"_INBOX.{key}.>\"] }} }} }}"
        )
    });
    let extra = format!("authorization {{ users: [{}] }}", users.join(", "));
    let options = NatsOptions { extra: &extra, ..NatsOptions::default() };
    let server = NatsServers::start_with(1, options).await;
    let dir = berth_harness::dirs::Dir::new("seed");
    let file = dir.join("test.nk");
    let connect = || {
        let credentials = Credentials::NkeySeedFile(file.clone());
        let request_timeout = Duration::from_secs(1);
        Bus::connect(Config { credentials, request_timeout, ..config(&server.url()) })
    };
    std::fs::write(&file, keys[0].seed().unwrap()).unwrap();
    let running = connect().await.unwrap();
    std::fs::write(&file, keys[1].seed().unwrap()).unwrap();
    server.first().kill9();
    server.first().restart().await;
    let restarted = connect().await.unwrap();
    for bus in [running, restarted] {
        wait::until("answers come to the inbox", PATIENCE, async || {
            let opened = bus.bucket(&STATE, 1).await;
            opened.map(|_| ()).map_err(|error| error.to_string())
        })
        .await;
    }
}

#[tokio::test]
async fn a_bus_reconnects_soon_after_its_server_restarts() {
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
        let is_reconnected = counts.disconnects >= 1 && counts.connects >= 2;
        if is_reconnected { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
}

#[tokio::test]
async fn a_drained_bus_opens_no_bucket() {
    let (server, bus) = one().await;
    bus.drain(PATIENCE).await;
    // Another connection is not affected.
    assert!(connect(&server.url()).await.connected());
    let bucket = bus.bucket(&STATE, 1);
    let opened = tokio::time::timeout(Duration::from_secs(1), bucket).await;
    assert!(!matches!(opened, Ok(Ok(_))), "a drained bus opens nothing");
}
