//! Translates a record of the world into the domain's volume and back.
//!
//! **Promises** that nothing is lost: the parts of a claim that the world leaves out are added
//! before `step` is called, and compared when it returns. A step that changes a claim's mode,
//! access, epoch, node or publish context would therefore be a breach. Only texts, counts and past
//! times are left out for good, because they change no decision, or only at the moment when it is
//! made.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_domain::access::{AttachmentMode, Capability, CapabilityFilter, Mode};
use berth_domain::proof::{Proof as DomainProof, ProofKind, Proven};
use berth_domain::volume::{
    Attempt as DomainAttempt, Begin, CallKind, CallOwner, Claim as DomainClaim, Closing, Command,
    NoRoute, Outcome as Came, Progress, Route, State, Take, Volume, VolumeSpec,
};
use berth_domain::{AllocId, AttemptId as DomainId, NodeId, Timestamp, WorkerId};

use crate::decide::{Ask, Proof};
use crate::safety::Breach;
use crate::scenario::{Attaches, Scenario, Trouble};
use crate::world::{ALLOCS, Attempt, AttemptId, Claim, NODES, Outcome, Record, Spec};

/// The length of a tick for `step`.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// The time of every call of `step`.
pub(crate) const NOW: Timestamp = Timestamp::from_unix_ms(1_000_000);
/// The lowest epoch of claims in line. Epochs of other claims are lower, and never compared.
const IN_LINE: u64 = 100;
/// An epoch that no claim on the record has.
const EARLIER: u64 = 0;

/// The names in this world.
pub(crate) struct Translation {
    scenario: Scenario,
    allocs: Vec<AllocId>,
    nodes: Vec<NodeId>,
    worker: WorkerId,
    attempts: [DomainId; 3],
    spec: VolumeSpec,
}

#[expect(clippy::expect_used, reason = "the ids are written here")]
impl Translation {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let attempt = |id: &str| DomainId::new(id).expect("an id");
        let capability =
            Capability { access: scenario.access, attachment: AttachmentMode::FileSystem };
        let spec = VolumeSpec {
            capabilities: vec![capability].into(),
            create_index: 1,
            ..VolumeSpec::empty(&"plugin".parse().expect("an id"))
        };
        Self {
            scenario: scenario.clone(),
            allocs: (1..=ALLOCS).map(|at| AllocId::new(format!("a{at}")).expect("an id")).collect(),
            nodes: (1..=NODES).map(|at| NodeId::new(format!("n{at}")).expect("an id")).collect(),
            worker: WorkerId::new("worker").expect("an id"),
            attempts: [attempt("old"), attempt("current"), attempt("new")],
            spec,
        }
    }
}

impl Translation {
    pub(crate) fn alloc(&self, alloc: usize) -> &AllocId {
        &self.allocs[alloc]
    }

    pub(crate) fn attempt(&self, id: AttemptId) -> &DomainId {
        &self.attempts[id as usize]
    }

    /// The record as `step` reads it.
    pub(crate) fn volume(&self, record: Record) -> Volume {
        let claims = record.claims.iter().enumerate();
        let claims = claims.filter_map(|(alloc, claim)| {
            Some((self.allocs[alloc].clone(), self.claim(alloc, (*claim)?)))
        });
        let spec = match record.spec {
            Spec::Open => Some(self.spec.clone()),
            Spec::Closing => {
                let closing = Closing { since: NOW, reason: "by force".to_owned() };
                Some(VolumeSpec { closing: Some(Box::new(closing)), ..self.spec.clone() })
            }
            Spec::Gone => None,
        };
        Volume { spec, claims: claims.collect(), ..Volume::default() }
    }

    fn claim(&self, alloc: usize, claim: Claim) -> DomainClaim {
        let placed = self.scenario.allocs[alloc];
        let attempt = claim.attempt.map(|attempt| DomainAttempt {
            id: self.attempt(attempt.id).clone(),
            call: attempt.kind,
            worker: self.worker.clone(),
            deadline: ticks_from_now(attempt.left),
            bound: None,
        });
        let is_granted = matches!(claim.state, State::Taken | State::Unpublishing);
        let capability =
            Capability { access: self.scenario.access, attachment: AttachmentMode::FileSystem };
        let node = self.nodes[placed.node].clone();
        let since = Timestamp::default();
        DomainClaim {
            progress: Progress { tries: u32::from(claim.failed), attempt, ..Progress::default() },
            // The time is long past: a retry in time behaves like a first request.
            place_until: (claim.state == State::Waiting).then(Timestamp::default),
            exhausted: claim.exhausted,
            denied: claim.denied,
            unstaged_by: claim.confirmed_unstaged.then(proof),
            proof: claim.proof.then(proof),
            epoch: epoch(alloc, claim),
            controller: claim.controller,
            // A claim in line reserves nothing, so its node id at the plugin is not known.
            external_node: (claim.state != State::Waiting).then(|| self.external_node(alloc)),
            publish_context: if is_granted && claim.controller {
                self.publish_context(alloc)
            } else {
                BTreeMap::new()
            },
            ..DomainClaim::new(claim.state, node, placed.mode, capability, since)
        }
    }

