//! Faults of a node.

use berth_contract::code::Code;
use berth_contract::hint;
use berth_contract::message::agent::{AgentStatus, StorageCallStatus, WorkStatus};
use berth_contract::message::registry::{InstanceStatus, NodeStatus};
use berth_contract::problem::Problem;
use berth_domain::plugin::{Half, NodeState};
use berth_domain::volume::CallFailure;
use berth_domain::{NodeId, PluginId, Timestamp, VolumeKey};

use crate::cause::{Actor, Cause};
use crate::facts::{Facts, SourceAnswer};
use crate::finding::Finding;
use crate::record::{is_unreadable, unreadable_record};
use crate::span::ago;
use crate::{instance, next, obstacle, rights, service};

/// Attributes of a node by which its agent reports faults.
const JOURNAL: &str = "journal";
const HOST_HANGS: &str = "hung";
const RUNS: &str = "runs";
const RETURNING: &str = "returning";
const PLUGIN_FILES: &str = "plugin-faults";

/// The node's state in words, and when it began.
pub fn state(node: &NodeStatus) -> (String, Timestamp) {
    match &node.gone {
        Some(proof) => ("gone".to_owned(), proof.at),
        None => (node.state.to_string(), node.since),
    }
}

/// The decisive fault of the node itself.
pub fn trouble(facts: &Facts, node: &NodeStatus) -> Option<Finding> {
    troubles(facts, node).into_iter().next()
}

/// Every fault of the node itself, the decisive one first.
pub fn troubles(facts: &Facts, node: &NodeStatus) -> Vec<Finding> {
    // The record of a host that is gone keeps the last measurement.
    let answers = matches!(facts.agents.get(&node.id), Some(Ok(_)));
    let clock = wrong_clock(node).filter(|_| node.gone.is_none() || answers);
    if let Some(away) = away(facts, node) {
        let clock = clock.filter(|_| away.cause != Cause::ClockWrong);
        return clock.into_iter().chain([away]).collect();
    }
    let of_agent =
        [journal(node), runs_unseen(node), host_hangs(node), unhealthy(node), plugin_files(node)];
    let of_agent = of_agent.into_iter().flatten();
    let own_faults = rights::of_agent(facts, &node.id).into_iter().chain(clock).chain(of_agent);
    own_faults.chain(hung_work(facts, &node.id)).chain(unaccounted(node)).collect()
}

/// The node is gone or down, or its agent does not answer.
pub fn away(facts: &Facts, node: &NodeStatus) -> Option<Finding> {
    if let Some(proof) = &node.gone {
        return Some(gone(facts, node).shown_by([proof.to_string()]));
    }
    if node.state == NodeState::Down {
        return Some(down(facts, node));
    }
    let problem = facts.agents.get(&node.id)?.as_ref().err()?;
    agent_away(node, problem)
}

/// The node counts as gone. Its agent must undo all mounts before it is back.
fn gone(facts: &Facts, node: &NodeStatus) -> Finding {
    let Some(Ok(agent)) = facts.agents.get(&node.id) else {
        let sentence = "an operator declared it gone. It gets no claim before its agent is back \
                        and has undone its mounts";
        return Finding::new(Cause::NodeGone, Actor::You, sentence)
            .next(next::start_agent(&node.id))
            .next(format!(
                "berth node leave {}   # if the host never comes back: its plugins are forgotten",
                hint::quoted(node.id.as_str())
            ));
    };
    let sentence = "it counts as gone, and undoes its mounts before it is back";
    // The attribute outlives the agent, so it is read only if the agent answers.
    let keeps = node.attributes.get(RETURNING).cloned();
    let mut obstacles = agent.failures.iter().filter_map(|failure| {
        obstacle::find(&node.id, &failure.failure).map(|obstacle| (&failure.volume, obstacle))
    });
    let Some((volume, obstacle)) = obstacles.next() else {
        let why = keeps.map(|keeps| format!(": {keeps}")).unwrap_or_default();
        return Finding::new(Cause::NodeGone, Actor::NOBODY, format!("{sentence}{why}"))
            .next(next::node_status(&node.id));
    };
    let reason = match obstacle.cause {
        Cause::HeldByProcess => {
            format!("volume {volume} is still in use there, by {}", obstacle.name_processes())
        }
        Cause::ForeignMount => format!("something else is mounted there where volume {volume} was"),
        _ => format!("volume {volume} is still mounted there"),
    };
    let finding = obstacle.explain(format!("{sentence}, and {reason}"));
    Finding { cause: Cause::NodeGone, ..finding }.shown_by(keeps)
}

