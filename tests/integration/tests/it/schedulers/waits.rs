//! A wait ends with its condition, and with nothing else.

use std::time::Duration;

use berth_client::scheduler::Deadlines;
use berth_contract::event::Event;
use berth_contract::message::alloc::{self, Wait, WaitUntil};
use berth_contract::message::query::{LongPoll, Page};
use berth_contract::message::volume::ListPlacements;
use berth_contract::subject::{EventsOf, wanted_filter};
use berth_contract::verb;
use berth_domain::Namespace;
use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_harness::root::or_skip;
use berth_integration::{Options, System};
use tokio::time::{Instant, timeout};

use super::{SOON, alloc_id, ask, owner, place, scheduler};

/// The length of a wait that nothing may end, in milliseconds.
const QUIET_MS: u64 = 1_500;

#[tokio::test(flavor = "multi_thread")]
async fn an_alloc_is_waited_for_until_it_is_mounted_has_ended_and_is_free() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let a = scheduler(&system, "anna", "a").await;
    let job = place(&a, "job", 0, &["data"]).await;
    let wait = async |until, wait_ms| {
        let request = Wait { id: alloc_id("job"), until, wait_ms: Some(wait_ms) };
        ask::<verb::AllocWait>(&system, &request).await.unwrap().reached
    };
    for until in [WaitUntil::Mounted, WaitUntil::Ended, WaitUntil::Free] {
        assert!(!wait(until, 100).await, "{until:?}");
    }
    let (mounted, reached) = tokio::join!(job.mount(false, Deadlines::default()), async {
        wait(WaitUntil::Mounted, 20_000).await
    });
    mounted.unwrap();
    assert!(reached);
    job.wait(WaitUntil::Mounted, SOON).await.unwrap();
    let (stopped, ended, free) = tokio::join!(
        job.stop(AllocState::Complete, "done"),
        wait(WaitUntil::Ended, 20_000),
        wait(WaitUntil::Free, 20_000),
    );
    stopped.unwrap();
    assert!(ended && free);
    assert!(!wait(WaitUntil::Mounted, 20_000).await, "never again, and answered at once");
    assert!(job.wait(WaitUntil::Mounted, SOON).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_waited_for_is_woken_by_its_own_entries_alone() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let a = scheduler(&system, "anna", "a").await;
    let b = scheduler(&system, "anna", "b").await;
    let mine = place(&a, "mine", 0, &[]).await;
    let list = |newer| alloc::ListAllocs {
        owner: Some(owner("a")),
        state: Some(AllocState::Live),
        newer,
        ..alloc::ListAllocs::default()
    };
    let present = ask::<verb::AllocList>(&system, &list(LongPoll::default())).await.unwrap();
    assert_eq!(present.allocs.len(), 1);
    let newer = |wait_ms| LongPoll { than: Some(present.index), wait_ms: Some(wait_ms) };
    // Another owner's alloc comes and goes.
    let began = Instant::now();
    let quiet = list(newer(QUIET_MS));
    let (quiet, ()) = tokio::join!(ask::<verb::AllocList>(&system, &quiet), async {
        let theirs = place(&b, "theirs", 0, &[]).await;
        theirs.stop(AllocState::Complete, "done").await.unwrap();
    });
    assert_eq!(quiet.unwrap().allocs.len(), 1);
    assert!(began.elapsed() >= Duration::from_millis(QUIET_MS), "{:?}", began.elapsed());
    // An entry that leaves the list wakes the reader, even if it left before the request.
    let began = Instant::now();
    let waiting = list(newer(20_000));
    let (woken, stopped) = tokio::join!(
        ask::<verb::AllocList>(&system, &waiting),
        mine.stop(AllocState::Complete, "done"),
    );
    stopped.unwrap();
    assert!(woken.unwrap().allocs.is_empty());
    let late = ask::<verb::AllocList>(&system, &list(newer(20_000))).await.unwrap();
    assert!(late.allocs.is_empty());
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placement_says_how_long_the_line_is_and_when_it_has_changed() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { max_volumes: 3, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.volume("other", &["single-node-writer"]).await;
    let a = scheduler(&system, "anna", "a").await;
    let request = |newer| ListPlacements {
        volumes: vec![VolumeRequest::for_volume("data".parse().unwrap())],
        index: None,
        node: None,
        page: Page::default(),
        newer,
    };
    let before =
        ask::<verb::VolumePlacement>(&system, &request(LongPoll::default())).await.unwrap();
    assert!(before.nodes.iter().all(|node| node.fits && node.slots[0].free == Some(3)));
    let holder = place(&a, "holder", 0, &["data"]).await;
    let newer = |than, wait_ms| LongPoll { than: Some(than), wait_ms: Some(wait_ms) };
    let waiting = request(newer(before.index, 20_000));
    let (placement, mounted) = tokio::join!(
        ask::<verb::VolumePlacement>(&system, &waiting),
        holder.mount(false, Deadlines::default()),
    );
    mounted.unwrap();
    let placement = placement.unwrap();
    assert!(placement.nodes.iter().all(|node| !node.fits && node.fits_later), "{placement:?}");
    assert_eq!((placement.volumes[0].holding, placement.volumes[0].waiting), (1, 0));
    assert_eq!(placement.nodes[0].slots[0].free, Some(2), "n1 has one volume");
    let nodes = a.nodes_for(&waiting.volumes, None).await.unwrap();
    assert_eq!((nodes.now.len(), nodes.later.len(), nodes.never.len()), (0, 2, 0));
    // A change that leaves the placement as it is wakes no reader: a mount's report, and an alloc
    // without volumes.
    let present =
        ask::<verb::VolumePlacement>(&system, &request(LongPoll::default())).await.unwrap();
    let began = Instant::now();
    let quiet = request(newer(present.index, QUIET_MS));
    let (quiet, _) =
        tokio::join!(ask::<verb::VolumePlacement>(&system, &quiet), place(&a, "nothing", 0, &[]),);
    assert_eq!(quiet.unwrap().index, present.index);
    assert!(began.elapsed() >= Duration::from_millis(QUIET_MS), "{:?}", began.elapsed());
    holder.stop(AllocState::Complete, "done").await.unwrap();
    system.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_gets_the_events_of_its_own_allocs_alone() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    for volume in ["mine", "theirs"] {
        system.volume(volume, &["single-node-writer"]).await;
    }
    let a = scheduler(&system, "anna", "a").await;
    let b = scheduler(&system, "bob", "b").await;
    let namespace = Namespace::default();
    let anna = berth_contract::actor::Actor::user("anna");
    let filter = wanted_filter(EventsOf::Namespace(&namespace), &anna);
    let mut events = system.bus.live_events(&[filter]).await.unwrap();
    for (scheduler, volume) in [(&b, "theirs"), (&a, "mine")] {
        let job = place(scheduler, volume, 0, &[volume]).await;
        job.mount(false, Deadlines::default()).await.unwrap();
        job.stop(AllocState::Complete, "done").await.unwrap();
        job.wait(WaitUntil::Free, SOON).await.unwrap();
    }
    let mut names = Vec::new();
    while !names.iter().any(|name| name == "claim.freed") {
        let body = timeout(SOON, events.next()).await.unwrap().unwrap();
        let event: Event = serde_json::from_slice(&body).unwrap();
        assert_eq!(event.alloc, Some(alloc_id("mine")), "{event:?}");
        assert_eq!(event.by.as_deref(), Some("user.anna"), "{event:?}");
        names.push(event.event.to_string());
    }
    for name in ["alloc.registered", "claim.taken", "volume.mounted", "alloc.complete"] {
        assert!(names.iter().any(|received| received == name), "{name} in {names:?}");
    }
    system.settle("mine").await;
}
