//! What was found, collected: the evidence read once more at the leader, and its owner asked.
//!
//! **Promises** that what is asked for names what was seen (an epoch, a revision, a time), so that
//! its owner refuses when it is another by now; and that nothing is asked for once the collector's
//! lease may have ended.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use berth_bus::{Call, KeptLease, RequestError};
use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::message::alloc::{Forget, Forgotten};
use berth_contract::message::claim::{Release, Released};
use berth_contract::message::collect::Kind;
use berth_contract::message::registry::{Leave, Left};
use berth_contract::message::volume::{Deregister, Deregistered};
use berth_contract::problem::Problem;
use berth_contract::record;
use berth_contract::subject::{Global, Namespaced};
use berth_contract::trace::TraceContext;
use berth_domain::plugin::{Node, NodeState};
use berth_domain::volume::VolumeSpec;
use berth_domain::{AllocId, Namespace, NodeId, Timestamp, VolumeKey, limits};
use berth_service::process;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::collector::Shared;
use crate::evidence::Evidence;
use crate::plan::{Ended, Unwanted, describe};

const TIME_UP: &str = "the sweep's time was up before its turn came; the next one takes it up";
const NOT_LEADING: &str = "this collector has just lost its place to another";

/// What is to be swept, by whom and until when.
#[derive(Debug)]
pub struct Order {
    /// What to look for, and for how long it must have been to go.
    pub kinds: Vec<(Kind, Duration)>,
    /// All that is asked for is part of this.
    pub trace: TraceContext,
    /// What is not done by then is kept, and found by the next sweep.
    pub deadline: Instant,
    /// Nothing is asked for once this may have ended.
    pub lease: Weak<KeptLease>,
}

impl Order {
    /// Whether the collector surely leads now.
    pub fn leads(&self) -> bool {
        self.lease.upgrade().is_some_and(|lease| lease.is_held())
    }
}

/// A thing that seems to be nobody's any more.
#[derive(Debug)]
pub enum Found {
    /// A claim that nobody wants.
    Claim(Unwanted),
    /// A volume that is to go, without claims.
    Volume(VolumeKey),
    /// An alloc that has ended, without claims.
    Alloc(Ended),
    /// A node that is down, with nothing on it.
    Node(NodeId),
    /// A node that nobody knows, of which there are plugin instances.
    Stray(NodeId),
}

/// What came of one thing.
#[derive(Debug)]
pub enum Line {
    /// It is gone, or on its way.
    Collected(String),
    /// It could not be had, and why.
    Kept(String),
    /// It has gone by itself, or is wanted after all.
    Nothing,
}

/// Why nothing came of it, or why it is kept.
type Collected = Result<Line, String>;

impl Shared {
    /// Collects one thing, if it is still what it seemed.
    pub(crate) async fn collect(&self, found: Found, order: &Order) -> Line {
        let what = found.to_string();
        let collected = if Instant::now() >= order.deadline {
            Err(TIME_UP.to_owned())
        } else {
            match &found {
                Found::Claim(claim) => self.release(claim, &what, order).await,
                Found::Volume(volume) => self.deregister(volume, &what, order).await,
                Found::Alloc(ended) => self.forget(ended, &what, order).await,
                Found::Node(node) => self.leave(node, &what, order).await,
                Found::Stray(node) => self.clear(node, &what, order).await,
            }
        };
        collected.unwrap_or_else(|why| Line::Kept(format!("{what}: {why}")))
    }

