//! `volume.placement`: which nodes could host some volumes now, and why the others cannot (D6).
//!
//! All mirrors are read at once, with their locks taken in one order: volumes, nodes, plugins.
//! [`berth_domain::placement`] decides.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_bus::Incarnation;
use berth_contract::code::Code;
use berth_contract::message::many::{PlaceMany, PlacementAnswer, PlacementAnswers};
use berth_contract::message::query::LongPoll;
use berth_contract::message::volume::{
    ListPlacements, NodePlacement, Obstacle, Placements, PluginSlots, VolumeDemand,
};
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_contract::verb::{self, Verb as _};
use berth_domain::alloc::each_volume;
use berth_domain::placement::{NewClaimant, RequestedVolume, Site, obstacles};
use berth_domain::plugin::Half;
use berth_domain::room::Rooms;
use berth_domain::volume::Context;
use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeId, VolumeKey, limits};
use berth_service::newer::await_newer;
use berth_service::page::{Page, Room, after, bytes_of, page};
use berth_service::projection::{Instances, Nodes, Subtree, Volumes};
use futures_util::future::join_all;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};

use super::Reader;
use crate::caller::Caller;
use crate::read::volume_requests::check_volume_requests;
use crate::store::handle;
use crate::store::mounts::handle_of;
use crate::store::refuse::{self, can_wait};
use crate::store::state::{
    State, StateInner, check_node_readable, placement_site, unreported_elsewhere,
};

/// Pause between two computations of an answer that a reader waits for.
const RECOMPUTE_PAUSE: Duration = Duration::from_millis(50);

/// For each node, whether it could host all the volumes.
pub async fn list_placements(
    state: &State,
    namespace: &Namespace,
    query: ListPlacements,
    caller: &Caller,
) -> Result<Placements, Problem> {
    let deadline = caller.deadline;
    place(state, namespace.clone(), query, limits::PAGE_BYTES_MAX, deadline).await
}

/// Answers several placement requests in one message. Each answer gets a share of the message's
/// bytes.
pub async fn place_many(
    state: &State,
    namespace: &Namespace,
    request: PlaceMany,
    caller: &Caller,
) -> Result<PlacementAnswers, Problem> {
    let deadline = caller.deadline;
    let (count, mut bytes_left) = (request.placements.len(), limits::PAGE_BYTES_MAX);
    let mut answers = Vec::new();
    for (at, query) in request.placements.into_iter().enumerate() {
        let query = ListPlacements { newer: LongPoll::default(), ..query };
        let done = match bytes_left / (count - at) {
            0 => Err(Problem::new(Code::Overloaded, "the answers before this one fill the reply")
                .retryable()
                .next("ask for fewer at once")),
            bytes => place(state, namespace.clone(), query, bytes, deadline).await,
        };
        let answer = match done.map_err(|error| error.at_step(verb::VolumePlacement::STEP)) {
            Ok(placements) => PlacementAnswer { placements: Some(placements), error: None },
            Err(error) => PlacementAnswer { placements: None, error: Some(error) },
        };
        bytes_left = bytes_left.saturating_sub(bytes_of(&answer));
        answers.push(answer);
    }
    Ok(PlacementAnswers { answers })
}

/// One answer, whose nodes have at most this many bytes.
async fn place(
    state: &State,
    namespace: Namespace,
    query: ListPlacements,
    bytes: usize,
    deadline: Instant,
) -> Result<Placements, Problem> {
    check_volume_requests(&query.volumes, query.index).map_err(Problem::bad_input)?;
    let after = after(&query.page, |token| NodeId::new(token).ok())?;
    let reader = Reader::new(query.newer, deadline);
    let room = Room { bytes, ..Room::for_page(&query.page) };
    let lookup = PlacementLookup { namespace, query, after, room };
    state.catch_up_for_placement(reader).await?;
    let rooms = lookup.rooms(state, reader).await;
    let first = lookup.answer(state, &rooms)?;
    if lookup.query.newer.than != Some(first.index) {
        return Ok(first);
    }
    let has_changed =
        |seen: u64| lookup.answer(state, &rooms).map_or(true, |answer| answer.index != seen);
    state.wait_for_placement(reader, has_changed).await?;
    state.catch_up_for_placement(reader).await?;
    lookup.answer(state, &lookup.rooms(state, reader).await)
}

