//! What owners of allocs send, and requests about many at once.

use berth_contract::code::Code;
use berth_contract::message::query::{LongPoll, Page};
use berth_contract::message::{alloc, many, owner, volume};
use berth_contract::problem::Problem;
use berth_domain::OwnerId;
use berth_domain::alloc::AllocState;

use crate::messages::{alloc_status, reply, request};
use crate::sample;

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