    async fn release(&self, claim: &Unwanted, what: &str, order: &Order) -> Collected {
        let Unwanted { volume, alloc, epoch } = claim;
        let evidence = self.evidence(&volume.namespace, alloc).await;
        let Some(evidence) = evidence.map_err(|error| process::chain(&error))? else {
            return Ok(Line::Nothing);
        };
        if evidence == Evidence::Gone && !self.is_gone(&volume.namespace, alloc, order).await? {
            return Ok(Line::Nothing);
        }
        let release = Release {
            alloc: alloc.clone(),
            volume: volume.volume.clone(),
            epoch: Some(*epoch),
            reason: format!("gc: {evidence}"),
        };
        let verb = Namespaced::ClaimRelease;
        let asked: Result<Released, _> =
            self.ask(verb.subject(&volume.namespace), &verb.step(), &release, order).await;
        match asked {
            Ok(Released { state: Some(state) }) => {
                Ok(Line::Collected(format!("{what}: {evidence}; it is {state} now")))
            }
            Ok(Released { state: None }) => {
                Ok(Line::Collected(format!("{what}: {evidence}; it is gone")))
            }
            Err(error) => Err(format!("{evidence}, but its release was not recorded: {error}")),
        }
    }

    /// Deregisters a volume that is closing and has no claims. The leader is asked once more, so
    /// that one that was registered anew meanwhile is not taken for the old one.
    async fn deregister(&self, volume: &VolumeKey, what: &str, order: &Order) -> Collected {
        let entry = self.volumes.get(&key::spec(volume)).await;
        let entry = entry.map_err(|error| process::chain(&error))?;
        let Some((revision, value)) = entry.and_then(|entry| Some((entry.revision, entry.value?)))
        else {
            return Ok(Line::Nothing);
        };
        let spec = record::read::<VolumeSpec>(&value);
        let spec = spec.map_err(|error| process::chain(&error))?.body;
        let Some(closing) = spec.closing else { return Ok(Line::Nothing) };
        let request = Deregister {
            id: volume.volume.clone(),
            force: false,
            reason: format!("gc: {}", closing.reason),
            // A record that was never written again leaves it to its own revision.
            create_index: Some(if spec.create_index == 0 { revision } else { spec.create_index }),
        };
        let verb = Namespaced::VolumeDeregister;
        let asked: Result<Deregistered, _> =
            self.ask(verb.subject(&volume.namespace), &verb.step(), &request, order).await;
        match asked {
            Ok(Deregistered { gone: true, .. }) => Ok(Line::Collected(format!(
                "{what}: closing since {}, and its last claim is gone; deregistered",
                closing.since
            ))),
            Ok(Deregistered { releasing, .. }) => {
                Err(format!("{} claims are still being released", releasing.len()))
            }
            Err(problem) if problem.code == Code::NoSuchVolume => Ok(Line::Nothing),
            Err(problem) => Err(format!("it is closing, but stays: {problem}")),
        }
    }

    /// The claim service looks at the leader for the alloc and for claims.
    async fn forget(&self, ended: &Ended, what: &str, order: &Order) -> Collected {
        let Ended { namespace, alloc, state, at } = ended;
        // What ended then, and nothing that ended since: the time is compared with less.
        let before = at.after(Duration::from_millis(1));
        let request = Forget { id: alloc.clone(), before };
        let verb = Namespaced::AllocForget;
        let asked: Result<Forgotten, _> =
            self.ask(verb.subject(namespace), &verb.step(), &request, order).await;
        match asked {
            Ok(Forgotten { known: true }) => Ok(Line::Collected(format!(
                "{what}: it ended at {at} ({state}) and has no claim; forgotten"
            ))),
            Ok(Forgotten { known: false }) => Ok(Line::Nothing),
            Err(problem) if problem.code == Code::AllocKept => Ok(Line::Nothing),
            Err(problem) => Err(format!("it ended at {at} ({state}), but stays: {problem}")),
        }
    }

