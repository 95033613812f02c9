//! Volumes and claims, made in a line.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_domain::access::{AccessMode, AttachmentMode, Capability, Mode};
use berth_domain::volume::{
    Attempt, CallKind, Claim, Command, Context, MountOptions, Outcome, Policy, Refusal, Route,
    State, Step, Take, Volume, VolumeSpec, Write, step,
};
use berth_domain::{AllocId, AttemptId, Timestamp, WorkerId};

/// Now, in every test; late enough for a past.
pub const NOW: Timestamp = Timestamp::from_unix_ms(1_000_000_000);

pub fn id<T: std::str::FromStr>(id: &str) -> T {
    id.parse().ok().unwrap()
}

pub fn before(wait: Duration) -> Timestamp {
    Timestamp::from_unix_ms(NOW.unix_ms() - u64::try_from(wait.as_millis()).unwrap())
}

pub fn policy() -> Policy {
    Policy::default()
}

pub fn context() -> Context {
    Context { now: NOW, attempt: id("new"), jitter: 7, policy: policy() }
}

pub fn capability(access: AccessMode) -> Capability {
    Capability { access, attachment: AttachmentMode::FileSystem }
}

pub fn spec(capabilities: impl IntoIterator<Item = AccessMode>) -> VolumeSpec {
    VolumeSpec {
        closing: None,
        plugin: id("plugin"),
        name: String::new(),
        external_id: None,
        capabilities: capabilities.into_iter().map(capability).collect(),
        mount: MountOptions::default(),
        topologies: Vec::new(),
        capacity_bytes: None,
        parameters: BTreeMap::new(),
        context: BTreeMap::new(),
        create_index: 1,
    }
}

/// A claim of an alloc that writes, attached by the controller.
pub fn claim(access: AccessMode, state: State, node: &str) -> Claim {
    let is_held = state != State::Waiting;
    Claim {
        state,
        node: id(node),
        mode: Mode::Write,
        tries: 0,
        error: None,
        next_try: None,
        since: before(Duration::from_secs(600)),
        reason: None,
        attempt: None,
        epoch: 10,
        access,
        attachment: AttachmentMode::FileSystem,
        controller: is_held,
        external_node: is_held.then(|| format!("ext-{node}")),
        publish_context: match state {
            State::Taken | State::Unpublishing => {
                BTreeMap::from([("device".to_owned(), format!("/dev/{node}"))])
            }
            _ => BTreeMap::new(),
        },
    }
}

/// An attempt that may still act.
pub fn live(call: CallKind) -> Attempt {
    Attempt { id: id("live"), call, worker: id("w0"), deadline: NOW }
}

/// An attempt whose deadline has passed by more than the margin, and that was never answered.
pub fn dead(call: CallKind) -> Attempt {
    let ago = policy().clock_margin + Duration::from_millis(1);
    Attempt { id: id("dead"), deadline: before(ago), ..live(call) }
}

pub fn with(claim: Claim, attempt: Attempt) -> Claim {
    Claim { attempt: Some(attempt), ..claim }
}

/// A volume that offers one access mode, with these claims.
pub fn volume<const N: usize>(access: AccessMode, claims: [(&str, Claim); N]) -> Volume {
    let claims = claims.into_iter().map(|(alloc, claim)| (id(alloc), claim));
    Volume { spec: Some(spec([access])), claims: claims.collect() }
}

/// An alloc asks to write, on a node that the controller attaches to.
pub fn take(alloc: &str, node: &str) -> Take {
    Take {
        alloc: id(alloc),
        node: id(node),
        mode: Mode::Write,
        capability: None,
        wait: false,
        route: Ok(Route { controller: true, external_node: Some(format!("ext-{node}")) }),
        worker: id("w1"),
    }
}

pub fn asks(volume: &Volume, take: Take) -> Result<Step, Refusal> {
    step(volume, &Command::Take(take), &context())
}

pub fn begin(volume: &Volume, alloc: &str, wanted: bool) -> Result<Step, Refusal> {
    let command = Command::Begin { alloc: id(alloc), worker: id("w1"), wanted };
    step(volume, &command, &context())
}

pub fn release(volume: &Volume, alloc: &str, epoch: Option<u64>) -> Result<Step, Refusal> {
    let command = Command::Release { alloc: id(alloc), epoch, reason: "said so".to_owned() };
    step(volume, &command, &context())
}

/// What comes of a call is recorded, by a worker who goes on.
pub fn answer(
    volume: &Volume,
    alloc: &str,
    attempt: &str,
    outcome: Outcome,
) -> Result<Step, Refusal> {
    let worker: Option<WorkerId> = Some(id("w1"));
    let attempt: AttemptId = id(attempt);
    step(volume, &Command::Answer { alloc: id(alloc), attempt, outcome, worker }, &context())
}

pub fn done() -> Outcome {
    Outcome::Done { publish_context: BTreeMap::from([("device".to_owned(), "/dev/x".to_owned())]) }
}

pub fn failed() -> Outcome {
    Outcome::Failed("it failed".to_owned())
}

pub fn refused() -> Outcome {
    Outcome::Refused("it refused".to_owned())
}

pub fn unanswered() -> Outcome {
    Outcome::Unanswered("nobody answered".to_owned())
}

/// The claim that the step writes.
pub fn written(step: &Step) -> &Claim {
    match &step.write {
        Some(Write::PutClaim(_, claim)) => claim,
        other => unreachable!("no claim is written but {other:?}"),
    }
}

/// Whether the step frees the alloc's claim, and does nothing else.
pub fn frees(step: &Step, alloc: &str) -> bool {
    let freed: AllocId = id(alloc);
    *step == Step { write: Some(Write::DeleteClaim(freed)), call: None }
}

/// The call that the step makes.
pub fn called(step: &Step) -> Option<CallKind> {
    step.call.as_ref().map(|attempt| attempt.call)
}