    /// The id of the alloc's node at the plugin.
    fn external_node(&self, alloc: usize) -> String {
        if self.scenario.has(Trouble::SharedId) {
            return "the plugin's clone".to_owned();
        }
        format!("the plugin's {}", self.node(alloc))
    }

    /// A publish context names its node, so that a claim with the context of another node is
    /// noticed.
    fn publish_context(&self, alloc: usize) -> BTreeMap<String, String> {
        BTreeMap::from([("device".to_owned(), format!("/dev/of-{}", self.node(alloc)))])
    }

    /// The claim as the world keeps it; a breach if `step` changed anything else.
    pub(crate) fn read(
        &self,
        before: Record,
        alloc: usize,
        written: &DomainClaim,
    ) -> Result<Claim, Breach> {
        let old = before.claims[alloc];
        let attempt = written.progress.attempt.as_ref().map(|attempt| Attempt {
            kind: attempt.call,
            id: match &attempt.id {
                id if id == self.attempt(AttemptId::New) => AttemptId::New,
                id if id == self.attempt(AttemptId::Current) => AttemptId::Current,
                _ => AttemptId::Old,
            },
            left: ticks_left(attempt.deadline),
        });
        let claim = Claim {
            state: written.state,
            controller: written.controller,
            // This makes no difference where executors are not asked.
            failed: written.progress.tries > 0 && self.scenario.has(Trouble::OwnControllers),
            exhausted: written.exhausted,
            // The controller's answer makes no difference without an operator's confirmation.
            denied: written.denied && self.is_answered_for(written.state),
            // It makes no difference who confirmed once the claim has left its node.
            confirmed_unstaged: written.unstaged_by.is_some()
                && written.state == State::Unpublishing,
            proof: written.proof.is_some(),
            epoch: old.map_or(0, |old| old.epoch),
            ticket: match old {
                Some(old) if written.state == State::Waiting => old.ticket,
                _ => 0,
            },
            attempt,
        };
        let own = self.claim(alloc, claim);
        let due = DomainClaim {
            // An existing claim keeps its epoch, also when it leaves the line. A new claim has
            // epoch 0.
            epoch: old.map_or(0, |old| epoch(alloc, old)),
            progress: Progress {
                attempt: own.progress.attempt.clone(),
                ..written.progress.clone()
            },
            denied: written.denied,
            unstaged_by: written.unstaged_by.clone(),
            since: written.since,
            reason: written.reason.clone(),
            place_until: written.place_until,
            ..own
        };
        // An attachment may stay known until the controller has detached it.
        let due = match claim.state {
            State::NodeDetached => {
                DomainClaim { publish_context: written.publish_context.clone(), ..due }
            }
            _ => due,
        };
        if due != *written {
            return Err(Breach::new(format!("wrote {written:?}\n     where {due:?} was due")));
        }
        Ok(claim)
    }

    /// Whether a person may answer for the plugin about a claim in this state.
    fn is_answered_for(&self, state: State) -> bool {
        match state {
            State::Unpublishing => self.scenario.has(Trouble::Unstaged),
            _ => self.scenario.has(Trouble::Confirmed),
        }
    }

