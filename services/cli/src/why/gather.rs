//! Gathers facts in rounds. The requests of a round are sent in parallel.
//!
//! **Promises** that a round ends within seconds, that there are few rounds, and that the number of
//! requests is bounded, however large the system is.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_bus::Call;
use berth_contract::code::Code;
use berth_contract::message::agent::{self, AgentStatus, MountHealth, MountStatus};
use berth_contract::message::alloc::{self, AllocStatus};
use berth_contract::message::claim::{self, ClaimStatus};
use berth_contract::message::query::LongPoll;
use berth_contract::message::registry::{ListNodes, ListPlugins};
use berth_contract::message::snapshot::{self, SnapshotStub};
use berth_contract::message::volume::{self, ListPlacements};
use berth_contract::problem::Problem;
use berth_contract::service::{CLAIM, PLUGIN_REGISTRY, VOLUMEWATCHER};
use berth_contract::verb::{self, Verb};
use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_domain::plugin::Half;
use berth_domain::volume::storage::SnapshotState;
use berth_domain::volume::{CallKind, State};
use berth_domain::{AllocId, Namespace, NodeId, PluginId, SnapshotId, VolumeId, VolumeKey};
use berth_explain::{Facts, Names, ServiceInfo, SnapshotName, SourceAnswer};
use berth_service::clock;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::session::Session;
use crate::storage::list_one;

/// Deadline of one answer, unless `--timeout` is given.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Rounds: a name, its claims, their nodes and plugins, and the agents of these.
const ROUNDS_MAX: usize = 5;
/// The most claims of one thing that are examined.
const CLAIMS_MAX: usize = 8;
/// The most volumes of one alloc that are examined.
const VOLUMES_MAX: usize = 16;
/// The most agents of one plugin's nodes that get a request.
const AGENTS_MAX: usize = 16;
/// The most claims of a node or a plugin that are read.
const CLAIMS_READ_MAX: u32 = 500;

/// A request for facts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Inquiry {
    Volume(VolumeKey),
    Snapshots(VolumeKey),
    Snapshot(VolumeKey, SnapshotId),
    Alloc(Namespace, AllocId),
    Node(NodeId),
    Plugin(PluginId),
    Agent(NodeId),
    ClaimsOn(NodeId),
    ClaimsOf(PluginId),
    Placement(VolumeKey, Option<NodeId>),
    Service(&'static str),
}

/// Reads all facts about the names.
pub async fn gather(session: &Session, names: Names) -> Facts {
    let namespace = session.namespace.clone();
    let mut facts = Facts { now: clock::now(), namespace, names, ..Facts::default() };
    complete(session, &mut facts).await;
    facts
}

/// Reads the facts that the facts so far make useful, until there are no more.
pub async fn complete(session: &Session, facts: &mut Facts) {
    for _round in 0..ROUNDS_MAX {
        let fresh: Vec<Inquiry> = wanted(facts).difference(&answered(facts)).cloned().collect();
        if fresh.is_empty() {
            break;
        }
        let answers = join_all(fresh.into_iter().map(|inquiry| ask_inquiry(session, inquiry)));
        for enter in answers.await {
            enter(facts);
        }
    }
    facts.now = clock::now();
}

/// The requests whose answers are in the facts.
fn answered(facts: &Facts) -> BTreeSet<Inquiry> {
    let volumes = facts.volumes.keys().cloned().map(Inquiry::Volume);
    let snapshots = facts.snapshots.keys().cloned().map(Inquiry::Snapshots);
    let named = facts.named_snapshots.keys().cloned();
    let snapshots = snapshots.chain(named.map(|(key, id)| Inquiry::Snapshot(key, id)));
    let allocs = facts.allocs.keys().cloned().map(|(namespace, id)| Inquiry::Alloc(namespace, id));
    let nodes = facts.nodes.keys().cloned().map(Inquiry::Node);
    let plugins = facts.plugins.keys().cloned().map(Inquiry::Plugin);
    let agents = facts.agents.keys().cloned().map(Inquiry::Agent);
    let of_nodes = facts.claims_on.keys().cloned().map(Inquiry::ClaimsOn);
    let of_plugins = facts.claims_of.keys().cloned().map(Inquiry::ClaimsOf);
    let placements = facts.placements.keys().cloned();
    let placements = placements.map(|(key, node)| Inquiry::Placement(key, node));
    let services = facts.services.keys().copied().map(Inquiry::Service);
    let records = volumes.chain(snapshots).chain(allocs).chain(nodes).chain(plugins).chain(agents);
    records.chain(of_nodes).chain(of_plugins).chain(placements).chain(services).collect()
}

