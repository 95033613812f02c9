//! What is shown: volumes and claims with all that is derived from them. Nothing here is stored.

use berth_contract::message::claim::{ClaimStatus, Claims, Status as ClaimQuery};
use berth_contract::message::volume::{Health, List, VolumeStatus, VolumeStub, Volumes};
use berth_domain::access::Mode;
use berth_domain::alloc::Alloc;
use berth_domain::plugin::Half;
use berth_domain::volume::{CallKind, Claim, State as ClaimState, Volume, VolumeSpec};
use berth_domain::{AllocId, Namespace, PluginId, VolumeKey};
use berth_service::clock;
use berth_service::projection::Subtree;

use crate::plan;
use crate::state::State;

/// Whether a query for a namespace covers another: `*` covers all.
pub fn covers(asked: &Namespace, theirs: &Namespace) -> bool {
    covers_all(asked) || asked == theirs
}

fn covers_all(asked: &Namespace) -> bool {
    asked.as_str() == "*"
}

/// One volume with its claims and its health; none when there is no such volume.
pub fn volume(state: &State, key: &VolumeKey) -> Option<VolumeStatus> {
    state.volume_mirror.read(|volumes| {
        let subtree = volumes.get(key)?;
        let now = &subtree.volume;
        let spec = now.spec.as_ref()?;
        Some(VolumeStatus {
            id: key.volume.clone(),
            namespace: key.namespace.clone(),
            name: spec.name.clone(),
            closing: spec.closing.clone(),
            plugin: spec.plugin.clone(),
            external_id: plan::external_id(key, spec),
            capabilities: spec.capabilities.clone(),
            in_use: now.in_use(),
            fs_type: spec.mount.fs_type.clone(),
            mount_flags: spec.mount.flags.len(),
            topologies: spec.topologies.clone(),
            capacity_bytes: spec.capacity_bytes,
            parameters: spec.parameters.clone(),
            context: spec.context.clone(),
            has_secrets: spec.secrets.is_some(),
            health: health(state, &spec.plugin),
            claims: claims_in(state, key, subtree, |_| true),
            create_index: spec.create_index,
            modify_index: subtree.head,
        })
    })
}

/// Volumes of a namespace, as stubs, with the stream position they show.
pub fn volumes(state: &State, namespace: &Namespace, query: &List) -> Volumes {
    let index = state.volume_mirror.applied();
    let mut volumes: Vec<VolumeStub> = state.volume_mirror.read(|volumes| {
        volumes
            .iter()
            .filter(|(key, _)| covers(namespace, &key.namespace))
            .filter(|(key, _)| key.volume.as_str().starts_with(&query.prefix))
            .filter_map(|(key, subtree)| stub(state, key, subtree, query))
            .collect()
    });
    volumes.sort_by(|a, b| (&a.namespace, &a.id).cmp(&(&b.namespace, &b.id)));
    Volumes { index, volumes }
}

fn stub(state: &State, key: &VolumeKey, subtree: &Subtree, query: &List) -> Option<VolumeStub> {
    let now = &subtree.volume;
    let spec: &VolumeSpec = now.spec.as_ref()?;
    let of_plugin = query.plugin.as_ref().is_none_or(|plugin| *plugin == spec.plugin);
    let on_node = |node: &berth_domain::NodeId| now.holders().any(|(_, claim)| claim.node == *node);
    if !of_plugin || !query.node.as_ref().is_none_or(on_node) {
        return None;
    }
    let count = |wanted: &dyn Fn(&Claim) -> bool| now.claims.values().filter(|c| wanted(c)).count();
    let held = |claim: &Claim| matches!(claim.state, ClaimState::Taken | ClaimState::Publishing);
    Some(VolumeStub {
        id: key.volume.clone(),
        namespace: key.namespace.clone(),
        name: spec.name.clone(),
        plugin: spec.plugin.clone(),
        in_use: now.in_use(),
        readers: count(&|claim| held(claim) && claim.mode == Mode::Read),
        writers: count(&|claim| held(claim) && claim.mode == Mode::Write),
        releasing: count(&|claim| {
            matches!(claim.state, ClaimState::Unpublishing | ClaimState::NodeDetached)
        }),
        waiting: count(&|claim| claim.state == ClaimState::Waiting),
        healthy: health(state, &spec.plugin).healthy,
        fs_type: spec.mount.fs_type.clone(),
        modify_index: subtree.head,
    })
}

/// Claims by volume, by alloc, or all of a namespace.
pub fn claims(state: &State, namespace: &Namespace, query: &ClaimQuery) -> Claims {
    let mut claims: Vec<ClaimStatus> = state.volume_mirror.read(|volumes| {
        let claims = |(key, subtree): (&VolumeKey, &Subtree)| {
            claims_in(state, key, subtree, |alloc| {
                query.alloc.as_ref().is_none_or(|wanted| wanted == alloc)
            })
        };
        if let (Some(volume), false) = (&query.volume, covers_all(namespace)) {
            let key = VolumeKey::new(namespace.clone(), volume.clone());
            return volumes.get(&key).map(|found| claims((&key, found))).unwrap_or_default();
        }
        volumes
            .iter()
            .filter(|(key, _)| covers(namespace, &key.namespace))
            .filter(|(key, _)| query.volume.as_ref().is_none_or(|volume| *volume == key.volume))
            .flat_map(claims)
            .collect()
    });
    claims.sort_by(|a, b| {
        (&a.namespace, &a.volume, &a.alloc).cmp(&(&b.namespace, &b.volume, &b.alloc))
    });
    Claims { claims }
}

