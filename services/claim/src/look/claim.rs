//! `claim.status`: claims, of a volume, of an alloc, or all.

use std::cell::RefCell;

use berth_bus::StoreFault;
use berth_contract::bucket;
use berth_contract::key::{self, VolumeEntry};
use berth_contract::message::claim::{ClaimStatus, Claims, Status, WAITS_FOR_STORE};
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_contract::verb::{self, Verb as _};
use berth_domain::alloc::Alloc;
use berth_domain::volume::{Claim, State as ClaimState, name_in};
use berth_domain::{AllocId, Namespace, VolumeKey};
use berth_service::call::split_advice;
use berth_service::clock;
use berth_service::page::{Room, after, page};
use berth_service::projection::{Subtree, Volumes};
use tokio::time::Instant;

use super::wait::{ClaimContext, VolumeQueue};
use super::{Reader, covers, covers_all, first_unreadable, node_mount};
use crate::handle;
use crate::state::{State, StateInner};

/// Which claim: of which volume and alloc.
type ClaimRef<'a> = (&'a VolumeKey, &'a AllocId);

/// Claims of a namespace that match the query.
pub async fn claims(
    state: &State,
    namespace: Namespace,
    query: Status,
    deadline: Instant,
) -> Result<Claims, Problem> {
    const STEP: &str = verb::ClaimStatus::STEP;
    let after = after(STEP, &query.page, |token| match key::parse_volume(token)? {
        VolumeEntry::Claim(volume, alloc) => Some((volume, alloc)),
        VolumeEntry::Spec(_) | VolumeEntry::Handle(_) => None,
    })?;
    let reader = Reader::new(STEP, query.newer, deadline);
    let look = |volumes: &Volumes| {
        let later = |(volume, alloc): &ClaimRef<'_>| {
            after.as_ref().is_none_or(|(v, a)| (*volume, *alloc) > (v, a))
        };
        // Claims of one volume come one after another: its line is looked at once.
        let line: RefCell<Option<(&VolumeKey, VolumeQueue<'_>)>> = RefCell::new(None);
        let show = |(volume, alloc): &ClaimRef<'_>| {
            let (volume, subtree) = volumes.get_key_value(volume)?;
            let mut line = line.borrow_mut();
            if line.as_ref().is_none_or(|(of, _)| *of != volume) {
                *line = Some((volume, VolumeQueue::of(&subtree.volume)));
            }
            let (_, line) = line.as_ref()?;
            Some(shown(
                state,
                volumes,
                volume,
                subtree,
                line,
                alloc,
                subtree.volume.claims.get(alloc)?,
            ))
        };
        let room = Room::of(&query.page);
        let first = after.as_ref().map(|(volume, _)| volume);
        let meant = meant(volumes, &namespace, &query, first).filter(later).take(room.keys());
        let token = |(volume, alloc): &ClaimRef<'_>| key::claim(volume, alloc);
        let page = page(meant, room, show, token);
        (page, first_unreadable(unreadable(volumes, &namespace, &query)))
    };
    let (index, (page, unreadable)) =
        state.picture(reader, &state.volumes, &state.volume_mirror, look).await?;
    let claims = page.entries.into_iter().flatten().collect();
    Ok(Claims { index, claims, next: page.next, unreadable })
}

/// Claims that cannot be read, and that the query may be for: on which node they are, and in which
/// state, only the record says.
fn unreadable<'a>(
    volumes: &'a Volumes,
    namespace: &'a Namespace,
    query: &'a Status,
) -> impl Iterator<Item = &'a UnreadableRecord> {
    let records = volumes.iter_unreadable().flat_map(|(_, subtree)| subtree.unreadable.values());
    records.filter(|record| match key::parse_volume(&record.key) {
        Some(VolumeEntry::Claim(volume, alloc)) => {
            covers(namespace, &volume.namespace)
                && query.volume.as_ref().is_none_or(|meant| *meant == volume.volume)
                && query.alloc.as_ref().is_none_or(|meant| *meant == alloc)
                && volume.volume.as_str().starts_with(&query.prefix)
        }
        _ => false,
    })
}