/// All useful requests, by the facts so far.
fn wanted(facts: &Facts) -> BTreeSet<Inquiry> {
    let services =
        [CLAIM, PLUGIN_REGISTRY, VOLUMEWATCHER].map(|service| Inquiry::Service(service.name));
    let mut wanted = BTreeSet::from(services);
    let Names { volume, alloc, node, plugin, snapshot } = &facts.names;
    let namespace = &facts.namespace;
    let key = |id| VolumeKey::new(namespace.clone(), id);
    wanted.extend(volume.clone().map(|id| Inquiry::Volume(key(id))));
    wanted.extend(alloc.clone().map(|id| Inquiry::Alloc(namespace.clone(), id)));
    wanted.extend(node.clone().map(Inquiry::Node));
    wanted.extend(plugin.clone().map(Inquiry::Plugin));
    if let Some(SnapshotName { volume, snapshot }) = snapshot.clone() {
        wanted.insert(Inquiry::Snapshot(key(volume), snapshot));
    }
    for snapshot_stub in facts.named_snapshots.values().filter_map(|answer| answer.as_ref().ok()) {
        wanted.insert(Inquiry::Plugin(snapshot_stub.plugin.clone()));
        wanted.extend(controller_nodes(facts, &snapshot_stub.plugin).map(Inquiry::Agent));
    }
    if let Some(id) = volume
        && let Some(Ok(volume_status)) = facts.volume(id)
        && volume_status.claims.is_empty()
    {
        wanted.insert(Inquiry::Placement(key(id.clone()), None));
    }
    if let Some(id) = alloc
        && let Some(Ok(alloc_status)) = facts.alloc(id)
    {
        wanted.extend([
            Inquiry::Node(alloc_status.node.clone()),
            Inquiry::Agent(alloc_status.node.clone()),
        ]);
        wanted.extend(inquiries_about_alloc(facts, alloc_status));
    }
    if let Some(id) = node
        && let Some(Ok(_)) = facts.nodes.get(id)
    {
        wanted.extend([Inquiry::Agent(id.clone()), Inquiry::ClaimsOn(id.clone())]);
    }
    if let Some(id) = plugin
        && let Some(Ok(plugin_status)) = facts.plugins.get(id)
    {
        let nodes: BTreeSet<_> =
            plugin_status.instances.iter().map(|instance| instance.node.clone()).collect();
        wanted.extend(nodes.into_iter().take(AGENTS_MAX).map(Inquiry::Agent));
        wanted.insert(Inquiry::ClaimsOf(id.clone()));
    }
    let lists = facts.claims_on.values().chain(facts.claims_of.values());
    for claims in lists.filter_map(|claims| claims.as_ref().ok()) {
        let stirring =
            claims.iter().filter(|claim| claim.state != State::Taken || is_to_be_released(claim));
        wanted
            .extend(stirring.take(CLAIMS_MAX).map(|claim| Inquiry::Volume(volume_of_claim(claim))));
    }
    if node.is_some() || plugin.is_some() {
        let agents = facts.agents.values().filter_map(|answer| answer.as_ref().ok());
        let troubled_volumes = agents.flat_map(troubled_volumes).take(CLAIMS_MAX);
        wanted.extend(troubled_volumes.map(Inquiry::Volume));
    }
    // No instance of a plugin is healthy on a node that is down.
    for plugin in facts.plugins.values().filter_map(|answer| answer.as_ref().ok()) {
        let unhealthy = plugin.instances.iter().filter(|instance| !instance.healthy);
        wanted.extend(
            unhealthy.take(AGENTS_MAX).map(|instance| Inquiry::Node(instance.node.clone())),
        );
    }
    let volumes = facts.volumes.values().filter_map(|answer| answer.as_ref().ok());
    for volume in volumes {
        wanted.insert(Inquiry::Plugin(volume.plugin.clone()));
        let of_volume = VolumeKey::new(volume.namespace.clone(), volume.id.clone());
        let unready = facts.snapshots.get(&of_volume);
        if volume.snapshot_count > 0 {
            wanted.insert(Inquiry::Snapshots(of_volume.clone()));
        }
        let operation = volume.storage.as_ref().and_then(|storage| storage.operation.as_ref());
        let is_cutting = unready.is_some_and(|snapshots| {
            snapshots.as_ref().is_ok_and(|snapshots| !snapshots.is_empty())
        });
        if operation.is_some() || is_cutting {
            wanted.extend(controller_nodes(facts, &volume.plugin).map(Inquiry::Agent));
        }
        for node in operation.iter().flat_map(|it| &it.nodes_left).take(CLAIMS_MAX) {
            wanted.insert(Inquiry::Node(node.clone()));
            wanted.insert(Inquiry::Agent(node.clone()));
        }
        let mounts = volume.mounts.iter().take(CLAIMS_MAX);
        wanted.extend(mounts.map(|doubt| Inquiry::Node(doubt.node.clone())));
        for claim in decisive_first(&volume.claims).into_iter().take(CLAIMS_MAX) {
            wanted.insert(Inquiry::Node(claim.node.clone()));
            wanted.insert(Inquiry::Agent(claim.node.clone()));
            wanted.insert(Inquiry::Alloc(claim.namespace.clone(), claim.alloc.clone()));
        }
        let calls_controller =
            |claim: &ClaimStatus| claim.step.is_some_and(CallKind::is_controller);
        if volume.claims.iter().any(calls_controller) {
            wanted.extend(controller_nodes(facts, &volume.plugin).map(Inquiry::Agent));
        }
    }
    wanted
}

