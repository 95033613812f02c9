//! Servers come up with the shipped configuration and keep what they stored.

use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use berth_harness::dirs::Dir;
use berth_harness::nats::{self, NatsOptions, NatsServers, Server};
use berth_harness::ports::Port;
use berth_harness::root::or_skip;
use berth_harness::wait;

mod client;

use client::ask;

#[tokio::test]
async fn a_killed_server_comes_back_on_its_port_with_its_data() {
    let server = Server::start().await;
    let (url, pid) = (server.url(), server.daemon().pid());
    ask(&server, "$JS.API.STREAM.CREATE.S", r#"{"name":"S","subjects":["s"]}"#);
    ask(&server, "s", "kept");

    server.kill9();
    assert!(TcpStream::connect(("127.0.0.1", server.port())).is_err());
    server.restart().await;

    assert_eq!(server.url(), url);
    assert_ne!(server.daemon().pid(), pid);
    let info = ask(&server, "$JS.API.STREAM.INFO.S", "");
    assert!(info.contains(r#""messages":1"#), "{info}");
}

#[tokio::test]
async fn the_shipped_configuration_is_what_runs() {
    let monitor = Port::reserve();
    let extra = &format!("ping_max: 7, http: \"{}\"", monitor.address());
    let options = NatsOptions { extra, ..NatsOptions::default() };
    let servers = NatsServers::start_with(1, options).await;

    let jetstream = client::http_get(monitor.number(), "/jsz");
    assert!(jetstream.contains(r#""sync_always": true"#), "{jetstream}");
    let variables = client::http_get(monitor.number(), "/varz");
    assert!(variables.contains(r#""ping_interval": 3000000000"#), "{variables}");
    assert!(variables.contains(r#""ping_max": 7"#), "the test's value wins: {variables}");
    assert!(servers.first().terminate().await.success());
}

#[test]
fn the_shipped_configuration_starts_no_server_without_its_host_file() {
    let shipped = berth_harness::repository().join("deploy/nats/nats.conf");
    let dir = Dir::new("shipped");
    let path = dir.join("nats.conf");
    std::fs::copy(shipped, &path).unwrap();
    let check = || Command::new(nats::program()).arg("-t").arg("-c").arg(&path).output().unwrap();
    let incomplete = check();
    assert!(!incomplete.status.success());
    assert!(
        String::from_utf8_lossy(&incomplete.stderr).contains("nats/host.conf"),
        "{incomplete:?}"
    );
    std::fs::create_dir(dir.join("nats")).unwrap();
    std::fs::write(dir.join("nats/host.conf"), "server_name: n1\n").unwrap();
    let complete = check();
    assert!(complete.status.success(), "{}", String::from_utf8_lossy(&complete.stderr));
}

#[tokio::test]
async fn a_paused_server_answers_when_resumed() {
    let server = Server::start().await;
    server.pause();
    let request = std::thread::spawn({
        let port = server.port();
        move || client::ask_port(port, "$JS.API.INFO", "")
    });
    // Many times what an answer takes.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!request.is_finished());
    server.resume();
    assert!(request.join().unwrap().contains("\"memory\""));
}

#[tokio::test]
async fn servers_started_side_by_side_do_not_meet() {
    let starts: Vec<_> = (0..6).map(|_| tokio::spawn(Server::start())).collect();
    let mut servers = Vec::new();
    for start in starts {
        servers.push(start.await.unwrap());
    }
    for (index, server) in servers.iter().enumerate() {
        let config = format!(r#"{{"name":"S{index}","subjects":["s"]}}"#);
        ask(server, &format!("$JS.API.STREAM.CREATE.S{index}"), &config);
    }
    for server in &servers {
        assert!(ask(server, "$JS.API.STREAM.NAMES", "").contains(r#""total":1"#));
    }
}

#[tokio::test]
async fn a_cluster_of_three_outlives_the_leader_of_a_stream() {
    let started = Instant::now();
    let cluster = NatsServers::start(3).await;
    println!("three servers took {:?}", started.elapsed());
    let config = r#"{"name":"S","subjects":["s"],"num_replicas":3}"#;
    // The leader may not know all servers yet.
    wait::until("the stream is made", Duration::from_secs(30), async || {
        let created = ask(&cluster.servers()[0], "$JS.API.STREAM.CREATE.S", config);
        if created.contains(r#""error""#) { Err(created) } else { Ok(()) }
    })
    .await;

    let leader = cluster.leader_of("S").await;
    ask(&cluster.servers()[leader], "s", "kept");
    cluster.servers()[leader].kill9();
    let next = cluster.leader_of("S").await;
    assert_ne!(next, leader);

    cluster.servers()[leader].restart().await;
    cluster.ready().await;
    wait::until("the killed server is current again", Duration::from_secs(30), async || {
        let info = ask(&cluster.servers()[next], "$JS.API.STREAM.INFO.S", "");
        let current = info.matches(r#""current":true"#).count();
        if current == 2 && info.contains(r#""messages":1"#) { Ok(()) } else { Err(info) }
    })
    .await;
}

/// The other servers elect another leader, whether the leader is parted from them or only muted.
#[tokio::test(flavor = "multi_thread")]
async fn servers_are_parted_muted_and_joined() {
    if !or_skip("disks of their own") {
        return;
    }
    let disk_bytes = Some(64 << 20);
    let options = NatsOptions { disk_bytes, breakable: true, ..NatsOptions::default() };
    let cluster = NatsServers::start_with(3, options).await;
    let config = r#"{"name":"S","subjects":["s"],"num_replicas":3}"#;
    let created = ask(&cluster.servers()[0], "$JS.API.STREAM.CREATE.S", config);
    assert!(!created.contains(r#""error""#), "{created}");
    for muted in [false, true] {
        let leader = cluster.leader_of("S").await;
        let others: Vec<usize> = (0..3).filter(|server| *server != leader).collect();
        for other in &others {
            if muted {
                cluster.mute(leader, *other);
            } else {
                cluster.part(leader, *other);
            }
        }
        wait::until("the other two elect another", Duration::from_secs(60), async || match cluster
            .leader_seen_by(others[0], "S")
            .await
        {
            Ok(now) if now != leader => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        for other in &others {
            cluster.join(leader, *other);
        }
        cluster.ready().await;
        wait::until("all three are current again", Duration::from_secs(60), async || {
            let led_by = cluster.leader_of("S").await;
            let info = ask(&cluster.servers()[led_by], "$JS.API.STREAM.INFO.S", "");
            if info.matches(r#""current":true"#).count() == 2 { Ok(()) } else { Err(info) }
        })
        .await;
    }
}
