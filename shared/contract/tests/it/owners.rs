//! What owners of allocs send, and requests about many at once.

use berth_contract::code::Code;
use berth_contract::decode::{Unknown, decode};
use berth_contract::document::{Format, read};
use berth_contract::message::query::{LongPoll, Page};
use berth_contract::message::{alloc, many, owner, volume};
use berth_contract::problem::Problem;
use berth_domain::OwnerId;
use berth_domain::alloc::AllocState;
use serde_json::{Value, json};

use crate::messages::{alloc_status, reply, request};
use crate::sample;

#[test]
fn many_volumes() {
    let text = include_str!("volume.json");
    let document: volume::RegisterVolume = read(text, Format::Json).unwrap();
    let volumes = vec![document];
    request("request-volume-register-many", &many::RegisterVolumes { volumes });
    let (id, namespace) = (sample::volume(), sample::namespace());
    let registered = volume::Registered { id: id.clone(), namespace, changed: true, index: 57 };
    let done = many::RegisterAnswer { id: id.clone(), registered: Some(registered), error: None };
    let error = Problem::new(Code::UnsafeUpdate, "cannot change plugin of a volume in use");
    let refused = many::RegisterAnswer { id: id.clone(), registered: None, error: Some(error) };
    reply("reply-volume-register-many", &many::RegisterAnswers { answers: vec![done, refused] });

    let deregister = volume::Deregister {
        id: id.clone(),
        force: true,
        reason: "no longer needed".to_owned(),
        create_index: Some(3),
    };
    let volumes = vec![deregister];
    request("request-volume-deregister-many", &many::DeregisterMany { volumes });
    let deregistered = volume::Deregistered {
        id: id.clone(),
        gone: false,
        claims: 1,
        releasing: vec![sample::alloc_id()],
        mounts: vec![],
    };
    let done =
        many::DeregisterAnswer { id: id.clone(), deregistered: Some(deregistered), error: None };
    let error = Problem::new(Code::ClaimsLive, "claimed by alloc web-1");
    let refused = many::DeregisterAnswer { id, deregistered: None, error: Some(error) };
    let answers = many::DeregisterAnswers { answers: vec![done, refused] };
    reply("reply-volume-deregister-many", &answers);
}

/// All faults of all documents, each by its place. Of two documents of one volume neither counts.
#[test]
fn faults_of_many_volumes_come_at_once() {
    let document = |id: &str, external_id: &str| {
        json!({"id": id, "plugin": "p", "external_id": external_id,
            "capability": [{"access": "single-node-writer"}]})
    };
    let read = |volumes: &[Value]| -> Vec<String> {
        let read = decode::<many::RegisterVolumes>(json!({"volumes": volumes}), Unknown::Fault);
        read.err().unwrap_or_default().into_iter().map(|fault| fault.path).collect()
    };
    let (a, b) = (document("a", "vol-a"), document("b", "vol-b"));
    assert_eq!(read(&[a.clone(), b.clone()]), [""; 0]);
    let nonsense = json!({"id": "", "colour": 1, "capability": []});
    let expected = ["volumes[1].id", "volumes[1].plugin", "volumes[1].colour"];
    let mut paths = read(&[a.clone(), nonsense, json!(7)]);
    assert_eq!(paths.pop().as_deref(), Some("volumes[2]"));
    assert!(expected.iter().all(|path| paths.iter().any(|found| found == path)), "{paths:?}");
    assert_eq!(read(&[a.clone(), b.clone(), a.clone()]), ["volumes[2].id"]);
    // Two names of one volume at the plugin; without an external id, a volume's id is it.
    assert_eq!(read(&[a.clone(), document("c", "vol-a")]), ["volumes[1].external_id"]);
    let mut named_like_it = document("vol-a", "");
    named_like_it.as_object_mut().unwrap().remove("external_id");
    assert_eq!(read(&[a, named_like_it]), ["volumes[1].external_id"]);

    let twice = json!({"volumes": [{"id": "a"}, {"id": "b"}, {"id": "a", "force": true}]});
    let faults = decode::<many::DeregisterMany>(twice, Unknown::Fault).unwrap_err();
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].to_string(), "`volumes[2].id` names the volume of `volumes[0]`");
}

#[test]
fn many_allocs_and_their_owners() {
    let (owner, id) = (sample::owner_id(), sample::alloc_id());
    let register =
        alloc::RegisterAlloc::new(id.clone(), sample::node_id(), vec![sample::request()]);
    let register = alloc::RegisterAlloc { index: Some(0), ..register };
    request("request-alloc-register-many", &many::RegisterMany { allocs: vec![register] });
    let stop = alloc::StopAlloc::new(id.clone(), AllocState::Complete, None);
    request("request-alloc-stop-many", &many::StopMany { stops: vec![stop] });
    let stub = alloc::AllocStub::from(alloc_status());
    let done = many::AllocAnswer { id: id.clone(), alloc: Some(stub.clone()), error: None };
    let error = Problem::new(Code::AllocOwned, "alloc web-1 is not changed: it is another's");
    let refused = many::AllocAnswer { id: id.clone(), alloc: None, error: Some(error.clone()) };
    let answers = many::AllocAnswers { answers: vec![done, refused] };
    reply("reply-alloc-register-many", &answers);
    reply("reply-alloc-stop-many", &answers);
    request(
        "request-alloc-stop-owned",
        &many::StopOwned {
            owner: owner.clone(),
            node: Some(sample::node_id()),
            state: AllocState::Failed,
            note: Some("the node is drained".to_owned()),
        },
    );
    let from = OwnerId::new("scheduler-0").unwrap();
    request("request-alloc-adopt", &many::Adopt { from, owner: owner.clone(), ids: vec![id] });
    let changed = many::ChangedAllocs { allocs: vec![stub], more: true };
    reply("reply-alloc-adopt", &changed);
    reply("reply-alloc-stop-owned", &changed);
    let holder = "host-4711".to_owned();
    request(
        "request-owner-hold",
        &owner::HoldOwner { owner: owner.clone(), holder: holder.clone(), ttl_s: 15 },
    );
    reply("reply-owner-hold", &owner::OwnerHeld { revision: 57 });
    request(
        "request-owner-yield",
        &owner::YieldOwner { owner: owner.clone(), holder: holder.clone() },
    );
    reply("reply-owner-yield", &owner::OwnerYielded {});
    let page = sample::page("user.anna scheduler-0");
    request("request-owner-list", &owner::ListOwners { prefix: "sched".to_owned(), page });
    let stub = owner::OwnerStub {
        name: owner,
        by: Some("user.anna".to_owned()),
        held: true,
        holder: Some(holder),
        since: Some(sample::at(0)),
        live: 3,
        unowned: 1,
    };
    let next = Some("user.anna scheduler-1".to_owned());
    reply("reply-owner-list", &owner::Owners { owners: vec![stub], next });
    let placement = volume::ListPlacements {
        volumes: vec![sample::request()],
        index: Some(0),
        node: None,
        page: Page::default(),
        newer: LongPoll::default(),
    };
    request("request-volume-place-many", &many::PlaceMany { placements: vec![placement] });
    let answer = many::PlacementAnswer { placements: None, error: Some(error) };
    reply("reply-volume-place-many", &many::PlacementAnswers { answers: vec![answer] });
}
