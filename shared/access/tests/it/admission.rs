//! Which identities are let in, and which are not.

use std::fs;
use std::path::Path;
use std::time::Duration;

use berth_access::directory::NewIdentity;
use berth_access::{Directory, Role};
use berth_domain::{NodeId, PluginId};
use berth_harness::wait;
use data_encoding::BASE64URL_NOPAD;
use serde_json::json;

use crate::client::{Client, Dial, connect_in_clear};
use crate::server::{Fleet, SOON, now};

fn node(name: &str) -> Role {
    let controllers = vec![PluginId::new("ebs.csi.aws.com").unwrap()];
    Role::Node { node: NodeId::new(name).unwrap(), controllers }
}

#[tokio::test]
async fn an_identity_connects_over_tls_and_is_found_by_its_key() {
    let mut fleet = Fleet::start(&["n1.example"]).await;
    let creds = fleet.creds(node("host.example"));
    let _client = fleet.connect(&creds).unwrap();
    let connections = fleet.servers[0].monitor("/connz?auth=1").unwrap();
    // The server shows the key, which also names the identity.
    let key = connections["connections"][0]["authorized_user"].as_str().unwrap();
    assert_eq!(fleet.directory.find(key).unwrap().name, "node/host.example");
    let service = fleet.creds(Role::Gc);
    let info = fleet.connect(&service).unwrap().request("$JS.API.INFO", &json!({}));
    assert_eq!(info["limits"]["max_storage"], json!(-1), "streams are unlimited: {info}");
    // Programs on the server's own host reach it by these names.
    for name in ["localhost", "127.0.0.1"] {
        Client::connect(Dial { name, ..fleet.dial(0, &fleet.directory.ca(), Some(&creds)) })
            .unwrap();
    }
}

#[tokio::test]
async fn a_stranger_is_refused() {
    let mut fleet = Fleet::start(&["n1.example"]).await;
    let creds = fleet.creds(Role::Claim);
    let ca = fleet.directory.ca();
    let refused = |dial: Dial<'_>| Client::connect(dial).unwrap_err();

    let clear = connect_in_clear(fleet.dial(0, &ca, None).port);
    assert!(!clear.contains("PONG"), "{clear}");
    let without = refused(fleet.dial(0, &ca, None));
    assert!(without.contains("Authorization Violation"), "{without}");

    // Another fleet: its identities, and its authority.
    let mut other_fleet = Fleet::start(&["n1.example"]).await;
    let foreign = other_fleet.creds(Role::Claim);
    let error = refused(fleet.dial(0, &ca, Some(&foreign)));
    assert!(error.contains("Authorization Violation"), "{error}");
    let error = refused(fleet.dial(0, &other_fleet.directory.ca(), Some(&creds)));
    assert!(error.contains("certificate"), "{error}");
    let error = refused(Dial { name: "n2.example", ..fleet.dial(0, &ca, Some(&creds)) });
    assert!(error.contains("not valid for name"), "{error}");

    // Claims that were changed after they were signed, and claims that another account signed.
    let token = |path: &Path| fs::read_to_string(path).unwrap().lines().nth(1).unwrap().to_owned();
    let (own, foreign) = (token(&creds), token(&foreign));
    let parts: Vec<&str> = own.split('.').collect();
    let claims = BASE64URL_NOPAD.decode(parts[1].as_bytes()).unwrap();
    let changed = String::from_utf8(claims).unwrap().replace("claim", "admin");
    let changed = BASE64URL_NOPAD.encode(changed.as_bytes());
    assert_ne!(changed, parts[1]);
    let forged = format!("{}.{changed}.{}", parts[0], parts[2]);
    for token in [forged.as_str(), foreign.as_str(), "", "a.b.c"] {
        let dial = Dial { token: Some(token), ..fleet.dial(0, &ca, Some(&creds)) };
        let error = refused(dial);
        assert!(error.contains("Authorization Violation"), "{error}");
    }
    assert!(fleet.connect(&creds).is_ok(), "the identity itself is let in");
}