/// The claims that hold the volume, those that change or are not well first, and then the line.
fn decisive_first(claims: &[ClaimStatus]) -> Vec<&ClaimStatus> {
    let mut claims: Vec<&ClaimStatus> = claims.iter().collect();
    claims.sort_by_key(|claim| {
        let is_waiting = claim.state == State::Waiting;
        (is_waiting, !is_waiting && claim.waits_for.is_none(), claim.epoch)
    });
    claims
}

/// The volumes that an alloc requests; for those without a claim also whether it would be granted.
fn inquiries_about_alloc(facts: &Facts, alloc: &AllocStatus) -> Vec<Inquiry> {
    let requests = alloc.volumes.iter().take(VOLUMES_MAX);
    let ids = requests.filter_map(|request| request.volume(alloc.index).ok());
    let keys = ids.map(|id| VolumeKey::new(facts.namespace.clone(), id));
    keys.flat_map(|key| {
        let has = alloc.claims.iter().any(|claim| claim.volume == key.volume);
        let lacks = alloc.state == AllocState::Live && !has;
        let there = Inquiry::Placement(key.clone(), Some(alloc.node.clone()));
        [Some(Inquiry::Volume(key)), lacks.then_some(there)]
    })
    .flatten()
    .collect()
}

/// Volumes with an agent's operation that hangs or failed, or with an unhealthy mount.
fn troubled_volumes(agent: &AgentStatus) -> impl Iterator<Item = VolumeKey> {
    let key = |namespace: &Namespace, volume: &VolumeId| {
        VolumeKey::new(namespace.clone(), volume.clone())
    };
    let ill = |mount: &&MountStatus| {
        matches!(mount.health, MountHealth::Missing | MountHealth::Dead | MountHealth::Hung)
    };
    let work = agent.work.iter().filter(|one| one.hung);
    let work = work.map(move |one| key(&one.namespace, &one.volume));
    let mounts = agent.mounts.iter().filter(ill);
    let mounts = mounts.map(move |mount| key(&mount.namespace, &mount.volume));
    let failures =
        agent.failures.iter().map(move |failure| key(&failure.namespace, &failure.volume));
    let storage = agent.storage.iter().filter(|call| call.hung);
    let storage = storage.map(move |call| key(&call.namespace, &call.volume));
    work.chain(storage).chain(mounts).chain(failures)
}

/// Whether a granted claim must be released.
fn is_to_be_released(claim: &ClaimStatus) -> bool {
    claim.waits_for.is_some()
}

