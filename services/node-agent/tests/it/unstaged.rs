//! A plugin that never takes a volume down: by a person's word, and never while anything is mounted
//! (rule 18).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_domain::Timestamp;
use berth_domain::proof::{Proof, ProofKind};
use berth_domain::volume::CallKind;
use berth_harness::root;
use nix::mount::{MntFlags, umount2};
use serde_json::{Value, json};

use crate::world::{Differences, World, call};

async fn without_attach() -> World {
    World::start_with(Differences { driver: &["--no-attach"], ..Default::default() }).await
}

/// A detach that carries a person's word.
async fn by_word(world: &World, alloc: &str, epoch: u64, revision: u64) -> Result<(), Problem> {
    let by = "ann".to_owned();
    let (at, note) = (Timestamp::default(), String::new());
    let proof = Proof { kind: ProofKind::Confirmed, by, at, note };
    let mut call = call(CallKind::NodeDetach, alloc, epoch, revision);
    call.details.unstaged_by = Some(proof);
    world.call(call).await.map(drop)
}

/// The plugin does as it was asked, and answers with an error all the same.
fn done_and_denied(rpc: &str) -> Value {
    json!({"rpc": rpc, "code": "INTERNAL", "when": "after"})
}

#[tokio::test]
async fn a_word_counts_once_the_plugin_has_refused_with_nothing_mounted() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    world.grant("a", 7, &BTreeMap::new());
    world.mount("a").await.unwrap();
    world.plant(&json!([done_and_denied("NodeUnstageVolume")]));
    let early = by_word(&world, "a", 7, 11).await.unwrap_err();
    assert_eq!(early.code, Code::PluginFailed, "the word was said before the refusal: {early}");
    assert!(early.message.contains("nothing is mounted at"), "{early}");
    let without = world.detach("a", 7, 12).await.unwrap_err();
    assert_eq!(without.code, Code::PluginFailed, "nobody answers for it: {without}");
    by_word(&world, "a", 7, 13).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    assert!(world.status().await.unwrap().mounts.is_empty());
}

#[tokio::test]
async fn a_word_takes_nothing_that_is_mounted_for_unmounted() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    world.grant("a", 7, &BTreeMap::new());
    world.mount("a").await.unwrap();
    let failing = |rpc: &str| json!({"rpc": rpc, "code": "INTERNAL"});
    world.plant(&json!([failing("NodeUnpublishVolume"), failing("NodeUnstageVolume")]));
    let mut revision = 10;
    for left in [2, 1] {
        for _ in 0..3 {
            revision += 1;
            let refused = by_word(&world, "a", 7, revision).await.unwrap_err();
            assert_eq!(refused.code, Code::UnmountFailed, "{refused}");
            assert!(refused.message.contains("still mounted at"), "{refused}");
            assert!(refused.next.contains("`umount /"), "{}", refused.next);
            assert_eq!(world.mounts().len(), left, "{:?}", world.mounts());
        }
        // The published mount first, then the staged one.
        let is_next = |at: &PathBuf| left == 1 || at.ends_with("target");
        let path = world.mounts().into_iter().find(is_next).unwrap();
        umount2(&path, MntFlags::empty()).unwrap();
        revision += 1;
        let refused = by_word(&world, "a", 7, revision).await.unwrap_err();
        assert_eq!(refused.code, Code::PluginFailed, "{refused}");
    }
    by_word(&world, "a", 7, revision + 1).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
}

/// What was refused before is no ground for a word about what is staged since.
#[tokio::test]
async fn a_word_says_nothing_of_what_was_staged_after_the_refusal() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    world.grant("a", 7, &BTreeMap::new());
    world.mount("a").await.unwrap();
    world.plant(&json!([done_and_denied("NodeUnstageVolume")]));
    world.detach("a", 7, 11).await.unwrap_err();
    // Another alloc comes, and leaves: as long as the first is here, nothing is unstaged for it.
    world.plant(&json!([]));
    world.grant("b", 8, &BTreeMap::new());
    world.mount("b").await.unwrap();
    world.detach("b", 8, 12).await.unwrap();
    world.plant(&json!([done_and_denied("NodeUnstageVolume")]));
    let stale = by_word(&world, "a", 7, 13).await.unwrap_err();
    assert_eq!(stale.code, Code::PluginFailed, "{stale}");
    by_word(&world, "a", 7, 14).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
}

/// ABORTED says that an earlier call is at work, and a lost answer says nothing at all.
#[tokio::test]
async fn a_word_says_nothing_of_a_plugin_that_may_be_at_work() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    world.grant("a", 7, &BTreeMap::new());
    world.mount("a").await.unwrap();
    let busy = json!({"rpc": "NodeUnstageVolume", "code": "ABORTED", "when": "after"});
    world.plant(&json!([busy]));
    for revision in 11..14 {
        let refused = by_word(&world, "a", 7, revision).await.unwrap_err();
        assert_eq!(refused.code, Code::StillBusy, "{refused}");
    }
    world.plant(&json!([]));
    world.detach("a", 7, 14).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
}

/// The plugin says OK, and the kernel says otherwise: what to look at is said.
#[tokio::test]
async fn a_mount_that_remains_after_ok_is_told_with_the_next_command() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    world.grant("a", 7, &BTreeMap::new());
    let path = world.mount("a").await.unwrap().path;
    world.plant(&json!([{"rpc": "NodeUnpublishVolume", "wrong": "nothing-done"}]));
    let failed = by_word(&world, "a", 7, 11).await.unwrap_err();
    assert_eq!((failed.code, failed.retryable), (Code::UnmountFailed, true), "{failed}");
    assert!(failed.message.contains("answered NodeUnpublishVolume with OK"), "{failed}");
    for command in ["findmnt --mountpoint", "fuser -vm", "umount"] {
        assert!(failed.next.contains(&format!("`{command} {path}`")), "{}", failed.next);
    }
    umount2(Path::new(&path), MntFlags::empty()).unwrap();
    world.plant(&json!([]));
    world.detach("a", 7, 12).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
}
