//! Mounts without a claim: undone where no workload has the path, and only on evidence.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::agent::{MountState, Unmounted};
use berth_contract::message::claim::Grant;
use berth_contract::message::digest::AllocsDigest;
use berth_contract::verb::{self, Verb as _};
use berth_domain::access::{AccessMode, Mode};
use berth_domain::volume::CallKind;
use berth_harness::{namespace, root, wait};
use serde_json::json;

use crate::world::{Differences, EXTERNAL, PATIENCE, World, call, grant, id, node, plugin};

#[tokio::test]
async fn what_was_begun_is_undone_once_its_claim_is_gone_for_certain() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world =
        World::start_with(Differences { driver: &["--no-attach"], ..Default::default() }).await;
    let (index, asked) = (Arc::new(AtomicU64::new(5)), Arc::new(AtomicU64::new(0)));
    world.claims.say_unclaimed(&index, &asked);

    for (alloc, epoch) in [("a", 7), ("b", 8)] {
        world.grant(alloc, epoch, &BTreeMap::new());
    }
    world.mount("a").await.unwrap();
    world.plant(&json!([{"rpc": "NodePublishVolume", "hang": true}]));
    // Long enough that the call is made on a busy machine; it hangs however long this is.
    let cut = world.mount_within("b", Duration::from_secs(3)).await;
    assert!(cut.is_err(), "{cut:?}");
    world.agent.kill9();
    world.plant(&json!([]));

    // A list that may be older than the claims says nothing of them.
    let begin_again = async || {
        let before = asked.load(Ordering::SeqCst);
        world.agent.restart();
        world.healthy_now().await;
        wait::until("the claims are asked for", PATIENCE, async || {
            let now = asked.load(Ordering::SeqCst);
            if now > before { Ok(()) } else { Err(now) }
        })
        .await;
    };
    begin_again().await;
    assert_eq!(world.status().await.unwrap().mounts.len(), 2);
    assert_eq!(world.count("NodeUnpublishVolume OK"), 0);

    index.store(100, Ordering::SeqCst);
    world.agent.kill9();
    begin_again().await;
    let left = wait::until("what was begun is undone", PATIENCE, async || {
        let status = world.status().await.map_err(|problem| problem.to_string())?;
        if status.mounts.len() == 1 { Ok(status) } else { Err(format!("{status:?}")) }
    })
    .await;
    // Somebody may have been given this one; it is said, and not taken away.
    assert_eq!((&left.mounts[0].alloc, left.mounts[0].state), (&id("a"), MountState::Published));
    assert!(left.mounts[0].mounted && left.mounts[0].staged, "{left:?}");
    assert!(world.agent.log().contains("its workload must not write any more"));
    assert_eq!(world.count("NodeUnstageVolume OK"), 0, "a still uses it");
    world.detach("a", 7, 21).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    world.judge();
}

/// A claim's key was deleted, or an older backup restored: the claim service knows nothing of the
/// mount, and would have the volume detached under it.
#[tokio::test]
async fn nothing_is_gone_while_a_mount_is_here_that_no_claim_covers() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world =
        World::start_with(Differences { driver: &["--no-attach"], ..Default::default() }).await;
    let claimed = |alloc: &str, epoch: u64, beside: &[&str]| Grant {
        claims_beside: Some(beside.iter().map(|alloc| id(alloc)).collect()),
        ..grant(alloc, epoch, &BTreeMap::new())
    };
    let leave = |revision: u64, beside: &[&str]| {
        let mut call = call(CallKind::NodeDetach, "b", 8, revision);
        call.details.claims_beside = Some(beside.iter().map(|alloc| id(alloc)).collect());
        call
    };
    world.answer_take("a", Ok(claimed("a", 7, &[])));
    let path = world.mount("a").await.unwrap().path;
    // Where one alloc may write, no other is mounted beside the one that no claim covers.
    let exclusive = Grant { access: AccessMode::SingleNodeSingleWriter, ..claimed("b", 8, &[]) };
    world.answer_take("b", Ok(exclusive));
    let refused = world.mount("b").await.unwrap_err();
    assert_eq!(refused.code, Code::MountUnaccounted, "{refused}");
    assert!(refused.message.contains(&path) && refused.message.contains("alloc a"), "{refused}");
    world.answer_take("b", Ok(claimed("b", 8, &["a"])));
    world.mount("b").await.unwrap();

    let unpublished = world.count("NodeUnpublishVolume OK");
    let refused = world.call(leave(11, &[])).await.unwrap_err();
    assert_eq!(refused.code, Code::MountUnaccounted, "{refused}");
    assert!(refused.message.contains(&path) && refused.message.contains("alloc a"), "{refused}");
    assert_eq!(world.count("NodeUnpublishVolume OK"), unpublished);
    // An agent that lost its journal sees it in the mount table.
    world.agent.kill9();
    std::fs::remove_dir_all(world.dir.join("state/journal")).unwrap();
    world.agent.restart();
    world.healthy_now().await;
    let refused = world.call(leave(12, &[])).await.unwrap_err();
    assert_eq!(refused.code, Code::MountUnaccounted, "{refused}");
    assert!(refused.message.contains(&path), "{refused}");
    // With its claim the mount delays no call.
    world.call(leave(13, &["a"])).await.unwrap();
    world.detach("a", 7, 14).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    world.judge();
}

