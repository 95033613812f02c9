//! What people write and no mount, label or terminal takes: refused at each way in, all at once,
//! and read where it is stored already.

use berth_contract::decode::{Decode, Fault, Unknown, decode};
use berth_contract::document::{Format, read};
use berth_contract::message::{alloc, volume};
use berth_contract::record;
use berth_domain::volume::{MountOptions, VolumeSpec};
use serde_json::{Value, json};

fn paths(faults: &[Fault]) -> Vec<&str> {
    faults.iter().map(|fault| fault.path.as_str()).collect()
}

fn faults<T: Decode>(value: Value) -> Vec<Fault> {
    let Err(faults) = decode::<T>(value, Unknown::Fault) else { panic!("it was taken") };
    faults
}

#[test]
fn a_document_is_refused_with_every_odd_text_and_its_line() {
    let document = r#"id = "data"
name = "two\nlines"
plugin = "p"
external_id = "vol\u001b[2J"
[[capability]]
access = "single-node-writer"
[mount]
fs_type = "../ext4"
flags = ["noatime", "ro,suid", "no dev", ""]
group = ""
[[topology]]
zone = ""
"" = "a"
[[topology]]
[parameters]
"a\u0007" = "a value may\nhave lines"
"#;
    let Err(faults) = read::<volume::RegisterVolume>(document, Format::Toml) else {
        panic!("it was taken")
    };
    let told: Vec<(&str, Option<usize>)> =
        faults.iter().map(|fault| (fault.path.as_str(), fault.line)).collect();
    assert_eq!(
        told,
        [
            ("external_id", Some(4)),
            ("name", Some(2)),
            ("mount.fs_type", Some(8)),
            ("mount.flags[1]", Some(9)),
            ("mount.flags[2]", Some(9)),
            ("mount.flags[3]", Some(9)),
            ("mount.group", Some(10)),
            ("topology[0]", Some(11)),
            ("topology[0].zone", Some(12)),
            ("topology[1]", Some(14)),
            ("parameters", Some(15)),
        ],
        "{faults:?}"
    );
    let said = format!("{faults:?}");
    assert!(!said.contains("suid"), "a flag may hold a secret: {said}");
}

#[test]
fn a_request_for_volumes_is_refused_likewise() {
    let mount = json!({"fs_type": "ext4/x", "flags": ["a,b"], "group": "a b"});
    let volumes = json!([{"source": "data", "alias": "a\u{1}"}, {"source": "d", "mount": mount}]);
    let odd = [
        "volumes[0].alias",
        "volumes[1].mount.fs_type",
        "volumes[1].mount.flags[0]",
        "volumes[1].mount.group",
    ];
    let register = json!({"id": "a", "node": "n1", "volumes": volumes.clone()});
    assert_eq!(paths(&faults::<alloc::RegisterAlloc>(register)), odd);
    assert_eq!(paths(&faults::<volume::ListPlacements>(json!({"volumes": volumes}))), odd);
}

#[test]
fn ordinary_text_is_taken() {
    for fs_type in ["ext4", "xfs", "nfs4", "fuse.glusterfs", "9p", "ocfs2_x-y"] {
        let mount = json!({"fs_type": fs_type, "flags": ["noatime", "uid=1000", "_netdev"]});
        let document = json!({"id": "d", "plugin": "p", "name": "Daten für データ",
            "capability": [{"access": "single-node-writer"}], "mount": mount,
            "topology": [{"topology.ebs.csi.aws.com/zone": "eu-central-1a"}],
            "parameters": {"pem": "a\nb"}});
        decode::<volume::RegisterVolume>(document, Unknown::Fault).unwrap();
    }
}

/// What an older version took stays readable, and so do the calls that are made of it.
#[test]
fn what_is_stored_is_read_as_it_is() {
    let stored = json!({"plugin": "p", "name": "a\nb", "external_id": "a\u{7}", "schema": 1,
        "capabilities": [{"access": "single-node-writer", "attachment": "file-system"}],
        "mount": {"fs_type": "../ext4", "flags": ["a,b", ""], "group": ""},
        "topologies": [{"": ""}]});
    let read = record::read::<VolumeSpec>(stored.to_string().as_bytes()).unwrap();
    assert_eq!(read.body.mount.flags, ["a,b", ""]);
    let mount = serde_json::to_value(&read.body.mount).unwrap();
    decode::<MountOptions>(mount, Unknown::Ignore).unwrap();
}
