//! Explains the state of one claim.
//!
//! Rules are tried in the order of [`Cause`]: the first finding decides.

mod controller;
pub mod line;
mod mount;
mod node;

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::hint;
use berth_contract::message::agent::{AgentStatus, FailureStatus, MountStatus, WorkStatus};
use berth_contract::message::claim::{ClaimStatus, ClaimWait};
use berth_contract::message::registry::{NodeStatus, PluginStatus};
use berth_contract::message::volume::VolumeStatus;
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_contract::service::{CLAIM, PLUGIN_REGISTRY};
use berth_contract::{bucket, key};
use berth_domain::volume::{Attempt, CallFailure, State};
use berth_domain::{NodeId, PluginId, Timestamp};

use super::{Actor, Cause, Facts, Finding, SourceAnswer, is_unreadable, next, service};
use crate::span::ago;

/// What a server does whose disk was full.
pub const STORES_NOTHING: &str = "nats-server stores no writes: its disk is or was full, and it stores \
                                  nothing until it is restarted";

/// How long an error that the plugin calls temporary needs no operator.
const TEMPORARY_MAX: Duration = Duration::from_secs(300);

/// A claim with all that was read about it.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    pub facts: &'a Facts,
    pub claim: &'a ClaimStatus,
}

/// Checks for one kind of cause.
type Rule = fn(&Case<'_>) -> Option<Finding>;

/// Rules for a claim that must be mounted and used.
const GRANTED: [Rule; 9] = [
    unreadable,
    stray,
    store,
    node::gone_or_away,
    node::missing_right,
    node::journal,
    mount::work,
    mount::trouble,
    mount::absent,
];

/// Rules for a claim that is being granted or released.
const MOVING: [Rule; 11] = [
    unreadable,
    store,
    clock,
    node::gone_or_away,
    node::missing_right,
    node::journal,
    line::standing_use,
    line::turn,
    plugin_down,
    last_error,
    held_back,
];

/// Granted for a volume that is registered under its name no more.
fn stray(case: &Case<'_>) -> Option<Finding> {
    let ClaimStatus { alloc, namespace, plugin, external_id, hint, .. } = case.claim;
    let of = plugin.as_ref().zip(external_id.as_ref());
    let sentence = "the registration of the volume that it was granted for is lost: the claim can \
                    be released, and is not granted again";
    let finding = Finding::new(Cause::RegistrationLost, Actor::You, sentence)
        .shown_by(of.map(|(plugin, id)| format!("it is of {plugin}: {id}")))
        .shown_by(hint.clone())
        .next(next::stop_alloc(alloc, namespace, "once its workload has ended"));
    case.claim.stray.then_some(finding)
}

/// The decisive cause.
pub fn find(case: &Case<'_>) -> Finding {
    let rules: &[Rule] = if case.is_granted() { &GRANTED } else { &MOVING };
    let found = rules.iter().find_map(|rule| rule(case));
    found.unwrap_or_else(|| case.at_rest())
}

/// The claim's state in words, with the state of its mount on the node.
pub fn state(case: &Case<'_>) -> String {
    let claim = case.claim;
    let of = format!("{} by {} on {}", claim.state, claim.alloc, claim.node);
    if !case.is_granted() {
        return of;
    }
    let beyond = match (case.agent(), case.mount(), case.work()) {
        // It is told with what is not known: the agent's silence is not as old as the claim.
        (None | Some(Err(_)), ..) => return of,
        (_, _, Some(work)) => mount::doing(work).to_owned(),
        (_, Some(mount), None) => mount::word(mount).to_owned(),
        (_, None, None) => "not mounted".to_owned(),
    };
    format!("{of}, {beyond}")
}

impl<'a> Case<'a> {
    /// Granted, and still wanted.
    pub fn is_granted(&self) -> bool {
        self.claim.state == State::Taken && self.claim.step.is_none()
    }

    pub fn now(&self) -> Timestamp {
        self.facts.now
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

    fn agent_known(&self) -> Option<&'a AgentStatus> {
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
        mounts.find(|one| (&one.namespace, &one.volume, &one.alloc) == (namespace, volume, alloc))
    }

    /// The node's operation for the claim; or one for another alloc that hangs and blocks it.
    pub fn work(&self) -> Option<&'a WorkStatus> {
        let ClaimStatus { namespace, volume, alloc, .. } = self.claim;
        let here = |one: &&WorkStatus| {
            (&one.namespace, &one.volume) == (namespace, volume)
                && !one.step.starts_with("controller.")
        };
        let work = &self.agent_known()?.work;
        let own = work.iter().filter(here).find(|one| one.alloc == *alloc);
        own.or_else(|| work.iter().filter(here).find(|one| one.hung))
    }

    pub fn failure(&self) -> Option<&'a FailureStatus> {
        let ClaimStatus { namespace, volume, alloc, .. } = self.claim;
        let mut failures = self.agent_known()?.failures.iter();
        failures.find(|one| (&one.namespace, &one.volume, &one.alloc) == (namespace, volume, alloc))
    }

    /// A controller's operation for the volume, with its node; one that hangs comes first.
    pub fn controller_work(&self) -> Option<(&'a NodeId, &'a WorkStatus)> {
        let ClaimStatus { namespace, volume, .. } = self.claim;
        let agents = self.facts.agents.iter().filter_map(|(id, agent)| {
            let agent = agent.as_ref().ok()?;
            Some(agent.work.iter().map(move |work| (id, work)))
        });
        let here = |(_, work): &(&NodeId, &WorkStatus)| {
            (&work.namespace, &work.volume) == (namespace, volume)
                && work.step.starts_with("controller.")
        };
        agents.flatten().filter(here).max_by_key(|(_, work)| work.hung)
    }

    /// No action is needed: it continues by itself, at the latest at that time.
    pub fn nobody(&self) -> Actor {
        let until = self.claim.attempt.as_ref().map(Attempt::ends);
        let by = self.claim.next_try.or(until).filter(|by| *by > self.now());
        Actor::Nobody { by }
    }

    /// The tries, the wait and the error on the claim's record.
    pub fn evidence(&self) -> Vec<String> {
        let claim = self.claim;
        let tries = (claim.tries > 0).then(|| format!("{} tries", claim.tries));
        let failure = claim.failure.as_ref().filter(|_| claim.tries > 0);
        let waits = claim.waits_for.as_ref().map(|waits| format!("waits for {waits}"));
        let told: Vec<String> =
            [tries, waits, failure.map(ToString::to_string)].into_iter().flatten().collect();
        if told.is_empty() {
            return Vec::new();
        }
        vec![format!("the claim of {}: {}", claim.alloc, told.join("; "))]
    }

    /// The finding when no rule has one.
    fn at_rest(&self) -> Finding {
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

/// A record that the claim needs is unreadable.
fn unreadable(case: &Case<'_>) -> Option<Finding> {
    let ClaimStatus { namespace, alloc, .. } = case.claim;
    let alloc = case.facts.allocs.get(&(namespace.clone(), alloc.clone()));
    let node = case.node().and_then(|one| one.as_ref().err());
    let of_volume = case.volume().and_then(|volume| volume.unreadable.first());
    let problems = [alloc.and_then(|one| one.as_ref().err()), node];
    let mut problems = problems.into_iter().flatten().filter(|problem| is_unreadable(problem));
    let problem = of_volume.map(UnreadableRecord::problem).or_else(|| problems.next().cloned())?;
    Some(unreadable_record(&problem))
}

/// The finding for an unreadable record.
pub fn unreadable_record(problem: &Problem) -> Finding {
    let key = problem.message.split_whitespace().nth(2).unwrap_or_default();
    let (bucket, reader) = if key::parse_volume(key).is_some() {
        (&bucket::VOLUMES, CLAIM.name)
    } else if key::parse_alloc(key).is_some() {
        (&bucket::ALLOCS, CLAIM.name)
    } else {
        (&bucket::NODES, PLUGIN_REGISTRY.name)
    };
    let (sentence, upgrade) = if problem.code == Code::NewerRecord {
        let upgrade = format!(
            "nats micro ls   # the version of each {reader}: upgrade the older ones, \
             docs/install.md, Upgrade"
        );
        let older = format!(
            "{reader} is older than the record, which a newer version wrote: nothing goes on with \
             it before {reader} is upgraded on every host"
        );
        (older, Some(upgrade))
    } else {
        let damaged = "a record is damaged, and until it can be read nothing is decided about it";
        (damaged.to_owned(), None)
    };
    Finding::new(Cause::RecordUnreadable, Actor::You, sentence)
        .shown_by([problem.message.clone()])
        .next_if_known(upgrade)
        .next(format!("nats kv get {} {} --raw", bucket.name, hint::quoted(key)))
        .next(format!("berth explain {}", problem.code))
}

/// The server stores no writes.
fn store(case: &Case<'_>) -> Option<Finding> {
    let ClaimStatus { wait, waits_for, alloc, .. } = case.claim;
    (*wait == Some(ClaimWait::Store)).then(|| {
        let words = waits_for.as_deref().unwrap_or("the server");
        let finding = Finding::new(Cause::StoreFault, Actor::You, STORES_NOTHING)
            .shown_by([format!("the claim of {alloc} waits for {words}")]);
        next::after_full_store().into_iter().fold(finding, Finding::next)
    })
}

/// A wrong clock, or no volumewatcher.
fn clock(case: &Case<'_>) -> Option<Finding> {
    service::in_the_way(case.facts, case.claim)
        .or_else(|| super::node::wrong_clock(case.node()?.as_ref().ok()?))
}

/// The plugin has no healthy instance for the step.
fn plugin_down(case: &Case<'_>) -> Option<Finding> {
    if case.claim.step?.is_controller() { controller::down(case) } else { node::plugin_down(case) }
}

/// The result of the last try, or the state of the present one.
fn last_error(case: &Case<'_>) -> Option<Finding> {
    if case.claim.step?.is_controller() { controller::trouble(case) } else { node::trouble(case) }
}

/// A volumewatcher runs, and has not begun the next call of the release.
fn held_back(case: &Case<'_>) -> Option<Finding> {
    let claim = case.claim;
    let is_due = claim.attempt.is_none() && claim.next_try.is_none_or(|next| next <= case.now());
    let waits = case.now().since(claim.since).as_secs() >= 5;
    (claim.step.is_some() && is_due && waits && claim.state != State::Publishing).then(|| {
        Finding::new(
            Cause::UnderWay,
            Actor::NOBODY,
            format!(
                "its next call is due and not begun, for {}: the volumewatcher has no room for \
                 it, or another claim of the volume is at its call",
                ago(claim.since, case.now())
            ),
        )
        .shown_by(case.evidence())
        .next(format!(
            "berth claim status --volume {}{}",
            hint::quoted(claim.volume.as_str()),
            hint::namespace_option(&claim.namespace)
        ))
    })
}

/// The meaning of a plugin's error, and the actor.
fn refused(case: &Case<'_>, failure: &CallFailure, node: Option<&NodeId>) -> Option<Finding> {
    let code = failure.facts.grpc?;
    let rpc = failure.facts.rpc.as_deref().unwrap_or("the call");
    let claim = case.claim;
    let plugin = case.plugin_name();
    let on = node.map(|node| format!(" on node {node}")).unwrap_or_default();
    let what = format!("{plugin}{on} answers {rpc} with {code}");
    let finding = if code.is_temporary() && case.now().since(claim.since) < TEMPORARY_MAX {
        let sentence = format!("{what}, which it calls temporary; it is asked again");
        Finding::new(Cause::PluginRetries, case.nobody(), sentence)
    } else {
        let sentence = format!("{what}: that is to be mended in the storage");
        Finding::new(Cause::PluginRefuses, case.plugin_operator(), sentence)
    };
    let process = node.zip(case.plugin_id()).map(|(node, id)| next::plugin_process(node, id));
    Some(finding.shown_by([failure.to_string()]).next_if_known(process))
}

/// A plugin call without an answer.
fn hangs(case: &Case<'_>, node: &NodeId, work: &WorkStatus) -> Finding {
    let now = case.now();
    let plugin = case.plugin_name();
    let (what, since) = match &work.rpc {
        Some(rpc) => (rpc.as_str(), work.rpc_since.unwrap_or(work.since)),
        None => (work.step.as_str(), work.since),
    };
    let sentence =
        format!("{plugin} on node {node} has not answered {what} for {}", ago(since, now));
    let told = format!("the agent of {node}: {} for {}", work.step, ago(work.since, now));
    Finding::new(Cause::PluginHangs, case.plugin_operator(), sentence)
        .shown_by([told])
        .shown_by(case.evidence())
        .next_if_known(case.plugin_id().map(|plugin| next::plugin_process(node, plugin)))
        .next(next::node_status(node))
}
