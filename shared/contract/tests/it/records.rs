//! The values in the buckets.

use std::fmt::Debug;

use berth_contract::lease::NodeLeaseRecord;
use berth_contract::message::secret::{Sealed, StoredSecrets, Validation};
use berth_contract::record::{
    self, Body, NODE_UNKNOWN, Record, RecordError, SCHEMA, SCHEMA_STORAGE,
};
use berth_domain::VolumeKey;
use berth_domain::access::Mode;
use berth_domain::alloc::{Alloc, AllocState};
use berth_domain::class::Class;
use berth_domain::plugin::{Instance, Job, Node, NodeState};
use berth_domain::volume::storage::{Snapshot, SnapshotState, Stage, Work};
use berth_domain::volume::{Claim, Closing, HandleOwner, State, VolumeSpec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::reference::hold::hold;
use crate::sample;

/// The record is what its golden file says, and is read back as it was written.
pub fn record_is<T: Serialize + Body + PartialEq + Debug + Clone>(name: &str, body: T) {
    stored_is(name, body, SCHEMA, |body, trace| record::write(body, trace));
}

/// The same, of a record that this function writes with this schema.
fn stored_is<T: Serialize + Body + PartialEq + Debug + Clone>(
    name: &str,
    body: T,
    schema: u32,
    write: impl Fn(&T, Option<String>) -> serde_json::Result<Vec<u8>>,
) {
    let trace = Some("0af7651916cd43dd8448eb211c80319c".to_owned());
    let written = write(&body, trace.clone()).unwrap();
    let whole: Value = serde_json::from_slice(&written).unwrap();
    assert_eq!(whole["schema"], json!(schema));
    let read: Record<T> = record::read(&written).unwrap();
    assert_eq!(
        read,
        Record { body: body.clone(), trace: trace.clone(), trail: None, schema: SCHEMA }
    );
    let value = serde_json::to_value(&body).unwrap();
    hold::<T>(&value, |value| serde_json::from_value::<T>(value.clone()).is_ok());
    let record = Record { body, trace, trail: None, schema };
    assert_eq!(serde_json::to_vec(&record).unwrap(), written);
    let pretty = serde_json::to_string_pretty(&record).unwrap();
    insta::assert_snapshot!(name, pretty);
}

#[test]
fn specs() {
    let spec_is = |name: &str, spec| stored_is(name, spec, SCHEMA, record::write_spec);
    spec_is("record-spec", sample::spec());
    let closing =
        Some(Box::new(Closing { since: sample::at(9), reason: "no longer needed".to_owned() }));
    spec_is("record-spec-closing", VolumeSpec { closing, ..sample::spec() });
}

/// A spec says how its volume is at the storage, at each stage and in each change.
#[test]
fn specs_with_a_life_at_the_storage() {
    let spec_is = |name: &str, spec: VolumeSpec, stage: Stage| {
        assert_eq!(spec.stage(), stage, "{name}");
        stored_is(name, spec, SCHEMA_STORAGE, record::write_spec);
    };
    for stage in [Stage::Unused, Stage::Creating, Stage::Failed, Stage::Ready, Stage::Deleting] {
        spec_is(&format!("record-spec-{stage}"), sample::staged_spec(stage), stage);
    }
    let expanding = sample::changing_spec(Work::Expand(sample::expansion()));
    spec_is("record-spec-expanding", expanding, Stage::Ready);
    let modifying = sample::changing_spec(Work::Modify {
        parameters: sample::map("iops", "9000"),
        replaced: Some(Box::new(sample::expansion())),
    });
    spec_is("record-spec-modifying", modifying, Stage::Ready);
}

#[test]
fn snapshots_in_every_state() {
    use SnapshotState::{Creating, Cut, Deleting, Failed, Ready};
    for state in [Creating, Cut, Ready, Failed, Deleting] {
        let (name, snapshot) = (format!("record-snapshot-{state}"), sample::snapshot(state));
        stored_is(&name, snapshot, SCHEMA_STORAGE, record::write_snapshot);
    }
}

#[test]
fn classes_and_guards_of_quotas() {
    record_is("record-class", sample::class());
    record_is("record-quota", sample::class_use());
}

#[test]
fn handles() {
    let VolumeKey { namespace, volume } = sample::key();
    record_is("record-handle", HandleOwner { namespace, volume });
}

/// A claim and the spans of its life.
#[test]
fn a_claim_with_its_trail() {
    let (claim, trail) = (sample::claim(State::Unpublishing), sample::trail());
    let written = record::write_claim(&claim, trail).unwrap();
    let read: Record<Claim> = record::read(&written).unwrap();
    assert_eq!((&read.body, read.trail), (&claim, Some(trail)));
    assert_eq!(read.trace, Some(trail.release.trace_id()), "it is being released");
    insta::assert_snapshot!("record-claim-trail", serde_json::to_string_pretty(&read).unwrap());
}

#[test]
fn claims_in_every_state() {
    for state in
        [State::Waiting, State::Publishing, State::Taken, State::Unpublishing, State::NodeDetached]
    {
        record_is(&format!("record-claim-{state}"), sample::claim(state));
    }
}

#[test]
fn allocs_instances_and_nodes() {
    record_is("record-alloc", sample::alloc());
    record_is("record-instance", sample::instance());
    record_is("record-node", sample::node());
    record_is("record-job", sample::job());
}

/// Who holds a lease, for people: the value is no record, so nothing is around it.
fn lease_is<T>(name: &str, holder: &T)
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let value = serde_json::to_value(holder).unwrap();
    assert_eq!(serde_json::from_value::<T>(value.clone()).unwrap(), *holder);
    hold::<T>(&value, |value| serde_json::from_value::<T>(value.clone()).is_ok());
    insta::assert_snapshot!(name, serde_json::to_string_pretty(holder).unwrap());
}

