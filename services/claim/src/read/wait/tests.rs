//! Every state of a claim, and what it waits for there.

use std::time::Duration;

use berth_contract::message::claim::ClaimWait;
use berth_domain::NodeId;
use berth_domain::access::{AccessMode, AttachmentMode, Capability, Mode};

use super::*;

const NOW: Timestamp = Timestamp::from_unix_ms(1_000_000_000);

fn claim(state: State, epoch: u64) -> Claim {
    let (node, access) = (NodeId::new("n1").unwrap(), AccessMode::SingleNodeWriter);
    let capability = Capability { access, attachment: AttachmentMode::FileSystem };
    Claim { epoch, controller: true, ..Claim::new(state, node, Mode::Write, capability, NOW) }
}

fn volume<const N: usize>(claims: [(&str, Claim); N]) -> Volume {
    let claims = claims.map(|(alloc, claim)| (AllocId::new(alloc).unwrap(), claim));
    Volume { spec: None, claims: claims.into(), ..Volume::default() }
}

fn context<'a>(claim: &'a Claim, line: &'a VolumeQueue<'a>, wanted: bool) -> ClaimContext<'a> {
    ClaimContext { now: NOW, claim, line, wanted }
}

fn context_of<'a>(volume: &'a Volume, line: &'a VolumeQueue<'a>, id: &str) -> ClaimContext<'a> {
    context(volume.claims.get(&AllocId::new(id).unwrap()).unwrap(), line, true)
}

fn words(context: &ClaimContext<'_>) -> String {
    context.waits_for().unwrap().to_string()
}

#[test]
fn one_in_line_is_told_who_comes_first() {
    let volume = volume([
        ("a", claim(State::Waiting, 9)),
        ("b", claim(State::Waiting, 8)),
        ("c", claim(State::Waiting, 12)),
        ("d", claim(State::Unpublishing, 3)),
    ]);
    let line = VolumeQueue::new(&volume);
    let ahead_of = |alloc| {
        let context = context_of(&volume, &line, alloc);
        let (position, ahead) = context.ahead().unwrap();
        let ahead: Vec<String> = ahead.iter().map(ToString::to_string).collect();
        (position, ahead.join(" "), words(&context))
    };
    let turn = |after: &str| format!("its turn, after {after}");
    let d = "d on n1 (unpublishing)";
    assert_eq!(ahead_of("b"), (0, "d".to_owned(), turn(d)));
    let b = format!("{d}, b on n1 (waiting)");
    assert_eq!(ahead_of("a"), (1, "d b".to_owned(), turn(&b)));
    assert_eq!(ahead_of("c"), (2, "d b a".to_owned(), turn(&format!("{b}, a on n1 (waiting)"))));
    assert_eq!(context_of(&volume, &line, "d").ahead(), None);
}

#[test]
fn a_long_line_is_counted_and_not_listed() {
    let mut volume = volume([]);
    for at in 0..100 {
        let alloc = AllocId::new(format!("a{at:03}")).unwrap();
        volume.claims.insert(alloc, claim(State::Waiting, at));
    }
    let line = VolumeQueue::new(&volume);
    let last = context_of(&volume, &line, "a099");
    let (position, ahead) = last.ahead().unwrap();
    assert_eq!((position, ahead.len()), (99, NAMED_MAX));
    assert!(words(&last).ends_with("a004 on n1 (waiting), 94 more"));
    let first = context_of(&volume, &line, "a000");
    assert_eq!(words(&first), "its turn, which has come");
}

