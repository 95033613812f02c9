//! Claims in any state, and volumes of them, made in a line: for tables, which need no history.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_domain::access::{AccessMode, AttachmentMode, Capability, Mode};
use berth_domain::volume::{
    Attempt, CallKind, CallOwner, Claim, Command, Context, HandleUse, Outcome, Policy, Progress,
    Refusal, State, Step, Take, Volume, step,
};
use berth_domain::{AllocId, AttemptId, NodeId, Timestamp};

use crate::world::{alloc, spec, worker};

/// Now, in every table.
const NOW: Timestamp = Timestamp::from_unix_ms(1_000_000_000);

fn ago(wait: Duration) -> Timestamp {
    Timestamp::from_unix_ms(NOW.unix_ms() - u64::try_from(wait.as_millis()).unwrap())
}

/// A claim to write, which the controller attaches.
pub fn claim(access: AccessMode, state: State, node: &str) -> Claim {
    let is_held = state != State::Waiting;
    let device = BTreeMap::from([("device".to_owned(), format!("/dev/{node}"))]);
    let capability = Capability { access, attachment: AttachmentMode::FileSystem };
    let since = ago(Duration::from_secs(600));
    Claim {
        epoch: 10,
        controller: is_held,
        external_node: is_held.then(|| format!("ext-{node}")),
        publish_context: match state {
            State::Taken | State::Unpublishing => device,
            State::Waiting | State::Publishing | State::NodeDetached => BTreeMap::new(),
        },
        ..Claim::new(state, NodeId::new(node).unwrap(), Mode::Write, capability, since)
    }
}

/// An attempt that may still act.
pub fn live(call: CallKind) -> Attempt {
    Attempt {
        id: AttemptId::new("live").unwrap(),
        call,
        worker: worker(),
        deadline: NOW,
        bound: None,
    }
}

/// An unanswered attempt whose deadline has passed by more than the margin.
pub fn dead(call: CallKind) -> Attempt {
    let deadline = ago(Policy::default().clock_margin + Duration::from_millis(1));
    Attempt { id: AttemptId::new("dead").unwrap(), deadline, ..live(call) }
}

pub fn with(mut claim: Claim, attempt: Attempt) -> Claim {
    claim.progress.attempt = Some(attempt);
    claim
}

/// The claim after a call that did not succeed.
pub fn failed(mut claim: Claim, next_try: Option<Timestamp>) -> Claim {
    claim.progress = Progress { tries: 1, next_try, ..claim.progress };
    claim
}

/// A volume that offers one access mode, with these claims.
pub fn volume<const N: usize>(access: AccessMode, claims: [(&str, Claim); N]) -> Volume {
    let claims = claims.into_iter().map(|(name, claim)| (alloc(name), claim));
    Volume { spec: Some(spec(&[access])), claims: claims.collect(), ..Volume::default() }
}

pub fn decide(volume: &Volume, command: &Command) -> Result<Step, Refusal> {
    decide_beside(volume, command, HandleUse::default())
}

/// The same, where this is known of the volume's handle.
pub fn decide_beside(
    volume: &Volume,
    command: &Command,
    handle: HandleUse,
) -> Result<Step, Refusal> {
    step(volume, command, &Context { handle, ..context() })
}

/// What decisions of a table know besides the volume.
pub fn context() -> Context {
    Context {
        now: NOW,
        attempt: AttemptId::new("new").unwrap(),
        jitter: 7,
        policy: Policy::default(),
        handle: HandleUse::default(),
        copies: Vec::new(),
        mounts: Vec::new(),
    }
}

pub fn asks(volume: &Volume, take: Take) -> Result<Step, Refusal> {
    decide(volume, &Command::Take(take))
}

/// Records the result of a call, by a worker that goes on.
pub fn answer(
    volume: &Volume,
    alloc: AllocId,
    attempt: &str,
    outcome: Outcome,
) -> Result<Step, Refusal> {
    let attempt = AttemptId::new(attempt).unwrap();
    decide(
        volume,
        &Command::Answer {
            owner: CallOwner::Claim(alloc),
            attempt,
            outcome,
            worker: Some(worker()),
        },
    )
}
