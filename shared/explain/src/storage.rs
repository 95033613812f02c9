//! Explains a change of a volume at its storage, and a snapshot that is not ready.
//!
//! **Owns** the order of these causes.
//!
//! **Promises** one cause with its evidence, its actor, and a command that can be run.
//!
//! **Never** asks a service: it gets the facts.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::hint::{self, volume_argument};
use berth_contract::message::agent::StorageCallStatus;
use berth_contract::message::snapshot::SnapshotStub;
use berth_contract::message::storage::{OperationStatus, StorageStatus, StorageWait};
use berth_contract::message::volume::VolumeStatus;
use berth_contract::service::{CLAIM, VOLUMEWATCHER};
use berth_domain::plugin::Half;
use berth_domain::volume::storage::{OperationKind, SnapshotState, Stage};
use berth_domain::volume::{CallFailure, FailureFacts, State};
use berth_domain::{GrpcCode, NodeId, PluginId, Timestamp, VolumeKey};

use crate::at_storage::AtStorage;
use crate::cause::{Actor, Cause};
use crate::change::{delete_command, name_operation};
use crate::facts::Facts;
use crate::finding::Finding;
use crate::judgement::{judge_at_controller, judge_failure, leave_to_retries};
use crate::record::is_none;
use crate::span::ago;
use crate::{failure as of_failure, instance, mounted, next, node, rights, service};

/// How long errors that the plugin calls temporary are left to retries, before the operator must
/// act.
const TEMPORARY_MAX: Duration = Duration::from_secs(300);
/// Holders that a finding names, at most.
const HOLDERS_MAX: usize = 5;

/// A creation of which an earlier call, which was not answered, may have made something.
struct CreationInDoubt {
    /// What may have been made, and the CLI's noun for it.
    kind: &'static str,
    /// The command that removes the record, and leaves at the storage what was made.
    give_up: String,
    /// How Berth gets to know what was made.
    registered: &'static str,
}

/// The next call of a change at the storage, for a volume or a snapshot.
struct ChangeCase<'a> {
    facts: &'a Facts,
    key: VolumeKey,
    plugin: &'a PluginId,
    /// `creating`, `data@monday: cut`
    name: String,
    since: Timestamp,
    calling: bool,
    /// Calls that did not succeed.
    tries: u32,
    next_try: Option<Timestamp>,
    failure: Option<&'a CallFailure>,
    /// Whether a node's agent makes the call, not a controller.
    at_nodes: bool,
    /// The nodes whose agents still have to make it.
    nodes: &'a [NodeId],
    doubt: Option<CreationInDoubt>,
}

/// The state of a volume that is not simply ready, and when it began.
pub fn state(volume: &VolumeStatus) -> Option<(String, Option<Timestamp>)> {
    let storage = volume.storage.as_ref()?;
    if let Some(operation) = &storage.operation {
        return Some((name_operation(operation), Some(operation.since)));
    }
    match storage.stage {
        Stage::Failed => {
            let since = storage.failure.as_ref().map(|failure| failure.at);
            Some(("not created".to_owned(), since))
        }
        Stage::Unused => Some(("not created yet; its next claim creates it".to_owned(), None)),
        Stage::Creating | Stage::Ready | Stage::Deleting => None,
    }
}

/// The decisive cause of what the change under way waits for, or of a failed creation; none for a
/// volume at rest.
pub fn find_change(facts: &Facts, volume: &VolumeStatus) -> Option<Finding> {
    let storage = volume.storage.as_ref()?;
    match &storage.operation {
        Some(operation) => Some(find_operation(facts, volume, operation)),
        None if storage.stage == Stage::Failed => Some(not_created(volume, storage)),
        None if storage.stage == Stage::Unused => not_created_there(facts, volume, storage),
        None => None,
    }
}