/// The node's clock is too far from the registry's.
pub fn wrong_clock(node: &NodeStatus) -> Option<Finding> {
    let skew_ms = node.clock_skew_ms;
    service::is_wrong(skew_ms).then(|| {
        let sentence = format!(
            "the clock of node {} is {} the registry's, so it is granted no claim",
            node.id,
            service::skew(skew_ms)
        );
        Finding::new(Cause::ClockWrong, Actor::You, sentence)
            .shown_by([format!("`berth node status` shows a skew of {skew_ms:+} ms")])
            .next(next::set_clock(&format!("node {}", node.id)))
            .next(next::node_status(&node.id))
    })
}

/// The node's lease has ended.
pub fn down(facts: &Facts, node: &NodeStatus) -> Finding {
    let id = &node.id;
    let sentence = format!(
        "node {id} is down for {}: its agent renews no lease. What it has mounted it may still \
         have, so nothing is taken from it",
        ago(node.since, facts.now)
    );
    let agent = facts.agents.get(id).and_then(|agent| agent.as_ref().err());
    Finding::new(Cause::NodeDown, Actor::You, sentence)
        .shown_by([format!("node {id} is down since {}", node.since)])
        .shown_by(agent.map(|problem| format!("the agent of {id}: {}", problem.message)))
        .next(next::start_agent(id))
        .next(next::node_gone(id, node.revision))
}

/// No node of this id is on record.
pub fn unknown(id: &NodeId) -> Finding {
    let sentence = format!(
        "no node {id} is on record: its agent has never reported, or the record was removed"
    );
    Finding::new(Cause::NodeUnknown, Actor::You, sentence)
        .next(next::start_agent(id))
        .next(next::node_gone(id, 0))
}

/// Why the node's agent does not answer that something is unmounted there. `node` is the node's
/// record, or why it could not be read.
pub fn keeps_unmount(
    facts: &Facts,
    id: &NodeId,
    node: &SourceAnswer<NodeStatus>,
) -> Option<Finding> {
    match node {
        Ok(node) if node.gone.is_none() && node.state == NodeState::Down => Some(down(facts, node)),
        Ok(_) => None,
        Err(problem) if is_unreadable(problem) => Some(unreadable_record(problem)),
        Err(problem) => (problem.code == Code::NoSuchNode).then(|| unknown(id)),
    }
}

/// The node holds its lease, but its agent did not receive the last call, for this reason.
pub fn did_not_listen(id: &NodeId, failure: &CallFailure) -> Finding {
    let sentence = format!(
        "the agent of node {id} has ended or just restarts: it serves nobody, and its lease has \
         not run out yet"
    );
    Finding::new(Cause::AgentAway, Actor::You, sentence)
        .shown_by([failure.to_string()])
        .next(next::start_agent(id))
        .next(next::node_status(id))
}

/// The node holds its lease, but its agent does not answer. None if the caller may not ask it.
pub fn agent_away(node: &NodeStatus, problem: &Problem) -> Option<Finding> {
    let id = &node.id;
    let sentence = match problem.code {
        Code::NotAllowed => return None,
        // The agent answers. The rules that compare clocks find which clock is wrong.
        Code::Late => return Some(wrong_clock(node).unwrap_or_else(|| late(node, problem))),
        Code::NoResponder => {
            let evidence = format!("agent.status of {id}: {}", problem.message);
            return Some(did_not_listen(id, &evidence.into()));
        }
        _ => format!("the agent of node {id} does not answer: it hangs, or is cut off"),
    };
    let finding = Finding::new(Cause::AgentAway, Actor::You, sentence)
        .shown_by([format!("agent.status of {id}: {}", problem.message)]);
    Some(finding.next(next::start_agent(id)).next(next::node_status(id)))
}

