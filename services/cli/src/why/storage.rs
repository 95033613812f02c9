//! Explains a change of a volume at its storage, and a snapshot that is not ready.
//!
//! **Owns** the order of the causes: what is nearest to the call that does not succeed comes first.
//!
//! **Promises** one cause with what shows it, who acts next, and a command that can be run.
//!
//! **Never** asks a service: it gets the facts.

use std::time::Duration;

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

use super::{Actor, Cause, Facts, Finding, next, plugin, rights, service};
use crate::span::ago;
use crate::storage::{AtStorage, delete_command, name_operation};

/// How long an error that the plugin calls temporary needs no operator.
const TEMPORARY_MAX: Duration = Duration::from_secs(300);
/// The most holders that are named.
const HOLDERS_MAX: usize = 5;

/// A call of the storage that is to be made, of a volume or a snapshot.
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
    /// A call of a node's agent, and not of a controller.
    at_nodes: bool,
}

/// The state of a volume that is not simply ready, and since when.
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
        Stage::Unused => Some(("not created yet; its first claim creates it".to_owned(), None)),
        Stage::Creating | Stage::Ready | Stage::Deleting => None,
    }
}

/// The decisive cause of what the change under way waits for, or of a creation that failed; none
/// for a volume that is at rest.
pub fn find_change(facts: &Facts, volume: &VolumeStatus) -> Option<Finding> {
    let storage = volume.storage.as_ref()?;
    match &storage.operation {
        Some(operation) => Some(find_operation(facts, volume, operation)),
        None if storage.stage == Stage::Failed => Some(not_created(volume, storage)),
        None => None,
    }
}

/// The last change was refused, and the volume is as it was before.
pub fn find_refusal(facts: &Facts, volume: &VolumeStatus) -> Option<Finding> {
    let storage = volume.storage.as_ref().filter(|it| it.stage == Stage::Ready)?;
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
            };
            Some(match (snapshot.waits_for, state, failure) {
                (Some(waits_for), ..) => work.waits_for(waits_for),
                (None, SnapshotState::Cut, None) => work.still_cut(),
                _ => work.find(),
            })
        }
    }
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
    let look = (AtStorage::find(volume) == AtStorage::Unknown).then(|| {
        format!(
            "berth volume list --external {}   # is a volume left there?",
            hint::quoted(plugin.as_str())
        )
    });
    let class = storage.class.as_ref().map(|class| {
        format!(
            "berth class status {}   # is the request, or the class, to be corrected?",
            hint::quoted(class.as_str())
        )
    });
    finding.next_if_known(look).next_if_known(class).next(format!(
        "berth volume delete {}   # then create it again",
        volume_argument(&key(volume))
    ))
}

fn find_operation(facts: &Facts, volume: &VolumeStatus, operation: &OperationStatus) -> Finding {
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
        at_nodes: operation.call.starts_with("agent."),
    };
    match operation.waits_for {
        Some(StorageWait::Controller) => work.waits_for(StorageWait::Controller),
        // Told of with its mounts, unless they are gone by now.
        Some(StorageWait::Unmounted) => work.under_way(),
        Some(waits_for) => waits(&work, volume, operation, waits_for),
        None => work.find(),
    }
}

