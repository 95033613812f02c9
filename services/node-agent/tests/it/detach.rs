//! A volume's way off the node: rules 10 and 11.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use berth_contract::code::Code;
use berth_contract::message::call::{Call, Called};
use berth_domain::NodeId;
use berth_domain::volume::CallKind;
use berth_harness::{namespace, root, wait};
use nix::mount::{MntFlags, umount2};
use serde_json::json;

use crate::world::{Differences, PATIENCE, World, call, hold};

async fn without_attach() -> World {
    World::start_with(Differences { driver: &["--no-attach"], ..Default::default() }).await
}

#[tokio::test]
async fn a_shared_volume_is_unstaged_once_after_the_last_also_across_a_restart() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    for alloc in ["a", "b", "c"] {
        world.grant(alloc, 7, &BTreeMap::new());
        world.mount(alloc).await.unwrap();
    }
    assert_eq!(world.count("NodeStageVolume OK"), 1);
    world.detach("b", 7, 11).await.unwrap();
    world.agent.restart();
    answers(&world).await;
    world.detach("a", 7, 12).await.unwrap();
    world.detach("a", 7, 13).await.unwrap();
    assert_eq!(world.count("NodeUnstageVolume OK"), 0);
    assert_eq!(world.mounts().len(), 2, "the staging and the last target: {:?}", world.mounts());
    world.detach("c", 7, 14).await.unwrap();
    assert_eq!(world.count("NodeUnstageVolume OK"), 1);
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    world.judge();
}

async fn answers(world: &World) {
    wait::until("the agent answers and knows its plugin", PATIENCE, async || {
        world.status().await.map_err(|problem| problem.to_string())?;
        if world.agent.log().lines().rev().any(|line| line.contains("health changed")) {
            Ok(())
        } else {
            Err("the plugin is not known yet".to_owned())
        }
    })
    .await;
    world.healthy(true).await;
}

/// Paths are functions of the ids, and the calls are idempotent: what a claim says may be here
/// goes, and what the mount table shows of others stays.
#[tokio::test]
async fn an_agent_that_lost_its_journal_still_takes_down_what_it_had() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    for alloc in ["a", "b"] {
        world.grant(alloc, 7, &BTreeMap::new());
        world.mount(alloc).await.unwrap();
    }
    world.agent.kill9();
    fs::remove_dir_all(world.dir.join("state/journal")).unwrap();
    world.agent.restart();
    answers(&world).await;
    assert!(world.status().await.unwrap().mounts.is_empty());
    world.detach("a", 7, 11).await.unwrap();
    assert_eq!(world.count("NodeUnstageVolume OK"), 0, "b is still mounted");
    assert_eq!(world.mounts().len(), 2);
    world.detach("b", 7, 12).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    // One that never was here is gone, too.
    world.detach("c", 7, 13).await.unwrap();
    world.judge();
}

/// Rule 4, safety 8: a call that was issued before the agent started does nothing. Without its
/// journal the agent could not tell whose claim the mount is.
#[tokio::test]
async fn an_agent_that_begins_anew_does_nothing_that_was_named_before() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    world.grant("a", 9, &BTreeMap::new());
    world.mount("a").await.unwrap();
    let named = world.write_a_volume().await;
    world.agent.kill9();
    fs::remove_dir_all(world.dir.join("state/journal")).unwrap();
    world.agent.restart();
    answers(&world).await;
    let late = world.detach("a", 7, named).await.unwrap_err();
    assert_eq!(late.code, Code::OldCall, "{late}");
    assert!(late.message.contains(&format!("began at {named}")), "{late}");
    assert_eq!((world.count("NodeUnpublishVolume OK"), world.mounts().len()), (0, 2));
    world.detach("a", 9, named + 1).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    world.judge();
}

