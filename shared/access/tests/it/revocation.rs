//! A revoked identity is cut off, and stays out.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use berth_access::creds::UserCreds;
use berth_access::directory::{NewIdentity, WhichKeys};
use berth_access::install::{ACCOUNTS, ServerAccounts, install};
use berth_access::jwt::AccountToken;
use berth_access::key::{Key, KeyKind};
use berth_access::{AccessError, Directory, Role};
use berth_domain::NodeId;

use crate::server::{Fleet, hosts, now};

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
    let renewed = NewIdentity { replace: true, ..NewIdentity::of_role(node("n1")) };
    let creds = fleet.directory.issue(&renewed, now()).unwrap().creds;
    assert!(fleet.connect(&creds).unwrap().answers());
    assert!(fleet.connect(&kept).is_err());

    let revoked = fleet.directory.revoke("node/n2", WhichKeys::All, now()).unwrap();
    assert_eq!(revoked.keys.len(), 1);
    let error = fleet.directory.rotate("n2", None, now()).unwrap_err();
    assert!(matches!(error, AccessError::IdentityRevoked(_)), "{error}");

    // A server that starts with these files refuses the identity, too.
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

/// A copy of the directory in its present state, like a backup.
fn back_up(fleet: &Fleet) -> PathBuf {
    let copy = fleet.dir.join("backup");
    let status = Command::new("cp").arg("-a").arg(fleet.directory.path()).arg(&copy).status();
    assert!(status.unwrap().success());
    copy
}

#[tokio::test]
async fn a_restored_directory_lets_nobody_in_again() {
    let mut fleet = Fleet::start(&["n1.example"]).await;
    let host = hosts(&["n1.example"]).remove(0);
    let installed = fleet.separate_files();
    let taken = |fleet: &mut Fleet, role, name: &str| {
        let creds = fleet.creds(role);
        let kept = fleet.dir.join(name);
        std::fs::copy(creds, &kept).unwrap();
        kept
    };
    let stolen = taken(&mut fleet, node("n9"), "n9");
    let other = taken(&mut fleet, node("n2"), "n2");
    let backup = back_up(&fleet);
    fleet.directory.revoke("node/n9", WhichKeys::All, now()).unwrap();
    let late = taken(&mut fleet, node("late"), "late");
    let from = fleet.directory.server_dir(&host);
    assert_eq!(install(&from, &installed).unwrap().serial, 2);
    fleet.reload().await;
    assert!(fleet.connect(&stolen).is_err() && fleet.connect(&late).is_ok());

    // The directory is lost, and its backup is restored. It does not know the host's revocations,
    // however many changes it makes, and however late.
    let mut restored = Directory::open(&backup).unwrap();
    let from = restored.server_dir(&host);
    for _ in 0..3 {
        restored.revoke("node/n2", WhichKeys::All, now()).unwrap();
        let refused = install(&from, &installed).unwrap_err();
        assert!(matches!(refused, AccessError::NotAfter { serial: 2, .. }), "{refused}");
        assert!(refused.next().contains("berth access adopt"), "{}", refused.next());
    }
    fleet.reload().await;
    assert!(fleet.connect(&stolen).is_err() && fleet.connect(&other).is_ok());

    let of_host = ServerAccounts::read(&installed.join(ACCOUNTS)).unwrap();
    let adopted = restored.adopt(std::slice::from_ref(&of_host), now()).unwrap();
    assert_eq!(adopted.revoked, ["node/n9"]);
    let installed_files = install(&from, &installed).unwrap();
    assert_eq!((installed_files.before, installed_files.serial), (Some(2), adopted.serial));
    fleet.reload().await;
    for revoked in [&stolen, &other] {
        assert!(fleet.connect(revoked).is_err());
    }
    // An identity that was made after the backup is not recorded, and is shut out by its key.
    fleet.connect(&late).unwrap();
    let text = std::fs::read_to_string(&late).unwrap();
    let key = UserCreds::parse(&text).unwrap().key.public();
    let revoked = restored.revoke(&key, WhichKeys::All, now()).unwrap();
    assert_eq!((revoked.name, revoked.keys), (key.clone(), vec![key.clone()]));
    install(&from, &installed).unwrap();
    fleet.reload().await;
    assert!(fleet.connect(&late).is_err());

    // The earlier files are refused now, too, and adopted revocations survive the next backup.
    let refused = install(&fleet.directory.server_dir(&host), &installed).unwrap_err();
    assert!(matches!(refused, AccessError::NotAfter { .. }), "{refused}");
    let second_adoption =
        fleet.directory.adopt(&[ServerAccounts::read(&from.join(ACCOUNTS)).unwrap()], now());
    assert_eq!(second_adoption.unwrap().revoked, ["node/late", "node/n2"]);
    assert!(
        std::fs::read_to_string(backup.join("directory.json")).unwrap().contains("\"version\": 2")
    );
}

