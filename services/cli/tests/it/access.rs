//! `berth access`, from a new fleet to a revoked identity, without a bus.

use std::fs;
use std::path::Path;
use std::process::Command;

use berth_access::{LocalFleet, Role};
use serde_json::Value;

use crate::berth::{Ran, berth, command};

fn access(dir: &Path, args: &[&str]) -> Ran {
    let dir = dir.join("berth-access");
    berth(&[&["access", "--dir", dir.to_str().unwrap()], args].concat())
}

fn json(dir: &Path, args: &[&str]) -> Value {
    let ran = access(dir, &[args, &["--json"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn a_fleet_is_made_and_an_identity_is_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let made = access(dir, &["init", "--servers", "a.example,b.example,c.example"]);
    assert_eq!(made.code, 0, "{made:?}");
    for part in ["a.example", "plugin-registry  valid"] {
        assert!(made.out.contains(part), "{part}: {made:?}");
    }
    assert!(
        made.err.contains("copy ") && made.err.contains("install DIR /etc/berth/nats"),
        "{made:?}"
    );
    let second_init = access(dir, &["init", "--servers", "a.example"]);
    assert!(
        second_init.code == 1 && second_init.err.contains("keys in use must not be lost"),
        "{second_init:?}"
    );

    let node = ["node", "n1", "--controllers", "a.csi,b.csi", "--expires", "90d"];
    let issued = access(dir, &node);
    assert!(
        issued.code == 0 && issued.out.contains("hosts the controllers of a.csi, b.csi"),
        "{issued:?}"
    );
    let creds = dir.join("berth-access/creds/node-n1.creds");
    let first = fs::read_to_string(&creds).unwrap();
    let seed = first.lines().find(|line| line.starts_with("SU")).expect("the file has the seed");
    assert!(
        !issued.out.contains(seed) && !issued.err.contains(seed),
        "no seed is shown: {issued:?}"
    );
    let second_init = access(dir, &node);
    assert!(
        second_init.code == 1 && second_init.err.contains("berth access rotate node/n1"),
        "{second_init:?}"
    );
    assert_eq!(fs::read_to_string(&creds).unwrap(), first);

    let rotated = json(dir, &["rotate", "n1"]);
    assert_eq!(rotated["role"]["controllers"][1], "b.csi");
    assert_eq!(rotated["replaced"].as_array().unwrap().len(), 1);
    assert_ne!(fs::read_to_string(&creds).unwrap(), first);
    let key = rotated["key"]["public"].as_str().unwrap();
    assert_eq!(json(dir, &["show", key])["name"], "node/n1");

    let revoked = access(dir, &["revoke", "node/n1"]);
    assert_eq!(revoked.code, 0, "{revoked:?}");
    assert!(revoked.out.contains(key), "{revoked:?}");
    assert!(revoked.err.contains("nats-server --signal reload"), "{revoked:?}");
    let accounts = dir.join("berth-access/servers/b.example/accounts.conf");
    assert!(revoked.out.contains(accounts.to_str().unwrap()), "{revoked:?}");
    let shown = access(dir, &["show", "n1"]);
    assert!(shown.out.contains("state     revoked"), "{shown:?}");
    let list = json(dir, &["list"]);
    let states = list["identities"].as_array().unwrap().iter();
    let states: Vec<&Value> = states.map(|identity| &identity["state"]).collect();
    assert_eq!(states, ["valid", "valid", "revoked", "valid", "valid"]);
}

#[test]
fn every_fault_is_reported_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let hosts = access(dir, &["init", "--servers", "a b,c:4222,d"]);
    assert!(
        hosts.code == 2 && hosts.err.contains("a b") && hosts.err.contains("c:4222"),
        "{hosts:?}"
    );
    let even = access(dir, &["init", "--servers", "a,b"]);
    assert!(even.code == 1 && even.err.contains("a majority must be left"), "{even:?}");
    let relative = access(dir, &["init", "--servers", "a", "--installed", "etc"]);
    assert_eq!(relative.code, 2, "{relative:?}");
    let unknown = access(dir, &["list"]);
    assert!(unknown.code == 1 && unknown.err.contains("berth access init"), "{unknown:?}");
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0);

    assert_eq!(access(dir, &["init", "--servers", "a"]).code, 0);
    let before = json(dir, &["list"]);
    let grants = ["user", "alice", "--grant", "x=reed", "--grant", "y", "--grant", "z=read"];
    let faults = access(dir, &grants);
    assert_eq!(faults.code, 2, "{faults:?}");
    for part in ["\"reed\" is no capability", "\"y\": names no capability", "team-a=read,mount"] {
        assert!(faults.err.contains(part), "{part}: {faults:?}");
    }
    for args in [
        &["user", "alice"][..],
        &["user", "a/b", "--nodes"],
        &["node", "n1", "--expires", "0d"],
        &["show", "nobody"],
        &["revoke", "nobody"],
        &["certify", "elsewhere.example"],
        &["certify", "--retire"],
    ] {
        let ran = access(dir, args);
        assert!(ran.code != 0 && !ran.err.is_empty() && ran.out.is_empty(), "{args:?}: {ran:?}");
    }
    assert_eq!(json(dir, &["list"]), before);
}

#[test]
fn certificates_and_authorities_change_in_three_steps() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert_eq!(access(dir, &["init", "--servers", "a"]).code, 0);
    let pem = dir.join("berth-access/servers/a/server.pem");
    let before = fs::read_to_string(&pem).unwrap();
    let certified = json(dir, &["certify", "a", "--also", "10.0.0.1,bus.example"]);
    assert_eq!(certified["servers"][0]["also"][1], "bus.example");
    assert_ne!(fs::read_to_string(&pem).unwrap(), before);
    let authorities = |step: &str| {
        let fleet = json(dir, &["certify", step]);
        fleet["authorities"].as_array().unwrap().len()
    };
    assert_eq!(authorities("--authority"), 2);
    let early = access(dir, &["certify", "--retire"]);
    assert!(early.err.contains("berth access certify a"), "{early:?}");
    assert_eq!(json(dir, &["certify"])["servers"][0]["authority"], 2);
    assert_eq!(authorities("--retire"), 1);
    let grown = json(dir, &["certify", "--add", "b,c"]);
    assert_eq!(grown["servers"].as_array().unwrap().len(), 3);
}

