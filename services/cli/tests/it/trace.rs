//! Trees of claims, drawn from their events.

use berth_cli::show::Zone;
use berth_cli::show::trace::{ClaimSelection, Drawing, StepOutcome, Tree, TreeSource, draw, tree};
use berth_contract::event::{Event, EventName as E, PluginCall};
use berth_contract::message::claim::ClaimStatus;
use berth_contract::service::CLAIM;
use berth_domain::volume::{Attempt, CallKind, State};
use berth_domain::{Namespace, NodeId, SnapshotId, Timestamp, WorkerId};

use crate::data::volume_id;
use crate::story::{Story, at, attempt, trace};

const WATCHER: &str = "volumewatcher/h/7";

fn seen(events: &[Event], claims: &[ClaimStatus], now_ms: u64) -> Tree {
    tree(TreeSource { events, claims, begins: None, now: at(now_ms) }, ClaimSelection::Newest)
}

fn drawn(tree: &Tree) -> String {
    draw(tree, &Drawing { zone: Zone::utc(), all: false })
}

fn under_way(id: &str, call: CallKind, worker: &str, deadline_ms: u64) -> Attempt {
    let (id, worker) = (attempt(id), WorkerId::new(worker).unwrap());
    Attempt { id, call, worker, deadline: at(deadline_ms), bound: None }
}

/// A claim whose release has two failed tries, and a watcher that is killed during the third.
fn troubled() -> Story {
    Story::new()
        .alloc(0, E::AllocRegistered)
        .granted(4)
        .alloc(60_000, E::AllocStopped)
        .begin(60_010, E::ClaimUnpublishing, "2-d0000001", "agent.detach", WATCHER)
        .fail(60_210, "2-d0000001", 200, "agent.detach: the agent of node n1 is not there")
        .begin(60_610, E::ClaimUnpublishing, "2-d0000002", "agent.detach", WATCHER)
        .call(
            61_100,
            "2-d0000002",
            "agent.detach",
            "n1",
            &[("NodeUnpublishVolume", 60_612, 488_000, "INTERNAL")],
        )
        .fail(61_104, "2-d0000002", 494, "agent.detach: NodeUnpublishVolume: INTERNAL: no")
        .begin(62_000, E::ClaimUnpublishing, "2-d0000003", "agent.detach", WATCHER)
        .call(
            62_300,
            "2-d0000003",
            "agent.detach",
            "n1",
            &[("NodeUnpublishVolume", 62_010, 280_000, "OK")],
        )
        .begin(65_400, E::ClaimUnpublishing, "2-d0000004", "agent.detach", "volumewatcher/i/9")
        .call(65_420, "2-d0000004", "agent.detach", "n1", &[])
}

#[test]
fn a_granted_claim_is_drawn() {
    let story = Story::new().alloc(0, E::AllocRegistered).granted(4);
    let held = story.status(28, State::Taken);
    insta::assert_snapshot!(drawn(&seen(&story.events, &[held], 9_000)));
}

#[test]
fn a_call_in_progress_is_drawn_with_its_duration() {
    let worker = "claim/h/41";
    let story = Story::new().alloc(0, E::AllocRegistered).begin(
        4,
        E::ClaimPublishing,
        "1-p0000001",
        "controller.publish",
        worker,
    );
    let claim = ClaimStatus {
        attempt: Some(under_way("1-p0000001", CallKind::ControllerPublish, worker, 60_004)),
        waits_for: Some("controller.publish by claim/h/41".to_owned()),
        ..story.status(4, State::Publishing)
    };
    insta::assert_snapshot!(drawn(&seen(&story.events, &[claim], 12_004)));
}

#[test]
fn a_waiting_claim_is_drawn() {
    let story = Story::new().alloc(0, E::AllocRegistered).record(4, E::ClaimWaiting, |_| ());
    let claim = ClaimStatus {
        waits_for: Some("its turn, after web-0 on n2 (taken)".to_owned()),
        ..story.status(4, State::Waiting)
    };
    insta::assert_snapshot!(drawn(&seen(&story.events, &[claim], 75_004)));
}