impl StateInner {
    async fn catch_up_for_placement(&self, reader: Reader) -> Result<(), Problem> {
        let (volumes, nodes, plugins) = tokio::join!(
            self.catch_up_with_leader(reader, &self.volumes, ">"),
            self.catch_up_with_leader(reader, &self.nodes, ">"),
            self.catch_up_with_leader(reader, &self.plugins, ">"),
        );
        volumes.and(nodes).and(plugins)
    }

    /// Waits until the answer changes, or the wait is over. The answer is computed again after a
    /// change of anything that it depends on, but only once for several changes.
    async fn wait_for_placement(
        &self,
        reader: Reader,
        has_changed: impl Fn(u64) -> bool,
    ) -> Result<(), Problem> {
        let mut volumes = self.volumes.mirror.subscribe();
        let mut nodes = self.nodes.mirror.subscribe();
        let mut plugins = self.plugins.mirror.subscribe();
        let arrival = |seen| {
            let has_changed = &has_changed;
            async move {
                while !has_changed(seen) {
                    // The mirrors live as long as the state, so none of these can fail.
                    tokio::select! {
                        _ = volumes.changed() => {}
                        _ = nodes.changed() => {}
                        _ = plugins.changed() => {}
                    }
                    sleep(RECOMPUTE_PAUSE).await;
                }
            }
        };
        await_newer(reader.newer, reader.until, |_| false, arrival).await
    }
}

type RoomsByVolume = BTreeMap<VolumeId, Rooms>;

struct PlacementLookup {
    namespace: Namespace,
    query: ListPlacements,
    after: Option<NodeId>,
    room: Room,
}

impl PlacementLookup {
    /// Where there is room for those of the volumes that their first claims will have created.
    async fn rooms(&self, state: &StateInner, reader: Reader) -> RoomsByVolume {
        let ids = each_volume(&self.query.volumes, self.query.index);
        let looked = ids.into_iter().map(|(id, _)| async move {
            let rooms = state.rooms_for(&self.key(&id), reader.until.answer).await;
            rooms.map(|rooms| (id, rooms))
        });
        join_all(looked).await.into_iter().flatten().collect()
    }

    /// The answer by the mirrors' present state.
    fn answer(&self, state: &StateInner, rooms: &RoomsByVolume) -> Result<Placements, Problem> {
        let context = state.decision_context();
        // The id of a new attempt: no alloc has it, so the newcomer has no claim.
        let alloc = AllocId::new(context.attempt.as_str())
            .map_err(|fault| Problem::new(Code::Internal, fault))?;
        let newcomer = NewClaimant { alloc, worker: state.worker.clone() };
        let incarnation = state.volumes.bucket.incarnation();
        let view = PlacementView { lookup: self, newcomer, context, incarnation, state, rooms };
        let (page, volumes) = state.volumes.mirror.read(|volumes| {
            state.nodes.mirror.read(|nodes| {
                state
                    .plugins
                    .mirror
                    .read(|plugins| (view.page(volumes, nodes, plugins), self.demands(volumes)))
            })
        });
        let answer = Placements { index: 0, volumes, nodes: page.entries, next: page.next };
        // Each replica has answers of its own about the room.
        let index = if rooms.is_empty() {
            fingerprint(&answer)
        } else {
            self.answer(state, &RoomsByVolume::new())?.index
        };
        Ok(Placements { index, ..answer })
    }

    fn key(&self, id: &VolumeId) -> VolumeKey {
        VolumeKey::new(self.namespace.clone(), id.clone())
    }