#[tokio::test]
async fn everything_before_a_time_is_shut_out_and_nothing_after_it() {
    let mut fleet = Fleet::start(&["n1.example"]).await;
    let early = now().before(Duration::from_secs(3600));
    let unknown = fleet.directory.issue(&NewIdentity::of_role(node("lost")), early).unwrap();
    let kept = fleet.dir.join("kept");
    std::fs::copy(&unknown.creds, &kept).unwrap();
    let record = fleet.directory.path().join("identities/node-lost.json");
    std::fs::remove_file(record).unwrap();
    let old = fleet.directory.issue(&NewIdentity::of_role(node("old")), early).unwrap();
    let new = fleet.creds(node("new"));
    let before = now().before(Duration::from_secs(60));
    let revoked = fleet.directory.revoke_all_before(before, now()).unwrap();
    assert_eq!(revoked.keys, [old.record.keys[0].public.clone()]);
    assert!(!old.creds.exists());
    fleet.reload().await;
    assert!(fleet.connect(&kept).is_err() && fleet.connect(&new).is_ok());
    // An earlier time takes nothing back.
    fleet.directory.revoke_all_before(early, now()).unwrap();
    fleet.reload().await;
    assert!(fleet.connect(&kept).is_err() && fleet.connect(&new).is_ok());
    // In the same second the new key still works.
    fleet.directory.revoke_all_before(now(), now()).unwrap();
    let renewed = NewIdentity { replace: true, ..NewIdentity::of_role(node("old")) };
    let creds = fleet.directory.issue(&renewed, now()).unwrap().creds;
    fleet.reload().await;
    assert!(fleet.connect(&creds).is_ok());
}

#[tokio::test]
async fn files_of_another_fleet_are_not_taken() {
    let fleet = Fleet::make(&["n1.example"]);
    let mut other_fleet = Fleet::make(&["n1.example"]);
    let host = hosts(&["n1.example"]).remove(0);
    let from = fleet.directory.server_dir(&host);
    let installed = other_fleet.directory.server_dir(&host);
    let refused = install(&from, &installed).unwrap_err();
    assert!(matches!(refused, AccessError::OtherFleet { .. }), "{refused}");
    let files = ServerAccounts::read(&from.join(ACCOUNTS)).unwrap();
    let refused = other_fleet.directory.adopt(&[files], now()).unwrap_err();
    assert!(matches!(refused, AccessError::OtherFleet { .. }), "{refused}");
    let no_target = install(&from, &fleet.dir.join("none")).unwrap_err();
    assert!(no_target.next().contains("install -d"), "{no_target}");
    let no_target = ServerAccounts::read(&from.join("host.conf")).unwrap_err();
    assert!(matches!(no_target, AccessError::NoAccounts { .. }), "{no_target}");
}

/// The last release signs tokens that do not name the tokens that they follow.
#[test]
fn files_of_the_last_release_are_replaced_by_those_that_follow() {
    let mut fleet = Fleet::make(&["n1.example"]);
    let path = fleet.directory.path().to_owned();
    let key = |name: &str, kind| {
        Key::from_seed(&std::fs::read_to_string(path.join(name)).unwrap(), kind).unwrap()
    };
    let operator = key("operator.seed", KeyKind::Operator);
    let public = key("account.seed", KeyKind::Account).public();
    let from = fleet.directory.server_dir(&hosts(&["n1.example"])[0]);
    let accounts = std::fs::read_to_string(from.join(ACCOUNTS)).unwrap();
    let sign = |at| {
        let token = AccountToken { name: "berth", ..AccountToken::without_changes("", &public) };
        token.sign(&operator, at).unwrap()
    };
    let old = |token: &str| {
        let current = std::fs::read_to_string(path.join("account.jwt")).unwrap();
        accounts.replace(current.trim(), token)
    };
    let (older, last) = (sign(now().before(Duration::from_secs(60))), sign(now()));
    let (older, newest) = (old(&older), old(&last));
    std::fs::write(path.join("account.jwt"), &last).unwrap();
    let record = std::fs::read_to_string(path.join("directory.json")).unwrap();
    let mut record: serde_json::Value = serde_json::from_str(&record).unwrap();
    record.as_object_mut().unwrap().remove("lineage");
    std::fs::write(path.join("directory.json"), record.to_string()).unwrap();

    fleet.directory.issue(&NewIdentity::of_role(node("n9")), now()).unwrap();
    fleet.directory.revoke("node/n9", WhichKeys::All, now()).unwrap();
    let place = fleet.dir.join("host");
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join(ACCOUNTS), newest).unwrap();
    assert_eq!(install(&from, &place).unwrap().before, Some(0));
    // A host that missed a change of the last release.
    std::fs::write(place.join(ACCOUNTS), older).unwrap();
    install(&from, &place).unwrap_err();
    let host = ServerAccounts::read(&place.join(ACCOUNTS)).unwrap();
    assert!(fleet.directory.adopt(&[host], now()).unwrap().revoked.is_empty());
    install(&from, &place).unwrap();
}