fn volume_of_claim(claim: &ClaimStatus) -> VolumeKey {
    VolumeKey::new(claim.namespace.clone(), claim.volume.clone())
}

/// Nodes with a controller of the plugin: each controller may be working on the volume.
fn controller_nodes(facts: &Facts, plugin: &PluginId) -> impl Iterator<Item = NodeId> {
    let instances = facts.plugin(plugin).into_iter().flat_map(|plugin| &plugin.instances);
    let controller_nodes = instances.filter(|instance| instance.half == Half::Controller);
    controller_nodes.map(|instance| instance.node.clone()).take(AGENTS_MAX)
}

/// Adds an answer to the facts.
type Entry = Box<dyn FnOnce(&mut Facts)>;

async fn ask_inquiry(session: &Session, inquiry: Inquiry) -> Entry {
    match inquiry {
        Inquiry::Volume(key) => {
            let query = volume::VolumeQuery::current(key.volume.clone());
            let answer = once::<verb::VolumeStatus>(session, &key.namespace, &query).await;
            Box::new(move |facts| drop(facts.volumes.insert(key, answer)))
        }
        Inquiry::Snapshots(key) => {
            let answer = unready_snapshots(session, &key).await;
            Box::new(move |facts| drop(facts.snapshots.insert(key, answer)))
        }
        Inquiry::Snapshot(key, id) => {
            let query = list_one(&key.volume, &id, LongPoll::default());
            let answer = once::<verb::SnapshotList>(session, &key.namespace, &query).await;
            let answer = answer.and_then(|page| {
                let page = page.snapshots.into_iter().find(|snapshot| snapshot.snapshot == id);
                page.ok_or_else(|| Problem::new(Code::NoSuchSnapshot, &id))
            });
            Box::new(move |facts| drop(facts.named_snapshots.insert((key, id), answer)))
        }
        Inquiry::Alloc(namespace, id) => {
            let query = alloc::AllocQuery::current(id.clone());
            let answer = once::<verb::AllocStatus>(session, &namespace, &query).await;
            Box::new(move |facts| drop(facts.allocs.insert((namespace, id), answer)))
        }
        Inquiry::Node(id) => {
            let query = ListNodes::by_id(id.clone());
            let answer = once::<verb::NodeStatus>(session, &(), &query).await;
            let answer = answer.and_then(|page| {
                let node = page.nodes.into_iter().find(|node| node.id == id);
                let unreadable = || Some(page.unreadable.first()?.problem());
                node.ok_or_else(|| {
                    unreadable().unwrap_or_else(|| Problem::new(Code::NoSuchNode, &id))
                })
            });
            Box::new(move |facts| drop(facts.nodes.insert(id, answer)))
        }
        Inquiry::Plugin(id) => {
            let query = ListPlugins::by_id(id.clone());
            let answer = once::<verb::PluginStatus>(session, &(), &query).await;
            let answer = answer.and_then(|page| {
                let plugin = page.plugins.into_iter().find(|plugin| plugin.id == id);
                plugin.ok_or_else(|| Problem::new(Code::NoSuchPlugin, &id))
            });
            Box::new(move |facts| drop(facts.plugins.insert(id, answer)))
        }
        Inquiry::Agent(node) => {
            let everything = verb::NodeAndNamespace::any_of(node.clone());
            let answer =
                once::<verb::AgentStatus>(session, &everything, &agent::AgentQuery {}).await;
            Box::new(move |facts| drop(facts.agents.insert(node, answer)))
        }
        Inquiry::ClaimsOn(node) => {
            let query =
                claim::ListClaims { node: Some(node.clone()), ..claim::ListClaims::default() };
            let answer = claims(session, query).await;
            Box::new(move |facts| drop(facts.claims_on.insert(node, answer)))
        }
        Inquiry::ClaimsOf(plugin) => {
            let query =
                claim::ListClaims { plugin: Some(plugin.clone()), ..claim::ListClaims::default() };
            let answer = claims(session, query).await;
            Box::new(move |facts| drop(facts.claims_of.insert(plugin, answer)))
        }
        Inquiry::Placement(key, node) => {
            let volumes = vec![VolumeRequest::for_volume(key.volume.clone())];
            let query = ListPlacements { volumes, node: node.clone(), ..ListPlacements::default() };
            let answer = once::<verb::VolumePlacement>(session, &key.namespace, &query).await;
            let answer = answer.map(|placements| placements.nodes);
            Box::new(move |facts| drop(facts.placements.insert((key, node), answer)))
        }
        Inquiry::Service(name) => {
            let answer = service(session, name).await;
            Box::new(move |facts| drop(facts.services.insert(name, answer)))
        }
    }
}

