//! Bad requests about volumes at their storage: all that is wrong is told at once, each with its
//! path.

use berth_contract::decode::{self, Decode, Fault, Unknown};
use berth_contract::document::{Format, read};
use berth_contract::message::{claim, class, snapshot, storage, volume, work};
use berth_domain::limits;
use berth_domain::volume::Outcome;
use serde_json::{Value, json};

use crate::sample;

/// Each fault as a person reads it.
fn told(faults: &[Fault]) -> Vec<String> {
    faults.iter().map(ToString::to_string).collect()
}

/// What is wrong with a request.
fn refused<T: Decode>(request: Value) -> Vec<String> {
    match decode::decode::<T>(request, Unknown::Fault) {
        Ok(_) => panic!("it was taken"),
        Err(faults) => told(&faults),
    }
}

/// What is wrong with a document, with its lines.
fn refused_document<T: Decode>(document: &str) -> Vec<String> {
    match read::<T>(document, Format::guess(document)) {
        Ok(_) => panic!("it was taken"),
        Err(faults) => told(&faults),
    }
}

#[test]
fn a_volume_to_be_created_is_refused_with_every_fault() {
    let document = r#"id = ""
name = "two\nlines"
class = "fast"
plugin = "ebs.csi.aws.com"
size = 0
limit = "10 monkeys"
capability = [{access = "single-node-writer"}, {access = "single-node-writer"}]
parameters = {"" = "x"}
topology = [{zone = ""}]
topology_policy = "later"
reclaim = "keep"
colour = "red"
[from]
volume = ""
snapshoot = "monday"
[mutable_parameters]
iops = 3000
[secrets]
"create/password" = "hunter2"
"nonsense/password" = "hunter2"
"pass word" = "hunter2"
"create/" = "hunter2"
"#;
    assert_eq!(
        refused_document::<storage::Create>(document),
        [
            "line 1: `id` is empty; an id has 1 to 256 bytes",
            "line 5: `size` is 0; a volume has at least 1 byte",
            "line 6: `limit` \"10 monkeys\" is no size; write a whole number and a unit: 10GiB, \
             500MB, or bytes",
            "line 17: `mutable_parameters.iops` is a number, not a string",
            "line 10: `topology_policy` unknown variant `later`, expected `immediate` or \
             `first-use`",
            "line 11: `reclaim` unknown variant `keep`, expected `delete` or `retain`",
            "line 14: `from.volume` is empty; an id has 1 to 256 bytes",
            "line 15: `from.snapshoot` is not known here; known are volume, snapshot, with_secrets",
            "line 22: `secrets.create/` is no name for a secret; it has letters, digits, `-`, `_` \
             and `.` only",
            "line 20: `secrets.nonsense/password` names no call before its `/`; known are create, \
             delete, publish, stage, expand, modify, snapshot",
            "line 21: `secrets.pass word` is no name for a secret; it has letters, digits, `-`, \
             `_` and `.` only",
            "line 12: `colour` is not known here; known are id, namespace, name, class, size, \
             limit, plugin, capability, mount, parameters, mutable_parameters, topology, \
             topology_policy, reclaim, from, for_alloc, node, secrets, sealed_secrets",
            "line 2: `name` holds the control character '\\n', which no terminal shows as it is",
            "line 9: `topology[0].zone` is empty",
            "line 8: `parameters` has the key \"\", which is empty",
            "line 4: `plugin` is what the class says; leave it out, or leave `class` out",
            "line 8: `parameters` is what the class says; leave it out, or leave `class` out",
            "line 9: `topology` is what the class says; leave it out, or leave `class` out",
            "line 7: `capability[1]` single-node-writer/file-system is listed twice",
        ]
    );
}

#[test]
fn a_volume_without_a_class_says_all_itself() {
    let nothing = json!({"id": "data"});
    assert_eq!(
        refused::<storage::Create>(nothing),
        [
            "`class` is missing, and so is `plugin`; name one of them",
            "`capability` is empty; a volume needs at least one way to be used",
        ]
    );
    let plugin = json!({"id": "data", "plugin": "p", "size": "2GiB", "limit": "1GiB",
        "capability": [{"access": "single-node-writer", "attachment": "block-device"}],
        "mount": {"fs_type": "ext4"},
        "secrets": {"a": "hunter2"}, "sealed_secrets": {"from": "X", "sealed": "Y"}});
    assert_eq!(
        refused::<storage::Create>(plugin),
        [
            "`secrets` is given beside `sealed_secrets`; give one of them",
            "`limit` is 1GiB, smaller than `size`, 2GiB",
            "`mount` is given, but a block device is not mounted",
        ]
    );
    let class = json!({"id": "data", "class": "fast", "secrets": {"a": "hunter2"}});
    assert_eq!(
        refused::<storage::Create>(class),
        ["`secrets` is what the class says; leave it out, or leave `class` out"]
    );
}

