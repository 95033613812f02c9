//! Allocs belong to the instance of a scheduler that registered them.

use std::collections::BTreeMap;

use berth_client::scheduler::{Deadlines, LossReason, Refusal};
use berth_contract::code::Code;
use berth_contract::event::EventName;
use berth_contract::message::alloc::{self, AllocStatus, RegisterAlloc, StopAlloc};
use berth_contract::message::history;
use berth_contract::message::many::{RegisterMany, StopMany};
use berth_contract::message::owner::ListOwners;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_domain::alloc::AllocState;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, System};
use tokio::time::timeout;

use super::{SOON, alloc_id, ask, owner, place, register, scheduler};

async fn status(system: &System, id: &str) -> AllocStatus {
    ask::<verb::AllocStatus>(system, &alloc::AllocQuery::current(alloc_id(id))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_cannot_stop_each_others_allocs() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let a = scheduler(&system, "anna", "a").await;
    let b = scheduler(&system, "anna", "b").await;
    let stranger = scheduler(&system, "bob", "c").await;
    let job = place(&a, "job", 0, &["data"]).await;

    // Each request by which another instance could stop the alloc.
    let stop = StopAlloc::new(alloc_id("job"), AllocState::Stopped, None);
    let as_owner = |name: &str| StopAlloc { owner: Some(owner(name)), ..stop.clone() };
    for wrong in [stop.clone(), as_owner("b"), as_owner("a")] {
        // `system` is an operator with another identity.
        let refused = ask::<verb::AllocStop>(&system, &wrong).await.unwrap_err();
        assert_eq!(refused.code, Code::AllocOwned, "{wrong:?}: {refused}");
    }
    for other in [&b, &stranger] {
        let refused = other.register(register("job", 0, &["data"])).await.unwrap_err();
        assert_eq!(refused.problem().code, Code::AllocOwned, "{refused}");
        let adopted = other.adopt(&owner("a")).await.unwrap_err();
        assert!(matches!(adopted, Refusal::Wait(_)), "{adopted:?}");
        assert_eq!(adopted.problem().code, Code::OwnerHeld, "{adopted}");
        assert_eq!(other.stop_all(AllocState::Failed, "none").await.unwrap(), 0);
        assert!(other.own_allocs().await.unwrap().is_empty());
    }
    let shown = status(&system, "job").await;
    assert_eq!((shown.state, shown.owner.clone()), (AllocState::Live, Some(owner("a"))));
    assert_eq!(shown.by.as_deref(), Some("user.anna"));

    // The owner may change its labels; who saw the record may stop it, once.
    let labelled = RegisterAlloc {
        meta: BTreeMap::from([("job".to_owned(), "web".to_owned())]),
        ..register("job", 0, &["data"])
    };
    a.register(labelled).await.unwrap();
    let stale = StopAlloc { revision: Some(shown.modify_index), ..stop.clone() };
    let refused = ask::<verb::AllocStop>(&system, &stale).await.unwrap_err();
    assert_eq!(refused.code, Code::Changed, "{refused}");
    let shown = status(&system, "job").await;
    assert_eq!(shown.meta["job"], "web");
    let waiting = tokio::spawn({
        let job = job.clone();
        async move { job.lost().await }
    });
    let current = StopAlloc { revision: Some(shown.modify_index), ..stop };
    ask::<verb::AllocStop>(&system, &current).await.unwrap();
    let lost = timeout(SOON, waiting).await.unwrap().unwrap();
    assert!(matches!(lost, LossReason::Ended { state: AllocState::Stopped, .. }), "{lost:?}");
    // A repetition succeeds, even with the old revision: the alloc has ended.
    ask::<verb::AllocStop>(&system, &current).await.unwrap();
    job.stop(AllocState::Complete, "late").await.unwrap();
    assert_eq!(status(&system, "job").await.state, AllocState::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn allocs_of_an_owner_that_is_gone_run_on_and_are_adopted() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, replicas: 2, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let a = scheduler(&system, "anna", "a").await;
    let job = place(&a, "job", 0, &["data"]).await;
    job.mount(false, Deadlines::default()).await.unwrap();
    // The owner is gone without giving up its lease: none of its tasks runs on.
    drop((a, job));

    let unowned = async || {
        let list = alloc::ListAllocs { unowned: true, ..alloc::ListAllocs::default() };
        let listed = ask::<verb::AllocList>(&system, &list).await.unwrap().allocs;
        if listed.len() == 1 { Ok(listed) } else { Err(format!("{listed:?}")) }
    };
    let listed = wait::until("the alloc is unowned", SOON, unowned).await;
    assert_eq!(listed[0].owner, Some(owner("a")));
    assert!(listed[0].state == AllocState::Live && listed[0].unowned_since.is_some());
    assert_eq!(system.claims("data").await.claims.len(), 1, "nothing is released");
    let owners = ask::<verb::OwnerList>(&system, &ListOwners::default()).await.unwrap().owners;
    assert_eq!((owners.len(), owners[0].held, owners[0].unowned), (1, false, 1), "{owners:?}");

    // There is one event, although two replicas noticed.
    let has_one_event = async || {
        let events =
            history::ListEvents { allocs: vec![alloc_id("job")], ..history::ListEvents::default() };
        let events = ask::<verb::HistoryList>(&system, &events).await.unwrap().events;
        let events: Vec<_> = events.into_iter().map(|listed| listed.event).collect();
        let count =
            events.iter().filter(|event| event.event().event == EventName::AllocUnowned).count();
        if count == 1 { Ok(()) } else { Err(format!("{events:#?}")) }
    };
    wait::until("its event is recorded once", SOON, has_one_event).await;

    // A stranger may adopt it, since its owner's lease has ended. Then it is the stranger's.
    let b = scheduler(&system, "bob", "b").await;
    let adopted = b.adopt(&owner("a")).await.unwrap();
    assert_eq!(adopted.len(), 1);
    assert!(b.adopt(&owner("a")).await.unwrap().is_empty(), "a repetition adopts nothing");
    let restarted = scheduler(&system, "anna", "a").await;
    assert!(restarted.own_allocs().await.unwrap().is_empty());
    let stop = StopAlloc {
        owner: Some(owner("a")),
        ..StopAlloc::new(alloc_id("job"), AllocState::Stopped, None)
    };
    let refused = ask::<verb::AllocStop>(&system, &stop).await.unwrap_err();
    assert_eq!(refused.code, Code::AllocOwned, "{refused}");
    assert_eq!(b.stop_all(AllocState::Complete, "done").await.unwrap(), 1);
    system.freed("data").await;
    system.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_among_many_is_told() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let a = scheduler(&system, "anna", "a").await;
    place(&a, "job", 0, &[]).await;
    // An owner of the same name with another identity and no lease keeps its allocs.
    let other = RegisterAlloc { owner: Some(owner("a")), ..register("other", 0, &[]) };
    ask::<verb::AllocRegister>(&system, &other).await.unwrap();
    drop(a);

    let b = scheduler(&system, "bob", "b").await;
    let adopted_one = async || {
        let refused = b.adopt(&owner("a")).await.unwrap_err();
        assert_eq!(refused.problem().code, Code::OwnerHeld, "{refused}");
        let own = b.own_allocs().await.unwrap();
        if own.is_empty() { Err(refused.to_string()) } else { Ok(own) }
    };
    let own = wait::until("the alloc without an owner is adopted", SOON, adopted_one).await;
    assert_eq!((own.len(), own[0].id()), (1, &alloc_id("job")));
    assert_eq!(status(&system, "other").await.owner, Some(owner("a")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_instance_finds_its_allocs() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let a = scheduler(&system, "anna", "a").await;
    let registrations = [register("one", 0, &[]), register("two", 0, &[])];
    for answer in a.register_many(registrations.to_vec()).await.unwrap() {
        answer.unwrap();
    }
    let began = tokio::time::Instant::now();
    drop(a);
    // The new instance waits until the lease of the old one ends.
    let restarted = scheduler(&system, "anna", "a").await;
    assert!(began.elapsed() < super::TTL * 3, "{:?}", began.elapsed());
    let mut own: Vec<String> =
        restarted.own_allocs().await.unwrap().iter().map(|alloc| alloc.id().to_string()).collect();
    own.sort();
    assert_eq!(own, ["one", "two"]);
    assert_eq!(restarted.stop_all(AllocState::Complete, "done").await.unwrap(), 2);
    restarted.close().await.unwrap();
    let owners = ask::<verb::OwnerList>(&system, &ListOwners::default()).await.unwrap().owners;
    assert!(owners.is_empty(), "{owners:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_requests_each_has_its_own_answer() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let wrong_node = register("lost", 8, &[]);
    let wrong_volume = register("needs", 0, &["missing"]);
    let many = RegisterMany { allocs: vec![register("one", 0, &[]), wrong_node, wrong_volume] };
    let answers = ask::<verb::AllocRegisterMany>(&system, &many).await.unwrap().answers;
    let codes: Vec<_> =
        answers.iter().map(|answer| answer.error.as_ref().map(|problem| problem.code)).collect();
    assert_eq!(codes, [None, Some(Code::NoSuchNode), Some(Code::NoSuchVolume)]);
    let stop = |id| StopAlloc::new(alloc_id(id), AllocState::Complete, None);
    let many = StopMany { stops: vec![stop("lost"), stop("one")] };
    let answers = ask::<verb::AllocStopMany>(&system, &many).await.unwrap().answers;
    assert_eq!(answers[0].error.as_ref().unwrap().code, Code::NoSuchAlloc);
    assert_eq!(answers[1].alloc.as_ref().unwrap().state, AllocState::Complete);
    // A fault in one entry refuses the whole request with its path, and nothing is written.
    let bad =
        serde_json::json!({"allocs": [{"id": "x", "node": "n1"}, {"id": "y", "nodes": "n1"}]});
    let subject = verb::AllocRegisterMany::subject(&Namespace::default());
    let refused = system.ask::<serde_json::Value>(&subject, &bad).await.unwrap_err();
    let paths: Vec<_> = refused.faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, ["allocs[1].node", "allocs[1].nodes"], "{refused}");
    let unwritten =
        ask::<verb::AllocStatus>(&system, &alloc::AllocQuery::current(alloc_id("x"))).await;
    assert_eq!(unwritten.unwrap_err().code, Code::NoSuchAlloc);
}