/// The agent answers that the request came after its deadline.
fn late(node: &NodeStatus, problem: &Problem) -> Finding {
    let id = &node.id;
    let sentence = format!(
        "the agent of node {id} says that requests reach it after their deadlines: its clock, or \
         that of this host, is wrong"
    );
    Finding::new(Cause::ClockWrong, Actor::You, sentence)
        .shown_by([format!("agent.status of {id}: {}", problem.message)])
        .next(next::set_clock(&format!("node {id}")))
        .next(next::node_status(id))
}

/// The agent cannot write its journal.
pub fn journal(node: &NodeStatus) -> Option<Finding> {
    let why = node.attributes.get(JOURNAL)?;
    let sentence = format!(
        "the agent of node {} can write nothing to its journal, so it mounts and unmounts nothing",
        node.id
    );
    Some(
        Finding::new(Cause::JournalFault, Actor::You, sentence)
            .shown_by([format!("node {}: {why}", node.id)])
            .next(format!("df -h   # on node {}: free space below its state_dir", node.id))
            .next(next::node_status(&node.id)),
    )
}

/// The agent cannot find out whether all allocs that it watches still run.
fn runs_unseen(node: &NodeStatus) -> Option<Finding> {
    let why = node.attributes.get(RUNS)?;
    let sentence = format!(
        "the agent of node {} cannot see whether an alloc still runs, so that alloc's volumes stay",
        node.id
    );
    let finding = Finding::new(Cause::RunUnknown, Actor::You, sentence);
    Some(finding.shown_by([format!("node {}: {why}", node.id)]).next(next::node_status(&node.id)))
}

/// There are files and sockets in the plugin directory that belong to no plugin.
fn plugin_files(node: &NodeStatus) -> Option<Finding> {
    let faults = node.attributes.get(PLUGIN_FILES)?;
    let sentence =
        format!("node {} has files of plugins with faults, and does not serve them", node.id);
    let finding = Finding::new(Cause::PluginFile, Actor::You, sentence).shown_by([faults.clone()]);
    Some(finding.next(format!("berth plugin instances {}", hint::quoted(node.id.as_str()))))
}

/// Whether the node's agent reports what keeps it from coming back.
pub fn is_returning(node: &NodeStatus) -> bool {
    node.gone.is_some() && node.attributes.contains_key(RETURNING)
}

fn host_hangs(node: &NodeStatus) -> Option<Finding> {
    let hung = node.attributes.get(HOST_HANGS)?;
    let sentence = format!("operations on the host of node {} do not return", node.id);
    let finding = Finding::new(Cause::HostHangs, Actor::You, sentence);
    Some(finding.shown_by([hung.clone()]).next(next::node_status(&node.id)).next(format!(
        "ps -eo pid,stat,wchan,cmd   # on node {}: state D is a process that waits for storage",
        node.id
    )))
}

fn unhealthy(node: &NodeStatus) -> Option<Finding> {
    let mut instances = node.instances.iter();
    let unhealthy = node.instances.iter().find(|instance| !instance.healthy);
    let finding = unhealthy.map(instance::instance_down);
    finding.or_else(|| instances.find_map(instance::storage_unwell))
}

/// Plugin calls on the node that are past their deadlines.
pub fn hung_work(facts: &Facts, id: &NodeId) -> Vec<Finding> {
    let Some(Ok(agent)) = facts.agents.get(id) else { return Vec::new() };
    let of_claims = agent.work.iter().filter(|work| work.hung);
    let of_claims = of_claims.map(|work| hung_call(facts, id, agent, work));
    let of_storage = agent.storage.iter().filter(|call| call.hung);
    of_claims.chain(of_storage.map(|call| hung_change(facts, id, agent, call))).collect()
}