#[test]
fn a_directory_that_was_set_back_replaces_nothing_on_a_host() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert_eq!(access(dir, &["init", "--servers", "a"]).code, 0);
    assert_eq!(access(dir, &["node", "n9"]).code, 0);
    let backup = dir.join("backup");
    let copied = Command::new("cp").arg("-a").arg(dir.join("berth-access")).arg(&backup).status();
    assert!(copied.unwrap().success());
    let host = dir.join("host");
    fs::create_dir(&host).unwrap();
    let install = |copy_of: &Path| {
        let copy_of = copy_of.join("servers/a");
        berth(&["access", "install", copy_of.to_str().unwrap(), host.to_str().unwrap()])
    };
    let installation = install(&dir.join("berth-access"));
    assert!(
        installation.code == 0 && installation.err.contains("systemctl reload"),
        "{installation:?}"
    );
    assert_eq!(fs::read_dir(&host).unwrap().count(), 5);
    let revoked = access(dir, &["revoke", "node/n9"]);
    assert!(revoked.err.contains("berth access install DIR /etc/berth/nats"), "{revoked:?}");
    assert_eq!(install(&dir.join("berth-access")).code, 0);
    let text = |name: &str| fs::read_to_string(host.join(name)).unwrap();
    let before = (text("accounts.conf"), text("server.key"));

    let at_backup =
        |args: &[&str]| berth(&[&["access", "--dir", backup.to_str().unwrap()], args].concat());
    assert_eq!(at_backup(&["certify"]).code, 0);
    let refused = install(&backup);
    assert!(refused.code == 1 && refused.err.contains("berth access adopt"), "{refused:?}");
    assert_eq!((text("accounts.conf"), text("server.key")), before, "nothing was written");
    let accounts = host.join("accounts.conf");
    let adopted = at_backup(&["adopt", accounts.to_str().unwrap(), "--json"]);
    let adopted: Value = serde_json::from_str(&adopted.out).unwrap();
    assert_eq!(adopted["revoked"][0], "node/n9");
    let installation = install(&backup);
    assert!(
        installation.code == 0 && installation.out.contains("serial  3, before: 2"),
        "{installation:?}"
    );
    assert_ne!(text("server.key"), before.1);

    // Keys that a lost state of the directory issued are shut out by their key, or by their age.
    let key = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
    let bad = at_backup(&["revoke", &key.replace('4', "5")]);
    assert!(bad.code == 1 && bad.err.contains("by its public key"), "{bad:?}");
    let unknown = at_backup(&["revoke", key]);
    assert!(unknown.code == 0 && unknown.out.contains(key), "{unknown:?}");
    for wrong in [&["2999-01-01T00:00:00Z"][..], &["yesterday"], &["2026-01-01T00:00:00Z", "n9"]] {
        let ran = at_backup(&[&["revoke", "--all-before"], wrong].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
    }
    let shut_out = at_backup(&["revoke", "--all-before", "2026-01-01T00:00:00Z"]);
    assert!(shut_out.code == 0 && shut_out.err.contains("--replace"), "{shut_out:?}");
    let list = at_backup(&["list"]);
    for part in [key, "all that was issued before 2026-01-01T00:00:00.000Z", "serial   5"] {
        assert!(list.out.contains(part), "{part}: {list:?}");
    }
}

#[test]
fn servers_of_this_machine_are_given_absolute_paths_whatever_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access");
    LocalFleet::create(&path, &["berth"]).unwrap().creds(&Role::Gc).unwrap();
    let mut command = command(&["access", "--dir", "access", "revoke", "gc"]);
    let ran = Ran::from(command.current_dir(dir.path()).output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!ran.err.contains("copy") && ran.err.contains("SIGHUP"), "{ran:?}");
    let config = fs::read_to_string(path.join("servers/berth/host.conf")).unwrap();
    let certificate = path.join("servers/berth/server.pem");
    assert!(config.contains(&format!("\"{}\"", certificate.display())), "{config}");
}