/// The claims that the query is for, by volume and alloc, from this volume on.
fn meant<'a>(
    volumes: &'a Volumes,
    namespace: &'a Namespace,
    query: &'a Status,
    first: Option<&VolumeKey>,
) -> impl Iterator<Item = ClaimRef<'a>> {
    let one = query.volume.as_ref().filter(|_| !covers_all(namespace));
    let one = one.map(|volume| VolumeKey::new(namespace.clone(), volume.clone()));
    let found = one.as_ref().and_then(|key| volumes.get_key_value(key));
    let all = one.is_none().then(|| volumes.iter_from(first)).into_iter().flatten();
    found
        .into_iter()
        .chain(all)
        .filter(|(key, _)| covers(namespace, &key.namespace))
        .filter(|(key, _)| query.volume.as_ref().is_none_or(|volume| *volume == key.volume))
        .filter(|(key, _)| key.volume.as_str().starts_with(&query.prefix))
        .filter(|(_, subtree)| {
            let spec = subtree.volume.spec.as_ref();
            query.plugin.as_ref().is_none_or(|id| spec.is_some_and(|spec| spec.plugin == *id))
        })
        .flat_map(|(key, subtree)| {
            let claims = &subtree.volume.claims;
            let one = query.alloc.as_ref().and_then(|alloc| claims.get_key_value(alloc));
            let all = query.alloc.is_none().then(|| claims.iter()).into_iter().flatten();
            one.into_iter().chain(all).map(move |(alloc, claim)| ((key, alloc), claim))
        })
        .filter(|(_, claim)| {
            query.node.as_ref().is_none_or(|node| claim.node == *node)
                && query.state.is_none_or(|state| claim.state == state)
        })
        .map(|(place, _)| place)
}

/// All claims of one alloc: on volumes that it asked for, since no other takes it in.
pub fn claims_of(
    state: &StateInner,
    namespace: &Namespace,
    id: &AllocId,
    alloc: &Alloc,
) -> Vec<ClaimStatus> {
    let asked = alloc.requests().map(|(volume, _)| VolumeKey::new(namespace.clone(), volume));
    let mut asked: Vec<VolumeKey> = asked.collect();
    asked.sort();
    state.volume_mirror.read(|volumes| {
        let known = asked.iter().filter_map(|key| Some((key, volumes.get(key)?)));
        known.flat_map(|(key, subtree)| claims_in(state, volumes, key, subtree, [id])).collect()
    })
}

/// Claims of one alloc that cannot be read.
pub fn unreadable_claims_of(
    state: &StateInner,
    namespace: &Namespace,
    id: &AllocId,
    alloc: &Alloc,
) -> Vec<UnreadableRecord> {
    state.volume_mirror.read(|volumes| {
        let of = |volume| {
            let key = VolumeKey::new(namespace.clone(), volume);
            volumes.get(&key)?.unreadable.get(&key::claim(&key, id)).cloned()
        };
        alloc.requests().filter_map(|(volume, _)| of(volume)).collect()
    })
}

/// The claims of these allocs on one volume.
pub fn claims_in<'a>(
    state: &StateInner,
    volumes: &Volumes,
    key: &VolumeKey,
    subtree: &Subtree,
    allocs: impl IntoIterator<Item = &'a AllocId>,
) -> Vec<ClaimStatus> {
    let line = VolumeQueue::of(&subtree.volume);
    let claims = &subtree.volume.claims;
    let claims = allocs.into_iter().filter_map(|alloc| claims.get_key_value(alloc));
    claims.map(|(alloc, claim)| shown(state, volumes, key, subtree, &line, alloc, claim)).collect()
}

/// The claims of one volume that there is room for.
pub(super) fn first_claims(
    state: &StateInner,
    volumes: &Volumes,
    key: &VolumeKey,
    subtree: &Subtree,
    room: Room,
) -> Vec<ClaimStatus> {
    let line = VolumeQueue::of(&subtree.volume);
    let show = |alloc: &&AllocId| {
        let claim = subtree.volume.claims.get(alloc)?;
        Some(shown(state, volumes, key, subtree, &line, alloc, claim))
    };
    let page = page(subtree.volume.claims.keys(), room, show, ToString::to_string);
    page.entries.into_iter().flatten().collect()
}

/// The alloc's record, if it cannot be read. Such an alloc may be running, so its claim stays.
fn unreadable_alloc(
    state: &StateInner,
    key: &VolumeKey,
    alloc: &AllocId,
) -> Option<UnreadableRecord> {
    state.alloc_mirror.read(|allocs| allocs.unreadable_of(&key.namespace, alloc).cloned())
}