/// The plugin refused the place of a first claim; none before that.
fn not_created_there(
    facts: &Facts,
    volume: &VolumeStatus,
    storage: &StorageStatus,
) -> Option<Finding> {
    let failure = storage.failure.as_ref()?;
    let sentence = format!(
        "the storage did not create it where its claim of {} ago was: {}; the next claim says \
         where",
        ago(failure.at, facts.now),
        failure.failure
    );
    let finding = Finding::new(Cause::ChangeRefused, Actor::You, sentence);
    Some(finding.next(format!(
        "berth volume placement {}{}   # on which nodes it may be claimed",
        hint::quoted(volume.id.as_str()),
        hint::namespace_option(&volume.namespace)
    )))
}

/// The last change was refused, and the volume is unchanged.
pub fn find_refusal(facts: &Facts, volume: &VolumeStatus) -> Option<Finding> {
    let storage = volume.storage.as_ref().filter(|storage| storage.stage == Stage::Ready)?;
    let failure = storage.failure.as_ref()?;
    let sentence = format!(
        "the storage refused to {} it {} ago: {}",
        failure.operation,
        ago(failure.at, facts.now),
        failure.failure
    );
    let finding = Finding::new(Cause::ChangeRefused, Actor::You, sentence);
    let volume = volume_argument(&key(volume));
    Some(finding.next(format!("berth volume status {volume}   # then ask again, otherwise")))
}

/// The decisive cause of what a snapshot waits for; none for one that is ready.
pub fn find_snapshot(facts: &Facts, snapshot: &SnapshotStub) -> Option<Finding> {
    let SnapshotStub { namespace, volume, snapshot: id, state, failure, .. } = snapshot;
    let name = format!("snapshot {volume}@{id}");
    let delete = delete_command(snapshot);
    match (state, failure.as_ref()) {
        (SnapshotState::Ready, None) => None,
        (SnapshotState::Ready, Some(failure)) => {
            let sentence = format!("the storage refused to delete {name}: {failure}");
            let finding = Finding::new(Cause::ChangeRefused, Actor::You, sentence);
            Some(finding.next(format!("{delete} --yes   # again")))
        }
        (SnapshotState::Failed, failure) => {
            let why = failure.map_or("it did not say why", |failure| failure.message.as_str());
            let sentence = format!("the storage refused to cut {name}: {why}");
            let finding = Finding::new(Cause::ChangeRefused, Actor::You, sentence);
            Some(finding.next(format!("{delete}   # then cut it again")))
        }
        (SnapshotState::Cut, Some(failure)) if snapshot.second_id.is_some() || snapshot.foreign => {
            let sentence = format!("{name} cannot be used: {failure}");
            let finding = Finding::new(Cause::ChangeRefused, Actor::You, sentence);
            Some(finding.next(format!("{delete} --yes")))
        }
        (SnapshotState::Creating | SnapshotState::Cut | SnapshotState::Deleting, failure) => {
            let work = ChangeCase {
                facts,
                key: VolumeKey::new(namespace.clone(), volume.clone()),
                plugin: &snapshot.plugin,
                name: format!("{name}: {state}"),
                since: snapshot.since,
                calling: false,
                tries: snapshot.tries,
                next_try: snapshot.next_try,
                failure,
                at_nodes: false,
                nodes: &[],
                doubt: snapshot_in_doubt(snapshot),
            };
            Some(match (snapshot.waits_for, state, failure) {
                (Some(waits_for), ..) => work.waits_for(waits_for),
                (None, SnapshotState::Cut, None) => work.still_cut(),
                _ => work.find(),
            })
        }
    }
}

fn volume_in_doubt(volume: &VolumeStatus, operation: &OperationStatus) -> Option<CreationInDoubt> {
    let is_in_doubt = operation.uncertain && operation.operation == OperationKind::Create;
    is_in_doubt.then(|| CreationInDoubt {
        kind: "volume",
        give_up: format!("berth volume deregister {} --force", volume_argument(&key(volume))),
        registered: "registered by its external id",
    })
}

