//! A claim, with the facts about it.

use std::time::Duration;

use berth_contract::message::agent::{AgentStatus, FailureStatus, MountStatus, WorkStatus};
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::registry::{NodeStatus, PluginStatus};
use berth_contract::message::volume::VolumeStatus;
use berth_domain::alloc::AllocState;
use berth_domain::proof::Proof;
use berth_domain::volume::{Attempt, CallFailure, State};
use berth_domain::{NodeId, PluginId, Timestamp, VolumeKey};

use crate::cause::{Actor, Cause};
use crate::facts::{Facts, SourceAnswer};
use crate::finding::Finding;
use crate::judgement::leave_to_retries;
use crate::next;
use crate::span::ago;

/// How long errors that the plugin calls temporary are left to retries, before the operator must
/// act.
const TEMPORARY_MAX: Duration = Duration::from_secs(300);

/// A claim, with the facts about it.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    pub facts: &'a Facts,
    pub claim: &'a ClaimStatus,
}

impl<'a> Case<'a> {
    /// Whether the claim is granted, and is to stay: its alloc wants it, and its node is not gone.
    pub fn is_granted(&self) -> bool {
        let ClaimStatus { state, step, .. } = self.claim;
        *state == State::Taken && step.is_none() && self.gone_by().is_none()
    }

    /// The proof that the claim's node is gone.
    pub fn gone_by(&self) -> Option<&'a Proof> {
        self.node()?.as_ref().ok()?.gone.as_ref()
    }

    pub fn now(&self) -> Timestamp {
        self.facts.now
    }

    pub fn key(&self) -> VolumeKey {
        VolumeKey::new(self.claim.namespace.clone(), self.claim.volume.clone())
    }

    pub fn volume(&self) -> Option<&'a VolumeStatus> {
        self.facts.volume_of(self.claim)
    }

    pub fn node(&self) -> Option<&'a SourceAnswer<NodeStatus>> {
        self.facts.nodes.get(&self.claim.node)
    }

    pub fn agent(&self) -> Option<&'a SourceAnswer<AgentStatus>> {
        self.facts.agents.get(&self.claim.node)
    }

    pub fn agent_known(&self) -> Option<&'a AgentStatus> {
        self.agent()?.as_ref().ok()
    }

    pub fn plugin_id(&self) -> Option<&'a PluginId> {
        self.volume().map(|volume| &volume.plugin).or(self.claim.plugin.as_ref())
    }

    pub fn plugin(&self) -> Option<&'a PluginStatus> {
        self.facts.plugin(self.plugin_id()?)
    }

    /// The operator of the plugin; the operator of Berth when the plugin is unknown.
    pub fn plugin_operator(&self) -> Actor {
        self.plugin_id().map_or(Actor::You, |id| Actor::PluginOperator(id.clone()))
    }

    /// `plugin dev.berth`
    pub fn plugin_name(&self) -> String {
        self.plugin_id().map_or_else(|| "its plugin".to_owned(), |id| format!("plugin {id}"))
    }

    pub fn mount(&self) -> Option<&'a MountStatus> {
        let ClaimStatus { namespace, volume, alloc, .. } = self.claim;
        let mut mounts = self.agent_known()?.mounts.iter();
        mounts.find(|mount| {
            (&mount.namespace, &mount.volume, &mount.alloc) == (namespace, volume, alloc)
        })
    }

    /// The node's operation for the claim; otherwise an operation for another alloc that hangs and
    /// blocks it.
    pub fn work(&self) -> Option<&'a WorkStatus> {
        let ClaimStatus { namespace, volume, alloc, .. } = self.claim;
        let is_for_claim = |work: &&WorkStatus| {
            (&work.namespace, &work.volume) == (namespace, volume)
                && !work.step.starts_with("controller.")
        };
        let work = &self.agent_known()?.work;
        let own = work.iter().filter(is_for_claim).find(|work| work.alloc == *alloc);
        own.or_else(|| work.iter().filter(is_for_claim).find(|work| work.hung))
    }

    pub fn failure(&self) -> Option<&'a FailureStatus> {
        let ClaimStatus { namespace, volume, alloc, .. } = self.claim;
        let mut failures = self.agent_known()?.failures.iter();
        failures.find(|failure| {
            (&failure.namespace, &failure.volume, &failure.alloc) == (namespace, volume, alloc)
        })
    }

    /// When the claim's alloc ended, if its record was read.
    pub fn ended(&self) -> Option<Timestamp> {
        let ClaimStatus { namespace, alloc, .. } = self.claim;
        let alloc = self.facts.allocs.get(&(namespace.clone(), alloc.clone()))?.as_ref().ok()?;
        (alloc.state != AllocState::Live).then_some(alloc.since)
    }

    /// A controller's operation for the volume, with its node; first one that hangs.
    pub fn controller_work(&self) -> Option<(&'a NodeId, &'a WorkStatus)> {
        let ClaimStatus { namespace, volume, .. } = self.claim;
        let agents = self.facts.agents.iter().filter_map(|(id, agent)| {
            let agent = agent.as_ref().ok()?;
            Some(agent.work.iter().map(move |work| (id, work)))
        });
        let is_for_volume = |(_, work): &(&NodeId, &WorkStatus)| {
            (&work.namespace, &work.volume) == (namespace, volume)
                && work.step.starts_with("controller.")
        };
        agents.flatten().filter(is_for_volume).max_by_key(|(_, work)| work.hung)
    }

    /// No action is needed: it continues by itself, at the latest at the next try or deadline.
    pub fn nobody(&self) -> Actor {
        let until = self.claim.attempt.as_ref().map(Attempt::ends);
        let by = self.claim.next_try.or(until).filter(|by| *by > self.now());
        Actor::Nobody { by }
    }

    /// The cause and the actor of a call that failed without an error of the plugin.
    pub fn leave_to_retries(&self, judged: (Cause, Actor)) -> (Cause, Actor) {
        leave_to_retries(judged, self.is_young(), self.nobody())
    }

    /// Whether a failure is so young that it is left to retries.
    fn is_young(&self) -> bool {
        self.now().since(self.claim.since) < TEMPORARY_MAX
    }

    /// The tries, the wait and the error of the claim's record.
    pub fn evidence(&self) -> Vec<String> {
        let claim = self.claim;
        let tries = (claim.tries > 0).then(|| format!("{} tries", claim.tries));
        let failure = claim.failure.as_ref().filter(|_| claim.tries > 0);
        let waits = claim.waits_for.as_ref().map(|waits| format!("waits for {waits}"));
        let evidence: Vec<String> =
            [tries, waits, failure.map(ToString::to_string)].into_iter().flatten().collect();
        if evidence.is_empty() {
            return Vec::new();
        }
        vec![format!("the claim of {}: {}", claim.alloc, evidence.join("; "))]
    }

    /// The finding if no rule has one.
    pub fn at_rest(&self) -> Finding {
        let claim = self.claim;
        if self.is_granted() {
            return Finding::new(Cause::Nothing, Actor::NOBODY, "nothing to do")
                .shown_by(self.mount().map(|mount| {
                    format!("the agent of {}: mounted at {}", claim.node, mount.path)
                }));
        }
        let sentence = match &claim.waits_for {
            Some(waits) => format!("it waits for {waits}"),
            None => "its next step is due".to_owned(),
        };
        Finding::new(Cause::UnderWay, self.nobody(), sentence).shown_by(self.evidence())
    }
}