#[test]
fn a_claim_is_drawn_through_its_wait_grant_and_stalled_release() {
    let story = Story::new().record(0, E::ClaimWaiting, |_| ());
    let mut story = story.granted(7_000).released(32_000);
    let ended = story.events.iter_mut().find(|event| event.event == E::AllocComplete);
    ended.unwrap().at = at(20_000);
    insta::assert_snapshot!(drawn(&seen(&story.events, &[], 90_000)));
}

#[test]
fn a_release_with_failed_tries_is_drawn() {
    let story = troubled()
        .begin(65_430, E::ClaimNodeDetached, "3-u0000001", "controller.unpublish", WATCHER)
        .call(
            65_460,
            "3-u0000001",
            "controller.unpublish",
            "n2",
            &[("ControllerUnpublishVolume", 65_440, 19_000, "OK")],
        )
        // This watcher is killed too.
        .begin(68_730, E::ClaimNodeDetached, "3-u0000002", "controller.unpublish", "w/j/1")
        .fail(
            68_740,
            "3-u0000002",
            10,
            "controller.unpublish: no [volume default/data] [node n2] (B)",
        )
        .begin(69_000, E::ClaimNodeDetached, "3-u0000003", "controller.unpublish", "w/j/1")
        .freed(69_470, 9_460);
    let tree = seen(&story.events, &[], 90_000_000);
    insta::assert_snapshot!(drawn(&tree));
    insta::assert_json_snapshot!(tree);
}

#[test]
fn a_change_in_progress_is_drawn_with_its_retries_and_a_takeover() {
    let story = troubled();
    let events: Vec<Event> = story.events[..story.events.len() - 1].to_vec();
    let worker = "volumewatcher/i/9";
    let claim = ClaimStatus {
        attempt: Some(under_way("2-d0000004", CallKind::NodeDetach, worker, 125_400)),
        waits_for: Some("agent.detach by volumewatcher/i/9".to_owned()),
        tries: 2,
        ..story.status(60_010, State::Unpublishing)
    };
    insta::assert_snapshot!(drawn(&seen(&events, &[claim], 77_400)));
}

#[test]
fn a_release_that_is_stuck_for_two_days_is_drawn_shortly() {
    let mut story = Story::new().alloc(0, E::AllocRegistered).granted(4);
    let error = "agent.detach: the agent of node n1 is not there: no responders";
    for try_ in 0..2880 {
        let (ms, id) = (60_000 + try_ * 60_000, format!("2-d{try_:07}"));
        story = story.begin(ms, E::ClaimUnpublishing, &id, "agent.detach", WATCHER).fail(
            ms + 30,
            &id,
            30,
            error,
        );
    }
    let ended_ms = 60_000 + 2879 * 60_000;
    let claim = ClaimStatus {
        waits_for: Some("agent.detach, again at 2026-11-23T12:01:00.000Z".to_owned()),
        tries: 2880,
        failure: Some(error.into()),
        next_try: Some(at(ended_ms + 60_000)),
        ..story.status(60_000, State::Unpublishing)
    };
    let tree = seen(&story.events, &[claim], ended_ms + 12_030);
    insta::assert_snapshot!(drawn(&tree));
    let full = draw(&tree, &Drawing { zone: Zone::utc(), all: true });
    assert_eq!(full.matches("✗ agent.detach").count(), 2880);
}

#[test]
fn a_release_without_a_controller_is_drawn() {
    let story = Story::new()
        .alloc(0, E::AllocRegistered)
        .record(4, E::ClaimTaken, |event| event.took_us = Some(0))
        .mount(9, E::VolumeMountFailed, 3, &[("NodeStageVolume", 6, 2_900, "INTERNAL")])
        .mount(
            30,
            E::VolumeMounted,
            8,
            &[("NodeStageVolume", 22, 5_100, "OK"), ("NodePublishVolume", 27, 2_400, "OK")],
        )
        .alloc(50, E::AllocFailed)
        .begin(55, E::ClaimUnpublishing, "2-d0000001", "agent.detach", WATCHER)
        .call(
            70,
            "2-d0000001",
            "agent.detach",
            "n1",
            &[("NodeUnpublishVolume", 57, 4_000, "OK"), ("NodeUnstageVolume", 62, 4_200, "OK")],
        )
        .freed(72, 17);
    insta::assert_snapshot!(drawn(&seen(&story.events, &[], 100)));
}