#[test]
fn leases() {
    let (holder, renewal) = (sample::holder(), Some(4));
    lease_is("lease-node", &NodeLeaseRecord { holder, renewal });
    lease_is("lease-owner", &sample::owner_holder());
    lease_is("lease-leader", &sample::leader());
}

/// People look with tools that show the first hundred characters.
#[test]
fn the_state_comes_first() {
    let first = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap()[..9].to_owned();
    let claim = record::write(sample::claim(State::Taken), None).unwrap();
    assert_eq!(first(claim), "{\"state\":");
    assert_eq!(first(record::write(sample::alloc(), None).unwrap()), "{\"state\":");
    assert_eq!(first(record::write(sample::node(), None).unwrap()), "{\"state\":");
    let snapshot = sample::snapshot(SnapshotState::Cut);
    assert_eq!(first(record::write_snapshot(&snapshot, None).unwrap()), "{\"state\":");
    assert_eq!(first(record::write(sample::instance(), None).unwrap()), "{\"healthy");
}

/// A record of a newer version is refused, so that this one never drops what that one wrote; one of
/// before there were versions is read as the same thing (D9). Of each type.
fn is_versioned<T: Serialize + Body + PartialEq + Debug>(body: &T) {
    let written = record::write(body, None).unwrap();
    let mut fields: Map<String, Value> = serde_json::from_slice(&written).unwrap();
    let read = |fields: &Map<String, Value>| {
        record::read::<T>(&serde_json::to_vec(fields).unwrap()).map(|record| record.body)
    };
    for newer in [u64::from(SCHEMA_STORAGE) + 1, u64::MAX] {
        fields["schema"] = newer.into();
        // Also when nothing else is as it was.
        for fields in [&fields, &Map::from_iter([("schema".to_owned(), newer.into())])] {
            let refused = read(fields);
            assert!(matches!(refused, Err(RecordError::Newer { .. })), "{refused:?}");
        }
    }
    fields.remove("schema");
    assert_eq!(&read(&fields).unwrap(), body);
}

#[test]
fn secrets() {
    let sealed = Sealed { from: "XDV7".to_owned(), sealed: "eGt2MQ==".to_owned() };
    let validation = Validation { plugin: sample::plugin(), until: sample::at(9) };
    record_is("record-secrets", StoredSecrets { sealed, validation: Some(validation) });
}

#[test]
fn newer_records_are_refused_and_older_ones_read() {
    is_versioned(&sample::spec());
    is_versioned(&sample::staged_spec(Stage::Creating));
    is_versioned(&sample::snapshot(SnapshotState::Cut));
    is_versioned(&sample::class());
    is_versioned(&sample::class_use());
    let VolumeKey { namespace, volume } = sample::key();
    is_versioned(&HandleOwner { namespace, volume });
    is_versioned(&sample::claim(State::Unpublishing));
    is_versioned(&sample::alloc());
    is_versioned(&sample::instance());
    is_versioned(&sample::node());
    is_versioned(&sample::job());
    let sealed = Sealed { from: "XDV7".to_owned(), sealed: "eGt2MQ==".to_owned() };
    is_versioned(&StoredSecrets { sealed, validation: None });
    let newer = RecordError::Newer { found: 3 }.to_string();
    assert!(newer.contains("schema 3") && newer.contains("up to 2"), "{newer}");
    assert!(newer.contains("leaves it as it is"), "{newer}");
}

/// What a record of before there were versions does not say is taken for what holds most (D9).
#[test]
fn older_records_are_repaired() {
    let since = "2026-01-01T00:00:00.000Z";
    let older = |fields: Value| serde_json::to_vec(&fields).unwrap();
    let claim = older(json!({"since": since, "access": "single-node-writer",
        "attachment": "file-system"}));
    let claim = record::read::<Claim>(&claim).unwrap().body;
    assert_eq!((claim.state, claim.mode, claim.controller), (State::Taken, Mode::Write, true));
    assert_eq!((claim.node.as_str(), claim.external_node), (NODE_UNKNOWN, None));
    let alloc = record::read::<Alloc>(&older(json!({"since": since, "node": "n1"}))).unwrap();
    assert_eq!(alloc.body.state, AllocState::Live);
    let node = record::read::<Node>(&older(json!({"since": since}))).unwrap();
    assert_eq!(node.body.state, NodeState::Down);
    // What the present version writes is whole, or it is damaged: nothing is made up.
    let damaged = older(json!({"since": since, "access": "single-node-writer",
        "attachment": "file-system", "schema": SCHEMA}));
    assert!(matches!(record::read::<Claim>(&damaged), Err(RecordError::Unreadable(_))));
}

#[test]
fn what_is_no_record_is_an_error() {
    for bytes in [&b""[..], b"{}", b"[]", b"null", b"\xff", br#"{"schema":-1}"#] {
        assert!(record::read::<Claim>(bytes).is_err());
        assert!(record::read::<VolumeSpec>(bytes).is_err());
        assert!(record::read::<Snapshot>(bytes).is_err());
        assert!(record::read::<Class>(bytes).is_err());
        assert!(record::read::<Alloc>(bytes).is_err());
        assert!(record::read::<Instance>(bytes).is_err());
        assert!(record::read::<Node>(bytes).is_err());
        assert!(record::read::<Job>(bytes).is_err());
    }
}