#[test]
fn a_size_that_is_none_says_why() {
    let form = |text: &str| {
        format!(
            "`size` {text:?} is no size; write a whole number and a unit: 10GiB, 500MB, or bytes"
        )
    };
    let most = limits::VOLUME_BYTES_MAX;
    let large =
        |text: &str| format!("`size` {text} is more than {most} bytes, the most that CSI can say");
    let kind = |what: &str| {
        format!(
            "`size` is {what}, not a size; write a whole number of bytes, or a text with a unit, \
             such as \"10GiB\""
        )
    };
    for (size, expected) in [
        (json!(0), "`size` is 0; a volume has at least 1 byte".to_owned()),
        (json!("0GiB"), "`size` is 0; a volume has at least 1 byte".to_owned()),
        (json!(-5), "`size` -5 is less than 0; a volume has at least 1 byte".to_owned()),
        (json!("-1GiB"), "`size` -1GiB is less than 0; a volume has at least 1 byte".to_owned()),
        (json!(9_223_372_036_854_775_808_u64), large("9223372036854775808")),
        (json!("8192PiB"), large("9223372036854775808")),
        (json!("99999999999999999999"), large("99999999999999999999")),
        (json!(1.5), form("1.5")),
        (json!("1.5GiB"), form("1.5GiB")),
        (json!("ten"), form("ten")),
        (json!("GiB"), form("GiB")),
        (json!(""), form("")),
        (json!(true), kind("a boolean")),
        (json!({"GiB": 10}), kind("an object")),
        (json!(["10GiB"]), kind("a list")),
    ] {
        let request = json!({"id": "data", "size": size});
        assert_eq!(refused::<storage::Expand>(request), [expected]);
    }
    // TOML has no numbers beyond 64 bits: they come as text.
    let document = "id = 'd'\nclass = 'c'\nsize = 99999999999999999999\n";
    let told = refused_document::<storage::Create>(document);
    assert_eq!(told, [format!("line 3: {}", large("99999999999999999999"))]);
}

#[test]
fn a_class_is_refused_with_every_fault() {
    let document = r#"{
        "id": "fast", "plugin": "", "class": "fast", "capability": [],
        "parameters": {"type": 3}, "mutable_parameters": ["iops"],
        "mount": {"fs_type": "../ext4", "flags": ["a,b"], "colour": 1},
        "topology_policy": "first_use", "topology": [{}],
        "min_size": "20GiB", "max_size": "10GiB", "default_size": 30,
        "quota_volumes": -1, "quota_size": "-1GiB",
        "namespaces": ["team-a", "*", "", "team-a"],
        "secrets": {"create/password": "hunter2", "nonsense/password": "hunter2"}
    }"#;
    // Namespaces are compared once all of them are ids.
    let told = refused_document::<class::PutClass>(document);
    assert_eq!(
        told,
        [
            "`plugin` is empty; an id has 1 to 256 bytes",
            "`parameters.type` is a number, not a string",
            "`mutable_parameters` is a list, not an object",
            "`mount.colour` is not known here; known are fs_type, flags, group",
            "`topology_policy` unknown variant `first_use`, expected `immediate` or `first-use`",
            "`namespaces[2]` is empty; an id has 1 to 256 bytes",
            "`quota_volumes` invalid value: integer `-1`, expected u64",
            "`quota_size` -1GiB is less than 0; a volume has at least 1 byte",
            "`secrets.nonsense/password` names no call before its `/`; known are create, delete, \
             publish, stage, expand, modify, snapshot",
            "`class` is not known here; known are id, plugin, parameters, mutable_parameters, \
             capability, mount, topology_policy, topology, min_size, max_size, default_size, \
             reclaim, namespaces, quota_volumes, quota_size, secrets, sealed_secrets",
            "`capability` is empty; a volume needs at least one way to be used",
            "`mount.fs_type` must be the name of a file system, such as ext4: letters, digits, \
             `.`, `_` and `-`",
            "`mount.flags[0]` must be one mount flag, such as noatime: not empty, and without \
             commas, white space and control characters; give each flag by itself",
            "`topology[0]` has no segment; leave `topology` out if the volume is to be had \
             everywhere",
            "`max_size` is 10GiB, smaller than `min_size`, 20GiB",
            "`default_size` is 30B, not between `min_size` and `max_size`",
        ]
    );
    let namespaces = json!({"id": "fast", "plugin": "p", "namespaces": ["a", "*", "a"],
        "capability": [{"access": "single-node-writer"}]});
    assert_eq!(
        refused::<class::PutClass>(namespaces),
        [
            "`namespaces[1]` is `*`, which is no namespace; leave `namespaces` out if all may use \
             the class",
            "`namespaces[2]` a is listed twice",
        ]
    );
}

