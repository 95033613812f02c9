//! Every state of a claim with every cause that keeps it there, and what is shown of it.

use std::time::Duration;

use berth_contract::code::Code;
use berth_domain::access::{AccessMode, AttachmentMode, Capability, Mode};
use berth_domain::plugin::Instance;
use berth_domain::proof::Proof;
use berth_domain::volume::{CallFailure, FailureFacts, Progress};
use berth_domain::{Namespace, VolumeId};

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

struct Subject {
    volume: VolumeKey,
    alloc: AllocId,
}

impl Subject {
    fn new(namespace: &str) -> Self {
        let volume = VolumeId::new("data").unwrap();
        let volume = VolumeKey::new(Namespace::new(namespace).unwrap(), volume);
        Self { volume, alloc: AllocId::new("web-0").unwrap() }
    }

    fn context<'a>(
        &'a self,
        claim: &'a Claim,
        line: &'a VolumeQueue<'a>,
        wanted: bool,
    ) -> ClaimContext<'a> {
        ClaimContext { now: NOW, volume: &self.volume, alloc: &self.alloc, claim, line, wanted }
    }
}

fn of<'a>(
    subject: &'a Subject,
    volume: &'a Volume,
    line: &'a VolumeQueue<'a>,
    id: &str,
) -> ClaimContext<'a> {
    subject.context(volume.claims.get(&AllocId::new(id).unwrap()).unwrap(), line, true)
}

#[test]
fn one_in_line_is_told_who_comes_first() {
    let volume = volume([
        ("a", claim(State::Waiting, 9)),
        ("b", claim(State::Waiting, 8)),
        ("c", claim(State::Waiting, 12)),
        ("d", claim(State::Unpublishing, 3)),
    ]);
    let (line, subject) = (VolumeQueue::new(&volume), Subject::new("default"));
    let told = |alloc| {
        let context = of(&subject, &volume, &line, alloc);
        let (position, ahead) = context.ahead().unwrap();
        let ahead: Vec<String> = ahead.iter().map(ToString::to_string).collect();
        (position, ahead.join(" "), context.waits_for().unwrap().1)
    };
    let turn = |after: &str| format!("its turn, after {after}");
    let d = "d on n1 (unpublishing)";
    assert_eq!(told("b"), (0, "d".to_owned(), turn(d)));
    let b = format!("{d}, b on n1 (waiting)");
    assert_eq!(told("a"), (1, "d b".to_owned(), turn(&b)));
    assert_eq!(told("c"), (2, "d b a".to_owned(), turn(&format!("{b}, a on n1 (waiting)"))));
    assert_eq!(of(&subject, &volume, &line, "d").ahead(), None);
}

#[test]
fn a_long_line_is_counted_and_not_listed() {
    let mut volume = volume([]);
    for at in 0..100 {
        let alloc = AllocId::new(format!("a{at:03}")).unwrap();
        volume.claims.insert(alloc, claim(State::Waiting, at));
    }
    let (line, subject) = (VolumeQueue::new(&volume), Subject::new("default"));
    let last = of(&subject, &volume, &line, "a099");
    let (position, ahead) = last.ahead().unwrap();
    assert_eq!((position, ahead.len()), (99, NAMED_MAX));
    assert!(last.waits_for().unwrap().1.ends_with("a004 on n1 (waiting), 94 more"));
    let first = of(&subject, &volume, &line, "a000");
    assert_eq!(first.waits_for().unwrap().1, "its turn, which has come");
    assert_eq!(first.hint(None, None, |_| true), None);
}

/// Each state says which call it is at; at rest it says nothing.
#[test]
fn the_step_is_named() {
    let empty = Volume::default();
    let (line, subject) = (VolumeQueue::new(&empty), Subject::new("default"));
    let rows = [
        (State::Waiting, true, None),
        (State::Publishing, true, Some(CallKind::ControllerPublish)),
        (State::Taken, true, None),
        (State::Taken, false, Some(CallKind::NodeDetach)),
        (State::Unpublishing, false, Some(CallKind::NodeDetach)),
        (State::NodeDetached, false, Some(CallKind::ControllerUnpublish)),
    ];
    for (state, wanted, step) in rows {
        let claim = claim(state, 1);
        let context = subject.context(&claim, &line, wanted);
        assert_eq!(context.step(), step, "{state}");
        assert_eq!(context.waits_for().is_none(), state == State::Taken && wanted, "{state}");
        if state != State::Unpublishing {
            let told = context.hint(None, None, |_| true).is_some();
            let lacks_controller = matches!(state, State::Publishing | State::NodeDetached);
            assert_eq!(told, lacks_controller || state == State::Taken && !wanted, "{state}");
        }
    }
    let mut again = claim(State::Unpublishing, 1);
    again.progress.next_try = Some(NOW.after(Duration::from_secs(5)));
    let context = subject.context(&again, &line, false);
    let (wait, waits) = context.waits_for().unwrap();
    assert!(wait == ClaimWait::NextTry && waits.starts_with("agent.detach, again at"), "{waits}");
}

fn node(state: NodeState) -> Node {
    Node { state, reported: NOW, ..Node::unknown(NOW) }
}

fn plugin(healthy: bool) -> Plugin {
    let instance = Instance {
        healthy,
        description: String::new(),
        provider: String::new(),
        version: String::new(),
        since: NOW,
        controller: None,
        node: None,
        id_since: None,
    };
    let mut plugin = Plugin::default();
    for half in [Half::Controller, Half::Node] {
        plugin.instances.insert((NodeId::new("n1").unwrap(), half), instance.clone());
    }
    plugin
}

/// State, tries, what is known of the node and of the plugin, and what is said.
type Row<'a> = (State, u32, Option<&'a Node>, Option<&'a Plugin>, Option<&'a str>);

