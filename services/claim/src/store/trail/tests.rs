//! A claim's trail through each kind of life.

use std::time::Duration;

use berth_domain::access::{AccessMode, AttachmentMode, Capability, Mode};
use berth_domain::volume::Progress;
use berth_domain::{AttemptId, Namespace, NodeId, VolumeId, WorkerId};

use super::*;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_unix_ms(1_000_000 + ms)
}

fn volume() -> VolumeKey {
    VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap())
}

fn request() -> TraceContext {
    TraceContext::begin(&mut rand::rng()).child(&mut rand::rng())
}

fn attempt(id: &str, call: CallKind) -> Attempt {
    Attempt {
        id: AttemptId::new(id).unwrap(),
        call,
        worker: WorkerId::new("w").unwrap(),
        deadline: at(5_000),
        bound: None,
    }
}

fn claim(state: State, attempt: Option<Attempt>) -> Claim {
    let (node, access) = (NodeId::new("n1").unwrap(), AccessMode::SingleNodeWriter);
    let capability = Capability { access, attachment: AttachmentMode::FileSystem };
    Claim {
        progress: Progress { attempt, ..Progress::default() },
        epoch: 7,
        controller: true,
        ..Claim::new(state, node, Mode::Write, capability, at(0))
    }
}

/// The trail after each of these writes, each by a request of its own.
fn walk(writes: &[Option<Claim>]) -> Vec<Trail> {
    let (volume, alloc) = (volume(), AllocId::new("a").unwrap());
    let mut before: Option<TrailedClaim> = None;
    let mut trails = Vec::new();
    for (step, after) in writes.iter().enumerate() {
        let change = ClaimChange {
            volume: &volume,
            alloc: &alloc,
            before: before.as_ref(),
            after: after.as_ref(),
        };
        let trail = change.trail(request(), at(step as u64 * 10));
        trails.push(trail);
        before = after.clone().map(|claim| TrailedClaim { claim, trail: Some(trail) });
    }
    trails
}

#[test]
fn a_life_is_two_traces_however_many_requests_made_it() {
    use CallKind::{ControllerPublish, ControllerUnpublish, NodeDetach};
    let trails = walk(&[
        Some(claim(State::Publishing, Some(attempt("p1", ControllerPublish)))),
        Some(claim(State::Publishing, None)),
        Some(claim(State::Publishing, Some(attempt("p2", ControllerPublish)))),
        Some(claim(State::Taken, None)),
        Some(claim(State::Unpublishing, Some(attempt("d1", NodeDetach)))),
        Some(claim(State::Unpublishing, Some(attempt("d1", NodeDetach)))),
        Some(claim(State::Unpublishing, Some(attempt("d2", NodeDetach)))),
        Some(claim(State::NodeDetached, Some(attempt("u1", ControllerUnpublish)))),
        None,
    ]);
    let first = trails[0];
    assert!(
        trails.iter().all(|trail| (trail.claim, trail.release) == (first.claim, first.release))
    );
    assert_ne!(first.claim.trace_id(), first.release.trace_id());
    let released: Vec<_> = trails.iter().map(|trail| trail.released).collect();
    assert_eq!(released[..4], [None; 4]);
    assert!(released[4..].iter().all(|released| *released == Some(at(40))), "once, and kept");

    let attempts: Vec<_> = trails.iter().map(|trail| trail.attempt).collect();
    assert_eq!((attempts[1], attempts[3], attempts[8]), (None, None, None));
    assert_eq!(attempts[4], attempts[5], "an attempt keeps its span while it stands");
    let traced = |at: usize| attempts[at].unwrap().trace_id();
    assert_eq!((traced(0), traced(2)), (first.claim.trace_id(), first.claim.trace_id()));
    for step in [4, 6, 7] {
        assert_eq!(traced(step), first.release.trace_id());
    }
    let spans: std::collections::HashSet<_> =
        [0, 2, 4, 6, 7].map(|at| attempts[at].unwrap().span()).into();
    assert_eq!(spans.len(), 5, "each attempt has a span of its own");
}

#[test]
fn what_is_done_now_is_part_of_the_claim_until_it_is_given_up() {
    let trails =
        walk(&[Some(claim(State::Taken, None)), Some(claim(State::Unpublishing, None)), None]);
    assert_eq!(trails[0].now(), trails[0].claim);
    assert_eq!(trails[1].now(), trails[1].release);
    assert_eq!(trails[2].now(), trails[2].release);
}

#[test]
fn a_claim_of_an_older_version_gets_a_trail_when_it_moves() {
    let (volume, alloc) = (volume(), AllocId::new("a").unwrap());
    let before = TrailedClaim { claim: claim(State::Taken, None), trail: None };
    let after = claim(State::Unpublishing, None);
    let change =
        ClaimChange { volume: &volume, alloc: &alloc, before: Some(&before), after: Some(&after) };
    let trail = change.trail(request(), at(3));
    assert_eq!(trail.released, Some(at(3)));
    // It does not panic, and emits nothing twice.
    change.emit(&trail, &Policy::default());
}

#[test]
fn an_attempt_began_one_calls_time_before_its_deadline() {
    let policy = Policy { call_timeout: Duration::from_secs(4), ..Policy::default() };
    assert_eq!(recorded_at(&attempt("p", CallKind::NodeDetach), &policy), at(1_000));
}
