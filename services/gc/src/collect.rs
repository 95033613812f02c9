//! Collects candidates: reads the evidence once more at the leader, and requests the removal from
//! the owner.
//!
//! **Promises** that each request names what was seen (an epoch, a revision, a time), so that the
//! owner refuses it after a change; and that nothing is requested once the collector's lease may
//! have ended.

use std::fmt;
use std::time::Duration;

use berth_bus::Call;
use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::message::alloc::{Forget, Forgotten};
use berth_contract::message::claim::{Release, Released};
use berth_contract::message::registry::{Leave, NodeLeft};
use berth_contract::message::volume::{Deregister, Deregistered};
use berth_contract::problem::Problem;
use berth_contract::record;
use berth_contract::verb::{self, Verb};
use berth_domain::plugin::{Node, NodeState};
use berth_domain::volume::VolumeSpec;
use berth_domain::{AllocId, Namespace, NodeId, Timestamp, VolumeKey, limits};
use berth_service::process;
use tokio::time::Instant;

use crate::collector::{Collector, Order};
use crate::evidence::Evidence;
use crate::plan::{EndedAlloc, UnwantedClaim, describe};

const TIME_UP: &str = "the sweep's time was up before its turn came; a later one takes it up";

/// A candidate for collection.
#[derive(Debug)]
pub enum CollectCandidate {
    /// A claim without a running alloc.
    Claim(UnwantedClaim),
    /// A closing volume without claims.
    Volume(VolumeKey),
    /// An alloc that has ended, without claims.
    Alloc(EndedAlloc),
    /// A node that is down since then, with nothing on it.
    Node(NodeId, Timestamp),
    /// A node without a record that has plugin instances.
    Stray(NodeId),
}

/// The outcome for one candidate.
#[derive(Debug)]
pub enum CollectOutcome {
    /// It is gone, or its removal has begun.
    Collected(String),
    /// It could not be collected, with the reason.
    Kept(String),
    /// It is gone already, or is wanted after all.
    Nothing,
}

/// An error is the reason why it is kept.
type Collected = Result<CollectOutcome, String>;

impl Collector {
    /// Collects the candidate, if the evidence still holds.
    pub(crate) async fn collect(
        &self,
        candidate: CollectCandidate,
        order: &Order,
    ) -> CollectOutcome {
        let name = candidate.to_string();
        let collected = if Instant::now() >= order.deadline {
            Err(TIME_UP.to_owned())
        } else {
            match &candidate {
                CollectCandidate::Claim(claim) => self.release(claim, &name, order).await,
                CollectCandidate::Volume(volume) => self.deregister(volume, &name, order).await,
                CollectCandidate::Alloc(ended) => self.forget(ended, &name, order).await,
                CollectCandidate::Node(node, since) => {
                    self.leave((node, *since), &name, order).await
                }
                CollectCandidate::Stray(node) => self.clear(node, &name, order).await,
            }
        };
        collected.unwrap_or_else(|why| CollectOutcome::Kept(format!("{name}: {why}")))
    }

    async fn release(&self, claim: &UnwantedClaim, name: &str, order: &Order) -> Collected {
        let UnwantedClaim { volume, alloc, epoch, ended_before } = claim;
        let evidence = self.evidence(&volume.namespace, alloc).await;
        let Some(evidence) = evidence.map_err(|error| process::chain(&error))? else {
            return Ok(CollectOutcome::Nothing);
        };
        if matches!(&evidence, Evidence::Ended { at, .. } if at > ended_before) {
            return Ok(CollectOutcome::Nothing);
        }
        if evidence == Evidence::Gone && !self.is_gone(&volume.namespace, alloc, order).await? {
            return Ok(CollectOutcome::Nothing);
        }
        let release = Release {
            alloc: alloc.clone(),
            volume: volume.volume.clone(),
            epoch: Some(*epoch),
            reason: format!("gc: {evidence}"),
        };
        match self.ask_once::<verb::ClaimRelease>(&volume.namespace, &release, order).await {
            Ok(Released { state: Some(state) }) => {
                Ok(CollectOutcome::Collected(format!("{name}: {evidence}; it is {state} now")))
            }
            Ok(Released { state: None }) => {
                Ok(CollectOutcome::Collected(format!("{name}: {evidence}; it is gone")))
            }
            Err(error) => Err(format!("{evidence}, but its release was not recorded: {error}")),
        }
    }

