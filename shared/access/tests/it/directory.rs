//! The directory on disk.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use berth_access::creds::UserCreds;
use berth_access::directory::{FilePlace, NewIdentity, WhichKeys};
use berth_access::record::KeyState;
use berth_access::{AccessError, Directory, Grants, Role};
use berth_contract::role::SERVICES;
use berth_domain::{Namespace, NodeId, Timestamp};
use std::time::Duration;

use crate::server::{hosts, now};

fn create(path: &Path, servers: &[&str]) -> Result<Directory, AccessError> {
    let place = FilePlace::Installed(PathBuf::from("/etc/berth/nats"));
    Directory::create(path, &hosts(servers), &place, now())
}

fn files_beneath(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_beneath(&path, found);
        }
        found.push(path);
    }
}

#[test]
fn everything_is_its_owners_only_and_records_hold_no_seed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("berth-access");
    let mut directory = create(&path, &["a.example", "b.example", "c.example"]).unwrap();
    for role in SERVICES {
        directory.issue(&NewIdentity::of_role(role), now()).unwrap();
    }
    let mut files = vec![path.clone()];
    files_beneath(&path, &mut files);
    let mut seeds = 0;
    for file in &files {
        let mode = fs::metadata(file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if file.is_dir() { 0o700 } else { 0o600 }, "{}", file.display());
        let Ok(text) = fs::read_to_string(file) else { continue };
        let has_seed = ["SO", "SA", "SU"].iter().any(|kind| {
            text.split_whitespace().any(|word| word.len() == 58 && word.starts_with(kind))
        });
        let extension = file.extension().unwrap_or_default().to_str().unwrap();
        let may = ["seed", "creds"].contains(&extension);
        assert_eq!(has_seed, may, "{}", file.display());
        seeds += usize::from(has_seed);
    }
    assert_eq!(seeds, 3 + SERVICES.len());
    let hosts = fs::read_dir(path.join("servers")).unwrap();
    assert_eq!(hosts.count(), 3);
}

fn docker(node: NodeId) -> Role {
    Role::Docker { node, namespaces: [Namespace::default()].into() }
}

#[test]
fn nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("berth-access");
    let mut directory = create(&path, &["a.example"]).unwrap();
    let operator = fs::read_to_string(path.join("operator.seed")).unwrap();
    let second_create = create(&path, &["a.example"]).unwrap_err();
    assert!(matches!(second_create, AccessError::DirectoryExists(_)), "{second_create}");
    assert_eq!(fs::read_to_string(path.join("operator.seed")).unwrap(), operator);
    let creds = directory.issue(&NewIdentity::of_role(Role::Gc), now()).unwrap().creds;
    let before = fs::read_to_string(&creds).unwrap();
    directory.issue(&NewIdentity::of_role(Role::Gc), now()).unwrap_err();
    assert_eq!(fs::read_to_string(&creds).unwrap(), before);
    // A slash at the end names the same directory, and an empty directory may exist there.
    let slashed = dir.path().join("slashed/");
    fs::create_dir(&slashed).unwrap();
    create(&slashed, &["a.example"]).unwrap();
    assert_eq!(fs::metadata(&slashed).unwrap().permissions().mode() & 0o777, 0o700);
    create(Path::new("/"), &["a.example"]).unwrap_err();
    // A directory that cannot be completed is removed.
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    create(&file, &["a.example"]).unwrap_err();
    create(&file.join("below"), &["a.example"]).unwrap_err();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn servers_that_make_no_fleet_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("berth-access");
    for servers in [&[][..], &["a.example", "b.example"], &["a.example", "A.example", "c.example"]]
    {
        let error = create(&path, servers).unwrap_err();
        assert!(matches!(error, AccessError::BadServers(_)), "{error}");
        assert!(!path.exists());
    }
    let mut directory = create(&path, &["a.example"]).unwrap();
    directory.add_servers(&hosts(&["b.example"]), now()).unwrap_err();
    assert!(!path.join("servers/b.example").exists());
    directory.add_servers(&hosts(&["b.example", "c.example"]), now()).unwrap();
    let config = fs::read_to_string(path.join("servers/a.example/host.conf")).unwrap();
    assert!(config.contains("nats://c.example:6222"), "{config}");
    let unknown = directory.certify(&hosts(&["x.example"]), &[], now()).unwrap_err();
    assert!(matches!(unknown, AccessError::NoServer { .. }), "{unknown}");
}

#[test]
fn tokens_that_servers_keep_are_signed_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("berth-access");
    let mut directory = create(&path, &["a.example"]).unwrap();
    let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
    let before = ["operator.jwt", "system.jwt", "account.jwt"].map(read);
    directory.issue(&NewIdentity::of_role(Role::Gc), now()).unwrap();
    directory.revoke("gc", WhichKeys::All, now()).unwrap();
    let after = ["operator.jwt", "system.jwt", "account.jwt"].map(read);
    assert_eq!(before[..2], after[..2]);
    assert_ne!(before[2], after[2]);
    assert!(read("servers/a.example/accounts.conf").contains(&after[2]));
}