fn snapshot_in_doubt(snapshot: &SnapshotStub) -> Option<CreationInDoubt> {
    let is_in_doubt = snapshot.uncertain && snapshot.state == SnapshotState::Creating;
    is_in_doubt.then(|| CreationInDoubt {
        kind: "snapshot",
        give_up: format!("{} --forget --yes", delete_command(snapshot)),
        registered: "adopted",
    })
}

fn key(volume: &VolumeStatus) -> VolumeKey {
    VolumeKey::new(volume.namespace.clone(), volume.id.clone())
}

fn not_created(volume: &VolumeStatus, storage: &StorageStatus) -> Finding {
    let why = storage.failure.as_ref().map(|failed| failed.failure.to_string());
    let plugin = &volume.plugin;
    let sentence = match (&volume.external_id, AtStorage::find(volume)) {
        (Some(id), _) => {
            format!("plugin {plugin} created it as {id:?} with an answer beyond CSI's bounds")
        }
        (None, AtStorage::Unknown) => {
            format!("plugin {plugin} says that it created it, and which volume is not known")
        }
        (None, _) => format!("plugin {plugin} refused to create it, and nothing is at the storage"),
    };
    let finding = Finding::new(Cause::ChangeRefused, Actor::You, sentence).shown_by(why);
    let list_command = (AtStorage::find(volume) == AtStorage::Unknown).then(|| {
        format!(
            "berth volume list --external {}   # is a volume left there?",
            hint::quoted(plugin.as_str())
        )
    });
    let class = storage.class.as_ref().map(|class| {
        format!(
            "berth class status {}{}   # is the request, or the class, to be corrected?",
            hint::quoted(class.as_str()),
            hint::namespace_option(&volume.namespace)
        )
    });
    finding.next_if_known(list_command).next_if_known(class).next(format!(
        "berth volume delete {}   # then create it again",
        volume_argument(&key(volume))
    ))
}

fn find_operation(facts: &Facts, volume: &VolumeStatus, operation: &OperationStatus) -> Finding {
    let at_nodes = operation.call.starts_with("agent.");
    let work = ChangeCase {
        facts,
        key: key(volume),
        plugin: &volume.plugin,
        name: name_operation(operation),
        since: operation.since,
        calling: operation.calling,
        tries: operation.tries,
        next_try: operation.next_try,
        failure: operation.failure.as_ref(),
        at_nodes,
        nodes: if at_nodes { &operation.nodes_left } else { &[] },
        doubt: volume_in_doubt(volume, operation),
    };
    match operation.waits_for {
        Some(StorageWait::Controller) => work.waits_for(StorageWait::Controller),
        // The mounts may be gone by now: then the next call is due.
        Some(StorageWait::Unmounted) => mounted::find(facts, volume).unwrap_or_else(|| work.find()),
        Some(StorageWait::NextStaging) => {
            Finding::new(Cause::Nothing, Actor::NOBODY, format!("it {}; nothing to do", work.name))
                .shown_by(work.evidence())
        }
        Some(waits_for) => waits(&work, volume, operation, waits_for),
        None => work.find(),
    }
}

/// No call is due: a claim has to begin or end first.
fn waits(
    work: &ChangeCase<'_>,
    volume: &VolumeStatus,
    operation: &OperationStatus,
    waits_for: StorageWait,
) -> Finding {
    let sentence = format!("{}: it waits for {}", work.name, waits_for.describe());
    let holds = |state: State| state != State::Waiting;
    let holders = volume.claims.iter().filter(|claim| holds(claim.state));
    let is_offline = operation.operation == OperationKind::Expand && !work.at_nodes;
    let stops = |when: &str| {
        let on_left = |node: &NodeId| operation.nodes_left.contains(node);
        let blocking = holders.clone().filter(|claim| is_offline || on_left(&claim.node));
        // The alloc of a claim that is being released has ended already.
        let blocking = blocking
            .filter(|claim| !matches!(claim.state, State::Unpublishing | State::NodeDetached));
        let stop = blocking.map(|claim| next::stop_alloc(&claim.alloc, &claim.namespace, when));
        stop.take(HOLDERS_MAX).collect::<Vec<_>>()
    };
    let (cause, who, next) = if is_offline {
        (Cause::HeldByOthers, Actor::NOBODY, stops("once its workload has ended"))
    } else if operation.nodes_left.is_empty() {
        (Cause::UnderWay, Actor::NOBODY, Vec::new())
    } else {
        (Cause::PluginRefuses, Actor::You, stops("and start its workload again"))
    };
    let finding = Finding::new(cause, who, sentence).shown_by(work.evidence());
    next.into_iter().fold(finding, Finding::next)
}

