//! Every state with every cause that keeps it there, and what is said of it.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_domain::access::{AccessMode, AttachmentMode, Mode};
use berth_domain::plugin::Instance;

use super::*;

const NOW: Timestamp = Timestamp::from_unix_ms(1_000_000_000);

fn claim(state: State, epoch: u64) -> Claim {
    Claim {
        state,
        node: NodeId::new("n1").unwrap(),
        tries: 0,
        next_try: None,
        error: None,
        mode: Mode::Write,
        since: NOW,
        place_until: None,
        exhausted: false,
        denied: false,
        reason: None,
        proof: None,
        attempt: None,
        epoch,
        access: AccessMode::SingleNodeWriter,
        attachment: AttachmentMode::FileSystem,
        controller: true,
        external_node: None,
        publish_context: BTreeMap::new(),
        mount: None,
    }
}

fn volume<const N: usize>(claims: [(&str, Claim); N]) -> Volume {
    let claims = claims.map(|(alloc, claim)| (AllocId::new(alloc).unwrap(), claim));
    Volume { spec: None, claims: claims.into() }
}

fn around<'a>(volume: &'a Volume, line: &'a Line<'a>, alloc: &str) -> Around<'a> {
    let claim = volume.claims.get(&AllocId::new(alloc).unwrap()).unwrap();
    Around { now: NOW, claim, line, wanted: true }
}

#[test]
fn one_in_line_is_told_who_comes_first() {
    let volume = volume([
        ("a", claim(State::Waiting, 9)),
        ("b", claim(State::Waiting, 8)),
        ("c", claim(State::Waiting, 12)),
        ("d", claim(State::Unpublishing, 3)),
    ]);
    let line = Line::of(&volume);
    let told = |alloc| {
        let around = around(&volume, &line, alloc);
        let (position, ahead) = around.ahead().unwrap();
        let ahead: Vec<String> = ahead.iter().map(ToString::to_string).collect();
        (position, ahead.join(" "), around.waits_for().unwrap())
    };
    let turn = |after: &str| format!("its turn, after {after}");
    let d = "d on n1 (unpublishing)";
    assert_eq!(told("b"), (0, "d".to_owned(), turn(d)));
    let b = format!("{d}, b on n1 (waiting)");
    assert_eq!(told("a"), (1, "d b".to_owned(), turn(&b)));
    assert_eq!(told("c"), (2, "d b a".to_owned(), turn(&format!("{b}, a on n1 (waiting)"))));
    assert_eq!(around(&volume, &line, "d").ahead(), None);
}

#[test]
fn a_long_line_is_counted_and_not_listed() {
    let mut volume = volume([]);
    for at in 0..100 {
        let alloc = AllocId::new(format!("a{at:03}")).unwrap();
        volume.claims.insert(alloc, claim(State::Waiting, at));
    }
    let line = Line::of(&volume);
    let last = around(&volume, &line, "a099");
    let (position, ahead) = last.ahead().unwrap();
    assert_eq!((position, ahead.len()), (99, NAMED_MAX));
    assert!(last.waits_for().unwrap().ends_with("a004 on n1 (waiting), 94 more"));
    let first = around(&volume, &line, "a000");
    assert_eq!(first.waits_for().unwrap(), "its turn, which has come");
    assert_eq!(first.hint(None, None, |_| true), None);
}

/// Each state says which call it is at; at rest it says nothing.
#[test]
fn the_step_is_named() {
    let empty = Volume::default();
    let line = Line::of(&empty);
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
        let around = Around { now: NOW, claim: &claim, line: &line, wanted };
        assert_eq!(around.step(), step, "{state}");
        assert_eq!(around.waits_for().is_none(), state == State::Taken && wanted, "{state}");
        if state != State::Unpublishing {
            let told = around.hint(None, None, |_| true).is_some();
            let lacks_controller = matches!(state, State::Publishing | State::NodeDetached);
            assert_eq!(told, lacks_controller || state == State::Taken && !wanted, "{state}");
        }
    }
    let again = Claim {
        next_try: Some(NOW.after(Duration::from_secs(5))),
        ..claim(State::Unpublishing, 1)
    };
    let around = Around { now: NOW, claim: &again, line: &line, wanted: false };
    let waits = around.waits_for().unwrap();
    assert!(waits.starts_with("agent.detach, again at"), "{waits}");
}

/// State, tries, what is known of the node and of the plugin, and what is said.
type Row<'a> = (State, u32, Option<&'a Node>, Option<&'a Plugin>, Option<&'a str>);

/// What keeps a volume on its node, and what a person can do: one row per cause.
#[test]
fn a_stuck_release_says_what_to_do() {
    let empty = Volume::default();
    let line = Line::of(&empty);
    let node = |state| Node {
        state,
        since: NOW,
        clock_skew_ms: 0,
        version: String::new(),
        boot_id: String::new(),
        reported: NOW,
        attributes: BTreeMap::new(),
        gone: None,
        back: None,
        unaccounted: Vec::new(),
    };
    let plugin = |healthy| {
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
    };
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
        let claim = Claim { tries, ..claim(state, 1) };
        let around = Around { now: NOW, claim: &claim, line: &line, wanted: false };
        let hint = around.hint(node, plugin.map(|plugin| (&id, plugin)), |_| true);
        match (&hint, expected) {
            (None, None) => {}
            (Some(hint), Some(expected)) if hint.contains(expected) => {}
            _ => panic!("row {at}: {hint:?}, not {expected:?}"),
        }
    }
    let full = Claim { exhausted: true, ..claim(State::Publishing, 1) };
    let around = Around { now: NOW, claim: &full, line: &line, wanted: true };
    let hint = around.hint(Some(&ready), Some((&id, &well)), |_| true).unwrap();
    assert!(hint.contains("release another volume of plugin p on node n1"), "{hint}");
}