    /// Whether nobody knows the alloc, by whom they belong to: a leader that was deposed without
    /// knowing it may have told us. To forget what ended before all time changes nothing.
    async fn is_gone(
        &self,
        namespace: &Namespace,
        alloc: &AllocId,
        order: &Order,
    ) -> Result<bool, String> {
        let request = Forget { id: alloc.clone(), before: Timestamp::from_unix_ms(0) };
        let verb = Namespaced::AllocForget;
        let asked: Result<Forgotten, _> =
            self.ask(verb.subject(namespace), &verb.step(), &request, order).await;
        match asked {
            Ok(Forgotten { known }) => Ok(!known),
            Err(problem) if problem.code == Code::AllocKept => Ok(false),
            Err(problem) => Err(format!("it is not sure that its alloc is gone: {problem}")),
        }
    }

    /// The registry refuses when the node's record is not the one that was seen, or its agent is
    /// there.
    async fn leave(&self, node: &NodeId, what: &str, order: &Order) -> Collected {
        let entry = self.nodes.get(&key::node(node)).await;
        let entry = entry.map_err(|error| process::chain(&error))?;
        let Some((revision, value)) = entry.and_then(|entry| Some((entry.revision, entry.value?)))
        else {
            return Ok(Line::Nothing);
        };
        let known = record::read::<Node>(&value).map_err(|error| process::chain(&error))?.body;
        if known.state != NodeState::Down || known.gone.is_some() {
            return Ok(Line::Nothing);
        }
        match self.left(node, revision, order).await? {
            Some(Left { known: true, instances, gone: false }) => Ok(Line::Collected(format!(
                "{what}: down since {}, with no claim and no live alloc there; forgotten with \
                     its {instances} plugin instances",
                known.since
            ))),
            _ => Ok(Line::Nothing),
        }
    }

    /// Removes what is left of a node that has no record.
    async fn clear(&self, node: &NodeId, what: &str, order: &Order) -> Collected {
        let entry = self.nodes.get(&key::node(node)).await;
        let entry = entry.map_err(|error| process::chain(&error))?;
        // Also a record that cannot be read is one.
        if entry.is_some_and(|entry| entry.value.is_some()) {
            return Ok(Line::Nothing);
        }
        match self.left(node, 0, order).await? {
            Some(Left { instances, .. }) if instances > 0 => Ok(Line::Collected(format!(
                "{what}: nobody knows such a node; {instances} instances removed"
            ))),
            _ => Ok(Line::Nothing),
        }
    }

    /// Has a node leave that is what was seen; none when it is another by now.
    async fn left(
        &self,
        node: &NodeId,
        revision: u64,
        order: &Order,
    ) -> Result<Option<Left>, String> {
        let request = Leave { node: node.clone(), revision: Some(revision) };
        let verb = Global::NodeLeave;
        match self.ask(verb.subject(), &verb.step(), &request, order).await {
            Ok(left) => Ok(Some(left)),
            Err(problem) if matches!(problem.code, Code::Changed | Code::NodeReady) => Ok(None),
            Err(problem) => Err(format!("it stays: {problem}")),
        }
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        subject: String,
        step: &str,
        body: &impl Serialize,
        order: &Order,
    ) -> Result<T, Problem> {
        if Instant::now() >= order.deadline {
            return Err(Problem::new(Code::Late, TIME_UP).retryable().at(step));
        }
        if !order.leads() {
            return Err(Problem::new(Code::NoResponder, NOT_LEADING).retryable().at(step));
        }
        let deadline = order.deadline.min(Instant::now() + limits::REQUEST_TIMEOUT);
        let asked = self.bus.request(&subject, body, &Call::until(order.trace, deadline)).await;
        asked.map_err(|error: RequestError| error.into_problem(step))
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(Unwanted { volume, alloc, epoch }) => {
                f.write_str(&describe(volume, alloc, *epoch))
            }
            Self::Volume(volume) => write!(f, "volume {volume}"),
            Self::Alloc(Ended { namespace, alloc, .. }) => {
                write!(f, "alloc {alloc} of namespace {namespace}")
            }
            Self::Node(node) => write!(f, "node {node}"),
            Self::Stray(node) => write!(f, "plugin instances on node {node}"),
        }
    }
}