#[test]
fn a_name_may_be_short_while_it_is_clear() {
    let dir = tempfile::tempdir().unwrap();
    let mut directory = create(&dir.path().join("d"), &["a.example"]).unwrap();
    let node = NodeId::new("n1/é.x").unwrap();
    let agent = Role::Node { node: node.clone(), controllers: Vec::new() };
    let creds = directory.issue(&NewIdentity::of_role(agent), now()).unwrap().creds;
    let claims = UserCreds::parse(&fs::read_to_string(creds).unwrap()).unwrap().claims;
    assert_eq!(claims.name, "node/n1/é.x");
    assert_eq!(directory.find("n1/é.x").unwrap().name, "node/n1/é.x");
    directory.issue(&NewIdentity::of_role(docker(node)), now()).unwrap();
    let error = directory.find("n1/é.x").unwrap_err();
    assert!(matches!(error, AccessError::Ambiguous { .. }), "{error}");
    assert_eq!(directory.find("docker/n1/é.x").unwrap().name, "docker/n1/é.x");
    let service = NewIdentity { service: Some("a"), ..NewIdentity::of_role(Role::Gc) };
    directory.issue(&service, now()).unwrap();
    assert_eq!(directory.rotate("gc/a", None, now()).unwrap().record.keys.len(), 2);
    let names: BTreeSet<String> =
        directory.identities().unwrap().into_iter().map(|identity| identity.name).collect();
    assert_eq!(names.len(), 3);
}

#[test]
fn an_identity_that_would_be_another_sender_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut directory = create(&dir.path().join("d"), &["a.example"]).unwrap();
    let day = Duration::from_secs(24 * 3600);
    let (start, name) = (now(), "anna".to_owned());
    let admin = NewIdentity {
        valid_for: Some(day),
        ..NewIdentity::of_role(Role::Admin { name: name.clone() })
    };
    let reader = NewIdentity::of_role(Role::Inspect { name: name.clone() });
    let user = NewIdentity::of_role(Role::User { name, grants: Grants::default() });
    directory.issue(&admin, start).unwrap();
    for second in [&reader, &user] {
        let error = directory.issue(second, start).unwrap_err();
        let text = format!("{error}; {}", error.next());
        let own = second.role.identity_name(None);
        for part in [&own, "admin/anna", "user.anna", "berth access revoke admin/anna"] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
        assert!(!directory.creds_path(&own).exists());
    }
    // The same identity gets new keys.
    directory.issue(&NewIdentity { replace: true, ..admin.clone() }, start).unwrap();
    directory.rotate("admin/anna", Some(day), start).unwrap();
    // An expired identity frees its actor, and cannot come back while another identity has it.
    directory.issue(&reader, start.after(day)).unwrap();
    directory.revoke("inspect/anna", WhichKeys::All, start.after(day)).unwrap();
    directory.issue(&user, start.after(day)).unwrap();
    for former in [&admin, &reader] {
        let renewed = NewIdentity { replace: true, ..former.clone() };
        let error = directory.issue(&renewed, start.after(day)).unwrap_err();
        assert!(matches!(error, AccessError::ActorTaken { .. }), "{error}");
    }
    // A service's replicas share its actor. A node's agent and Docker plugin have different ones.
    for service in [None, Some("a"), Some("b")] {
        let new = NewIdentity { service, ..NewIdentity::of_role(Role::Claim) };
        directory.issue(&new, start).unwrap();
    }
    let node = NodeId::new("anna").unwrap();
    let agent = Role::Node { node: node.clone(), controllers: Vec::new() };
    for role in [agent, docker(node)] {
        directory.issue(&NewIdentity::of_role(role), start).unwrap();
    }
}

#[test]
fn a_revocation_is_kept_as_long_as_its_token_could_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    let mut directory = create(&path, &["a.example"]).unwrap();
    let day = Duration::from_secs(24 * 3600);
    let start = now();
    let new = NewIdentity { valid_for: Some(day), ..NewIdentity::of_role(Role::Gc) };
    directory.issue(&new, start).unwrap();
    // The clock was set back between issue and revocation: servers compare with the time of issue.
    let early = start.before(day);
    directory.revoke("gc", WhichKeys::All, early).unwrap();
    let record = directory.find("gc").unwrap();
    assert_eq!(record.keys[0].revoked, Some(start));
    assert_eq!(record.keys[0].state(start), KeyState::Revoked);
    let public = &record.keys[0].public;
    let listed = |directory: &Directory| {
        let token = directory.tokens().unwrap().account.1;
        let claims = berth_access::jwt::read_token(&token).unwrap();
        claims.nats["revocations"][public].as_u64()
    };
    assert_eq!(listed(&directory), Some(start.unix_ms() / 1000));
    let revoke_at = |directory: &mut Directory, at: Timestamp| {
        directory.revoke("gc", WhichKeys::All, at).unwrap();
    };
    revoke_at(&mut directory, start.after(day));
    assert!(listed(&directory).is_some(), "a server's clock may be behind");
    revoke_at(&mut directory, start.after(day * 3));
    assert_eq!(listed(&directory), None);
}

#[test]
fn a_directory_that_is_none_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let no_directory = Directory::open(dir.path()).unwrap_err();
    assert!(matches!(no_directory, AccessError::NoDirectory(_)), "{no_directory}");
    let path = dir.path().join("d");
    let mut directory = create(&path, &["a.example"]).unwrap();
    let file = path.join("directory.json");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\"version\": 1", "\"version\": 3")).unwrap();
    let newer = Directory::open(&path).unwrap_err();
    assert!(matches!(newer, AccessError::NewerDirectory { version: 3, .. }), "{newer}");
    fs::write(&file, &text[..40]).unwrap();
    let damaged = directory.issue(&NewIdentity::of_role(Role::Gc), now()).unwrap_err();
    assert!(damaged.to_string().contains("directory.json is damaged"), "{damaged}");
    fs::write(&file, &text).unwrap();
    fs::write(path.join("account.seed"), "SUNONE").unwrap();
    let damaged = directory.issue(&NewIdentity::of_role(Role::Gc), now()).unwrap_err();
    assert!(damaged.to_string().contains("account.seed is damaged"), "{damaged}");
}