/// A volume with so many claims at a node that a message has only their digest.
#[tokio::test]
async fn the_list_of_many_claims_is_asked_for_only_where_the_mounts_differ_from_it() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world =
        World::start_with(Differences { driver: &["--no-attach"], ..Default::default() }).await;
    let digest = |allocs: &[&str]| {
        let allocs: Vec<_> = allocs.iter().map(|alloc| id(alloc)).collect();
        Some(AllocsDigest::from_allocs(&allocs))
    };
    let granted = |alloc: &str, epoch: u64, beside: &[&str]| Grant {
        access: AccessMode::MultiNodeReaderOnly,
        mode: Mode::Read,
        claims_beside_digest: digest(beside),
        ..grant(alloc, epoch, &BTreeMap::new())
    };
    let leave = |alloc: &str, epoch: u64, revision: u64, beside: &[&str]| {
        let mut call = call(CallKind::NodeDetach, alloc, epoch, revision);
        call.details.claims_beside_digest = digest(beside);
        call
    };
    // The others are in line: nothing of theirs is here, so nothing needs a claim.
    world.answer_take("a", Ok(granted("a", 7, &["x", "y"])));
    world.mount("a").await.unwrap();
    // The mount of a is all that the digest has.
    world.answer_take("b", Ok(granted("b", 8, &["a"])));
    world.mount("b").await.unwrap();
    assert_eq!(world.claims.say_claimed_by(&[]), 0);
    world.answer_take("c", Ok(granted("c", 9, &["b", "x"])));
    let refused = world.mount("c").await.unwrap_err();
    assert_eq!(refused.code, Code::MountUnaccounted, "{refused}");
    assert_eq!(world.claims.say_claimed_by(&["a", "b", "x"]), 1);
    // x has a claim and no mount: all mounts are covered.
    world.answer_take("c", Ok(granted("c", 9, &["a", "b", "x"])));
    world.mount("c").await.unwrap();
    assert_eq!(world.claims.say_claimed_by(&["b", "x"]), 1);

    let refused = world.call(leave("c", 9, 11, &["b", "x"])).await.unwrap_err();
    assert_eq!(refused.code, Code::MountUnaccounted, "{refused}");
    assert!(refused.message.contains("alloc a"), "{refused}");
    assert_eq!(world.claims.say_claimed_by(&["a", "b"]), 1);
    assert_eq!(world.count("NodeUnpublishVolume OK"), 0);
    world.call(leave("c", 9, 12, &["a", "b"])).await.unwrap();
    assert_eq!(world.claims.say_claimed_by(&["a", "x"]), 0);
    world.call(leave("b", 8, 13, &["a", "x"])).await.unwrap();
    assert_eq!(world.claims.say_claimed_by(&[]), 1);
    world.call(leave("a", 7, 14, &["x", "y"])).await.unwrap();
    assert_eq!(world.claims.say_claimed_by(&[]), 0);
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    world.judge();
}

