//! What was found, collected: the evidence read once more at the leader, and its owner asked.
//!
//! **Promises** that what is asked for names what was seen (an epoch, a revision, a time), so that
//! its owner refuses when it is another by now; and that nothing is asked for once the collector's
//! lease may have ended.

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

const TIME_UP: &str = "the sweep's time was up before its turn came; the next one takes it up";

/// A thing that seems to be garbage.
#[derive(Debug)]
pub enum CollectCandidate {
    /// A claim without a running alloc.
    Claim(UnwantedClaim),
    /// A volume that is to go, without claims.
    Volume(VolumeKey),
    /// An alloc that has ended, without claims.
    Alloc(EndedAlloc),
    /// A node that is down, with nothing on it.
    Node(NodeId),
    /// An unknown node that has plugin instances.
    Stray(NodeId),
}

/// What came of one thing.
#[derive(Debug)]
pub enum CollectOutcome {
    /// It is gone, or on its way.
    Collected(String),
    /// It could not be had, and why.
    Kept(String),
    /// It has gone by itself, or is wanted after all.
    Nothing,
}

/// Why nothing came of it, or why it is kept.
type Collected = Result<CollectOutcome, String>;

impl Collector {
    /// Collects one thing, if it is still what it seemed.
    pub(crate) async fn collect(&self, found: CollectCandidate, order: &Order) -> CollectOutcome {
        let what = found.to_string();
        let collected = if Instant::now() >= order.deadline {
            Err(TIME_UP.to_owned())
        } else {
            match &found {
                CollectCandidate::Claim(claim) => self.release(claim, &what, order).await,
                CollectCandidate::Volume(volume) => self.deregister(volume, &what, order).await,
                CollectCandidate::Alloc(ended) => self.forget(ended, &what, order).await,
                CollectCandidate::Node(node) => self.leave(node, &what, order).await,
                CollectCandidate::Stray(node) => self.clear(node, &what, order).await,
            }
        };
        collected.unwrap_or_else(|why| CollectOutcome::Kept(format!("{what}: {why}")))
    }

