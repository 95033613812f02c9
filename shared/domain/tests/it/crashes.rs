//! Calls under which the plugin's process ends each time: they are made less and less often.

use std::time::Duration;

use berth_domain::GrpcCode;
use berth_domain::access::AccessMode;
use berth_domain::limits::{CRASH_RETRY_MAX, RETRY_MAX};
use berth_domain::volume::{
    CallFailure, CallKind, CallOwner, Claim, Due, DueCall, DueFacts, FailureFacts, Outcome, Policy,
    State, Volume, Write,
};

use crate::fixture::{answer, claim, context, live, volume, with};
use crate::world::alloc;

const SHARED: AccessMode = AccessMode::MultiNodeMultiWriter;

fn failure(crashes: u32, grpc: Option<GrpcCode>) -> CallFailure {
    let facts = FailureFacts { crashes, grpc, ..FailureFacts::default() };
    CallFailure { facts, ..CallFailure::new("no") }
}

/// The claim after its next call failed so, and how long the one after it waits.
fn fail(claim: &Claim, failure: CallFailure) -> (Claim, Duration) {
    let calling = with(claim.clone(), live(CallKind::ControllerUnpublish));
    let before = volume(SHARED, [("a1", calling)]);
    let step = answer(&before, alloc("a1"), "live", Outcome::Failed(failure)).unwrap();
    let after = match step.write {
        Some(Write::PutClaim(_, after)) => Some(after),
        _ => None,
    };
    let after = after.unwrap();
    let wait = after.progress.next_try.unwrap().since(context().now);
    (after, wait)
}

fn crashes(claim: &Claim) -> u32 {
    claim.progress.failure.as_ref().unwrap().facts.crashes
}

fn due_early(claim: &Claim) -> Due {
    let of: Volume = volume(SHARED, [("a1", claim.clone())]);
    let (now, policy) = (context().now, &Policy::default());
    let facts = DueFacts { now, policy, wanted: false, gone: false, early: true };
    of.due(&CallOwner::Claim(alloc("a1")), &facts)
}

#[test]
fn a_call_that_ends_the_plugin_each_time_waits_longer_and_is_not_made_early() {
    let mut claim = claim(SHARED, State::NodeDetached, "n1");
    let mut longest = Duration::ZERO;
    for count in 1..=20 {
        let (next, wait) = fail(&claim, failure(1, None));
        assert!(wait >= longest && wait <= CRASH_RETRY_MAX, "{count}: {wait:?}");
        assert_eq!(crashes(&next), count);
        // The first may be another call's, or a restart.
        let is_early = due_early(&next) == Due::Now(DueCall::Controller);
        assert_eq!(is_early, count == 1, "{count}");
        (claim, longest) = (next, wait);
    }
    assert!(longest > RETRY_MAX, "{longest:?}");
}

#[test]
fn a_plugin_that_answers_has_survived_the_call() {
    let mut claim = claim(SHARED, State::NodeDetached, "n1");
    for _ in 0..8 {
        claim = fail(&claim, failure(1, None)).0;
    }
    // It was not there, or gave no answer: that says nothing of the call.
    let (absent, wait) = fail(&claim, failure(0, None));
    assert_eq!(crashes(&absent), 8);
    assert!(wait > RETRY_MAX, "{wait:?}");
    let (answered, wait) = fail(&absent, failure(0, Some(GrpcCode::Internal)));
    assert_eq!(crashes(&answered), 0);
    assert!(wait <= RETRY_MAX, "{wait:?}");
    assert_eq!(due_early(&answered), Due::Now(DueCall::Controller));
}