#[test]
fn a_claim_that_the_plugin_refused_is_drawn() {
    let mut story = Story::new()
        .begin(4, E::ClaimPublishing, "1-p0000001", "controller.publish", "claim/h/41")
        .call(
            30,
            "1-p0000001",
            "controller.publish",
            "n2",
            &[("ControllerPublishVolume", 6, 22_000, "INVALID_ARGUMENT")],
        )
        .fail(32, "1-p0000001", 28, "controller.publish: INVALID_ARGUMENT: no");
    // The same write that recorded the refusal gave the claim up.
    let refused = story.events.last_mut().unwrap();
    (refused.claim_trace, refused.trace) = (refused.trace.clone(), Some(trace('b')));
    let story = story
        .begin(90, E::ClaimNodeDetached, "3-u0000001", "controller.unpublish", WATCHER)
        .call(
            99,
            "3-u0000001",
            "controller.unpublish",
            "n2",
            &[("ControllerUnpublishVolume", 92, 6_000, "OK")],
        )
        .freed(101, 69);
    insta::assert_snapshot!(drawn(&seen(&story.events, &[], 200)));
}

#[test]
fn a_call_that_is_answered_late_still_grants_the_claim() {
    let story = Story::new()
        .begin(0, E::ClaimPublishing, "1-p0000001", "controller.publish", "claim/h/41")
        .fail(2_000, "1-p0000001", 2_000, "controller.publish: no answer within 2s")
        .call(
            4_990,
            "1-p0000001",
            "controller.publish",
            "n2",
            &[("ControllerPublishVolume", 1, 4_989_000, "OK")],
        )
        .record(5_000, E::ClaimTaken, |event| event.took_us = Some(5_000_000));
    insta::assert_snapshot!(drawn(&seen(&story.events, &[], 9_000)));
}

#[test]
fn claimed_twice_the_newest_is_drawn() {
    // Two claims in one trace: `berth run` retries, and all its requests are one trace.
    let story = Story::new().granted(4).released(100).again('a', 'c').granted(5_004);
    let held = story.status(5_028, State::Taken);
    let source =
        TreeSource { events: &story.events, claims: &[held], begins: None, now: at(9_000) };
    insta::assert_snapshot!(drawn(&tree(source, ClaimSelection::Newest)));
    let all_claims = tree(source, ClaimSelection::All);
    let begun: Vec<Option<Timestamp>> =
        all_claims.claims.iter().map(|claim| claim.claim.at).collect();
    assert_eq!(begun, [Some(at(4)), Some(at(5_004))], "newest last");
    assert_eq!(
        (all_claims.claims[0].state, all_claims.claims[1].state),
        (None, Some(State::Taken))
    );
    assert_eq!(all_claims.left_out, 0);
    let first = all_claims.claims[0].release.as_ref().unwrap();
    assert_eq!((first.how, first.took_us), (StepOutcome::Done, Some(37_000)));
    // Each trace finds its own claim.
    let (b, c, e) = (trace('b'), trace('c'), trace('e'));
    assert_eq!(tree(source, ClaimSelection::Trace(&b)).claims, all_claims.claims[..1]);
    assert_eq!(
        tree(source, ClaimSelection::Trace(&c)).claims,
        all_claims.claims[1..],
        "not known, so the newest"
    );
    assert_eq!(tree(source, ClaimSelection::Trace(&e)).left_out, 1);
}

#[test]
fn several_claims_of_one_alloc_are_drawn() {
    let mut data = Story::new().alloc(0, E::AllocRegistered).granted(4);
    let mut models = Story::new().again('c', 'd');
    models.volume = "models";
    let models = models.record(45, E::ClaimTaken, |event| event.took_us = Some(0));
    let claims = [data.status(28, State::Taken), models.status(45, State::Taken)];
    data.events.extend(models.events);
    insta::assert_snapshot!(drawn(&seen(&data.events, &claims, 60)));
}