#[test]
fn smaller_requests_are_refused_with_every_fault() {
    let long = "x".repeat(limits::TEXT_BYTES_MAX + 1);
    let reason = json!({"id": "", "reason": long, "force": true});
    assert_eq!(
        refused::<storage::DeleteVolume>(reason),
        [
            "`id` is empty; an id has 1 to 256 bytes",
            "`reason` has 1025 bytes; at most 1024 are taken",
            "`force` is not known here; known are id, reason, create_index",
        ]
    );
    let expand = json!({"size": "2GiB", "limit": "1GiB", "when_free": "yes", "to": 1});
    assert_eq!(
        refused::<storage::Expand>(expand),
        [
            "`id` is missing",
            "`when_free` invalid type: string \"yes\", expected a boolean",
            "`to` is not known here; known are id, size, limit, when_free",
            "`limit` is 1GiB, smaller than `size`, 2GiB",
        ]
    );
    for (parameters, expected) in [
        (json!({}), "`parameters` is empty; name at least one parameter"),
        (json!({"": "x"}), "`parameters` has the key \"\", which is empty"),
        (
            json!({"a": "x".repeat(limits::MAP_BYTES_MAX)}),
            "`parameters` has 1 entries of 4097 bytes; at most 2048 of 4096 are taken",
        ),
    ] {
        let modify = json!({"id": "", "parameters": parameters});
        let told = refused::<storage::Modify>(modify);
        assert_eq!(told, ["`id` is empty; an id has 1 to 256 bytes", expected]);
    }
    let volume = json!({"id": "data", "plugin": "p", "capacity_bytes": 1_u64 << 63,
        "capability": [{"access": "single-node-writer", "attachment": "file-system"}]});
    let refusal = "`capacity_bytes` is more than CSI can say, which is 9223372036854775807 at most";
    assert_eq!(refused::<volume::RegisterVolume>(volume), [refusal]);
    for (capacity, expected) in [
        (json!({}), vec!["`plugin` is missing, and so is `class`; name one of them"]),
        (
            json!({"plugin": "p", "class": "c", "topology": {}}),
            vec![
                "`topology` has no segment; leave `topology` out if the volume is to be had \
                 everywhere",
            ],
        ),
    ] {
        assert_eq!(refused::<storage::ListCapacities>(capacity), expected);
    }
}

#[test]
fn requests_about_snapshots_are_refused_with_every_fault() {
    let create = json!({"snapshot": "", "volumes": ["a", "b", "a"], "parameters": {"": "x"},
        "volume": "c"});
    assert_eq!(
        refused::<snapshot::CreateSnapshot>(create),
        [
            "`snapshot` is empty; an id has 1 to 256 bytes",
            "`volume` is not known here; known are snapshot, volumes, group, parameters",
            "`volumes[2]` a is listed twice",
            "`parameters` has the key \"\", which is empty",
        ]
    );
    let many: Vec<String> = (0..=limits::GROUP_MAX).map(|at| format!("v{at}")).collect();
    for (volumes, expected) in [
        (json!([]), "`volumes` is empty; name at least one volume"),
        (json!(null), "`volumes` is empty; name at least one volume"),
        (json!(many), "`volumes` has 65 entries; at most 64 are taken"),
    ] {
        let create = json!({"snapshot": "s", "volumes": volumes});
        assert_eq!(refused::<snapshot::CreateSnapshot>(create), [expected]);
    }
    let external = "`external_id` must have 1 to 256 bytes and no control character";
    for id in ["", "a\u{7}", &"x".repeat(257)] {
        let adopt = json!({"volume": "v", "snapshot": "s", "plugin": "", "external_id": id});
        let told = refused::<snapshot::AdoptSnapshot>(adopt);
        assert_eq!(told, ["`plugin` is empty; an id has 1 to 256 bytes", external]);
    }
    let id = json!({"plugin": "", "id": ""});
    let told =
        ["`plugin` is empty; an id has 1 to 256 bytes", &external.replace("external_id", "id")];
    assert_eq!(refused::<storage::ListExternals>(id), told);
    let delete = json!({"volume": "v", "snapshot": "s", "group": 1});
    assert_eq!(
        refused::<snapshot::DeleteSnapshot>(delete),
        ["`group` invalid type: integer `1`, expected a boolean"]
    );
}

/// A report that is refused would be sent for ever: so it never is, whatever the plugin said.
#[test]
fn a_report_is_read_whatever_the_plugin_said() {
    let error = "é".repeat(limits::TEXT_BYTES_MAX);
    let failed = || Outcome::Failed(error.clone().into());
    let storage = work::StorageReport::new(sample::attempt_id(), failed());
    let storage: work::StorageReport = sent(&storage);
    let claim: claim::CallReport = sent(&claim::CallReport::new(sample::attempt_id(), failed()));
    let work: work::WorkReport = sent(&work::WorkReport::new(sample::attempt_id(), failed()));
    for error in [storage.error.unwrap(), claim.error.unwrap(), work.error.unwrap()] {
        assert!(error.len() <= limits::TEXT_BYTES_MAX && error.ends_with("é…"), "{error}");
    }
}

fn sent<T: Decode + serde::Serialize>(message: &T) -> T {
    let bytes = serde_json::to_vec(message).unwrap();
    decode::message(&bytes, Unknown::Ignore).unwrap()
}
