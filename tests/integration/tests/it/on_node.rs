//! The state of a claim on its node after the grant is shown in every view of the claim.

use std::path::Path;
use std::time::Duration;

use berth_contract::event::Event;
use berth_contract::message::claim::ClaimStatus;
use berth_domain::volume::NodeMountState;
use berth_harness::dirs::mounts_beneath;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the claim shows this state.
async fn becomes(system: &System, volume: &str, state: NodeMountState) -> ClaimStatus {
    wait::until(&format!("the claim on {volume} says {state}"), PATIENCE, || async {
        let claim = system.claims(volume).await.claims.pop().ok_or("there is no claim")?;
        let is_state = claim.mount.as_ref().is_some_and(|mount| mount.state == state);
        if is_state { Ok(claim) } else { Err(format!("{claim:?}")) }
    })
    .await
}

async fn events(system: &System, volume: &str) -> Vec<Event> {
    let printed = system.berth_prints(&["--json", "events", "--volume", volume]).await;
    printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

async fn has_event(system: &System, volume: &str, name: &str) {
    wait::until(&format!("{volume} has the event {name}"), PATIENCE, || async {
        let events = events(system, volume).await;
        let is_recorded = events.iter().any(|event| event.event.as_str() == name);
        if is_recorded { Ok(()) } else { Err(format!("{events:?}")) }
    })
    .await;
}

/// Each view shows the state, the node and the text.
async fn is_shown(system: &System, volume: &str, alloc: &str, words: &[&str]) {
    let claim = format!("{volume}/{alloc}");
    for command in [
        &["claim", "status", "--volume", volume][..],
        &["volume", "status", volume],
        &["alloc", "status", alloc],
        &["trace", &claim],
    ] {
        let awaited = format!("`berth {}` shows what the node does", command.join(" "));
        wait::until(&awaited, PATIENCE, || async {
            let shown = system.berth_prints(command).await;
            let missing = words.iter().find(|words| !shown.contains(**words));
            missing.map_or(Ok(()), |words| Err(format!("no {words:?} in {shown}")))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_hangs_fails_or_is_gone_shows_in_every_view() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { call_timeout_ms: 1_500, patience_ms: 4_000, ..Options::default() };
    let system = System::start(options).await;
    for volume in ["hangs", "fails", "vanishes", "deleted"] {
        system.volume(volume, &["single-node-writer"]).await;
    }
    system.plant(
        0,
        &json!([
            {"rpc": "NodeStageVolume", "volume": "hangs", "hang": true},
            {"rpc": "NodePublishVolume", "volume": "fails", "code": "INTERNAL"}
        ]),
    );

    // The mount hangs.
    system.alloc("h", 0, "hangs", false).await;
    system.try_mount("h", 0, "hangs").await.unwrap_err();
    let hung = becomes(&system, "hangs", NodeMountState::Hung).await;
    let mount = hung.mount.unwrap();
    assert_eq!(mount.rpc.as_deref(), Some("NodeStageVolume"));
    assert!(hung.waits_for.unwrap().starts_with("NodeStageVolume on node n1, not answered since"));
    assert_eq!(hung.plugin.unwrap().as_str(), "dev.berth");
    has_event(&system, "hangs", "volume.mount-hung").await;
    is_shown(&system, "hangs", "h", &["NodeStageVolume on node n1, not answered since"]).await;

    // The mount fails: the claim shows the number of tries and the plugin's message.
    system.alloc("f", 0, "fails", false).await;
    for _ in 0..2 {
        system.try_mount("f", 0, "fails").await.unwrap_err();
    }
    let failing = becomes(&system, "fails", NodeMountState::Failing).await;
    let mount = failing.mount.unwrap();
    assert!(mount.tries >= 1 && mount.error.unwrap().contains("INTERNAL"));
    is_shown(&system, "fails", "f", &["fails since", "INTERNAL"]).await;

    // Mounted, then unmounted without the agent.
    let vanishing = system.run("v", 0, "vanishes").await;
    becomes(&system, "vanishes", NodeMountState::Mounted).await;
    let unmounted = std::process::Command::new("umount").arg(&vanishing.path).status().unwrap();
    assert!(unmounted.success());
    becomes(&system, "vanishes", NodeMountState::Missing).await;
    is_shown(&system, "vanishes", "v", &["its mount is missing on node n1"]).await;

    // The mount answers, and its directory was deleted.
    let mounted = system.run("d", 0, "deleted").await;
    becomes(&system, "deleted", NodeMountState::Mounted).await;
    let source = system.backend().join("volumes/deleted/data");
    std::fs::remove_dir(&source).unwrap();
    let dead = becomes(&system, "deleted", NodeMountState::Dead).await;
    assert!(dead.mount.unwrap().error.unwrap().contains("was deleted"));
    has_event(&system, "deleted", "volume.mount-dead").await;
    is_shown(&system, "deleted", "d", &["its mount on node n1 fails since", "was deleted"]).await;

    // The faults end, and the claims show that. Earlier refusals no longer count as a failure.
    let refused = system.volume_status("fails").await.unwrap().last_refusal;
    assert!(refused.is_some_and(|refusal| refusal.message.contains("INTERNAL")));
    system.let_go();
    system.mount("h", 0, "hangs").await.unwrap();
    system.mount("f", 0, "fails").await.unwrap();
    becomes(&system, "hangs", NodeMountState::Mounted).await;
    becomes(&system, "fails", NodeMountState::Mounted).await;
    wait::until("no refusal is shown", PATIENCE, || async {
        let refused = system.volume_status("fails").await.unwrap().last_refusal;
        refused.map_or(Ok(()), |refusal| Err(format!("{refusal:?}")))
    })
    .await;

    // The state on a node whose agent is away is unknown.
    system.kill9(Part::Agent(0));
    wait::until("the claim says that its node is down", PATIENCE, || async {
        let shown = system.berth_prints(&["claim", "status", "--volume", "hangs"]).await;
        let words = "the agent of node n1, which is down since";
        if shown.contains(words) { Ok(()) } else { Err(shown) }
    })
    .await;
    system.restart(Part::Agent(0));
    system.healthy().await;
    // The driver does not unmount a mount that it did not make: the test unmounts it.
    std::fs::create_dir(&source).unwrap();
    let volume_dir = Path::new(&mounted.path).ancestors().nth(2).unwrap();
    for point in mounts_beneath(volume_dir).into_iter().rev() {
        let unmounted = std::process::Command::new("umount").arg(&point).status().unwrap();
        assert!(unmounted.success(), "{}", point.display());
    }
    for (alloc, volume) in [("h", "hangs"), ("f", "fails"), ("v", "vanishes"), ("d", "deleted")] {
        system.stop(alloc).await;
        system.freed(volume).await;
    }
    system.settle("hangs").await;
}

/// By CSI, a volume condition is for people: Berth shows it in every view, and does nothing about
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_plugin_calls_abnormal_shows_until_it_takes_it_back() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    becomes(&system, "data", NodeMountState::Mounted).await;
    let mark = system.backend().join("volumes/data/abnormal.json");
    std::fs::write(&mark, "\"a disk is failing\"").unwrap();
    let views = [
        &["claim", "status", "--volume", "data"][..],
        &["node", "status", "n1"],
        &["why", "data"],
        &["volume", "status", "data"],
        &["volume", "list"],
        &["volume", "placement", "--volume", "data"],
    ];
    for (is_abnormal, change) in [(true, "is shown"), (false, "is taken back")] {
        for command in views {
            let awaited = format!("the condition {change} by `berth {}`", command.join(" "));
            wait::until(&awaited, PATIENCE, || async {
                let shown = system.berth_prints(command).await;
                let is_told =
                    shown.contains("volume is not well") && shown.contains("disk is failing");
                if is_told == is_abnormal { Ok(()) } else { Err(shown) }
            })
            .await;
        }
        if is_abnormal {
            std::fs::remove_file(&mark).unwrap();
        }
    }
    system.stop("a").await;
    system.settle("data").await;
    system.judge();
}
