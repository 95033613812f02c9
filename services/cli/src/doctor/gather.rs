//! Gathers the facts of all checks: the sources at the same time, each by a deadline.
//!
//! **Promises** that it ends within seconds, and that the number of requests is bounded. Agents are
//! asked whether work of theirs hangs, at most [`AGENTS_MAX`] of them.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_bus::Copies;
use berth_contract::code::Code;
use berth_contract::message::claim::{self, ClaimStatus};
use berth_contract::message::paged::{Paged, PagedReply};
use berth_contract::message::registry::{ListNodes, ListPlugins, NodeStatus, PluginStatus};
use berth_contract::message::volume::{VolumeStatus, VolumeStub};
use berth_contract::message::{agent, alloc, snapshot, volume};
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_contract::service::{self, ServiceName};
use berth_contract::verb::{self, Verb};
use berth_domain::plugin::NodeState;
use berth_domain::volume::storage::SnapshotState;
use berth_domain::volume::{NodeMountState, State};
use berth_domain::{Namespace, NodeId, PluginId, VolumeKey};
use berth_service::clock;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use tokio::time::{Instant, timeout};

use super::certificate::read_certificates;
use super::facts::{
    AccessFacts, ClaimList, RegistryLists, StorageFacts, SystemFacts, UnownedAllocs,
};
use super::replica::Replica;
use crate::session::Session;
use crate::why;
use berth_explain::{Facts, ServiceInfo, SourceAnswer};

/// Deadline of a source, unless `--timeout` is given.
const SOURCE_MAX: Duration = Duration::from_secs(8);
/// How long the replicas of one service are waited for.
const REPLICAS_MAX: Duration = Duration::from_secs(3);
/// Deadline of one agent.
const AGENT_MAX: Duration = Duration::from_secs(2);
/// The most agents that are asked.
const AGENTS_MAX: usize = 512;
/// Agents that are asked at the same time.
const AGENTS_AT_ONCE: usize = 64;
/// The most pages of a list that are read.
const PAGES_MAX: usize = 20;
/// The most volumes that are read one by one, and how many at the same time.
const VOLUMES_READ_MAX: usize = 256;
const VOLUMES_AT_ONCE: usize = 32;
/// The most claims whose volumes, allocs and controllers are read.
const CLAIMS_EXAMINED_MAX: usize = 32;

/// Reads everything that the checks judge.
pub async fn gather(session: &Session) -> SystemFacts {
    let within = session.timeout.unwrap_or(SOURCE_MAX);
    let learned = session.bus.learned_servers();
    let of_bus = async {
        tokio::join!(
            read_certificates(session.bus.config(), &learned),
            streams(session, within),
            timeout(within, session.bus.copies(Copies::ByCluster)),
            replicas(session, within),
        )
    };
    let of_services = async {
        tokio::join!(
            by_deadline("node.status", within, registry(session)),
            by_deadline("claim.status", within, claims(session)),
            by_deadline("volume.list", within, storage(session)),
            by_deadline("volume.list", within, volume_records(session)),
            by_deadline("alloc.list", within, unowned(session)),
        )
    };
    let (of_bus, of_services) = tokio::join!(of_bus, of_services);
    let (certificates, streams, copies, replicas) = of_bus;
    let (registry, claims, storage, volume_records, unowned) = of_services;
    let mut why_facts = Facts { now: clock::now(), ..Facts::default() };
    for (name, answer) in &replicas {
        let answer = answer
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|replicas| worst_replica(name, replicas));
        why_facts.services.insert(name, answer);
    }
    let mut left_out = 0;
    if let Ok(registry) = &registry {
        why_facts.nodes =
            registry.nodes.iter().map(|node| (node.id.clone(), Ok(node.clone()))).collect();
        let plugins = registry.plugins.iter().map(|plugin| (plugin.id.clone(), Ok(plugin.clone())));
        why_facts.plugins = plugins.collect();
        let ready = registry.nodes.iter().filter(|node| is_up(node)).map(|node| node.id.clone());
        let ready: Vec<NodeId> = ready.collect();
        left_out = ready.len().saturating_sub(AGENTS_MAX);
        why_facts.agents = agents(session, ready).await;
    }
    if let Ok(list) = &claims {
        let troubled = list.claims.iter().filter(|claim| is_moving(claim));
        for claim in troubled.take(CLAIMS_EXAMINED_MAX) {
            let of_node =
                why_facts.claims_on.entry(claim.node.clone()).or_insert_with(|| Ok(Vec::new()));
            if let Ok(of_node) = of_node {
                of_node.push(claim.clone());
            }
        }
    }
    if let Ok(storage) = &storage {
        let changing = storage.volumes.iter().filter(|volume| has_operation(volume));
        for volume in changing.take(CLAIMS_EXAMINED_MAX) {
            let key = VolumeKey::new(volume.namespace.clone(), volume.id.clone());
            why_facts.volumes.insert(key, Ok(volume.clone()));
        }
    }
    // The answers until the timeout are judged.
    let _ = timeout(within, why::complete(session, &mut why_facts)).await;
    SystemFacts {
        now: clock::now(),
        own_version: berth_version::current().to_owned(),
        server: session.bus.report_server(),
        access: AccessFacts {
            identity: session.bus.credentials().identity().ok().flatten(),
            certificates,
        },
        streams,
        copies: copies.ok(),
        replicas,
        registry,
        claims,
        storage,
        unowned,
        volume_records,
        why: why_facts,
        agents_left_out: left_out,
    }
}