fn hung_call(facts: &Facts, id: &NodeId, agent: &AgentStatus, work: &WorkStatus) -> Finding {
    let call = work.rpc.as_deref().unwrap_or(&work.step);
    let since = ago(work.rpc_since.unwrap_or(work.since), facts.now);
    let key = VolumeKey::new(work.namespace.clone(), work.volume.clone());
    let mut mounts = agent.mounts.iter();
    // A volume of another namespace may have the name, and another plugin.
    let mount =
        mounts.find(|mount| (&mount.namespace, &mount.volume) == (&key.namespace, &key.volume));
    let plugin = mount.and_then(|mount| mount.plugin.as_ref()).or_else(|| plugin_of(facts, &key));
    let what = format!("{call} for volume {} and {}, for {since}", work.volume, work.alloc);
    not_answered(id, plugin, &what, &work.step, &key)
}

/// A call for a volume at its storage, or for a snapshot.
fn hung_change(
    facts: &Facts,
    id: &NodeId,
    agent: &AgentStatus,
    call: &StorageCallStatus,
) -> Finding {
    let key = VolumeKey::new(call.namespace.clone(), call.volume.clone());
    // The volume may be gone, or unread. The agent makes such calls with its controllers only.
    let only = if let [only] = &agent.controllers[..] { Some(only) } else { None };
    let plugin = plugin_of(facts, &key).or(only);
    let since = ago(call.since, facts.now);
    let what = format!("{} for volume {}, for {since}", call.step, call.volume);
    not_answered(id, plugin, &what, &call.step, &key)
}

fn plugin_of<'a>(facts: &'a Facts, key: &VolumeKey) -> Option<&'a PluginId> {
    facts.volumes.get(key)?.as_ref().ok().map(|volume| &volume.plugin)
}

fn not_answered(
    id: &NodeId,
    plugin: Option<&PluginId>,
    what: &str,
    step: &str,
    volume: &VolumeKey,
) -> Finding {
    let (name, who) = match plugin {
        Some(plugin) => (format!("plugin {plugin}"), Actor::PluginOperator(plugin.clone())),
        None => ("a plugin".to_owned(), Actor::You),
    };
    Finding::new(Cause::PluginHangs, who, format!("{name} has not answered {what}"))
        .next_if_known(plugin.map(|plugin| next::plugin_process(id, plugin)))
        .shown_by([format!("the agent of {id}: {step} is past its deadline")])
        .next(next::why_volume(&volume.volume, &volume.namespace))
}

fn unaccounted(node: &NodeStatus) -> Option<Finding> {
    let mount = node.unaccounted.first()?;
    let sentence = format!("volume {} is mounted there, and no claim covers it", mount.volume);
    let finding = Finding::new(Cause::MountUnaccounted, Actor::You, sentence);
    Some(finding.shown_by(node.unaccounted.iter().map(ToString::to_string)).next(format!(
        "berth node unmount {} {}{}   # once its workload has ended",
        hint::quoted(node.id.as_str()),
        hint::quoted(mount.volume.as_str()),
        hint::namespace_option(&mount.namespace)
    )))
}

/// Whether a fault of a node stops every claim there. The others are of one plugin or one volume.
pub const fn stops_claims(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::RightMissing
            | Cause::ClockWrong
            | Cause::NodeGone
            | Cause::NodeDown
            | Cause::AgentAway
            | Cause::JournalFault
    )
}

/// The plugin's node half there, if it is unhealthy.
pub fn unhealthy_half<'a>(node: &'a NodeStatus, plugin: &PluginId) -> Option<&'a InstanceStatus> {
    let is_its = |one: &&InstanceStatus| one.half == Half::Node && one.plugin == *plugin;
    node.instances.iter().find(is_its).filter(|half| !half.healthy)
}

/// Whether the node is the reason that a claim is refused, not the volume or the plugin.
pub fn is_of_node(code: Code) -> bool {
    matches!(code, Code::NodeDown | Code::NoSuchNode | Code::NodeReturning | Code::ClockSkew)
}
