//! A fleet of one machine.

use std::path::Path;
use std::time::{Duration, Instant};

use berth_access::{LocalFleet, Role};
use berth_domain::{NodeId, PluginId};
use berth_harness::nats::{NatsOptions, NatsServers};
use berth_harness::wait;
use nix::sys::signal::Signal;

use crate::client::{Client, Dial};
use crate::server::SOON;

fn node(controllers: &[&str]) -> Role {
    let controllers = controllers.iter().map(|id| PluginId::new(*id).unwrap()).collect();
    Role::Node { node: NodeId::new("n1").unwrap(), controllers }
}

/// It takes milliseconds. The bound is for a busy machine and a build without optimisation.
#[test]
fn a_fleet_is_made_fast() {
    let dir = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let fleet = LocalFleet::create(&dir.path().join("access"), &["n1", "n2", "n3"]).unwrap();
    for role in berth_contract::role::SERVICES {
        fleet.creds(&role).unwrap();
    }
    let took = started.elapsed();
    println!("three servers and four services: {took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn its_server_accepts_its_identities() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = LocalFleet::create(&dir.path().join("access"), &["berth"]).unwrap();
    let extra = &fleet.server_config("berth").unwrap();
    let servers = NatsServers::start_with(1, NatsOptions { extra, ..NatsOptions::default() }).await;
    let (ca, creds) = (fleet.ca(), fleet.creds(&Role::Claim).unwrap());
    let port = servers.first().port();
    let dial = Dial { port, name: "127.0.0.1", ca: &ca, creds: Some(&creds), token: None };
    assert!(Client::connect(dial).unwrap().answers());
    assert!(Client::connect(Dial { creds: None, ..dial }).is_err());
    fleet.revoke("claim").unwrap();
    assert_ne!(&fleet.server_config("berth").unwrap(), extra);
    assert!(fleet.server_config("elsewhere").is_err());
}

/// `berth dev` relies on this: the configuration stays, and a reload reads the identities again.
#[tokio::test]
async fn a_server_that_includes_its_identities_reads_a_revocation_by_a_reload() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = LocalFleet::create(&dir.path().join("access"), &["berth"]).unwrap();
    // Deeper than the harness's directory for the configuration: a relative path upwards ends at
    // the root.
    let config = Path::new("/1/2/3/4/5/6/7/8/9/10/11/12");
    // A reload does not change a server's name, not even to that of the command line.
    let name = "server_name: berth\n".to_owned();
    let extra = &(name + &fleet.server_config_in(config, "berth").unwrap());
    let servers = NatsServers::start_with(1, NatsOptions { extra, ..NatsOptions::default() }).await;
    let (ca, creds) = (fleet.ca(), dir.path().join("kept"));
    std::fs::copy(fleet.creds(&node(&[])).unwrap(), &creds).unwrap();
    let port = servers.first().port();
    let dial = Dial { port, name: "127.0.0.1", ca: &ca, creds: Some(&creds), token: None };
    assert!(Client::connect(dial).unwrap().answers());
    fleet.revoke("node/n1").unwrap();
    servers.first().daemon().signal(Signal::SIGHUP);
    wait::until("the server has loaded the revocation", SOON, async || {
        if Client::connect(dial).is_err() { Ok(()) } else { Err("it connects".to_owned()) }
    })
    .await;
}

#[test]
fn an_identity_is_made_once_and_again_with_other_rights() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access");
    let fleet = LocalFleet::create(&path, &["berth"]).unwrap();
    let read = |role: &Role| std::fs::read_to_string(fleet.creds(role).unwrap()).unwrap();
    let first = read(&node(&[]));
    assert_eq!(read(&node(&[])), first);
    let second = read(&node(&["p"]));
    assert_ne!(second, first);
    let reopened = LocalFleet::open(&path).unwrap();
    assert_eq!(std::fs::read_to_string(reopened.creds(&node(&["p"])).unwrap()).unwrap(), second);
    // Many tests of one process call it at the same time.
    let texts: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| read(&Role::Gc))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(texts.iter().all(|text| *text == texts[0]));
}