#[test]
fn events_that_have_aged_out_are_mentioned() {
    let story = troubled();
    let claim = ClaimStatus {
        waits_for: Some("a volumewatcher to make the call agent.detach".to_owned()),
        ..story.status(60_010, State::Unpublishing)
    };
    let kept_events = &story.events[9..];
    let source_since = |begins| TreeSource {
        events: kept_events,
        claims: std::slice::from_ref(&claim),
        begins,
        now: at(100_000),
    };
    let gone = drawn(&tree(source_since(Some(at(60_800))), ClaimSelection::Newest));
    let lost = tree(source_since(None), ClaimSelection::Newest);
    assert!(lost.claims[0].claim.begins_before && lost.claims[0].claim.at.is_none());
    let nothing = TreeSource { events: &[], ..source_since(Some(at(90_000))) };
    let nothing = drawn(&tree(nothing, ClaimSelection::Newest));
    insta::assert_snapshot!(format!("{gone}\n{}\n{nothing}", drawn(&lost)));
}

#[test]
fn a_claim_without_events_is_drawn_from_its_record() {
    let story = Story::new();
    let claim = ClaimStatus {
        attempt: Some(under_way("3-u0000009", CallKind::ControllerUnpublish, WATCHER, 9_000)),
        ..story.status(2_000, State::NodeDetached)
    };
    insta::assert_snapshot!(drawn(&seen(&[], &[claim], 5_000)));
}

#[test]
fn order_and_repetition_of_events_make_no_difference() {
    let story = Story::new().alloc(0, E::AllocRegistered).granted(4).released(100);
    let expected = seen(&story.events, &[], 900);
    let mut events = story.events.clone();
    events.reverse();
    assert_eq!(seen(&events, &[], 900), expected);
    events.extend(story.events);
    assert_eq!(seen(&events, &[], 900), expected);
    assert!(seen(&[], &[], 900).claims.is_empty());
}

/// Whichever events are lost, the tree shows the remaining ones, and invents nothing.
#[test]
fn any_event_may_be_missing() {
    let story = Story::new().alloc(0, E::AllocRegistered).granted(4).released(100);
    for lost in 0..story.events.len() {
        let mut events = story.events.clone();
        let event = events.remove(lost);
        let tree = seen(&events, &[], 900);
        let text = drawn(&tree);
        assert_eq!(tree.claims.len(), 1, "without {event:?}:\n{text}");
        let claim = &tree.claims[0];
        let (claimed, release) = (&claim.claim, claim.release.as_ref().unwrap());
        assert_eq!(claimed.how == StepOutcome::Done, event.event != E::ClaimTaken, "{text}");
        assert_eq!(release.how == StepOutcome::Done, event.event != E::ClaimFreed, "{text}");
        let calls = ["ControllerPublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume"];
        let shown_calls = calls.iter().filter(|call| text.contains(*call)).count();
        let lost = usize::from(event.event == E::CallDone);
        assert_eq!(shown_calls, calls.len() - lost, "without {event:?}:\n{text}");
    }
}

#[test]
fn control_characters_never_reach_the_terminal() {
    let mut story = Story::new().granted(4);
    for event in &mut story.events {
        event.detail = Some("\u{1b}]0;owned\u{7}\n└─ freed".to_owned());
        for call in &mut event.calls {
            call.code = "O\u{9b}K\r".to_owned();
        }
    }
    let text = drawn(&seen(&story.events, &[], 9));
    let sent: Vec<char> = text.chars().filter(|c| c.is_control() && *c != '\n').collect();
    assert!(sent.is_empty(), "{sent:?} in {text}");
    assert!(!text.contains("\n└─ freed"), "{text}");
}

#[test]
fn refused_requests_are_below_the_claims() {
    let story = Story::new().refused(0, 'c').alloc(1, E::AllocRegistered).granted(4);
    let story = story.refused(9_000, 'd');
    let whole_tree = seen(&story.events, &[], 10_000);
    insta::assert_snapshot!(drawn(&whole_tree));
    let events = [story.events.clone(), story.events.clone()].concat();
    assert_eq!(seen(&events, &[], 10_000).refusals, whole_tree.refusals, "what is read twice");
}