/// What keeps a volume on its node, and what a person can do: one row per cause.
#[test]
fn a_stuck_release_says_what_to_do() {
    let empty = Volume::default();
    let (line, subject) = (VolumeQueue::new(&empty), Subject::new("default"));
    let (ready, down) = (node(NodeState::Ready), node(NodeState::Down));
    let (well, ill, absent) = (plugin(true), plugin(false), Plugin::default());
    let id = PluginId::new("p").unwrap();
    let (on, off) = (State::Unpublishing, State::NodeDetached);
    let rows: [Row<'_>; 9] = [
        (on, 0, Some(&ready), Some(&well), None),
        (
            on,
            3,
            Some(&ready),
            Some(&well),
            Some("`berth node status n1` for what hangs there; if p"),
        ),
        (on, 3, Some(&down), Some(&well), Some("start the agent of node n1, which is down since")),
        (on, 3, None, Some(&well), Some("nobody knows node n1")),
        (on, 3, Some(&ready), Some(&ill), Some("have plugin p run on node n1")),
        (on, 3, Some(&ready), Some(&absent), Some("have plugin p run on node n1")),
        (off, 0, Some(&down), Some(&well), None),
        (off, 3, None, Some(&well), Some("if p does not answer, read its log on the node")),
        (off, 3, None, Some(&ill), Some("have a controller of plugin p run")),
    ];
    for (at, (state, tries, node, plugin, expected)) in rows.into_iter().enumerate() {
        let mut claim = claim(state, 1);
        claim.progress.tries = tries;
        let context = subject.context(&claim, &line, false);
        let hint =
            context
                .hint(node.map(|node| (node, 1042)), plugin.map(|plugin| (&id, plugin)), |_| true);
        match (&hint, expected) {
            (None, None) => {}
            (Some(hint), Some(expected)) if hint.contains(expected) => {}
            _ => panic!("row {at}: {hint:?}, not {expected:?}"),
        }
    }
    let full = Claim { exhausted: true, ..claim(State::Publishing, 1) };
    let context = subject.context(&full, &line, true);
    let hint = context.hint(Some((&ready, 7)), Some((&id, &well)), |_| true).unwrap();
    assert_eq!(hint, "release another volume of plugin p on node n1", "no other node serves it");
    let mut two = well.clone();
    let here = (NodeId::new("n1").unwrap(), Half::Node);
    let instance = well.instances.get(&here).unwrap().clone();
    two.instances.insert((NodeId::new("n2").unwrap(), Half::Node), instance);
    let elsewhere = context.hint(Some((&ready, 7)), Some((&id, &two)), |_| true).unwrap();
    assert!(elsewhere.contains("`berth alloc stop web-0`"), "{elsewhere}");
    let down = context.hint(Some((&ready, 7)), Some((&id, &two)), |node| node.as_str() == "n1");
    assert_eq!(down.unwrap(), hint, "a node that is down has no room either");
}

/// Each way out that a hint names is a command that is filled in.
#[test]
fn a_way_out_names_the_volume_the_node_and_the_revision() {
    let empty = Volume::default();
    let (line, subject) = (VolumeQueue::new(&empty), Subject::new("team"));
    let down = node(NodeState::Down);
    let tried = |failure| Claim {
        progress: Progress { tries: 3, failure, ..Progress::default() },
        ..claim(State::Unpublishing, 1)
    };
    let stuck = tried(None);
    let hint = |claim: &Claim, node| {
        let (id, well) = (PluginId::new("p").unwrap(), plugin(true));
        subject.context(claim, &line, false).hint(node, Some((&id, &well)), |_| true).unwrap()
    };
    let told = hint(&stuck, Some((&down, 1042)));
    assert!(told.ends_with("`berth node gone n1 --seen 1042 --kind powered-off`"), "{told}");
    let told = hint(&stuck, None);
    assert!(told.ends_with("`berth node gone n1 --seen 0 --kind powered-off`"), "{told}");

    let ready = node(NodeState::Ready);
    let failed =
        |facts| Some(Box::new(CallFailure { facts, ..CallFailure::new("agent.detach: no") }));
    let code = Some(Code::NoResponder.into());
    let not_there = failed(FailureFacts { code, ..FailureFacts::default() });
    let away = tried(not_there);
    let told = hint(&away, Some((&ready, 1042)));
    assert!(told.starts_with("the agent of node n1 did not listen at the last try"), "{told}");
    assert!(told.contains("`berth node status n1`") && !told.contains("1042"), "{told}");

    let next = Some("look at /x".to_owned());
    let advised = failed(FailureFacts { next, ..FailureFacts::default() });
    let mounted = tried(advised);
    let told = hint(&mounted, Some((&ready, 1042)));
    assert_eq!(told, "look at /x. The call is repeated by itself");

    let denied = Claim { denied: true, ..stuck };
    let told = hint(&denied, Some((&ready, 1042)));
    let way = "`berth volume detach data --namespace team n1 --unstaged-on-node --yes`";
    assert!(told.contains(way), "{told}");
    let denied = Claim { state: State::NodeDetached, ..denied };
    let gone = |kind| {
        let (by, note) = ("ann".to_owned(), String::new());
        let proof = Some(Proof { kind, by, at: NOW, note });
        hint(&Claim { proof, ..denied.clone() }, Some((&ready, 1042)))
    };
    let waits = "fence the host at the storage or switch it off";
    assert!(gone(ProofKind::Confirmed).contains(waits));
    assert!(!gone(ProofKind::StorageFenced).contains(waits), "it is fenced already");
    let told = hint(&denied, Some((&ready, 1042)));
    let way = "`berth volume detach data --namespace team n1 --detached-at-storage --yes`";
    assert!(told.contains(way), "{told}");
}
