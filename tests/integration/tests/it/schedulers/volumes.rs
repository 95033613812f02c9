//! All volumes of an alloc in one call.

use std::time::Duration;

use berth_client::scheduler::{Deadlines, Refusal};
use berth_contract::code::Code;
use berth_domain::alloc::AllocState;
use berth_harness::root::or_skip;
use berth_integration::{Options, RECOVERY, System};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{SOON, place, scheduler};

/// Rounds in which two allocs request two volumes in opposite orders.
const ROUNDS: usize = 6;

fn patient() -> Deadlines {
    Deadlines { attempt: Duration::from_secs(5), overall: RECOVERY }
}

#[tokio::test(flavor = "multi_thread")]
async fn allocs_that_want_the_same_volumes_in_opposite_orders_are_served_one_after_the_other() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    for volume in ["x", "y"] {
        system.volume(volume, &["single-node-writer"]).await;
    }
    let a = scheduler(&system, "anna", "a").await;
    let mut jobs = JoinSet::new();
    for (node, order) in [["x", "y"], ["y", "x"]].into_iter().enumerate() {
        for round in 0..ROUNDS {
            let a = a.clone();
            jobs.spawn(async move {
                let job = place(&a, &format!("{node}-{round}"), node, &order).await;
                let mounted = job.mount(true, patient()).await.unwrap();
                let names: Vec<_> = mounted.iter().map(|volume| volume.name.clone()).collect();
                assert_eq!(names, order, "in the order of its requests");
                job.stop(AllocState::Complete, "done").await.unwrap();
            });
        }
    }
    while let Some(done) = timeout(RECOVERY, jobs.join_next()).await.unwrap() {
        done.unwrap();
    }
    system.freed("x").await;
    system.freed("y").await;
    system.settle("x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_last_volume_gives_the_first_ones_up() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    for volume in ["x", "y", "z"] {
        system.volume(volume, &["single-node-writer"]).await;
    }
    let a = scheduler(&system, "anna", "a").await;
    let holder = place(&a, "holder", 1, &["z"]).await;
    holder.mount(false, patient()).await.unwrap();
    let job = place(&a, "job", 0, &["z", "y", "x"]).await;
    system.mount("job", 0, "x").await.unwrap();
    let refused = job.mount(false, patient()).await.unwrap_err();
    assert!(matches!(refused, Refusal::Wait(_)), "{refused:?}");
    assert_eq!(refused.problem().code, Code::Held, "{refused}");
    // Only the volume that was mounted before stays.
    system.freed("y").await;
    let count_of_job = |claims: Vec<berth_contract::message::claim::ClaimStatus>| {
        claims.into_iter().filter(|claim| claim.alloc.as_str() == "job").count()
    };
    assert_eq!(count_of_job(system.claims("x").await.claims), 1);
    assert_eq!(count_of_job(system.claims("z").await.claims), 0);
    holder.stop(AllocState::Complete, "done").await.unwrap();
    let mounted = job.mount(true, patient()).await.unwrap();
    assert_eq!(mounted.len(), 3);
    job.stop(AllocState::Complete, "done").await.unwrap();
    system.settle("x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_mounts_that_wait_for_each_other_are_detected() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { replicas: 2, ..Options::default() }).await;
    for volume in ["x", "y"] {
        system.volume(volume, &["single-node-writer"]).await;
    }
    let a = scheduler(&system, "anna", "a").await;
    let one = place(&a, "one", 0, &["x", "y"]).await;
    let two = place(&a, "two", 1, &["y", "x"]).await;
    system.mount("one", 0, "x").await.unwrap();
    system.mount("two", 1, "y").await.unwrap();
    let (first, second) =
        (system.mount_in_turn("one", 0, "y"), system.mount_in_turn("two", 1, "x"));
    tokio::pin!(first, second);
    // One request is refused, and names both allocs. The other continues once the loser has ended.
    let (refused, loser, remaining) = timeout(SOON, async {
        tokio::select! {
            refused = &mut first => (refused, &one, 2),
            refused = &mut second => (refused, &two, 1),
        }
    })
    .await
    .unwrap();
    let refused = refused.unwrap_err();
    assert_eq!(refused.code, Code::Deadlock, "{refused}");
    assert!(refused.message.contains("one") && refused.message.contains("two"), "{refused}");
    loser.stop(AllocState::Failed, "deadlock").await.unwrap();
    let mounted = if remaining == 2 { second.await } else { first.await };
    mounted.unwrap();
    for job in [one, two] {
        job.stop(AllocState::Complete, "done").await.unwrap();
    }
    system.settle("x").await;
}