/// All claims of one alloc: on volumes that it asked for, since no other takes it in.
pub fn claims_of(
    state: &State,
    namespace: &Namespace,
    id: &AllocId,
    alloc: &Alloc,
) -> Vec<ClaimStatus> {
    let asked = alloc.requests().map(|(volume, _)| VolumeKey::new(namespace.clone(), volume));
    let mut asked: Vec<VolumeKey> = asked.collect();
    asked.sort();
    state.volume_mirror.read(|volumes| {
        let known = asked.iter().filter_map(|key| Some((key, volumes.get(key)?)));
        known
            .flat_map(|(key, subtree)| claims_in(state, key, subtree, |claiming| claiming == id))
            .collect()
    })
}

pub fn claims_in(
    state: &State,
    key: &VolumeKey,
    subtree: &Subtree,
    wanted: impl Fn(&AllocId) -> bool,
) -> Vec<ClaimStatus> {
    let now = &subtree.volume;
    now.claims
        .iter()
        .filter(|(alloc, _)| wanted(alloc))
        .map(|(alloc, claim)| ClaimStatus {
            namespace: key.namespace.clone(),
            volume: key.volume.clone(),
            alloc: alloc.clone(),
            state: claim.state,
            node: claim.node.clone(),
            mode: claim.mode,
            since: claim.since,
            waits_for: waits_for(state, key, now, alloc, claim),
            tries: claim.tries,
            error: claim.error.clone(),
            next_try: claim.next_try,
            reason: claim.reason.clone(),
            attempt: claim.attempt.clone(),
            epoch: claim.epoch,
            trace: subtree.traces.get(alloc).cloned(),
        })
        .collect()
}

/// What a claim waits for, in words an operator can act on; none when it is at rest.
fn waits_for(
    state: &State,
    key: &VolumeKey,
    volume: &Volume,
    alloc: &AllocId,
    claim: &Claim,
) -> Option<String> {
    let now = clock::now();
    if let Some(attempt) = &claim.attempt {
        let who = &attempt.worker;
        return Some(if now <= attempt.deadline {
            format!("{} by {who}, until {}", attempt.call, attempt.deadline)
        } else {
            format!("another try: {} by {who} was not answered", attempt.call)
        });
    }
    let next = || claim.next_try.filter(|next| *next > now);
    match claim.state {
        ClaimState::Taken if state.is_wanted(&key.namespace, alloc) => None,
        ClaimState::Taken => Some("its release: the alloc has ended".to_owned()),
        ClaimState::Waiting => {
            let ahead = volume.claims.iter().filter(|(_, other)| {
                other.state != ClaimState::Waiting || other.epoch < claim.epoch
            });
            Some(turn(
                ahead.map(|(other, held)| format!("{other} on {} ({})", held.node, held.state)),
            ))
        }
        ClaimState::Publishing => Some(match next() {
            Some(next) => format!("{}, again at {next}", CallKind::ControllerPublish),
            None => "its caller to ask again".to_owned(),
        }),
        ClaimState::Unpublishing => Some(step(CallKind::NodeDetach, next())),
        ClaimState::NodeDetached => Some(step(CallKind::ControllerUnpublish, next())),
    }
}

/// Who comes first, named as far as a person reads on.
fn turn(ahead: impl Iterator<Item = String>) -> String {
    const NAMED: usize = 3;
    let mut ahead: Vec<String> = ahead.collect();
    let unnamed = ahead.len().saturating_sub(NAMED);
    ahead.truncate(NAMED);
    if unnamed > 0 {
        ahead.push(format!("{unnamed} more"));
    }
    match ahead.join(", ") {
        nobody if nobody.is_empty() => "its turn, which has come".to_owned(),
        somebody => format!("its turn, after {somebody}"),
    }
}

fn step(call: CallKind, next: Option<berth_domain::Timestamp>) -> String {
    match next {
        Some(next) => format!("{call}, again at {next}"),
        None => format!("a volumewatcher to make the call {call}"),
    }
}

/// Derived from the plugin's instances each time (A6).
fn health(state: &State, id: &PluginId) -> Health {
    state.nodes.read(|nodes| {
        state.plugins.read(|plugins| {
            let Some(plugin) = plugins.get(id) else {
                return Health {
                    healthy: false,
                    description: format!("no agent has reported plugin {id}"),
                    controllers: None,
                    nodes: berth_domain::plugin::Count::default(),
                };
            };
            let ready = |node: &berth_domain::NodeId| nodes.is_ready(node);
            let controllers =
                plugin.has_controller().then(|| plugin.count(Half::Controller, ready));
            let node_half = plugin.count(Half::Node, ready);
            let lacks_controller = controllers.is_some_and(|count| count.healthy == 0);
            let description = match (node_half.healthy, lacks_controller) {
                (0, _) => format!("plugin {id} is healthy on no node"),
                (_, true) => format!("plugin {id} has no healthy controller"),
                _ => "healthy".to_owned(),
            };
            let healthy = node_half.healthy > 0 && !lacks_controller;
            Health { healthy, description, controllers, nodes: node_half }
        })
    })
}
