//! Allocs with fixed contents.

use std::collections::BTreeMap;

use berth_contract::message::alloc::{AllocStatus, AllocStub, Allocs, RequestedMount};
use berth_contract::message::claim::ClaimStatus;
use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_domain::volume::MountOptions;
use berth_domain::{AllocId, Namespace, OwnerId};

use crate::data::{ago, node_id, refused, stuck, volume_id};

/// Mount options as a service shows them.
fn options() -> MountOptions {
    let flags = vec!["***".to_owned(), "***".to_owned()];
    MountOptions { fs_type: Some("ext4".to_owned()), flags, group: None }
}

/// An alloc with two volumes.
pub fn alloc() -> AllocStatus {
    let request = |source: &str, read_only| VolumeRequest {
        read_only,
        ..VolumeRequest::for_volume(volume_id(source))
    };
    let own = VolumeRequest {
        alias: Some("scratch".to_owned()),
        per_alloc: true,
        mount: options(),
        ..request("disk", false)
    };
    AllocStatus {
        id: AllocId::new("web-0").unwrap(),
        namespace: Namespace::default(),
        state: AllocState::Failed,
        node: node_id("n1"),
        index: Some(2),
        since: ago(4000),
        note: Some("exit code 3".to_owned()),
        owner: Some(OwnerId::new("scheduler-1").unwrap()),
        unowned_since: None,
        by: Some("user.anna".to_owned()),
        meta: BTreeMap::from([("job".to_owned(), "web".to_owned())]),
        volumes: vec![request("data", false), request("models", true), own],
        claims: vec![stuck("web-0"), ClaimStatus { volume: volume_id("models"), ..stuck("web-0") }],
        last_refusal: Some(refused()),
        modify_index: 44,
        status_index: 99,
        unreadable: Vec::new(),
    }
}

/// Two allocs in a list.
pub fn allocs() -> Allocs {
    let stub = AllocStub {
        id: AllocId::new("web-0").unwrap(),
        namespace: Namespace::default(),
        state: AllocState::Failed,
        node: node_id("n1"),
        since: ago(4000),
        note: Some("exit code 3".to_owned()),
        owner: Some(OwnerId::new("scheduler-1").unwrap()),
        unowned_since: None,
        by: Some("user.anna".to_owned()),
        meta: BTreeMap::from([("job".to_owned(), "web".to_owned())]),
        volumes: vec![volume_id("data"), volume_id("disk[2]")],
        mounts: vec![RequestedMount {
            volume: volume_id("disk[2]"),
            name: "disk".to_owned(),
            mount: options().summary(),
        }],
        claims: 2,
        modify_index: 44,
    };
    let elsewhere = AllocStub {
        id: AllocId::new("web-1").unwrap(),
        namespace: Namespace::new("team a").unwrap(),
        state: AllocState::Live,
        note: None,
        unowned_since: Some(ago(60)),
        volumes: Vec::new(),
        mounts: Vec::new(),
        claims: 0,
        ..stub.clone()
    };
    Allocs { index: 44, allocs: vec![stub, elsewhere], next: None, unreadable: Vec::new() }
}