#[test]
fn the_trace_of_a_refused_request_is_the_refusal_alone() {
    let story = Story::new().alloc(0, E::AllocRegistered).granted(4).refused(9_000, 'd');
    let source = TreeSource { events: &story.events, claims: &[], begins: None, now: at(10_000) };
    let trace = tree(source, ClaimSelection::Trace(&trace('d')));
    assert_eq!((trace.claims.len(), trace.refusals.len()), (0, 1), "{trace:?}");
    insta::assert_snapshot!(drawn(&trace));
}

/// An event of the volume at its storage, or of its snapshot `monday`.
fn of_storage(ms: u64, name: E, digit: char, detail: &str) -> Event {
    let is_snapshot = name.as_str().starts_with("snapshot.");
    Event {
        namespace: Some(Namespace::default()),
        volume: Some(volume_id("data")),
        snapshot: is_snapshot.then(|| SnapshotId::new("monday").unwrap()),
        detail: Some(detail.to_owned()).filter(|detail| !detail.is_empty()),
        trace: Some(trace(digit)),
        ..Event::new(name, at(ms), CLAIM)
    }
}

fn storage_call(ms: u64, name: E, digit: char, detail: &str, code: &str) -> Event {
    let call = PluginCall {
        rpc: "CreateVolume".to_owned(),
        at: at(ms - 100),
        took_us: 90_000,
        code: code.to_owned(),
    };
    Event {
        node: NodeId::new("n1").ok(),
        took_us: Some(100_000),
        calls: vec![call],
        ..of_storage(ms, name, digit, detail)
    }
}

/// A creation that succeeds at its second try, an earlier volume of the same name, and a snapshot.
fn created() -> Vec<Event> {
    let worker = format!("controller.create by {WATCHER}");
    vec![
        of_storage(0, E::VolumeCreating, 'c', ""),
        of_storage(10, E::VolumeCreating, 'd', &worker),
        storage_call(200, E::CallFailed, 'd', "controller.create: UNAVAILABLE: no", "UNAVAILABLE"),
        of_storage(210, E::VolumeRetried, 'd', "controller.create: UNAVAILABLE: no"),
        of_storage(400, E::VolumeCreating, 'e', &worker),
        storage_call(600, E::CallDone, 'e', "controller.create", "OK"),
        of_storage(610, E::VolumeCreated, 'e', ""),
        of_storage(700, E::SnapshotCreating, 'f', ""),
        of_storage(800, E::SnapshotCut, 'f', ""),
    ]
}

#[test]
fn a_creation_at_the_storage_and_a_snapshot_under_way() {
    insta::assert_snapshot!(drawn(&seen(&created(), &[], 9_000)));
}

#[test]
fn a_trace_finds_the_change_that_one_of_its_calls_is_of() {
    let events = created();
    let source = TreeSource { events: &events, claims: &[], begins: None, now: at(9_000) };
    let of_call = tree(source, ClaimSelection::Trace(&trace('d')));
    let [change] = of_call.changes.as_slice() else { panic!("{of_call:?}") };
    assert_eq!((change.what.as_str(), change.phase.how), ("creating", StepOutcome::Done));
    assert_eq!(change.phase.took_us, Some(610_000));
    assert!(tree(source, ClaimSelection::Trace(&trace('0'))).changes.is_empty());
}

#[test]
fn a_creation_that_is_followed_by_its_deletion_is_two_changes() {
    let mut events = created();
    events.truncate(5);
    events.push(of_storage(650, E::VolumeDeleting, 'e', ""));
    events.push(of_storage(900, E::VolumeDeleted, 'f', ""));
    let source = TreeSource { events: &events, claims: &[], begins: None, now: at(9_000) };
    let all_changes = tree(source, ClaimSelection::All);
    let ends: Vec<(&str, StepOutcome)> =
        all_changes.changes.iter().map(|change| (change.what.as_str(), change.phase.how)).collect();
    assert_eq!(ends, [("creating", StepOutcome::Done), ("deleting", StepOutcome::Done)]);
    assert_eq!(tree(source, ClaimSelection::Newest).changes.len(), 1);
}