/// The volume's snapshots that wait for something, or were refused.
async fn unready_snapshots(session: &Session, key: &VolumeKey) -> SourceAnswer<Vec<SnapshotStub>> {
    let query = snapshot::ListSnapshots {
        volume: Some(key.volume.clone()),
        ..snapshot::ListSnapshots::default()
    };
    let page = once::<verb::SnapshotList>(session, &key.namespace, &query).await?;
    let is_unready = |snapshot: &SnapshotStub| {
        snapshot.state != SnapshotState::Ready || snapshot.failure.is_some()
    };
    Ok(page.snapshots.into_iter().filter(is_unready).collect())
}

async fn claims(session: &Session, query: claim::ListClaims) -> SourceAnswer<Vec<ClaimStatus>> {
    let mut query = query;
    query.page.limit = Some(CLAIMS_READ_MAX);
    once::<verb::ClaimStatus>(session, &Namespace::wildcard(), &query).await.map(|page| page.claims)
}

/// The state of a service: every replica answers, and the first answer counts.
async fn service(session: &Session, name: &str) -> SourceAnswer<ServiceInfo> {
    let call = Call::until(clock::begin_trace(), deadline(session));
    let answer: Result<Value, _> =
        session.bus.request(&format!("$SRV.INFO.{name}"), &json!({}), &call).await;
    let info = answer.map_err(|error| error.into_problem(name))?;
    let skew = info["metadata"]["clock_skew_ms"].as_str();
    Ok(ServiceInfo {
        clock_skew_ms: skew.and_then(|ms| ms.parse().ok()),
        access: serde_json::from_value(info["access"].clone()).ok(),
    })
}

async fn once<V: Verb>(
    session: &Session,
    to: &V::To,
    request: &V::Request,
) -> SourceAnswer<V::Reply> {
    session.once::<V>(to, request, deadline(session)).await
}

fn deadline(session: &Session) -> Instant {
    Instant::now() + session.timeout.unwrap_or(ANSWER_MAX).min(ANSWER_MAX)
}

#[cfg(test)]
mod tests {
    use berth_contract::message::volume::VolumeStatus;

    use super::*;

    /// Many are in line, and their ids come before the holder's.
    #[test]
    fn the_nodes_of_the_holders_are_read_before_those_of_the_line() {
        let claim = |alloc: &str, state: &str, epoch: usize| {
            json!({"namespace": "default", "volume": "data", "alloc": alloc, "state": state,
                "node": format!("of-{alloc}"), "mode": "write", "epoch": epoch,
                "since": "2026-11-21T12:00:00Z", "waits_for": "it"})
        };
        let line =
            (0..CLAIMS_MAX + 4).map(|index| claim(&format!("a{index}"), "waiting", index + 9));
        let claims: Vec<Value> = line.chain([claim("z", "unpublishing", 3)]).collect();
        let volume = json!({"id": "data", "namespace": "default", "plugin": "p",
            "external_id": "data", "capabilities": [], "claims": claims, "create_index": 1,
            "modify_index": 2, "health": {"healthy": true, "description": "",
            "nodes": {"healthy": 1, "expected": 1}}});
        let volume: VolumeStatus = serde_json::from_value(volume).unwrap();
        let key = VolumeKey::new(Namespace::default(), volume.id.clone());
        let facts = Facts { volumes: [(key, Ok(volume))].into(), ..Facts::default() };
        let wanted = wanted(&facts);
        let node = |id: &str| NodeId::new(id).unwrap();
        assert!(wanted.contains(&Inquiry::Node(node("of-z"))), "{wanted:?}");
        assert!(wanted.contains(&Inquiry::Agent(node("of-z"))), "{wanted:?}");
        assert!(wanted.contains(&Inquiry::Node(node("of-a0"))), "{wanted:?}");
        assert!(!wanted.contains(&Inquiry::Node(node("of-a9"))), "{wanted:?}");
    }
}
