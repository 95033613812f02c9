//! Rule 17 in tables: the writes beside a volume's own, and the keys that are repaired.

use std::fmt::Write as _;

use berth_bus::Fold as _;
use berth_contract::record;
use berth_domain::volume::{Claim, HandleOwner};
use berth_domain::{Namespace, VolumeId};
use serde_json::{Value, json};

use super::*;

/// A newer version wrote it.
const UNREADABLE: &[u8] = br#"{"schema":99}"#;

fn key_of(volume: &str) -> VolumeKey {
    VolumeKey::new(Namespace::default(), VolumeId::new(volume).unwrap())
}

fn spec(external: &str) -> VolumeSpec {
    serde_json::from_value(json!({
        "plugin": "p",
        "external_id": external,
        "capabilities": [{"access": "single-node-writer", "attachment": "file-system"}],
    }))
    .unwrap()
}

fn handle(external: &str) -> Handle {
    spec(external).handle(&VolumeId::new("any").unwrap()).unwrap()
}

fn put_claim() -> Write {
    let claim: Value = json!({
        "state": "taken", "node": "n1", "mode": "write", "since": "2026-01-31T12:00:00.000Z",
        "access": "single-node-writer", "attachment": "file-system", "controller": true,
    });
    let claim: Claim = serde_json::from_value(claim).unwrap();
    Write::PutClaim("a".parse().unwrap(), claim)
}

fn asks() -> Command {
    Command::Take(berth_domain::volume::Take {
        alloc: "a".parse().unwrap(),
        node: "n1".parse().unwrap(),
        mode: berth_domain::access::Mode::Write,
        capability: berth_domain::access::CapabilityFilter::default(),
        wait: false,
        route: Ok(berth_domain::volume::Route::default()),
        worker: "w".parse().unwrap(),
    })
}

/// Volumes by the external id that each is registered with, and the volume that each key names; `?`
/// stands for an unreadable one.
fn volumes(registered: &[(&str, &str)], keys: &[(&str, &str)]) -> Volumes {
    let mut volumes = Volumes::default();
    let mut revision = 0;
    let mut put = |key: &str, value: &[u8]| {
        revision += 1;
        volumes.put(key, revision, value);
    };
    for (volume, external) in registered {
        let body = record::write(spec(external), None).unwrap();
        let body = if *external == "?" { UNREADABLE } else { &body };
        put(&key::spec(&key_of(volume)), body);
    }
    for (external, owner) in keys {
        let VolumeKey { namespace, volume } = key_of(owner.trim_matches('?'));
        let body = record::write(HandleOwner { namespace, volume }, None).unwrap();
        let body = if *owner == "?owner" { UNREADABLE } else { &body };
        put(&key::handle(&handle(external)), body);
    }
    volumes
}

/// The writes beside a write of the volume `data`, in short.
fn words(volumes: &Volumes, command: &Command, write: &Write) -> String {
    let words = |beside: &SideWrite| match beside {
        SideWrite::Fence(other, spec) => {
            let is_registered = if spec.is_some() { "registered" } else { "not registered" };
            format!("hold {}, {is_registered}", other.volume)
        }
        SideWrite::Free(handle) => format!("free {}", handle.external_id),
        SideWrite::Own(handle) => format!("own {}", handle.external_id),
        SideWrite::Quota(class, namespace, _) => format!("quota of {class} in {namespace}"),
    };
    match beside(volumes, &key_of("data"), command, write) {
        Ok(all) => all.iter().map(words).collect::<Vec<_>>().join("; "),
        Err(UnreadableRecord { .. }) => "Unreadable".to_owned(),
    }
}

#[test]
fn rule_17_the_key_of_a_handle_is_written_with_the_spec() {
    let registers = |external: &str| {
        let command = Command::Register(spec(external));
        (command, Write::PutSpec(spec(external)))
    };
    let deregister = Command::Deregister { force: false, reason: String::new() };
    let (deregisters, takes) = ((deregister, Write::DeleteSpec), (asks(), put_claim()));
    let releases = (Command::Reserve, put_claim());
    let ours: &[(&str, &str)] = &[("data", "x")];
    let mut table = String::new();
    for (name, (command, write), registered, keys) in [
        ("new", registers("x"), &[][..], &[][..]),
        ("update", registers("x"), ours, &[("x", "data")]),
        ("update, no key", registers("x"), ours, &[]),
        ("another handle", registers("y"), ours, &[("x", "data")]),
        ("another, key of others", registers("y"), ours, &[("x", "other")]),
        ("named for one that is gone", registers("x"), &[], &[("x", "other")]),
        ("named for one elsewhere", registers("x"), &[("other", "z")], &[("x", "other")]),
        ("named for one unreadable", registers("x"), &[("other", "?")], &[("x", "other")]),
        ("unreadable key", registers("x"), &[], &[("x", "?owner")]),
        ("twice", registers("x"), &[("data", "x"), ("other", "x")], &[("x", "other")]),
        ("deregister", deregisters.clone(), ours, &[("x", "data")]),
        ("deregister, key of others", deregisters, ours, &[("x", "other")]),
        ("take", takes.clone(), ours, &[("x", "data")]),
        ("take, no key", takes, ours, &[]),
        ("release, no key", releases, ours, &[]),
    ] {
        let came = words(&volumes(registered, keys), &command, &write);
        writeln!(table, "{}", format!("{name:<28}{came}").trim_end()).unwrap();
    }
    let expected = "\
new                         own x
update
update, no key              own x
another handle              free x; own y
another, key of others      own y
named for one that is gone  hold other, not registered; own x
named for one elsewhere     hold other, registered; own x
named for one unreadable    Unreadable
unreadable key              Unreadable
twice
deregister                  free x
deregister, key of others
take
take, no key                own x
release, no key
";
    assert_eq!(table, expected, "\n{table}");
}

#[test]
fn rule_17_what_another_volume_is_registered_for_is_known() {
    let mirror = volumes(&[("data", "x"), ("other", "y")], &[]);
    let registers = |external| Command::Register(spec(external));
    let others = |command| handle_use(&mirror, &key_of("data"), &command).others;
    assert!(others(registers("x")).is_empty());
    assert_eq!(others(registers("y")), ["volume other"]);
    assert!(others(asks()).is_empty(), "its own handle is of nobody else");
    let twice = volumes(&[("data", "x"), ("other", "x")], &[]);
    assert_eq!(handle_use(&twice, &key_of("data"), &asks()).others, ["volume other"]);
}

#[test]
fn rule_17_a_key_that_is_wrong_is_repaired() {
    let repair = |registered: &[(&str, &str)], keys: &[(&str, &str)]| {
        let mirror = volumes(registered, keys);
        let due = mirror.handles().get(&handle("x")).and_then(|entry| due(&handle("x"), entry));
        match due {
            Some(Repair::Reserve(volume)) => format!("reserve for {}", volume.volume),
            Some(Repair::Release(handle, volume)) => {
                format!("release {} from {}", handle.external_id, volume.volume)
            }
            None => String::new(),
        }
    };
    let ours: &[(&str, &str)] = &[("data", "x")];
    assert_eq!(repair(ours, &[("x", "data")]), "");
    assert_eq!(repair(ours, &[]), "reserve for data");
    assert_eq!(repair(ours, &[("x", "other")]), "reserve for data");
    assert_eq!(repair(&[], &[("x", "other")]), "release x from other");
    assert_eq!(repair(&[("data", "x"), ("other", "x")], &[]), "", "neither is granted");
    assert_eq!(repair(ours, &[("x", "?owner")]), "", "it may name any");
}