/// Reads the identity and the certificates, for which no connection is needed.
pub async fn gather_access(config: &berth_bus::Config) -> AccessFacts {
    AccessFacts {
        identity: config.credentials.identity().ok().flatten(),
        certificates: read_certificates(config, &[]).await,
    }
}

/// Whether the agent of the node should answer.
fn is_up(node: &NodeStatus) -> bool {
    node.state == NodeState::Ready && node.gone.is_none() || berth_explain::is_returning(node)
}

/// Whether the claim changes, or its mount is not well.
fn is_moving(claim: &ClaimStatus) -> bool {
    let is_ill = claim
        .mount
        .as_ref()
        .is_some_and(|mount| mount.state != NodeMountState::Mounted || mount.error.is_some());
    claim.state != State::Waiting
        && (claim.state != State::Taken
            || claim.step.is_some()
            || claim.waits_for.is_some()
            || is_ill)
}

/// The answer of a source, or that it did not answer in time.
async fn by_deadline<T>(
    step: &str,
    within: Duration,
    source: impl Future<Output = SourceAnswer<T>>,
) -> SourceAnswer<T> {
    timeout(within, source).await.unwrap_or_else(|_| {
        let late = Problem::new(Code::NoAnswer, format_args!("no answer within {within:?}"));
        Err(late.at_step(step))
    })
}

/// The stream that is named when no stream's leader answers.
const VOLUMES_STREAM: &str = "KV_berth-volumes";

type Streams = BTreeMap<String, SourceAnswer<Option<berth_bus::StreamReport>>>;

/// Reads each stream with its copies. No other function reads them.
async fn streams(session: &Session, within: Duration) -> Streams {
    let unanswered =
        |why: String| Problem::new(Code::BusUnavailable, why).at_step("$JS.API.STREAM");
    let Ok(reports) = timeout(within, session.bus.report_streams()).await else {
        let late = unanswered(format!("no answer within {within:?}"));
        return BTreeMap::from([(VOLUMES_STREAM.to_owned(), Err(late))]);
    };
    let reports = reports.into_iter();
    reports.map(|(name, report)| (name, report.map_err(unanswered))).collect()
}

