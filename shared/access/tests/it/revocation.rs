//! A revoked identity is cut off, and stays out.

use berth_access::directory::{NewIdentity, WhichKeys};
use berth_access::{AccessError, Role};
use berth_domain::NodeId;

use crate::server::{Fleet, now};

fn node(name: &str) -> Role {
    Role::Node { node: NodeId::new(name).unwrap(), controllers: Vec::new() }
}

#[tokio::test]
async fn a_revoked_identity_is_cut_off_by_a_reload_and_no_other_is() {
    let mut fleet = Fleet::start(&["n1.example"]).await;
    let stolen = fleet.creds(node("n1"));
    let kept = fleet.dir.join("kept-by-the-thief.creds");
    std::fs::copy(&stolen, &kept).unwrap();
    let other = fleet.creds(node("n2"));
    let mut thief = fleet.connect(&kept).unwrap();
    let mut bystander = fleet.connect(&other).unwrap();

    let revoked = fleet.directory.revoke("node/n1", WhichKeys::All, now()).unwrap();
    assert_eq!(revoked.keys.len(), 1);
    assert!(!stolen.exists(), "nobody hands it out by mistake");
    assert!(thief.answers(), "the server has not been told yet");
    fleet.reload().await;
    let reason = thief.read_to_end();
    assert!(reason.contains("Authentication Revoked"), "{reason}");
    let refused = fleet.connect(&kept).unwrap_err();
    assert!(refused.contains("Authorization Violation"), "{refused}");
    assert!(bystander.answers());

    // The node itself comes back with a new key.
    let again = NewIdentity { replace: true, ..NewIdentity::of_role(node("n1")) };
    let creds = fleet.directory.issue(&again, now()).unwrap().creds;
    assert!(fleet.connect(&creds).unwrap().answers());
    assert!(fleet.connect(&kept).is_err());

    let revoked = fleet.directory.revoke("node/n2", WhichKeys::All, now()).unwrap();
    assert_eq!(revoked.keys.len(), 1);
    let error = fleet.directory.rotate("n2", None, now()).unwrap_err();
    assert!(matches!(error, AccessError::IdentityRevoked(_)), "{error}");

    // A server that starts with these files knows it as well.
    fleet.servers[0].daemon.restart();
    fleet.await_ready().await;
    assert!(fleet.connect(&kept).is_err());
    assert!(fleet.connect(&creds).unwrap().answers());
}

#[tokio::test]
async fn an_identity_rotates_without_a_gap() {
    let mut fleet = Fleet::start(&["n1.example"]).await;
    let creds = fleet.creds(node("n1"));
    let old = fleet.dir.join("old.creds");
    std::fs::copy(&creds, &old).unwrap();
    let mut before = fleet.connect(&old).unwrap();
    let exists = fleet.directory.issue(&NewIdentity::of_role(node("n1")), now()).unwrap_err();
    assert!(matches!(exists, AccessError::IdentityExists { .. }), "{exists}");

    let rotated = fleet.directory.rotate("n1", None, now()).unwrap();
    assert_eq!((rotated.creds, rotated.record.role), (creds.clone(), node("n1")));
    let mut after = fleet.connect(&creds).unwrap();
    fleet.connect(&old).unwrap();

    let revoked = fleet.directory.revoke("n1", WhichKeys::Replaced, now()).unwrap();
    assert_eq!(revoked.keys.len(), 1);
    fleet.reload().await;
    assert!(before.read_to_end().contains("Authentication Revoked"));
    assert!(fleet.connect(&old).is_err());
    assert!(after.answers());
    fleet.connect(&creds).unwrap();
}