fn shown(
    state: &StateInner,
    volumes: &Volumes,
    key: &VolumeKey,
    subtree: &Subtree,
    line: &VolumeQueue<'_>,
    alloc: &AllocId,
    claim: &Claim,
) -> ClaimStatus {
    let around = ClaimContext {
        now: clock::now(),
        volume: key,
        alloc,
        claim,
        line,
        wanted: state.is_wanted(&key.namespace, alloc),
    };
    let (position, ahead) = around.ahead().unzip();
    let (waits_for, hint) = if let Some((waits_for, hint)) = held_back(volumes, key, claim) {
        (Some(waits_for), Some(hint))
    } else {
        let waits_for = unreadable_alloc(state, key, alloc)
            .map_or_else(|| around.waits_for(), |record| Some(record.to_string()));
        (waits_for, hint(state, subtree, &around))
    };
    let on_node = || {
        let spec = subtree.volume.spec.as_ref();
        let plugin = spec.map(|spec| spec.plugin.as_str());
        state.nodes.read(|nodes| node_mount::waits_for(key, plugin, claim, nodes.get(&claim.node)))
    };
    let (waits_for, hint) = match waits_for {
        None => on_node().map_or((None, hint), |(waits_for, hint)| (Some(waits_for), hint)),
        told => (told, hint),
    };
    // Also of a claim at rest: that its release was asked for may be what could not be stored.
    let (waits_for, hint) = match state.volumes.store_fault() {
        Some(fault) => {
            let (waits_for, hint) = waits_for_store(&fault);
            (Some(waits_for), Some(hint))
        }
        None => (waits_for, hint),
    };
    ClaimStatus {
        namespace: key.namespace.clone(),
        volume: key.volume.clone(),
        alloc: alloc.clone(),
        state: claim.state,
        node: claim.node.clone(),
        mode: claim.mode,
        since: claim.since,
        step: around.step(),
        waits_for,
        position,
        ahead: ahead.unwrap_or_default(),
        tries: claim.tries,
        error: claim.error.as_deref().map(|error| split_advice(error).0.to_owned()),
        next_try: claim.next_try,
        exhausted: claim.exhausted,
        reason: claim.reason.clone(),
        proof: claim.proof.clone(),
        unstaged_by: claim.unstaged_by.clone(),
        hint,
        attempt: claim.attempt.clone(),
        plugin: subtree.volume.spec.as_ref().map(|spec| spec.plugin.clone()),
        mount: claim.mount.clone(),
        epoch: claim.epoch,
        trace: subtree.trace(alloc),
    }
}

/// What a claim waits for, and the hint, while the server stores no writes.
fn waits_for_store(fault: &StoreFault) -> (String, String) {
    let waits_for = format!(
        "{WAITS_FOR_STORE} to bucket {}; since {} it stores none: {}",
        bucket::VOLUMES.name,
        fault.since,
        fault.reason
    );
    let hint = "see the log and the disk of nats-server; a server whose disk was full stores \
                nothing until it is restarted";
    (waits_for, hint.to_owned())
}

/// Of a claim whose volume is registered under another name, too: the claim there that keeps the
/// controller from being asked to detach it, and what a person can do.
fn held_back(volumes: &Volumes, key: &VolumeKey, claim: &Claim) -> Option<(String, String)> {
    let leaves =
        claim.state == ClaimState::NodeDetached && claim.controller && claim.attempt.is_none();
    let known = leaves.then(|| handle::current_use(volumes, key))?;
    let other = known.standing_on(claim)?;
    let name = name_in(&key.namespace, &other.volume);
    let whose = if other.volume.namespace == key.namespace {
        format!("alloc {}", other.alloc)
    } else {
        "an alloc".to_owned()
    };
    let waits_for = format!(
        "the claim of {whose} on {name}, the same volume of the plugin, which stands on node {}",
        other.node
    );
    Some((waits_for, format!("stop {whose}, then deregister one of the two volumes")))
}

fn hint(state: &StateInner, subtree: &Subtree, around: &ClaimContext<'_>) -> Option<String> {
    let node = &around.claim.node;
    let of_node = || state.nodes.read(|nodes| nodes.unreadable().get(node).cloned());
    if let Some(record) = subtree.first_unreadable().cloned().or_else(of_node) {
        return Some(format!("{record}; until it can be, the claim stays as it is"));
    }
    let plugin = subtree.volume.spec.as_ref().map(|spec| &spec.plugin);
    state.nodes.read(|nodes| {
        state.plugins.read(|plugins| {
            let found = plugin.and_then(|id| Some((id, plugins.get(id)?)));
            let known = nodes.get(node).map(|known| (known, nodes.revision(node)));
            around.hint(known, found, |node| nodes.is_ready(node))
        })
    })
}