    /// Deregisters a volume that is closing and has no claims. Its record is read again at the
    /// stream's leader, because the id may have been registered again meanwhile.
    async fn deregister(&self, volume: &VolumeKey, name: &str, order: &Order) -> Collected {
        let entry = self.volumes.get(&key::spec(volume)).await;
        let entry = entry.map_err(|error| process::chain(&error))?;
        let Some((revision, value)) = entry.and_then(|entry| Some((entry.revision, entry.value?)))
        else {
            return Ok(CollectOutcome::Nothing);
        };
        let spec = record::read::<VolumeSpec>(&value);
        let spec = spec.map_err(|error| process::chain(&error))?.body;
        let Some(closing) = spec.closing else { return Ok(CollectOutcome::Nothing) };
        let request = Deregister {
            id: volume.volume.clone(),
            force: false,
            reason: format!("gc: {}", closing.reason),
            // A record that was never rewritten has no creation index: its own revision is the
            // index.
            create_index: Some(if spec.create_index == 0 { revision } else { spec.create_index }),
        };
        match self.ask_once::<verb::VolumeDeregister>(&volume.namespace, &request, order).await {
            Ok(Deregistered { gone: true, .. }) => Ok(CollectOutcome::Collected(format!(
                "{name}: closing since {}, and its last claim is gone; deregistered",
                closing.since
            ))),
            Ok(Deregistered { claims, .. }) if claims > 0 => {
                Err(format!("it is closing, and {claims} claims are left"))
            }
            Ok(Deregistered { mounts, .. }) => {
                let mounts: Vec<_> = mounts.iter().map(ToString::to_string).collect();
                Err(format!("it is closing, and may be in use: {}", mounts.join("; ")))
            }
            Err(problem) if problem.code == Code::NoSuchVolume => Ok(CollectOutcome::Nothing),
            Err(problem) => Err(format!("it is closing, but stays: {problem}")),
        }
    }

    /// The claim service checks at the leader that the alloc has ended and has no claims.
    async fn forget(&self, ended: &EndedAlloc, name: &str, order: &Order) -> Collected {
        let EndedAlloc { namespace, alloc, state, at } = ended;
        // The service forgets an alloc that ended before this time. One millisecond later includes
        // the end that was seen, and no later one.
        let before = at.after(Duration::from_millis(1));
        let request = Forget { id: alloc.clone(), before };
        match self.ask_once::<verb::AllocForget>(namespace, &request, order).await {
            Ok(Forgotten { known: true }) => Ok(CollectOutcome::Collected(format!(
                "{name}: it ended at {at} ({state}) and has no claim; forgotten"
            ))),
            Ok(Forgotten { known: false }) => Ok(CollectOutcome::Nothing),
            Err(problem) if problem.code == Code::AllocKept => Ok(CollectOutcome::Nothing),
            Err(problem) => Err(format!("it ended at {at} ({state}), but stays: {problem}")),
        }
    }

    /// Whether the claim service has no record of the alloc. The collector's own read may have been
    /// answered by a deposed leader. A request to forget an alloc that ended before 1970 changes
    /// nothing.
    async fn is_gone(
        &self,
        namespace: &Namespace,
        alloc: &AllocId,
        order: &Order,
    ) -> Result<bool, String> {
        let request = Forget { id: alloc.clone(), before: Timestamp::from_unix_ms(0) };
        match self.ask_once::<verb::AllocForget>(namespace, &request, order).await {
            Ok(Forgotten { known }) => Ok(!known),
            Err(problem) if problem.code == Code::AllocKept => Ok(false),
            Err(problem) => Err(format!("it is not sure that its alloc is gone: {problem}")),
        }
    }