impl ChangeCase<'_> {
    /// The decisive cause of what the next call waits for.
    fn find(&self) -> Finding {
        self.missing_right()
            .or_else(|| service::wrong_clock(self.facts, &[CLAIM.name, VOLUMEWATCHER.name]))
            .or_else(|| self.no_watcher())
            .or_else(|| self.node_away())
            .or_else(|| self.hangs())
            .or_else(|| self.crashes())
            .or_else(|| self.plugin_down())
            .or_else(|| self.answered())
            .unwrap_or_else(|| self.under_way())
    }

    /// No controller that may know the volume can be called.
    fn waits_for(&self, waits_for: StorageWait) -> Finding {
        let finding = self.no_watcher().or_else(|| self.plugin_down());
        finding.unwrap_or_else(|| {
            let sentence = format!("{}: it waits for {}", self.name, waits_for.describe());
            let finding = Finding::new(Cause::PluginDown, self.operator(), sentence);
            finding.shown_by(self.evidence()).next(next::plugin_status(self.plugin))
        })
    }

    /// The plugin has cut the snapshot, and reports that it is not ready to use.
    fn still_cut(&self) -> Finding {
        let finding = self.no_watcher().or_else(|| self.plugin_down());
        finding.unwrap_or_else(|| {
            let sentence = format!(
                "{}; plugin {} has worked on it for {}, and is asked again",
                self.name,
                self.plugin,
                ago(self.since, self.facts.now)
            );
            Finding::new(Cause::UnderWay, self.nobody(), sentence)
        })
    }

    fn no_watcher(&self) -> Option<Finding> {
        (!self.calling).then(|| service::no_watcher(self.facts, &self.name))?
    }

    /// A node that has to make the call is away.
    fn node_away(&self) -> Option<Finding> {
        let mut findings = self.nodes.iter().filter_map(|id| {
            let node = self.facts.nodes.get(id)?;
            let is_gone = node.as_ref().is_ok_and(|node| node.gone.is_some());
            let of_node = node::keeps_unmount(self.facts, id, node);
            of_node.or_else(|| {
                let agent = self.facts.agents.get(id).filter(|_| !is_gone)?;
                node::agent_away(node.as_ref().ok()?, agent.as_ref().err()?)
            })
        });
        let finding = findings.next()?;
        let sentence = format!("{}: {}", self.name, finding.sentence);
        Some(Finding { sentence, ..finding }.shown_by(self.evidence()))
    }

    fn missing_right(&self) -> Option<Finding> {
        let of_services = rights::find_missing(self.facts, &rights::OF_CHANGE, &self.name);
        let of_agent =
            |id| rights::find_missing_of_agent(self.facts, id, &rights::OF_EXPANSION, &self.name);
        of_services.or_else(|| self.nodes.iter().find_map(of_agent))
    }

    /// A call that is past its deadline.
    fn hangs(&self) -> Option<Finding> {
        let (node, call) = self.calls().find(|(_, call)| call.hung)?;
        let since = ago(call.since, self.facts.now);
        let sentence = format!(
            "plugin {} on node {node} has not answered {} for {since}",
            self.plugin, call.step
        );
        Some(
            Finding::new(Cause::PluginHangs, self.operator(), sentence)
                .shown_by([format!("the agent of {node}: {} for {since}", call.step)])
                .shown_by(self.evidence())
                .next(next::plugin_process(node, self.plugin)),
        )
    }

    /// The calls of the storage that agents make for the volume.
    fn calls(&self) -> impl Iterator<Item = (&NodeId, &StorageCallStatus)> {
        let agents = self.facts.agents.iter().filter_map(|(node, agent)| {
            let calls = &agent.as_ref().ok()?.storage;
            Some(calls.iter().map(move |call| (node, call)))
        });
        let VolumeKey { namespace, volume } = &self.key;
        agents
            .flatten()
            .filter(move |(_, call)| (&call.namespace, &call.volume) == (namespace, volume))
    }

    fn plugin_down(&self) -> Option<Finding> {
        let Some(plugin) = self.facts.plugin(self.plugin) else {
            let answer = self.facts.plugins.get(self.plugin)?;
            let is_none = answer.as_ref().is_err_and(is_none);
            return is_none.then(|| instance::not_known(self.plugin).shown_by(self.evidence()));
        };
        let no_controller = || plugin.controllers.is_none_or(|count| count.healthy == 0);
        let is_none_healthy =
            if self.at_nodes { plugin.nodes.healthy == 0 } else { no_controller() };
        let half = if self.at_nodes { Half::Node } else { Half::Controller };
        is_none_healthy.then(|| instance::down(plugin, half).shown_by(self.evidence()))
    }

    /// The plugin's process ends at the call.
    fn crashes(&self) -> Option<Finding> {
        let failure = self.failure.filter(|_| self.tries > 0)?;
        let finding = of_failure::crashes(Some(self.plugin), None, failure)?;
        let sentence = format!("{}: {}", self.name, finding.sentence);
        Some(Finding { sentence, ..finding }.shown_by(self.evidence()))
    }

    /// What the plugin answered to the last call.
    fn answered(&self) -> Option<Finding> {
        let failure = self.failure.filter(|_| self.tries > 0)?;
        let plugin = self.plugin;
        let name = format!("plugin {plugin}");
        if let Some(mut finding) = of_failure::not_called(&name, failure, self.nobody()) {
            finding.sentence = format!("{}: {}", self.name, finding.sentence);
            return Some(finding);
        }
        let FailureFacts { node, rpc, grpc, .. } = &failure.facts;
        let on = node.as_ref().map(|node| format!(" on node {node}")).unwrap_or_default();
        let process = node.as_ref().map(|node| next::plugin_process(node, plugin));
        let process = process.unwrap_or_else(|| next::plugin_status(plugin));
        let rpc = rpc.as_deref().unwrap_or("the call");
        let finding = |cause, who, sentence: String| {
            let sentence = format!("{}: {sentence}", self.name);
            Finding::new(cause, who, sentence).shown_by(self.evidence())
        };
        let not_asked = || of_failure::not_asked(self.facts, plugin, failure);
        if !self.at_nodes
            && self.calls().next().is_none()
            && let Some(finding) = not_asked()
        {
            let sentence = format!("{}: {}", self.name, finding.sentence);
            return Some(Finding { sentence, ..finding }.shown_by(self.evidence()));
        }
        if of_failure::is_unanswered(failure) {
            let sentence = format!(
                "plugin {plugin}{on} has not answered {rpc} for {}",
                ago(self.since, self.facts.now)
            );
            return Some(finding(Cause::PluginHangs, self.operator(), sentence).next(process));
        }
        if let Some(id) = node.as_ref().filter(|_| self.at_nodes)
            && of_failure::is_code(failure, &[Code::NoResponder])
        {
            return Some(self.not_taken(id, failure));
        }
        let Some(code) = *grpc else {
            let sentence = format!("the last try failed: {failure}");
            let (cause, who) = self.judge(failure);
            return Some(finding(cause, who, sentence).next(process));
        };
        if code == GrpcCode::ResourceExhausted {
            let sentence = format!("plugin {plugin} has no room for it; it is tried again");
            let capacity = format!(
                "berth plugin capacity {}   # how much it has",
                hint::quoted(plugin.as_str())
            );
            return Some(finding(Cause::NoRoom, self.operator(), sentence).next(capacity));
        }
        let sentence = format!("plugin {plugin}{on} answers {rpc} with {code}");
        Some(if code.is_temporary() && self.is_young() {
            let sentence = format!("{sentence}, which it calls temporary; it is asked again");
            finding(Cause::PluginRetries, self.nobody(), sentence).next(process)
        } else if let Some(doubt) = &self.doubt {
            self.refused_in_doubt(&sentence, doubt)
        } else {
            let sentence = format!("{sentence}: that is to be mended in the storage");
            finding(Cause::PluginRefuses, self.operator(), sentence).next(process)
        })
    }

    /// The node's agent did not take the last call. If it is back, it gets the next one.
    fn not_taken(&self, id: &NodeId, failure: &CallFailure) -> Finding {
        let finding = if let Some(Ok(_)) = self.facts.agents.get(id) {
            let sentence = format!(
                "the agent of node {id} did not take the last call, and answers now: it is asked \
                 again"
            );
            Finding::new(Cause::UnderWay, self.nobody(), sentence).shown_by([failure.to_string()])
        } else {
            node::did_not_listen(id, failure)
        };
        Finding { sentence: format!("{}: {}", self.name, finding.sentence), ..finding }
    }

    /// The cause of a call that the plugin did not answer with an error, and who acts.
    fn judge(&self, failure: &CallFailure) -> (Cause, Actor) {
        let judge = if self.at_nodes { judge_failure } else { judge_at_controller };
        let judged = judge(failure, Some(self.plugin));
        let judged = judged.unwrap_or((Cause::PluginRefuses, self.operator()));
        leave_to_retries(judged, self.is_young(), self.nobody())
    }

    /// Whether what goes wrong may still pass by itself.
    fn is_young(&self) -> bool {
        self.facts.now.since(self.since) < TEMPORARY_MAX
    }

    /// The plugin refuses to create it, and may have created it already. Berth neither gives the
    /// creation up nor calls it failed, because what was created would be left without an owner.
    fn refused_in_doubt(&self, refusal: &str, doubt: &CreationInDoubt) -> Finding {
        let CreationInDoubt { kind, give_up, registered } = doubt;
        let sentence = format!(
            "{}: {refusal}, and an earlier call, which it did not answer, may have made the \
             {kind}: it is asked until it names the {kind}",
            self.name
        );
        let plugin = hint::quoted(self.plugin.as_str());
        Finding::new(Cause::CreationInDoubt, Actor::You, sentence)
            .shown_by(self.evidence())
            .next(format!(
                "berth {kind} list --external {plugin}   # whether it is there; its log may say \
                 why it refuses"
            ))
            .next(format!(
                "{give_up}   # to give it up: what was made is left at the storage, to be deleted \
                 there, or {registered}"
            ))
    }

    fn under_way(&self) -> Finding {
        let state = if self.calling { "the plugin is at the call" } else { "its next call is due" };
        let sentence = format!("{}: {state}", self.name);
        Finding::new(Cause::UnderWay, self.nobody(), sentence).shown_by(self.evidence())
    }

    fn operator(&self) -> Actor {
        Actor::PluginOperator(self.plugin.clone())
    }

    fn nobody(&self) -> Actor {
        Actor::Nobody { by: self.next_try.filter(|at| *at > self.facts.now) }
    }

    /// The tries and the error of the record.
    fn evidence(&self) -> Vec<String> {
        let tries = (self.tries > 0).then(|| format!("{} tries", self.tries));
        let evidence: Vec<String> =
            tries.into_iter().chain(self.failure.map(ToString::to_string)).collect();
        if evidence.is_empty() { Vec::new() } else { vec![evidence.join("; ")] }
    }
}

#[cfg(test)]
mod tests;
