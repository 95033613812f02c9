//! Creations without an answer that are notes, not findings.

use std::fs;

use serde_json::json;

use super::log::*;
use super::storage::{LONG_US, create, group_of, snapshot};
use crate::{Summary, judge};
use Came::{Lost, Refused};

/// The summary of a log without findings.
fn summary(log: &Log) -> Summary {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hand.log");
    fs::write(&path, log.text()).unwrap();
    judge(&[path], &mut |finding| panic!("{finding}")).unwrap()
}

#[test]
fn a_creation_that_may_yet_be_repeated_is_a_note_with_its_line() {
    let other_name = || json!({"name": "other"});
    let log = Log::default()
        .call("n1", CREATE, create(5), Lost)
        .call("n1", SNAPSHOT, snapshot(), Lost)
        .call("n1", GROUP, group_of(&["v"]), Lost)
        .later(LONG_US / 2)
        .ok("n1", CREATE, other_name());
    let notes = summary(&log).notes;
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(notes[0].contains("hand.log:2: CreateVolume of \"v\" is not answered"), "{notes:?}");
}

#[test]
fn a_creation_that_is_awaited_is_a_note() {
    let log = Log::default().begin("n1", CREATE, create(5)).later(LONG_US);
    let log = log.ok("n1", CREATE, json!({"name": "other"}));
    assert_eq!(summary(&log).notes.len(), 1);
}

#[test]
fn a_creation_that_was_answered_or_deleted_is_no_note() {
    let repeated = Log::default().call("n1", CREATE, create(5), Lost).ok("n1", CREATE, create(5));
    let refused = Log::default().call("n1", CREATE, create(5), Lost);
    let refused = refused.call("n1", CREATE, create(5), Refused);
    for log in [repeated, refused] {
        let log = log.later(LONG_US).ok("n1", CREATE, json!({"name": "other"}));
        assert_eq!(summary(&log).notes, [""; 0]);
    }
}

/// CSI allows a CO to look for the volume in a list instead (RPC Interactions).
#[test]
fn a_volume_that_may_have_been_found_in_a_list_and_deleted_is_a_note() {
    let lost = || Log::default().call("n1", CREATE, create(5), Lost);
    let log = lost().ok("n1", LIST_VOLUMES, json!({})).ok("n1", DELETE, v()).later(LONG_US);
    let log = log.ok("n1", CREATE, json!({"name": "other"}));
    assert_eq!(summary(&log).notes.len(), 1);
    // A volume that was deleted before the list cannot be the one.
    let log = lost().ok("n1", DELETE, v()).ok("n1", LIST_VOLUMES, json!({})).later(LONG_US);
    let log = log.ok("n1", CREATE, json!({"name": "other"}));
    assert_eq!(log.findings().len(), 1);
}