    async fn release(&self, claim: &UnwantedClaim, what: &str, order: &Order) -> Collected {
        let UnwantedClaim { volume, alloc, epoch } = claim;
        let evidence = self.evidence(&volume.namespace, alloc).await;
        let Some(evidence) = evidence.map_err(|error| process::chain(&error))? else {
            return Ok(CollectOutcome::Nothing);
        };
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
                Ok(CollectOutcome::Collected(format!("{what}: {evidence}; it is {state} now")))
            }
            Ok(Released { state: None }) => {
                Ok(CollectOutcome::Collected(format!("{what}: {evidence}; it is gone")))
            }
            Err(error) => Err(format!("{evidence}, but its release was not recorded: {error}")),
        }
    }

    /// Deregisters a volume that is closing and has no claims. Its record is read again at the
    /// stream's leader, because the id may have been registered again meanwhile.
    async fn deregister(&self, volume: &VolumeKey, what: &str, order: &Order) -> Collected {
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
            // A record that was never written again leaves it to its own revision.
            create_index: Some(if spec.create_index == 0 { revision } else { spec.create_index }),
        };
        match self.ask_once::<verb::VolumeDeregister>(&volume.namespace, &request, order).await {
            Ok(Deregistered { gone: true, .. }) => Ok(CollectOutcome::Collected(format!(
                "{what}: closing since {}, and its last claim is gone; deregistered",
                closing.since
            ))),
            Ok(Deregistered { releasing, .. }) => {
                Err(format!("{} claims are still being released", releasing.len()))
            }
            Err(problem) if problem.code == Code::NoSuchVolume => Ok(CollectOutcome::Nothing),
            Err(problem) => Err(format!("it is closing, but stays: {problem}")),
        }
    }

    /// The claim service looks at the leader for the alloc and for claims.
    async fn forget(&self, ended: &EndedAlloc, what: &str, order: &Order) -> Collected {
        let EndedAlloc { namespace, alloc, state, at } = ended;
        // The service forgets an alloc that ended before this time. One millisecond later includes
        // the end that was seen, and no later one.
        let before = at.after(Duration::from_millis(1));
        let request = Forget { id: alloc.clone(), before };
        match self.ask_once::<verb::AllocForget>(namespace, &request, order).await {
            Ok(Forgotten { known: true }) => Ok(CollectOutcome::Collected(format!(
                "{what}: it ended at {at} ({state}) and has no claim; forgotten"
            ))),
            Ok(Forgotten { known: false }) => Ok(CollectOutcome::Nothing),
            Err(problem) if problem.code == Code::AllocKept => Ok(CollectOutcome::Nothing),
            Err(problem) => Err(format!("it ended at {at} ({state}), but stays: {problem}")),
        }
    }

    /// Whether the claim service has no record of the alloc. Our read may have gone to a deposed
    /// leader of the stream. A request to forget what ended before 1970 changes nothing.
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

    /// The registry refuses when the node's record is not the one that was seen, or its agent is
    /// there.
    async fn leave(&self, node: &NodeId, what: &str, order: &Order) -> Collected {
        let entry = self.nodes.get(&key::node(node)).await;
        let entry = entry.map_err(|error| process::chain(&error))?;
        let Some((revision, value)) = entry.and_then(|entry| Some((entry.revision, entry.value?)))
        else {
            return Ok(CollectOutcome::Nothing);
        };
        let known = record::read::<Node>(&value).map_err(|error| process::chain(&error))?.body;
        if known.state != NodeState::Down || known.gone.is_some() {
            return Ok(CollectOutcome::Nothing);
        }
        match self.left(node, revision, order).await? {
            Some(NodeLeft { known: true, instances, gone: false }) => {
                Ok(CollectOutcome::Collected(format!(
                    "{what}: down since {}, with no claim and no live alloc there; forgotten with \
                     its {instances} plugin instances",
                    known.since
                )))
            }
            _ => Ok(CollectOutcome::Nothing),
        }
    }

    /// Removes what is left of a node that has no record.
    async fn clear(&self, node: &NodeId, what: &str, order: &Order) -> Collected {
        let entry = self.nodes.get(&key::node(node)).await;
        let entry = entry.map_err(|error| process::chain(&error))?;
        // Also a record that cannot be read is one.
        if entry.is_some_and(|entry| entry.value.is_some()) {
            return Ok(CollectOutcome::Nothing);
        }
        match self.left(node, 0, order).await? {
            Some(NodeLeft { instances, .. }) if instances > 0 => Ok(CollectOutcome::Collected(
                format!("{what}: nobody knows such a node; {instances} instances removed"),
            )),
            _ => Ok(CollectOutcome::Nothing),
        }
    }

    /// Has a node leave that is what was seen; none when it is another by now.
    async fn left(
        &self,
        node: &NodeId,
        revision: u64,
        order: &Order,
    ) -> Result<Option<NodeLeft>, String> {
        let request = Leave { node: node.clone(), revision: Some(revision) };
        match self.ask_once::<verb::NodeLeave>(&(), &request, order).await {
            Ok(left) => Ok(Some(left)),
            Err(problem) if matches!(problem.code, Code::Changed | Code::NodeReady) => Ok(None),
            Err(problem) => Err(format!("it stays: {problem}")),
        }
    }

    /// Sends a request once. `berth_client` would send a brief change again before the deadline,
    /// when the lease may have ended.
    async fn ask_once<V: Verb>(
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
            Self::Claim(UnwantedClaim { volume, alloc, epoch }) => {
                f.write_str(&describe(volume, alloc, *epoch))
            }
            Self::Volume(volume) => write!(f, "volume {volume}"),
            Self::Alloc(EndedAlloc { namespace, alloc, .. }) => {
                write!(f, "alloc {alloc} of namespace {namespace}")
            }
            Self::Node(node) => write!(f, "node {node}"),
            Self::Stray(node) => write!(f, "plugin instances on node {node}"),
        }
    }
}