    /// The registry refuses if the node's record has changed, or if its agent holds its lease.
    async fn leave(
        &self,
        (node, since): (&NodeId, Timestamp),
        name: &str,
        order: &Order,
    ) -> Collected {
        let entry = self.nodes.get(&key::node(node)).await;
        let entry = entry.map_err(|error| process::chain(&error))?;
        let Some((revision, value)) = entry.and_then(|entry| Some((entry.revision, entry.value?)))
        else {
            return Ok(CollectOutcome::Nothing);
        };
        let node_record =
            record::read::<Node>(&value).map_err(|error| process::chain(&error))?.body;
        let is_as_found = node_record.state == NodeState::Down && node_record.since == since;
        if !is_as_found || node_record.gone.is_some() {
            return Ok(CollectOutcome::Nothing);
        }
        match self.left(node, revision, order).await? {
            Some(NodeLeft { known: true, instances, gone: false }) => {
                Ok(CollectOutcome::Collected(format!(
                    "{name}: down since {}, with no claim and no live alloc there; forgotten with \
                     its {instances} plugin instances",
                    node_record.since
                )))
            }
            _ => Ok(CollectOutcome::Nothing),
        }
    }

    /// Removes the plugin instances of a node without a record.
    async fn clear(&self, node: &NodeId, name: &str, order: &Order) -> Collected {
        let entry = self.nodes.get(&key::node(node)).await;
        let entry = entry.map_err(|error| process::chain(&error))?;
        // An unreadable node record still counts as a node.
        if entry.is_some_and(|entry| entry.value.is_some()) {
            return Ok(CollectOutcome::Nothing);
        }
        match self.left(node, 0, order).await? {
            Some(NodeLeft { instances, .. }) if instances > 0 => Ok(CollectOutcome::Collected(
                format!("{name}: nobody knows such a node; {instances} instances removed"),
            )),
            _ => Ok(CollectOutcome::Nothing),
        }
    }

    /// Requests that the node leaves, if its record is unchanged. Returns none after a change.
    async fn left(
        &self,
        node: &NodeId,
        revision: u64,
        order: &Order,
    ) -> Result<Option<NodeLeft>, String> {
        let request = Leave { node: node.clone(), revision: Some(revision) };
        match self.ask_once::<verb::NodeLeave>(&(), &request, order).await {
            Ok(reply) => Ok(Some(reply)),
            Err(problem) if matches!(problem.code, Code::Changed | Code::NodeReady) => Ok(None),
            Err(problem) => Err(format!("it stays: {problem}")),
        }
    }

    /// Sends a request once. `berth_client` would send a brief change again before the deadline,
    /// when the lease may have ended.
    pub(crate) async fn ask_once<V: Verb>(
        &self,
        to: &V::To,
        request: &V::Request,
        order: &Order,
    ) -> Result<V::Reply, Problem> {
        if Instant::now() >= order.deadline {
            return Err(Problem::new(Code::Late, TIME_UP).retryable().at_step(V::STEP));
        }
        order.check_lead().map_err(|problem| problem.at_step(V::STEP))?;
        let deadline = order.deadline.min(Instant::now() + limits::REQUEST_TIMEOUT);
        let asked =
            self.bus.ask_service::<V>(to, request, &Call::until(order.trace, deadline)).await;
        asked.map_err(|error| error.into_problem(V::STEP))
    }
}

impl fmt::Display for CollectCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(UnwantedClaim { volume, alloc, epoch, .. }) => {
                f.write_str(&describe(volume, alloc, *epoch))
            }
            Self::Volume(volume) => write!(f, "volume {volume}"),
            Self::Alloc(EndedAlloc { namespace, alloc, .. }) => {
                write!(f, "alloc {alloc} of namespace {namespace}")
            }
            Self::Node(node, _) => write!(f, "node {node}"),
            Self::Stray(node) => write!(f, "plugin instances on node {node}"),
        }
    }
}