/// Rule 10: the detach came first, so the grant that was on its way mounts nothing.
#[tokio::test]
async fn a_grant_of_an_alloc_that_was_told_to_go_mounts_nothing() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    world.detach("a", 7, 11).await.unwrap();
    let calls = world.calls();
    world.grant("a", 7, &BTreeMap::new());
    let void = world.mount("a").await.unwrap_err();
    assert_eq!(void.code, Code::GrantVoid, "{void}");
    assert_eq!(world.calls(), calls, "no call was made");
    // The restarted agent refuses it as well.
    world.agent.restart();
    answers(&world).await;
    wait::until("its grant is void", PATIENCE, async || match world.mount("a").await {
        Err(void) if void.code == Code::GrantVoid => Ok(()),
        // The registry has not taken its first report yet.
        Err(later) if later.code == Code::NodeReturning => Err(later.to_string()),
        other => panic!("{other:?}"),
    })
    .await;
    // The same alloc with a later claim is another matter.
    world.grant("a", 12, &BTreeMap::new());
    assert_eq!(world.mount("a").await.unwrap().epoch, 12);
    let stale = world.detach("a", 7, 13).await.unwrap_err();
    assert_eq!(stale.code, Code::OldCall, "the claim it speaks of is gone: {stale}");
    assert!(!world.mounts().is_empty());
    world.detach("a", 12, 14).await.unwrap();
    assert!(world.mounts().is_empty());
    world.judge();
}

#[tokio::test]
async fn a_detach_waits_for_the_mount_under_way_and_then_undoes_it() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    world.grant("a", 7, &BTreeMap::new());
    world.plant(&hold("NodeStageVolume"));
    let (mounted, detached) = tokio::join!(world.mount("a"), async {
        wait::until("the intent is written", PATIENCE, async || {
            let status = world.status().await.map_err(|problem| problem.to_string())?;
            if status.mounts.is_empty() { Err("not yet".to_owned()) } else { Ok(()) }
        })
        .await;
        tokio::join!(world.detach("a", 7, 11), world.let_go()).0
    });
    mounted.unwrap();
    detached.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    world.judge();
}

/// Killed between the calls of a mount: the journal says what may be here.
#[tokio::test]
async fn an_agent_killed_while_it_mounts_takes_down_what_it_had_begun() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    world.grant("a", 7, &BTreeMap::new());
    world.plant(&hold("NodePublishVolume"));
    let (killed, ()) =
        tokio::join!(world.mount_within("a", std::time::Duration::from_secs(2)), async {
            wait::until("it is staged", PATIENCE, async || {
                let staged = world.count("NodeStageVolume OK") == 1;
                if staged { Ok(()) } else { Err("not staged") }
            })
            .await;
            world.agent.restart();
            world.plant(&json!([]));
        });
    assert_eq!(killed.unwrap_err().code, Code::NoAnswer);
    answers(&world).await;
    let status = world.status().await.unwrap();
    assert_eq!(status.mounts.len(), 1, "the intent is known: {status:?}");
    world.detach("a", 7, 11).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    world.judge();
}

/// The driver begins again, in a mount namespace of its own with what is mounted below `keeps`.
async fn drive_apart(world: &mut World, keeps: &Path) {
    let line = namespace::wrapper("private", keeps);
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    world.replace_driver(&line, &["--no-attach"]).await;
}

/// The kernel's word counts, not the plugin's: this one works in a mount namespace of its own, so
/// that what it mounts and unmounts happens nowhere else. It has the volume there as well: nothing
/// is unmounted under it.
#[tokio::test]
async fn what_a_plugin_says_is_done_is_looked_at() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let mut world = without_attach().await;
    world.grant("a", 7, &BTreeMap::new());
    world.mount("a").await.unwrap();
    let own = world.dir.join("");
    drive_apart(&mut world, &own).await;
    let held = world.detach("a", 7, 11).await.unwrap_err();
    assert_eq!((held.code, held.retryable), (Code::VolumeHeldByProcess, true), "{held}");
    assert!(held.message.contains("(berth-csi-dev)"), "{held}");
    assert_eq!(world.mounts().len(), 2, "nothing is unmounted: {:?}", world.mounts());

    // Another has nothing there, and says that it is done.
    drive_apart(&mut world, &own.join("nothing")).await;
    let failed = world.detach("a", 7, 12).await.unwrap_err();
    assert_eq!((failed.code, failed.retryable), (Code::UnmountFailed, true), "{failed}");
    // The target went with its directory, which the kernel lets go though it is mounted upon
    // elsewhere.
    assert_eq!(failed.step.as_deref(), Some("node.unstage"), "{failed}");
    assert!(failed.message.contains("still mounted"), "{failed}");
    assert_eq!(world.mounts().len(), 1, "the staging: {:?}", world.mounts());

    world.grant("b", 8, &BTreeMap::new());
    let bare = world.mount("b").await.unwrap_err();
    assert_eq!((bare.code, bare.retryable), (Code::MountFailed, true), "{bare}");
    assert!(bare.message.contains("nothing is mounted"), "{bare}");

    world.replace_driver(&[], &["--no-attach"]).await;
    world.detach("a", 7, 13).await.unwrap();
    world.detach("b", 8, 14).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
}