#[tokio::test]
async fn an_identity_is_cut_off_when_it_expires() {
    let mut fleet = Fleet::start(&["n1.example"]).await;
    let new = NewIdentity {
        valid_for: Some(Duration::from_secs(3)),
        ..NewIdentity::of_role(Role::Inspect { name: "soon".to_owned() })
    };
    let creds = fleet.directory.issue(&new, now()).unwrap().creds;
    let mut client = fleet.connect(&creds).unwrap();
    let reason = client.read_to_end();
    assert!(reason.contains("User Authentication Expired"), "{reason}");
    // In the second of its end a server still accepts the identity, and ends the connection at
    // once.
    wait::until("the expired identity is refused", SOON, async || match fleet.connect(&creds) {
        Err(error) if error.contains("Authorization Violation") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

async fn await_routes(fleet: &Fleet, expected: usize) {
    for server in &fleet.servers {
        wait::until("each server has a route to each other", SOON, async || {
            let routes = server.monitor("/routez")?;
            let names = routes["routes"].as_array().unwrap().iter();
            let mut names: Vec<String> =
                names.map(|route| route["remote_name"].to_string()).collect();
            names.sort();
            names.dedup();
            if names.len() == expected { Ok(()) } else { Err(routes.to_string()) }
        })
        .await;
    }
}

#[tokio::test]
async fn three_servers_meet_over_tls_and_let_no_other_server_in() {
    let names = ["a.example", "b.example", "c.example"];
    let mut fleet = Fleet::start(&names).await;
    await_routes(&fleet, 2).await;
    let creds = fleet.creds(Role::Admin { name: "root".to_owned() });
    let stream = json!({ "name": "S", "subjects": ["s"], "num_replicas": 3 });
    wait::until("a stream with three replicas is made", SOON, async || {
        let created = fleet.connect(&creds)?.request("$JS.API.STREAM.CREATE.S", &stream);
        if created.get("error").is_none() { Ok(()) } else { Err(created.to_string()) }
    })
    .await;
    for index in 0..names.len() {
        let ca = fleet.directory.ca();
        let mut client = Client::connect(fleet.dial(index, &ca, Some(&creds))).unwrap();
        let info = client.request("$JS.API.STREAM.INFO.S", &json!({}));
        assert_eq!(info["cluster"]["replicas"].as_array().unwrap().len(), 2, "{info}");
    }

    // A server of another fleet has a certificate of another authority.
    let routes: Vec<u16> = (0..names.len()).map(|index| fleet.route_port(index)).collect();
    let intruder = Fleet::start_intruder(&["d.example", "e.example", "f.example"], &routes);
    wait::until("the intruder's routes fail", SOON, async || {
        let log = intruder.servers[0].daemon.log();
        if log.contains("TLS route handshake error") { Ok(()) } else { Err(log) }
    })
    .await;
    await_routes(&fleet, 2).await;
    assert_eq!(intruder.servers[0].monitor("/routez").unwrap()["num_routes"], json!(0));
}

#[tokio::test]
async fn certificates_and_authorities_rotate_without_a_restart() {
    let mut fleet = Fleet::start(&["n1.example"]).await;
    let creds = fleet.creds(Role::Gc);
    let old_ca = fleet.dir.join("old-ca.pem");
    fs::copy(fleet.directory.ca(), &old_ca).unwrap();
    let connect = |fleet: &Fleet, ca: &Path| Client::connect(fleet.dial(0, ca, Some(&creds)));
    let mut first = connect(&fleet, &old_ca).unwrap();

    let also = crate::server::hosts(&["bus.example"]);
    let certified = fleet.directory.certify(&[], &also, now()).unwrap();
    assert_eq!(certified.len(), 1);
    fleet.reload().await;
    let second = connect(&fleet, &old_ca).unwrap();
    assert_ne!(second.server_certificate(), first.server_certificate());
    assert!(first.answers(), "connections outlive a new certificate");
    let by_name = Dial { name: "bus.example", ..fleet.dial(0, &old_ca, Some(&creds)) };
    Client::connect(by_name).unwrap();

    // Clients with the new file trust the next authority before a server uses it.
    fleet.directory.add_authority(now()).unwrap();
    let ca = fleet.directory.ca();
    fleet.reload().await;
    connect(&fleet, &old_ca).unwrap();
    connect(&fleet, &ca).unwrap();
    let behind = fleet.directory.retire_authorities(now()).unwrap_err().to_string();
    assert!(behind.contains("n1.example"), "{behind}");
    fleet.directory.certify(&[], &[], now()).unwrap();
    fleet.reload().await;
    connect(&fleet, &ca).unwrap();
    assert!(connect(&fleet, &old_ca).unwrap_err().contains("certificate"));

    // The directory as another process reads it.
    let mut directory = Directory::open(fleet.directory.path()).unwrap();
    assert_eq!(directory.retire_authorities(now()).unwrap().names.len(), 1);
    assert_eq!(fs::read_to_string(&ca).unwrap().matches("BEGIN CERTIFICATE").count(), 1);
    fleet.reload().await;
    connect(&fleet, &ca).unwrap();
    assert!(first.answers());
}