/// Of thousands of holders a few are explained: one that needs a node which is not ready, otherwise
/// one that has failed, otherwise the oldest.
#[test]
fn one_holder_of_each_state_and_mode_is_looked_at() {
    let late = NOW.after(Duration::from_secs(5));
    let holder = |state, since, node: &str| Claim {
        since,
        node: NodeId::new(node).unwrap(),
        ..claim(state, 1)
    };
    let mut volume = volume([
        ("a", holder(State::Taken, late, "n1")),
        ("b", holder(State::Taken, NOW, "n1")),
        ("c", holder(State::Unpublishing, late, "n1")),
        ("d", claim(State::Waiting, 3)),
    ]);
    let first = |volume: &Volume| {
        let holders = VolumeQueue::new(volume).first_holders(|node| node.as_str() != "n9");
        holders.into_iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(first(&volume), ["b", "c"]);
    let mut add = |alloc: &str, claim: Claim| {
        volume.claims.insert(AllocId::new(alloc).unwrap(), claim);
        first(&volume)
    };
    assert_eq!(add("e", holder(State::Taken, late, "n9")), ["e", "c"]);
    let mut failed = holder(State::Unpublishing, late.after(Duration::from_secs(5)), "n1");
    failed.progress.tries = 2;
    assert_eq!(add("f", failed), ["e", "f"]);
    let reader = Claim { mode: Mode::Read, ..holder(State::Taken, late, "n1") };
    assert_eq!(add("g", reader).len(), 3);
    // Nothing is left on its node, so it ranks like a detach on another node.
    assert_eq!(add("h", holder(State::NodeDetached, late, "n9")).last().unwrap(), "h");
    assert_eq!(add("i", holder(State::NodeDetached, NOW, "n1")).last().unwrap(), "i");
}

/// Each state has its call; a claim at rest has none.
#[test]
fn the_step_is_named() {
    let empty = Volume::default();
    let line = VolumeQueue::new(&empty);
    let rows = [
        (State::Waiting, true, None, Some(ClaimWait::Turn)),
        (State::Publishing, true, Some(CallKind::ControllerPublish), Some(ClaimWait::Caller)),
        // The alloc has ended, and nobody asks again for what it was to have.
        (State::Waiting, false, None, Some(ClaimWait::Release)),
        (State::Publishing, false, Some(CallKind::ControllerPublish), Some(ClaimWait::Release)),
        (State::Taken, true, None, None),
        (State::Taken, false, Some(CallKind::NodeDetach), Some(ClaimWait::Release)),
        (State::Unpublishing, false, Some(CallKind::NodeDetach), Some(ClaimWait::Watcher)),
        (State::NodeDetached, false, Some(CallKind::ControllerUnpublish), Some(ClaimWait::Watcher)),
    ];
    for (state, wanted, step, wait) in rows {
        let claim = claim(state, 1);
        let context = context(&claim, &line, wanted);
        assert_eq!(context.step(), step, "{state}");
        assert_eq!(context.waits_for().map(|reason| reason.kind()), wait, "{state}");
    }
    let mut retried = claim(State::Unpublishing, 1);
    retried.progress.next_try = Some(NOW.after(Duration::from_secs(5)));
    let context = context(&retried, &line, false);
    let reason = context.waits_for().unwrap();
    assert_eq!(reason.kind(), ClaimWait::NextTry);
    assert!(reason.to_string().starts_with("agent.detach, again at"), "{reason}");
}

/// Every state of a mount comes with the node. If the node is down, its last report is added.
#[test]
fn a_granted_claim_waits_for_its_mount() {
    use NodeMountState::{
        Dead, Failing, Hung, Missing, Mounted, Publishing, Staging, Unknown as NewWord,
    };
    let mounted = |state, rpc: Option<&str>| {
        let rpc = rpc.map(str::to_owned);
        let mount = NodeMount { state, since: NOW, rpc, tries: 0, error: None };
        Claim { mount: Some(mount), ..claim(State::Taken, 7) }
    };
    for state in [Mounted, NewWord] {
        assert!(waits_on_node(&mounted(state, None), None).is_none());
    }
    let rpc = Some("NodeStageVolume");
    for (state, rpc, words) in [
        (Staging, rpc, "NodeStageVolume on node n1, under way since"),
        (Publishing, None, "the mount on node n1, begun at"),
        (Hung, rpc, "NodeStageVolume on node n1, not answered since"),
        (Hung, None, "the mount on node n1, which does not answer"),
        (Failing, None, "its caller to ask node n1 for the mount again"),
        (Missing, None, "its mount is missing on node n1"),
        (Dead, None, "its mount on node n1 fails"),
    ] {
        let claim = mounted(state, rpc);
        let reason = waits_on_node(&claim, None).unwrap();
        assert_eq!(reason.kind(), ClaimWait::Mount);
        assert!(reason.to_string().contains(words), "{reason}");
    }
    let down = Node { state: NodeState::Down, ..Node::unknown(NOW) };
    let claim = mounted(Hung, rpc);
    let reason = waits_on_node(&claim, Some(&down)).unwrap();
    assert_eq!(reason.kind(), ClaimWait::Node);
    assert!(reason.to_string().contains("its last report: hung since"), "{reason}");
}