/// The replicas of each service, agents and hosted controllers included.
async fn replicas(
    session: &Session,
    within: Duration,
) -> BTreeMap<&'static str, SourceAnswer<Vec<Replica>>> {
    let within = within.min(REPLICAS_MAX);
    let answers = service::ALL.iter().map(async |ServiceName { name, .. }| {
        let subject = format!("$SRV.STATS.{name}");
        let answer = session.bus.survey::<Replica>(&subject, within).await;
        (*name, answer.map_err(|error| error.into_problem(&subject)))
    });
    join_all(answers).await.into_iter().collect()
}

/// Joins the replicas of a service: the worst clock counts, and the first that lacks rights.
fn worst_replica(name: &str, replicas: &[Replica]) -> SourceAnswer<ServiceInfo> {
    if replicas.is_empty() {
        return Err(Problem::new(Code::NoResponder, format_args!("no {name} answers")));
    }
    let skews = replicas.iter().filter_map(Replica::clock_skew_ms);
    Ok(ServiceInfo {
        clock_skew_ms: skews.max_by_key(|skew_ms| skew_ms.unsigned_abs()),
        access: replicas.iter().find_map(|replica| replica.access.clone()),
    })
}

async fn registry(session: &Session) -> SourceAnswer<RegistryLists> {
    let mut lists = RegistryLists::default();
    let mut unreadable_nodes = Vec::new();
    let nodes = pages::<verb::NodeStatus>(session, &(), ListNodes::default(), |page| {
        lists.nodes.extend(page.nodes);
        // Every page names all unreadable records.
        unreadable_nodes = page.unreadable;
    });
    let all_nodes = nodes.await?;
    let plugins = pages::<verb::PluginStatus>(session, &(), ListPlugins::default(), |page| {
        lists.plugins.extend(page.plugins);
        lists.unreadable = page.unreadable;
    });
    lists.is_cut = !(all_nodes & plugins.await?);
    lists.unreadable.extend(unreadable_nodes);
    // The list of plugins has no instances; the list of nodes has all of them.
    for plugin in &mut lists.plugins {
        add_instances(plugin, &lists.nodes);
    }
    Ok(lists)
}

fn add_instances(plugin: &mut PluginStatus, nodes: &[NodeStatus]) {
    let instances = nodes.iter().flat_map(|node| &node.instances);
    plugin.instances = instances.filter(|instance| instance.plugin == plugin.id).cloned().collect();
}

async fn claims(session: &Session) -> SourceAnswer<ClaimList> {
    let mut list = ClaimList::default();
    let namespaces = Namespace::wildcard();
    let read =
        pages::<verb::ClaimStatus>(session, &namespaces, claim::ListClaims::default(), |page| {
            list.claims.extend(page.claims);
            list.unreadable = page.unreadable;
        });
    list.is_cut = !read.await?;
    Ok(list)
}