#[tokio::test]
async fn what_is_left_in_a_directory_stays_and_keeps_nothing_from_going() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    world.grant("a", 7, &BTreeMap::new());
    let path = world.mount("a").await.unwrap().path;
    // Someone unmounts it and writes to the directory beneath.
    let alloc_dir = Path::new(&path).parent().unwrap().to_owned();
    assert!(Command::new("umount").arg(&path).status().unwrap().success());
    fs::write(alloc_dir.join("stray"), "kept").unwrap();
    world.detach("a", 7, 11).await.unwrap();
    assert!(world.mounts().is_empty());
    assert_eq!(fs::read_to_string(alloc_dir.join("stray")).unwrap(), "kept");
}

#[tokio::test]
async fn a_detach_needs_its_plugin_and_says_so() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    world.grant("a", 7, &BTreeMap::new());
    world.mount("a").await.unwrap();
    world.driver.kill9();
    let failed = world.detach("a", 7, 11).await.unwrap_err();
    assert_eq!((failed.code, failed.retryable), (Code::PluginFailed, true), "{failed}");
    assert_eq!(failed.step.as_deref(), Some("node.unpublish"), "{failed}");
    let mut elsewhere = call(CallKind::NodeDetach, "a", 7, 12);
    elsewhere.plugin = berth_domain::PluginId::new("other").unwrap();
    // The registration may have been lost, and its name given to another volume.
    let by_journal = world.call(elsewhere).await.unwrap_err();
    assert_eq!(by_journal.code, Code::PluginFailed, "{by_journal}");
    assert_eq!(by_journal.plugin, failed.plugin, "it is the plugin that mounted: {by_journal}");
    world.driver.restart();
    world.detached("the plugin is back", "a", 7, 13).await;
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    world.judge();
}

#[tokio::test]
async fn a_call_for_another_node_does_nothing() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    let mut other = call(CallKind::NodeDetach, "a", 7, 11);
    let here = Call::from(other.clone()).subject();
    other.details.node = NodeId::new("n2").unwrap();
    let refused = world.ask::<Called>(&here, &other, PATIENCE).await;
    assert_eq!(refused.unwrap_err().code, Code::BadInput);
    let empty =
        world.ask::<serde_json::Value>(&here, &json!({"call": "agent.detach"}), PATIENCE).await;
    let faults = empty.unwrap_err().faults;
    assert!(faults.len() > 5, "every fault at once: {faults:?}");
    assert!(world.calls().is_empty());
}

/// A volume that was deleted behind everybody's back: the plugin will not undo what it does not
/// know, so the release says what is left to do by hand, and goes on by itself once it is done.
#[tokio::test]
async fn what_a_plugin_that_lost_the_volume_leaves_is_named_and_goes_on_once_unmounted_by_hand() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    world.grant("a", 7, &BTreeMap::new());
    let path = world.mount("a").await.unwrap().path;
    let lost = |rpc: &str| json!({"rpc": rpc, "code": "NOT_FOUND"});
    world.plant(&json!([lost("NodeUnpublishVolume"), lost("NodeUnstageVolume")]));
    let mut revision = 10;
    // The target first, and what it was staged at then.
    for left in 0..2 {
        revision += 1;
        let refused = world.detach("a", 7, revision).await.unwrap_err();
        let at = world.mounts().into_iter().find(|point| (*point == *path) == (left == 0)).unwrap();
        let told = format!("still mounted at {}", at.display());
        assert!(refused.retryable && refused.message.contains(&told), "{refused}");
        assert!(refused.next.contains(&format!("`umount {}`", at.display())), "{}", refused.next);
        assert!(refused.message.contains("NOT_FOUND"), "{refused}");
        umount2(&at, MntFlags::empty()).unwrap();
    }
    world.detach("a", 7, revision + 1).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    assert!(world.status().await.unwrap().mounts.is_empty());
}