    /// How many claims each of the volumes has, and what its plugin calls abnormal of it.
    fn demands(&self, volumes: &Volumes) -> Vec<VolumeDemand> {
        let ids = each_volume(&self.query.volumes, self.query.index);
        let mut demands: Vec<VolumeDemand> = ids
            .into_iter()
            .filter_map(|(volume, _)| {
                let claims = &volumes.get(&self.key(&volume))?.volume.claims;
                let waiting = claims.in_line().count();
                let holding = claims.len() - waiting;
                let abnormal = claims.condition().map(str::to_owned);
                Some(VolumeDemand { volume, holding, waiting, abnormal })
            })
            .collect();
        demands.sort_by(|left, right| left.volume.cmp(&right.volume));
        demands
    }
}

/// A number that identifies an answer, equal at each replica: the room of plugins does not count.
/// Texts do not either, because they contain times. It has 53 bits, which the numbers of every
/// language can represent.
fn fingerprint(answer: &Placements) -> u64 {
    let mut hash = Sha256::new();
    for VolumeDemand { volume, holding, waiting, abnormal } in &answer.volumes {
        hash.update(format!("{volume:?} {holding} {waiting}\n"));
        if abnormal.is_some() {
            hash.update("abnormal\n");
        }
    }
    for NodePlacement { node, fits, fits_later, slots, obstacles } in &answer.nodes {
        hash.update(format!("{node:?} {fits} {fits_later}\n"));
        for PluginSlots { plugin, free, used } in slots {
            hash.update(format!("{plugin:?} {free:?} {used}\n"));
        }
        for Obstacle { volume, code, retryable, can_wait, .. } in obstacles {
            hash.update(format!("{volume:?} {code} {retryable} {can_wait}\n"));
        }
    }
    hash.update(format!("{:?}", answer.next));
    let bytes = hash.finalize();
    bytes[..8].iter().fold(0, |number: u64, byte| (number << 8) | u64::from(*byte)) >> 11
}

fn plugin_of<'a>(requested: &RequestedVolume<'a>) -> Option<&'a PluginId> {
    requested.volume?.spec.as_ref().map(|spec| &spec.plugin)
}

/// A lookup, with what it reads at one moment.
struct PlacementView<'a> {
    lookup: &'a PlacementLookup,
    newcomer: NewClaimant,
    context: Context,
    /// The incarnation of the bucket of claims.
    incarnation: Incarnation,
    state: &'a StateInner,
    rooms: &'a RoomsByVolume,
}