/// The meaning of a plugin's error, and the actor.
pub fn refused(case: &Case<'_>, failure: &CallFailure, node: Option<&NodeId>) -> Option<Finding> {
    let code = failure.facts.grpc?;
    let rpc = failure.facts.rpc.as_deref().unwrap_or("the call");
    let plugin = case.plugin_name();
    let on = node.map(|node| format!(" on node {node}")).unwrap_or_default();
    let sentence = format!("{plugin}{on} answers {rpc} with {code}");
    let finding = if code.is_temporary() && case.is_young() {
        let sentence = format!("{sentence}, which it calls temporary; it is asked again");
        Finding::new(Cause::PluginRetries, case.nobody(), sentence)
    } else {
        let sentence = format!("{sentence}: that is to be mended in the storage");
        Finding::new(Cause::PluginRefuses, case.plugin_operator(), sentence)
    };
    let process = node.zip(case.plugin_id()).map(|(node, id)| next::plugin_process(node, id));
    Some(finding.shown_by([failure.to_string()]).next_if_known(process))
}

/// A plugin call without an answer.
pub fn hangs(case: &Case<'_>, node: &NodeId, work: &WorkStatus) -> Finding {
    let (call, since) = match &work.rpc {
        Some(rpc) => (rpc.as_str(), work.rpc_since.unwrap_or(work.since)),
        None => (work.step.as_str(), work.since),
    };
    let evidence =
        format!("the agent of {node}: {} for {}", work.step, ago(work.since, case.now()));
    not_answered(case, node, call, since, evidence)
}

/// The plugin on the node has not answered a call for so long.
pub fn not_answered(
    case: &Case<'_>,
    node: &NodeId,
    what: &str,
    since: Timestamp,
    evidence: String,
) -> Finding {
    let (plugin, since) = (case.plugin_name(), ago(since, case.now()));
    let sentence = format!("{plugin} on node {node} has not answered {what} for {since}");
    Finding::new(Cause::PluginHangs, case.plugin_operator(), sentence)
        .shown_by([evidence])
        .shown_by(case.evidence())
        .next_if_known(case.plugin_id().map(|plugin| next::plugin_process(node, plugin)))
        .next(next::node_status(node))
}
