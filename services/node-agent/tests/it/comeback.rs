//! A node that counts as gone takes nothing new before it has undone what it had (rule 12).

use std::path::PathBuf;
use std::time::Duration;

use berth_contract::code::Code;
use berth_domain::Timestamp;
use berth_domain::plugin::NodeState;
use berth_domain::proof::{Proof, ProofKind};
use berth_harness::wait;
use serde_json::json;

use crate::world::{Differences, PATIENCE, World};

fn proof() -> Proof {
    Proof {
        kind: ProofKind::StorageFenced,
        by: "ada@console".to_owned(),
        at: Timestamp::from_unix_ms(1_800_000_000_000),
        note: String::new(),
    }
}

async fn world() -> World {
    let agent = "report_interval_ms = 200";
    World::start_with(Differences { agent, ..Default::default() }).await
}

/// Waits until the agent refuses to mount because of how the node counts.
async fn closed(world: &World, alloc: &str, why: &str) {
    wait::until("nothing is mounted any more", PATIENCE, async || {
        match world.mount_within(alloc, Duration::from_secs(1)).await {
            Err(refused) if refused.code == Code::NodeReturning => {
                assert!(refused.retryable && refused.message.contains(why), "{refused}");
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

async fn mounted(world: &World, alloc: &str) {
    let tried = async || world.mount(alloc).await.map(drop).map_err(|refused| refused.to_string());
    wait::until("it is mounted", PATIENCE, tried).await;
}

async fn undone(world: &World) {
    wait::until("the agent says that all is undone", PATIENCE, async || {
        let last = world.last_report().ok_or("no report".to_owned())?;
        if last.undone == Some(proof().at) { Ok(()) } else { Err(format!("{last:?}")) }
    })
    .await;
    assert_eq!(world.mounts(), Vec::<PathBuf>::new());
    assert_eq!(world.status().await.unwrap().mounts, []);
}

#[tokio::test]
async fn nothing_is_mounted_before_the_registry_counts_the_node_as_there() {
    let world = world().await;
    let context = world.attach(10).await;
    world.grant("a", 1, &context);
    world.answer_report(NodeState::Down, None);
    world.agent.restart();
    closed(&world, "a", "has not said yet").await;
    assert_eq!(world.count("NodeStageVolume OK"), 0);
    world.answer_report(NodeState::Ready, None);
    mounted(&world, "a").await;
    world.detach("a", 1, 11).await.unwrap();
    world.judge();
}

#[tokio::test]
async fn a_node_that_counts_as_gone_undoes_all_and_only_then_takes_anything() {
    let world = world().await;
    let context = world.attach(10).await;
    for (alloc, epoch) in [("a", 1), ("b", 2)] {
        world.grant(alloc, epoch, &context);
        mounted(&world, alloc).await;
    }
    // What cannot be undone at once is tried again, and said.
    world.plant(&json!([{"rpc": "NodeUnpublishVolume", "code": "UNAVAILABLE", "times": 3}]));
    world.answer_report(NodeState::Down, Some(proof()));
    closed(&world, "c", "storage-fenced, says ada@console").await;
    wait::until("the registry is told what keeps it", PATIENCE, async || {
        let last = world.last_report().ok_or("no report".to_owned())?;
        let why = last.attributes.get("returning").ok_or(format!("{last:?}"))?;
        if why.contains("UNAVAILABLE") { Ok(()) } else { Err(why.clone()) }
    })
    .await;
    undone(&world).await;
    assert_eq!(world.count("NodeUnstageVolume OK"), 1, "{:?}", world.calls());
    let mut stopped = world.stopped();
    stopped.sort();
    stopped.dedup();
    let names: Vec<&str> = stopped.iter().map(|(alloc, _)| alloc.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(stopped[0].1.contains("its node counted as gone: storage-fenced"), "{stopped:?}");

    // The registry has not cleared the proof yet.
    closed(&world, "c", "counts as gone").await;
    world.answer_report(NodeState::Ready, None);
    world.grant("c", 3, &context);
    mounted(&world, "c").await;
    wait::until("what was undone is of an older proof", PATIENCE, async || {
        let last = world.last_report().ok_or("no report".to_owned())?;
        if last.undone.is_none() { Ok(()) } else { Err(format!("{last:?}")) }
    })
    .await;
    // A grant of before is worth nothing any more.
    world.grant("a", 1, &context);
    assert_eq!(world.mount("a").await.unwrap_err().code, Code::GrantVoid);
    world.detach("c", 3, 12).await.unwrap();
    world.judge();
}

/// Its cached writes wait behind the fence for as long as a mount stays.
#[tokio::test]
async fn mounts_go_also_while_nobody_notes_that_their_allocs_have_ended() {
    let world = world().await;
    let context = world.attach(10).await;
    world.grant("a", 1, &context);
    mounted(&world, "a").await;
    world.refuse_stops(true);
    world.answer_report(NodeState::Down, Some(proof()));
    wait::until("nothing is mounted", PATIENCE, async || {
        let left = world.mounts();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    wait::until("the registry is told what is left", PATIENCE, async || {
        let last = world.last_report().ok_or("no report".to_owned())?;
        let why = last.attributes.get("returning").ok_or(format!("{last:?}"))?;
        if why.contains("alloc.stop") { Ok(()) } else { Err(why.clone()) }
    })
    .await;
    assert_eq!(world.last_report().unwrap().undone, None);
    world.refuse_stops(false);
    undone(&world).await;
    world.judge();
}

#[tokio::test]
async fn killed_on_the_way_back_it_begins_again() {
    let world = world().await;
    let context = world.attach(10).await;
    world.grant("a", 1, &context);
    mounted(&world, "a").await;
    world.plant(&json!([{"rpc": "NodeUnstageVolume", "when": "before", "delay_ms": 60_000}]));
    world.answer_report(NodeState::Down, Some(proof()));
    wait::until("it is half undone", PATIENCE, async || {
        let half = world.count("NodeUnpublishVolume OK");
        if half == 1 { Ok(()) } else { Err(format!("{:?}", world.calls())) }
    })
    .await;
    world.agent.kill9();
    world.driver.kill9();
    world.plant(&json!([]));
    world.driver.restart();
    assert_eq!(world.last_report().unwrap().undone, None);
    world.agent.restart();
    undone(&world).await;
    world.judge();
}