#[tokio::test]
async fn a_mount_without_a_claim_is_unmounted_when_a_person_says_so() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world =
        World::start_with(Differences { driver: &["--no-attach"], ..Default::default() }).await;
    let (index, asked) = (Arc::new(AtomicU64::new(5)), Arc::new(AtomicU64::new(0)));
    world.claims.say_unclaimed(&index, &asked);
    world.grant("a", 7, &BTreeMap::new());
    let path = world.mount("a").await.unwrap().path;
    let subject = verb::AgentUnmount::subject(&node());
    let body = json!({"namespace": "default", "volume": "data"});
    let unmount = async || {
        let _held = namespace::lock_for_release().await;
        world.ask::<Unmounted>(&subject, &body, PATIENCE).await
    };
    // The list may be older than the claim.
    let refused = unmount().await.unwrap_err();
    assert_eq!((refused.code, refused.retryable), (Code::Busy, true), "{refused}");
    index.store(100, Ordering::SeqCst);

    let there = world.dir.join("there");
    let script = format!("cd {path}; echo > {}; exec sleep 1000", there.display());
    let log = world.dir.join("holder.log");
    let own = world.dir.join("");
    let holder = namespace::shell("holder", &log, "private", &own, &script).start();
    wait::until("the holder is there", PATIENCE, async || {
        if there.exists() { Ok(()) } else { Err(holder.log()) }
    })
    .await;
    let refused = unmount().await.unwrap_err();
    assert_eq!(refused.code, Code::VolumeHeldByProcess, "{refused}");
    assert!(refused.message.contains(&format!("process {} (sleep)", holder.pid())), "{refused}");
    assert_eq!(world.count("NodeUnpublishVolume OK"), 0, "nothing is unmounted under it");
    drop(holder);
    let done = unmount().await.unwrap();
    // The storage detaches it by this claim, whatever happens to the agent from here on.
    let recovered = world.claims.recovered().pop().unwrap();
    assert_eq!((recovered.alloc, recovered.node), (id("a"), node()));
    assert_eq!((recovered.plugin, &*recovered.external_id), (plugin(), EXTERNAL));
    assert_eq!((&done.mounts[0].alloc, &done.mounts[0].path), (&id("a"), &path));
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    assert_eq!(unmount().await.unwrap_err().code, Code::NoSuchClaim, "nothing is left");
    world.judge();
}

/// Revisions begin again below those in the journal. That a mount has no claim is known by two
/// lists, and it holds others up as any other does.
#[tokio::test]
async fn a_mount_of_a_later_epoch_than_the_restored_records_is_accounted_for_first() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world =
        World::start_with(Differences { driver: &["--no-attach"], ..Default::default() }).await;
    let (index, asked) = (Arc::new(AtomicU64::new(100)), Arc::new(AtomicU64::new(0)));
    world.claims.say_unclaimed(&index, &asked);
    world.grant("a", 70, &BTreeMap::new());
    let path = world.mount("a").await.unwrap().path;
    world.agent.kill9();
    world.agent.restart();
    world.healthy_now().await;
    wait::until("the mount is told", PATIENCE, async || {
        let log = world.agent.log();
        if log.contains("its workload must not write any more") { Ok(()) } else { Err(log) }
    })
    .await;
    let alone = Some(std::collections::BTreeSet::new());
    let exclusive = Grant {
        access: AccessMode::SingleNodeSingleWriter,
        claims_beside: alone.clone(),
        ..grant("b", 8, &BTreeMap::new())
    };
    world.answer_take("b", Ok(exclusive));
    wait::until("the mount of b is refused for the mount of a", PATIENCE, async || {
        let refused = world.mount("b").await.unwrap_err();
        if refused.code == Code::MountUnaccounted { Ok(()) } else { Err(refused.to_string()) }
    })
    .await;
    let mut leave = call(CallKind::NodeDetach, "b", 8, 11);
    leave.details.claims_beside = alone;
    let refused = world.call(leave).await.unwrap_err();
    assert_eq!(refused.code, Code::MountUnaccounted, "{refused}");
    assert!(refused.message.contains(&path) && refused.message.contains("alloc a"), "{refused}");
    assert_eq!(world.count("NodeUnpublishVolume OK"), 0);
    world.detach("a", 70, 101).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
}