    /// The request as a command for `step`.
    pub(crate) fn command(&self, record: Record, ask: Ask) -> Command {
        let worker = self.worker.clone();
        let reason = "said so".to_owned();
        match ask {
            Ask::Take { alloc, controller } => Command::Take(self.take(alloc, controller)),
            Ask::Change { alloc, is_unmounted } => {
                let take = self.take(alloc, Some(self.scenario.attaches != Attaches::Never));
                let mode = if take.mode == Mode::Read { Mode::Write } else { Mode::Read };
                let own = record.claims[alloc].map_or(EARLIER, |claim| epoch(alloc, claim));
                let unmounted = is_unmounted.then_some(own);
                Command::Change { take: Take { mode, ..take }, unmounted }
            }
            Ask::Release { alloc } => {
                Command::Release { alloc: self.allocs[alloc].clone(), epoch: None, reason }
            }
            Ask::Begin { alloc, wanted, proof: with } => {
                let now = record.claims[alloc].map_or(EARLIER, |claim| epoch(alloc, claim));
                let proven =
                    |epoch| Proven { node: self.node(alloc).clone(), epoch, proof: proof() };
                let proven = match with {
                    Proof::None => None,
                    Proof::Earlier => Some(proven(EARLIER)),
                    Proof::Good => Some(proven(now)),
                };
                let alloc = self.allocs[alloc].clone();
                Command::Begin(Begin {
                    owner: CallOwner::Claim(alloc),
                    worker,
                    wanted,
                    early: false,
                    proven,
                    executor: None,
                })
            }
            Ask::Answer { alloc, attempt, outcome } => {
                let on_record = record.claims[alloc].and_then(|claim| claim.attempt);
                let publishes = on_record.is_some_and(|on| on.kind == CallKind::ControllerPublish);
                Command::Answer {
                    owner: CallOwner::Claim(self.allocs[alloc].clone()),
                    attempt: self.attempt(attempt).clone(),
                    outcome: self.outcome(alloc, outcome),
                    // The claim service records the result of a publish, and releases nothing.
                    worker: (!publishes).then_some(worker),
                }
            }
            Ask::Confirm { alloc } => {
                let epoch = record.claims[alloc].map_or(EARLIER, |claim| epoch(alloc, claim));
                let is_on_node =
                    record.claims[alloc].is_some_and(|claim| claim.state == State::Unpublishing);
                let call = if is_on_node && self.scenario.has(Trouble::Unstaged) {
                    CallKind::NodeDetach
                } else {
                    CallKind::ControllerUnpublish
                };
                let alloc = self.allocs[alloc].clone();
                Command::Confirm { alloc, epoch, call, confirmation: proof() }
            }
            Ask::Register => {
                let name = "another name".to_owned().into();
                Command::Register(VolumeSpec { name, ..self.spec.clone() })
            }
            Ask::Deregister { force } => Command::Deregister { force, reason },
        }
    }

    fn take(&self, alloc: usize, controller: Option<bool>) -> Take {
        Take {
            alloc: self.allocs[alloc].clone(),
            node: self.node(alloc).clone(),
            mode: self.scenario.allocs[alloc].mode,
            capability: CapabilityFilter::default(),
            wait: self.scenario.wait,
            route: match controller {
                Some(controller) => Ok(Route {
                    controller,
                    external_node: Some(self.external_node(alloc)),
                    ..Route::default()
                }),
                None => Err(NoRoute::Full("other volumes take all places".to_owned())),
            },
            worker: self.worker.clone(),
        }
    }

    pub(crate) fn node(&self, alloc: usize) -> &NodeId {
        &self.nodes[self.scenario.allocs[alloc].node]
    }

    fn outcome(&self, alloc: usize, outcome: Outcome) -> Came {
        let error = "what the plugin said".into();
        match outcome {
            Outcome::Done => Came::Done { publish_context: self.publish_context(alloc) },
            Outcome::Refused => Came::Refused(error),
            Outcome::Failed => Came::Failed(error),
            Outcome::Unasked => Came::Unasked(error),
            Outcome::Exhausted => Came::Exhausted(error),
            Outcome::Unanswered => Came::Unanswered(error),
        }
    }
}

/// A proof that a node is gone.
fn proof() -> DomainProof {
    let (kind, by, note) = (ProofKind::PoweredOff, "somebody".to_owned(), String::new());
    DomainProof { kind, by, at: NOW, note }
}

/// Only epochs of claims in line are compared, and those follow their places. Any other claim may
/// have any number, as long as it stays the same.
fn epoch(alloc: usize, claim: Claim) -> u64 {
    match claim.state {
        State::Waiting => IN_LINE + u64::from(claim.ticket),
        _ => 1 + alloc as u64,
    }
}

fn ticks_from_now(left: i8) -> Timestamp {
    let tick = i64::try_from(TICK.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_unix_ms(NOW.unix_ms().saturating_add_signed(i64::from(left) * tick))
}

fn ticks_left(at: Timestamp) -> i8 {
    let ticks = |wait: Duration| i8::try_from(wait.as_secs()).unwrap_or(i8::MAX);
    if at >= NOW { ticks(at.since(NOW)) } else { -ticks(NOW.since(at)) }
}
