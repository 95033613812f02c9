//! What stands in the buckets.

use std::fmt::Debug;

use berth_contract::record::{self, Record, RecordError, SCHEMA};
use berth_domain::alloc::Alloc;
use berth_domain::plugin::{Instance, Node};
use berth_domain::volume::{Claim, Closing, State, VolumeSpec};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::reference::hold::hold;
use crate::sample;

/// The record is what its golden file says, and is read back as it was written.
fn record_is<T: Serialize + DeserializeOwned + PartialEq + Debug + Clone>(name: &str, body: T) {
    let trace = Some("0af7651916cd43dd8448eb211c80319c".to_owned());
    let written = record::write(&body, trace.clone()).unwrap();
    let read: Record<T> = record::read(&written).unwrap();
    assert_eq!(
        read,
        Record { body: body.clone(), trace: trace.clone(), trail: None, schema: SCHEMA }
    );
    let value = serde_json::to_value(&body).unwrap();
    hold::<T>(&value, |value| serde_json::from_value::<T>(value.clone()).is_ok());
    let pretty =
        serde_json::to_string_pretty(&Record { body, trace, trail: None, schema: SCHEMA }).unwrap();
    insta::assert_snapshot!(name, pretty);
}

#[test]
fn specs() {
    record_is("record-spec", sample::spec());
    let closing = Some(Closing { since: sample::at(9), reason: "no longer needed".to_owned() });
    record_is("record-spec-closing", VolumeSpec { closing, ..sample::spec() });
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
}

/// People look with tools that show the first hundred characters.
#[test]
fn the_state_comes_first() {
    let first = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap()[..9].to_owned();
    let claim = record::write(sample::claim(State::Taken), None).unwrap();
    assert_eq!(first(claim), "{\"state\":");
    assert_eq!(first(record::write(sample::alloc(), None).unwrap()), "{\"state\":");
    assert_eq!(first(record::write(sample::node(), None).unwrap()), "{\"state\":");
    assert_eq!(first(record::write(sample::instance(), None).unwrap()), "{\"healthy");
}

/// A record of a newer version is refused, so that this one never drops what that one wrote.
#[test]
fn a_newer_record_is_refused() {
    let written = record::write(sample::claim(State::Taken), None).unwrap();
    let newer = String::from_utf8(written).unwrap().replace("\"schema\":1", "\"schema\":2");
    let refused = record::read::<Claim>(newer.as_bytes());
    assert!(matches!(refused, Err(RecordError::Newer { found: 2 })), "{refused:?}");
}

#[test]
fn what_is_no_record_is_an_error() {
    for bytes in [&b""[..], b"{}", b"[]", b"null", b"\xff", br#"{"schema":-1}"#] {
        assert!(record::read::<Claim>(bytes).is_err());
        assert!(record::read::<VolumeSpec>(bytes).is_err());
        assert!(record::read::<Alloc>(bytes).is_err());
        assert!(record::read::<Instance>(bytes).is_err());
        assert!(record::read::<Node>(bytes).is_err());
    }
}
