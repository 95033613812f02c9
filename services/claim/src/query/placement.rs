//! `volume.placement`: which nodes could host some volumes now, and why the others cannot (D6).
//!
//! All mirrors are read at once, with their locks taken in one order: volumes, nodes, plugins.
//! [`berth_domain::placement`] decides.

use berth_contract::code::Code;
use berth_contract::message::query::Newer;
use berth_contract::message::volume::{NodePlacement, Obstacle, Placement, Placements};
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_contract::verb::{self, Verb as _};
use berth_domain::alloc::each_volume;
use berth_domain::placement::{NewClaimant, RequestedVolume, obstacles};
use berth_domain::volume::Context;
use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeId, VolumeKey};
use berth_service::page::{Page, Room, after, page};
use berth_service::projection::{Instances, Nodes, Subtree, Volumes};
use tokio::time::Instant;

use super::Reader;
use crate::handle;
use crate::refuse::{self, can_wait};
use crate::state::{State, check_node_readable, placement_site};
use crate::volume_requests::check_volume_requests;

/// Says of each node whether it could host all the volumes.
pub async fn list_placements(
    state: &State,
    namespace: Namespace,
    query: Placement,
    deadline: Instant,
) -> Result<Placements, Problem> {
    const STEP: &str = verb::VolumePlacement::STEP;
    check_volume_requests(&query.volumes, query.index)
        .map_err(|faults| Problem::bad_input(STEP, faults))?;
    let after = after(STEP, &query.page, |token| NodeId::new(token).ok())?;
    let reader = Reader::new(STEP, Newer::default(), deadline);
    let (volumes, nodes, plugins) = tokio::join!(
        state.catch_up_with_leader(reader, &state.volumes, ">"),
        state.catch_up_with_leader(reader, &state.nodes, ">"),
        state.catch_up_with_leader(reader, &state.plugins, ">"),
    );
    volumes.and(nodes).and(plugins)?;

    let context = state.decision_context();
    // A new attempt's id: no alloc has it, so the newcomer has no claim.
    let alloc = AllocId::new(context.attempt.as_str())
        .map_err(|fault| Problem::new(Code::Internal, fault))?;
    let newcomer = NewClaimant { alloc, worker: state.worker.clone() };
    let lookup = PlacementLookup { newcomer, namespace, query, after, context };
    let page = state.volumes.mirror.read(|volumes| {
        state
            .nodes
            .mirror
            .read(|nodes| state.plugins.mirror.read(|plugins| lookup.page(volumes, nodes, plugins)))
    });
    Ok(Placements { nodes: page.entries, next: page.next })
}

fn plugin_of<'a>(one: &RequestedVolume<'a>) -> Option<&'a PluginId> {
    one.volume?.spec.as_ref().map(|spec| &spec.plugin)
}

struct PlacementLookup {
    newcomer: NewClaimant,
    namespace: Namespace,
    query: Placement,
    after: Option<NodeId>,
    context: Context,
}

impl PlacementLookup {
    fn page(&self, volumes: &Volumes, nodes: &Nodes, plugins: &Instances) -> Page<NodePlacement> {
        let Placement { volumes: requests, index, node, page: asked, .. } = &self.query;
        let key = |id: &VolumeId| VolumeKey::new(self.namespace.clone(), id.clone());
        let ids = each_volume(requests, *index);
        let wanted: Vec<RequestedVolume<'_>> = ids
            .iter()
            .map(|(id, request)| {
                let volume = volumes.get(&key(id)).map(|subtree| &subtree.volume);
                let handle = handle::current_use(volumes, &key(id));
                RequestedVolume { id, request, volume, handle }
            })
            .collect();
        let show = |node: &&NodeId| {
            let node = *node;
            let found = obstacles(
                &self.newcomer,
                &wanted,
                node,
                |id, plugin| placement_site(volumes, nodes, plugins, &key(id), plugin, node),
                |id| nodes.is_ready(id),
                &self.context,
            );
            let obstacles = found.into_iter().map(|found| {
                let can_wait = can_wait(&found.refusal);
                let problem = refuse::to_problem(&key(&found.volume), &found.refusal);
                obstacle(found.volume, problem, can_wait)
            });
            let mut obstacles: Vec<Obstacle> = obstacles.collect();
            for (id, plugin) in wanted.iter().map(|one| (one.id, plugin_of(one))) {
                let volume = volumes.get(&key(id)).and_then(Subtree::first_unreadable);
                let at = nodes.unreadable().get(node);
                let unreadable = volume.or(at).map(UnreadableRecord::problem);
                let there = || {
                    let refusal = check_node_readable(nodes, plugins, plugin?, node).err()?;
                    Some(refuse::to_problem(&key(id), &refusal.into()))
                };
                if let Some(problem) = unreadable.or_else(there) {
                    // Other obstacles rest on records that could be read, and may be false.
                    obstacles.retain(|obstacle| obstacle.volume != *id);
                    obstacles.push(obstacle(id.clone(), problem, false));
                }
            }
            NodePlacement { node: node.clone(), fits: obstacles.is_empty(), obstacles }
        };
        let meant = nodes
            .iter()
            .map(|(id, _)| id)
            // An unreadable node record still counts as a node.
            .chain(nodes.unreadable().keys())
            .filter(|id| node.as_ref().is_none_or(|node| node == *id))
            .filter(|id| self.after.as_ref().is_none_or(|after| *id > after));
        page(meant, Room::for_page(asked), show, ToString::to_string)
    }
}

fn obstacle(volume: VolumeId, problem: Problem, can_wait: bool) -> Obstacle {
    let Problem { code, message, retryable, .. } = problem;
    Obstacle { volume, code, message, retryable, can_wait }
}