/// No call is due: a claim has to come or go first.
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
            .or_else(|| self.hangs())
            .or_else(|| self.plugin_down())
            .or_else(|| self.answered())
            .unwrap_or_else(|| self.under_way())
    }

    /// No controller that knows it can be called.
    fn waits_for(&self, waits_for: StorageWait) -> Finding {
        let found = self.no_watcher().or_else(|| self.plugin_down());
        found.unwrap_or_else(|| {
            let sentence = format!("{}: it waits for {}", self.name, waits_for.describe());
            let finding = Finding::new(Cause::PluginDown, self.operator(), sentence);
            finding.shown_by(self.evidence()).next(next::plugin_status(self.plugin))
        })
    }

    /// The plugin has cut the snapshot, and says that it is not ready.
    fn still_cut(&self) -> Finding {
        let found = self.no_watcher().or_else(|| self.plugin_down());
        found.unwrap_or_else(|| {
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

    fn missing_right(&self) -> Option<Finding> {
        rights::find_missing(self.facts, &rights::OF_CHANGE, &self.name)
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
        let Some(known) = self.facts.plugin(self.plugin) else {
            let asked = self.facts.plugins.get(self.plugin)?;
            let is_none = asked.as_ref().is_err_and(super::is_none);
            return is_none.then(|| plugin::not_known(self.plugin).shown_by(self.evidence()));
        };
        let no_controller = || known.controllers.is_none_or(|count| count.healthy == 0);
        let none = if self.at_nodes { known.nodes.healthy == 0 } else { no_controller() };
        let half = if self.at_nodes { Half::Node } else { Half::Controller };
        none.then(|| plugin::down(known, half).shown_by(self.evidence()))
    }

    /// What the plugin answered to the last call.
    fn answered(&self) -> Option<Finding> {
        let failure = self.failure.filter(|_| self.tries > 0)?;
        let plugin = self.plugin;
        let name = format!("plugin {plugin}");
        if let Some(mut found) = plugin::not_called(&name, failure, self.nobody()) {
            found.sentence = format!("{}: {}", self.name, found.sentence);
            return Some(found);
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
        if plugin::is_unanswered(failure) {
            let sentence = format!(
                "plugin {plugin}{on} has not answered {rpc} for {}",
                ago(self.since, self.facts.now)
            );
            return Some(finding(Cause::PluginHangs, self.operator(), sentence).next(process));
        }
        let Some(code) = *grpc else {
            let sentence = format!("the last try failed: {failure}");
            return Some(finding(Cause::PluginRefuses, self.operator(), sentence).next(process));
        };
        if code == GrpcCode::ResourceExhausted {
            let sentence = format!("plugin {plugin} has no room for it; it is tried again");
            let capacity = format!(
                "berth plugin capacity {}   # how much it has",
                hint::quoted(plugin.as_str())
            );
            return Some(finding(Cause::NoRoom, self.operator(), sentence).next(capacity));
        }
        let what = format!("plugin {plugin}{on} answers {rpc} with {code}");
        let is_young = self.facts.now.since(self.since) < TEMPORARY_MAX;
        Some(if code.is_temporary() && is_young {
            let sentence = format!("{what}, which it calls temporary; it is asked again");
            finding(Cause::PluginRetries, self.nobody(), sentence).next(process)
        } else {
            let sentence = format!("{what}: that is to be mended in the storage");
            finding(Cause::PluginRefuses, self.operator(), sentence).next(process)
        })
    }

    fn under_way(&self) -> Finding {
        let what = if self.calling { "the plugin is at the call" } else { "its next call is due" };
        let sentence = format!("{}: {what}", self.name);
        Finding::new(Cause::UnderWay, self.nobody(), sentence).shown_by(self.evidence())
    }

    fn operator(&self) -> Actor {
        Actor::PluginOperator(self.plugin.clone())
    }

    fn nobody(&self) -> Actor {
        Actor::Nobody { by: self.next_try.filter(|at| *at > self.facts.now) }
    }

    /// The tries and the error on the record.
    fn evidence(&self) -> Vec<String> {
        let tries = (self.tries > 0).then(|| format!("{} tries", self.tries));
        let told: Vec<String> =
            tries.into_iter().chain(self.failure.map(ToString::to_string)).collect();
        if told.is_empty() { Vec::new() } else { vec![told.join("; ")] }
    }
}

#[cfg(test)]
mod tests {
    use berth_contract::code::Code;
    use berth_contract::problem::Problem;
    use berth_domain::{Namespace, VolumeId};
    use serde_json::{Value, json};

    use super::super::facts::ServiceInfo;
    use super::super::{Diagnosis, Names, diagnose};
    use super::*;

    fn at(s: u64) -> Timestamp {
        Timestamp::from_unix_ms(1_795_262_400_000 + s * 1000)
    }

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn operation(kind: &str, more: &Value) -> Value {
        let mut operation = json!({"operation": kind, "since": at(0), "call": "controller.create"});
        operation.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        operation
    }

    /// The volume `data` with this life at the storage; its plugin is healthy.
    fn facts(storage: &Value, claims: &[Value]) -> Facts {
        let key = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
        let count = json!({"healthy": 1, "expected": 1});
        let volume = json!({"id": "data", "namespace": "default", "plugin": "p",
            "external_id": "", "capabilities": [], "claims": claims, "create_index": 1,
            "modify_index": 2, "storage": storage,
            "health": {"healthy": true, "description": "", "nodes": count}});
        let plugin = json!({"id": "p", "provider": "p", "versions": [], "controllers": count,
            "nodes": count, "attaches": true, "instances": []});
        let mut facts = Facts {
            now: at(100),
            names: Names { volume: Some(key.volume.clone()), ..Names::default() },
            ..Facts::default()
        };
        facts.volumes.insert(key, Ok(read(volume)));
        facts.plugins.insert(PluginId::new("p").unwrap(), Ok(read(plugin)));
        for name in [CLAIM.name, VOLUMEWATCHER.name] {
            facts.services.insert(name, Ok(ServiceInfo { clock_skew_ms: Some(0), access: None }));
        }
        facts
    }

    fn diagnosis(facts: &Facts) -> Diagnosis {
        let mut all = diagnose(facts);
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    /// A volume that is created, whose last try failed with this error.
    fn failing(error: &str, failure: &Value) -> Facts {
        let tried = json!({"tries": 3, "error": error, "failure": failure, "next_try": at(105)});
        facts(&json!({"stage": "creating", "operation": operation("create", &tried)}), &[])
    }

    #[test]
    fn a_change_that_fails_names_what_the_plugin_said() {
        let answered = |grpc| {
            json!({"code": Code::PluginFailed, "rpc": "CreateVolume", "grpc": grpc,
                "node": "n1"})
        };
        for (failure, cause, sentence) in [
            (
                answered("ABORTED"),
                Cause::PluginRetries,
                "creating: plugin p on node n1 answers CreateVolume with ABORTED, which it calls",
            ),
            (
                answered("INTERNAL"),
                Cause::PluginRefuses,
                "creating: plugin p on node n1 answers CreateVolume with INTERNAL: that is to be",
            ),
            (
                answered("RESOURCE_EXHAUSTED"),
                Cause::NoRoom,
                "creating: plugin p has no room for it",
            ),
            (
                json!({"code": Code::NoAnswer, "node": "n1"}),
                Cause::PluginHangs,
                "creating: plugin p on node n1 has not answered the call for 100s",
            ),
            (json!({}), Cause::PluginRefuses, "the last try failed: ABORTED, it says"),
        ] {
            let error = "ABORTED, it says";
            let told = diagnosis(&failing(error, &failure));
            let finding = &told.finding;
            assert_eq!(finding.cause, cause, "{finding:?}");
            assert!(finding.sentence.contains(sentence), "{finding:?}");
            assert_eq!((told.state.as_str(), told.since), ("creating", Some(at(0))));
            assert_eq!(finding.evidence, [format!("3 tries; {error}")]);
            assert!(!finding.next.is_empty());
        }
    }

    #[test]
    fn what_is_away_comes_before_what_it_said() {
        let mut no_plugin = failing("no responders", &json!({}));
        let plugins = &mut no_plugin.plugins;
        let Some(Ok(plugin)) = plugins.get_mut(&PluginId::new("p").unwrap()) else { panic!() };
        plugin.controllers = Some(read(json!({"healthy": 0, "expected": 1})));
        assert_eq!(diagnosis(&no_plugin).finding.cause, Cause::PluginDown);
        let mut no_watcher = no_plugin.clone();
        let away = Problem::new(Code::NoResponder, "nobody answers");
        no_watcher.services.insert(VOLUMEWATCHER.name, Err(away));
        assert_eq!(diagnosis(&no_watcher).finding.cause, Cause::NobodyWorks);
        let mut hangs = failing("unanswered", &json!({}));
        let call = json!({"namespace": "default", "volume": "data", "step": "controller.create",
            "since": at(60), "hung": true});
        let agent = json!({"node": "n1", "since": at(0), "mounts": [], "storage": [call],
            "controllers": []});
        hangs.agents.insert(NodeId::new("n1").unwrap(), Ok(read(agent)));
        let finding = diagnosis(&hangs).finding;
        assert_eq!(finding.cause, Cause::PluginHangs);
        assert!(finding.sentence.contains("has not answered controller.create for 40s"));
    }

    #[test]
    fn a_change_that_goes_on_needs_nobody() {
        let calls = json!({"calling": true});
        let grows = operation("expand", &json!({"to_bytes": 20_u64 << 30, "calling": true}));
        for (storage, state) in [
            (json!({"stage": "creating", "operation": operation("create", &calls)}), "creating"),
            (json!({"stage": "deleting", "operation": operation("delete", &calls)}), "deleting"),
            (json!({"stage": "ready", "operation": grows}), "expanding to 20GiB"),
        ] {
            let told = diagnosis(&facts(&storage, &[]));
            assert_eq!((told.finding.cause, told.state.as_str()), (Cause::UnderWay, state));
            assert_eq!(told.finding.who, Actor::NOBODY);
        }
    }

    #[test]
    fn a_creation_that_was_refused_is_corrected_by_its_requester() {
        let failure = json!({"operation": "create", "at": at(90), "error": "INVALID_ARGUMENT: x"});
        let storage = json!({"stage": "failed", "class": "fast", "failure": failure});
        let told = diagnosis(&facts(&storage, &[]));
        assert_eq!((told.finding.cause, &told.finding.who), (Cause::ChangeRefused, &Actor::You));
        assert_eq!((told.state.as_str(), told.since), ("not created", Some(at(90))));
        assert_eq!(told.finding.evidence, ["INVALID_ARGUMENT: x"]);
        let next = told.finding.next.join("\n");
        assert!(next.contains("berth class status fast") && next.contains("volume delete data"));
        // A change of a volume that is used as before.
        let failure = json!({"operation": "expand", "at": at(90), "error": "OUT_OF_RANGE"});
        let told = diagnosis(&facts(&json!({"stage": "ready", "failure": failure}), &[]));
        assert_eq!(told.finding.cause, Cause::ChangeRefused);
        assert!(told.finding.sentence.contains("refused to expand it 10s ago: OUT_OF_RANGE"));
    }

    #[test]
    fn an_expansion_names_who_has_to_let_go_of_the_volume() {
        let claim = json!({"namespace": "default", "volume": "data", "alloc": "web", "node": "n1",
            "state": "taken", "mode": "write", "since": at(0), "epoch": 7});
        let told = |more: &Value, call: &str| {
            let mut operation = operation("expand", more);
            operation["call"] = json!(call);
            let storage = json!({"stage": "ready", "operation": operation});
            find_change_of(&facts(&storage, std::slice::from_ref(&claim)))
        };
        let free = told(&json!({"waits_for": "volume-free"}), "controller.expand");
        assert_eq!(free.cause, Cause::HeldByOthers);
        assert!(free.next[0].starts_with("berth alloc stop web"), "{free:?}");
        let next = told(&json!({"waits_for": "next-staging"}), "agent.expand");
        assert_eq!((next.cause, next.next.len()), (Cause::UnderWay, 0));
        let again = json!({"waits_for": "staged-again", "nodes_left": ["n1"]});
        let again = told(&again, "agent.expand");
        assert_eq!((again.cause, &again.who), (Cause::PluginRefuses, &Actor::You));
        assert!(again.next[0].starts_with("berth alloc stop web"), "{again:?}");
    }

    fn find_change_of(facts: &Facts) -> Finding {
        let volume = facts.volumes.values().next().unwrap().as_ref().unwrap();
        find_change(facts, volume).unwrap()
    }

    #[test]
    fn a_snapshot_that_is_not_ready_is_told_of_beside_its_volume() {
        let snapshot = |state: &str, more: &Value| {
            let mut snapshot = json!({"namespace": "default", "volume": "data", "snapshot": "s",
                "state": state, "since": at(0), "plugin": "p", "modify_index": 3});
            snapshot.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read::<SnapshotStub>(snapshot)
        };
        let mut facts = facts(&json!({"stage": "ready"}), &[]);
        let of = |facts: &Facts, snapshot: &SnapshotStub| find_snapshot(facts, snapshot);
        assert_eq!(of(&facts, &snapshot("ready", &json!({}))), None);
        let cut = of(&facts, &snapshot("cut", &json!({"tries": 4}))).unwrap();
        assert_eq!((cut.cause, &cut.who), (Cause::UnderWay, &Actor::NOBODY));
        let failed = snapshot("failed", &json!({"error": "INVALID_ARGUMENT"}));
        let told = of(&facts, &failed).unwrap();
        assert_eq!(told.cause, Cause::ChangeRefused);
        assert!(told.next[0].starts_with("berth snapshot delete data@s "), "{told:?}");
        let retries = json!({"tries": 2, "error": "no", "failure": {"grpc": "UNAVAILABLE"}});
        let retries = of(&facts, &snapshot("creating", &retries)).unwrap();
        assert_eq!(retries.cause, Cause::PluginRetries);
        let key = facts.volumes.keys().next().unwrap().clone();
        facts.snapshots.insert(key, Ok(vec![failed]));
        let told = diagnosis(&facts);
        assert!(told.finding.sentence.contains("refused to cut snapshot data@s"), "{told:?}");
    }
}