/// Reads the volumes with a change under way or refused, and the snapshots that are not ready. A
/// list of volumes says which these are. Each is then read, up to a bound.
async fn storage(session: &Session) -> SourceAnswer<StorageFacts> {
    let namespaces = Namespace::wildcard();
    let (mut volume_count, mut stubs, mut snapshots) = (0, Vec::new(), Vec::new());
    let mut unserved: BTreeMap<PluginId, usize> = BTreeMap::new();
    let read =
        pages::<verb::VolumeList>(session, &namespaces, volume::ListVolumes::default(), |page| {
            volume_count += page.volumes.len();
            let is_changed = |stub: &VolumeStub| {
                stub.operation.is_some() || stub.refused.is_some() || stub.registered_twice
            };
            for stub in page.volumes.iter().filter(|stub| !stub.healthy) {
                *unserved.entry(stub.plugin.clone()).or_default() += 1;
            }
            stubs.extend(page.volumes.into_iter().filter(is_changed));
        });
    let all_volumes = read.await?;
    let read = pages::<verb::SnapshotList>(
        session,
        &namespaces,
        snapshot::ListSnapshots::default(),
        |page| {
            snapshots.extend(page.snapshots);
        },
    );
    let is_cut = !(all_volumes & read.await?);
    let snapshot_count = snapshots.len();
    // Volumes that are not ready come first, because only some volumes are read.
    stubs.sort_by_key(|stub| stub.stage.is_none());
    let unread = stubs.len().saturating_sub(VOLUMES_READ_MAX);
    let statuses = stubs.into_iter().take(VOLUMES_READ_MAX).map(async |stub| {
        let until = Instant::now() + session.timeout.unwrap_or(SOURCE_MAX);
        let body = volume::VolumeQuery::current(stub.id);
        session.once::<verb::VolumeStatus>(&stub.namespace, &body, until).await
    });
    let statuses: Vec<SourceAnswer<VolumeStatus>> =
        stream::iter(statuses).buffer_unordered(VOLUMES_AT_ONCE).collect().await;
    let is_of_interest = |volume: &VolumeStatus| {
        has_operation(volume)
            || !volume.registered_twice.is_empty()
            || volume.storage.as_ref().is_some_and(|storage| storage.failure.is_some())
    };
    // A volume that is gone by now has no change to report.
    let volumes = statuses.into_iter().flatten().filter(is_of_interest).collect();
    snapshots
        .retain(|snapshot| snapshot.state != SnapshotState::Ready || snapshot.failure.is_some());
    Ok(StorageFacts { volume_count, volumes, unread, snapshot_count, snapshots, unserved, is_cut })
}

fn has_operation(volume: &VolumeStatus) -> bool {
    volume.storage.as_ref().is_some_and(|storage| storage.operation.is_some())
}

/// The live allocs whose owner's lease has ended.
async fn unowned(session: &Session) -> SourceAnswer<UnownedAllocs> {
    let of_gone = alloc::ListAllocs { unowned: true, ..alloc::ListAllocs::default() };
    let mut unowned = UnownedAllocs::default();
    let namespaces = Namespace::wildcard();
    let read = pages::<verb::AllocList>(session, &namespaces, of_gone, |page| {
        unowned.allocs.extend(page.allocs);
    });
    unowned.is_cut = !read.await?;
    Ok(unowned)
}

/// Reads the names of unreadable records of volumes and allocs. A page of one entry is enough:
/// every page names all of them.
async fn volume_records(session: &Session) -> SourceAnswer<Vec<UnreadableRecord>> {
    let mut of_volumes = volume::ListVolumes::default();
    let mut of_allocs = alloc::ListAllocs::default();
    (of_volumes.page.limit, of_allocs.page.limit) = (Some(1), Some(1));
    let until = Instant::now() + session.timeout.unwrap_or(SOURCE_MAX);
    let namespaces = Namespace::wildcard();
    let (volumes, allocs) = tokio::join!(
        session.once::<verb::VolumeList>(&namespaces, &of_volumes, until),
        session.once::<verb::AllocList>(&namespaces, &of_allocs, until),
    );
    let mut unreadable = volumes?.unreadable;
    unreadable.extend(allocs?.unreadable);
    Ok(unreadable)
}

/// Reads a list, and says whether it was read to its end.
async fn pages<V: Verb<Request: Paged, Reply: PagedReply>>(
    session: &Session,
    to: &V::To,
    request: V::Request,
    take: impl FnMut(V::Reply),
) -> SourceAnswer<bool> {
    session.pages::<V>(to, request, PAGES_MAX, take).await
}

async fn agents(
    session: &Session,
    nodes: Vec<NodeId>,
) -> BTreeMap<NodeId, SourceAnswer<agent::AgentStatus>> {
    let answers = nodes.into_iter().take(AGENTS_MAX).map(async |node| {
        let until = Instant::now() + AGENT_MAX;
        let everything = verb::NodeAndNamespace::any_of(node.clone());
        let answer =
            session.once::<verb::AgentStatus>(&everything, &agent::AgentQuery {}, until).await;
        (node, answer)
    });
    stream::iter(answers).buffer_unordered(AGENTS_AT_ONCE).collect().await
}