impl PlacementView<'_> {
    fn page<'a>(
        &self,
        volumes: &Volumes,
        nodes: &'a Nodes,
        plugins: &Instances,
    ) -> Page<NodePlacement> {
        let PlacementLookup { query, after, room, .. } = self.lookup;
        let ListPlacements { volumes: requests, index, node, .. } = query;
        let key = |id: &VolumeId| self.lookup.key(id);
        let ids = each_volume(requests, *index);
        let wanted: Vec<RequestedVolume<'_>> = ids
            .iter()
            .map(|(id, request)| {
                let volume = volumes.get(&key(id)).map(|subtree| &subtree.volume);
                let handle = handle::current_use(volumes, &key(id));
                RequestedVolume { id, request, volume, handle }
            })
            .collect();
        // Computed once, not for each node.
        let unrecorded = self.state.unrecorded_nodes(nodes);
        let show = |node: &&NodeId| {
            let node = *node;
            let unreported = |id: &VolumeId| {
                let volume = key(id);
                let handle = volumes.get(&volume).and_then(|sub| handle_of(&volume, &sub.volume));
                let mut suspects = self.state.lost.nodes_of(&volume, handle.as_ref());
                suspects.extend_from_slice(&unrecorded);
                unreported_elsewhere(nodes, self.incarnation, &suspects, node)
            };
            let unreported: BTreeMap<_, _> =
                ids.iter().map(|(id, _)| (id.clone(), unreported(id))).collect();
            let domain_obstacles = obstacles(
                &self.newcomer,
                &wanted,
                node,
                |id, plugin| {
                    let unreported = &unreported[id];
                    let rooms = self.rooms.get(id);
                    let site =
                        placement_site(volumes, nodes, plugins, unreported, &key(id), plugin, node);
                    Site { rooms, ..site }
                },
                |id| nodes.is_ready(id),
                &self.context,
            );
            let obstacles = domain_obstacles.into_iter().map(|refused| {
                let can_wait = can_wait(&refused.refusal);
                let problem = refuse::to_problem(&key(&refused.volume), &refused.refusal);
                obstacle(refused.volume, problem, can_wait)
            });
            let mut obstacles: Vec<Obstacle> = obstacles.collect();
            for (id, plugin) in wanted.iter().map(|requested| (requested.id, plugin_of(requested)))
            {
                let volume_record = volumes.get(&key(id)).and_then(Subtree::first_unreadable);
                let node_record = nodes.unreadable().get(node);
                let unreadable = volume_record.or(node_record).map(UnreadableRecord::problem);
                let unreadable_on_node = || {
                    let refusal = check_node_readable(nodes, plugins, plugin?, node).err()?;
                    Some(refuse::to_problem(&key(id), &refusal.into()))
                };
                if let Some(problem) = unreadable.or_else(unreadable_on_node) {
                    // Other obstacles rest on readable records only, and may be wrong.
                    obstacles.retain(|obstacle| obstacle.volume != *id);
                    obstacles.push(obstacle(id.clone(), problem, false));
                }
            }
            NodePlacement {
                node: node.clone(),
                fits: obstacles.is_empty(),
                fits_later: obstacles.iter().all(may_fit_later),
                slots: slots(&wanted, volumes, plugins, node),
                obstacles,
            }
        };
        let first = node.as_ref().or(after.as_ref());
        let is_meant = |id: &&NodeId| {
            node.as_ref().is_none_or(|node| node == *id)
                && after.as_ref().is_none_or(|after| *id > after)
        };
        let is_reached = |id: &&NodeId| node.as_ref().is_none_or(|node| *id <= node);
        let list = |ids: &mut dyn Iterator<Item = &'a NodeId>| -> Vec<&'a NodeId> {
            ids.take_while(is_reached).filter(is_meant).take(room.keys()).collect()
        };
        let mut matching = list(&mut nodes.iter_from(first).map(|(id, _)| id));
        // An unreadable node record still counts as a node.
        matching.extend(list(&mut nodes.iter_unreadable_from(first)));
        let matching = matching.into_iter();
        page(matching, *room, show, ToString::to_string)
    }
}

/// Whether a claim that waits gets past the obstacle without intervention. A claim may wait for a
/// missing volume, but nothing says that it will be registered.
fn may_fit_later(obstacle: &Obstacle) -> bool {
    obstacle.can_wait && obstacle.code != Code::NoSuchVolume
}

/// The room that the volumes' plugins have on a node.
fn slots(
    wanted: &[RequestedVolume<'_>],
    volumes: &Volumes,
    plugins: &Instances,
    node: &NodeId,
) -> Vec<PluginSlots> {
    let plugin_ids: BTreeSet<&PluginId> = wanted.iter().filter_map(plugin_of).collect();
    let slots = plugin_ids.into_iter().map(|plugin| {
        let used = volumes.load().count(plugin, node);
        let instance =
            plugins.get(plugin).and_then(|all| all.instances.get(&(node.clone(), Half::Node)));
        let abilities = instance.and_then(|instance| instance.node.as_ref());
        let is_full = abilities.is_some_and(|node| node.full.is_some());
        // Zero means no bound (CSI 1.13, `NodeGetInfoResponse.max_volumes_per_node`).
        let max_volumes = abilities.and_then(|node| node.max_volumes).filter(|max| *max > 0);
        let free = max_volumes.map(|max_volumes| max_volumes.saturating_sub(used));
        let free = if is_full { Some(0) } else { free };
        PluginSlots { plugin: plugin.clone(), free, used }
    });
    slots.collect()
}

fn obstacle(volume: VolumeId, problem: Problem, can_wait: bool) -> Obstacle {
    let Problem { code, message, retryable, .. } = problem;
    Obstacle { volume, code, message, retryable, can_wait }
}
