//! `claim.status`: claims, of a volume, of an alloc, or all.

use std::cell::RefCell;
use std::time::Duration;

use berth_bus::StoreFault;
use berth_contract::key::{self, VolumeEntry};
use berth_contract::message::claim::{ClaimStatus, ClaimWait, Claims, Status};
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_contract::verb::{self, Verb as _};
use berth_contract::{bucket, hint};
use berth_domain::alloc::Alloc;
use berth_domain::volume::{Attempt, Claim, State as ClaimState, name_in};
use berth_domain::{AllocId, Namespace, PluginId, VolumeKey};
use berth_service::clock;
use berth_service::page::{Room, after, page};
use berth_service::projection::{Subtree, VolumeChange, Volumes};
use tokio::time::Instant;

use super::wait::{ClaimContext, VolumeQueue};
use super::{Reader, covers, covers_all, first_unreadable, node_mount};
use crate::handle;
use crate::state::{State, StateInner};

/// A claim, by its volume and alloc.
type ClaimRef<'a> = (&'a VolumeKey, &'a AllocId);

/// Claims of a namespace that match the query.
pub async fn list_claims(
    state: &State,
    namespace: Namespace,
    query: Status,
    deadline: Instant,
) -> Result<Claims, Problem> {
    const STEP: &str = verb::ClaimStatus::STEP;
    let after = after(STEP, &query.page, |token| match key::parse_volume(token)? {
        VolumeEntry::Claim(volume, alloc) => Some((volume, alloc)),
        _ => None,
    })?;
    let reader = Reader::new(STEP, query.newer, deadline);
    let show_page = |volumes: &Volumes| {
        let later = |(volume, alloc): &ClaimRef<'_>| {
            after.as_ref().is_none_or(|(v, a)| (*volume, *alloc) > (v, a))
        };
        // Claims of one volume follow each other, so its line is built once.
        let last: RefCell<Option<ShownVolume<'_>>> = RefCell::new(None);
        let show = |(key, alloc): &ClaimRef<'_>| {
            let (key, subtree) = volumes.get_key_value(key)?;
            let mut last = last.borrow_mut();
            if last.as_ref().is_none_or(|last| last.key != key) {
                *last = Some(ShownVolume::new(volumes, key, subtree));
            }
            last.as_ref()?.show_claim(state, alloc)
        };
        let room = Room::for_page(&query.page);
        let first = after.as_ref().map(|(volume, _)| volume);
        let matching = matching(volumes, &namespace, &query, first).filter(later).take(room.keys());
        let token = |(volume, alloc): &ClaimRef<'_>| key::claim(volume, alloc);
        let page = page(matching, room, show, token);
        (page, first_unreadable(unreadable(volumes, &namespace, &query)))
    };
    let concerns = |volumes: &Volumes, than: u64| {
        volumes.changes().has_since(than, |change| changes_list(&namespace, &query, change))
    };
    let (index, (page, unreadable)) =
        state.snapshot(reader, &state.volumes, concerns, show_page).await?;
    let claims = page.entries.into_iter().flatten().collect();
    let incarnation = state.volumes.bucket.incarnation();
    let incarnation = if incarnation.origin.may_lack_records() { incarnation.number } else { 0 };
    Ok(Claims { index, incarnation, claims, next: page.next, unreadable })
}

/// Whether a change may change what the query lists.
fn changes_list(namespace: &Namespace, query: &Status, change: &VolumeChange) -> bool {
    let VolumeChange { volume, plugin, claim } = change;
    let is_meant = covers(namespace, &volume.namespace)
        && query.volume.as_ref().is_none_or(|queried| *queried == volume.volume)
        && volume.volume.as_str().starts_with(&query.prefix)
        && query.plugin.as_ref().is_none_or(|queried| plugin.as_ref() == Some(queried));
    is_meant
        && claim.as_ref().is_some_and(|claim| {
            query.alloc.as_ref().is_none_or(|queried| *queried == claim.alloc)
                && claim.touches(|node, state| {
                    query.node.as_ref().is_none_or(|queried| queried == node)
                        && query.state.is_none_or(|queried| queried == state)
                })
        })
}

/// Unreadable claims that may match the query. Their nodes and states are not known.
fn unreadable<'a>(
    volumes: &'a Volumes,
    namespace: &'a Namespace,
    query: &'a Status,
) -> impl Iterator<Item = &'a UnreadableRecord> {
    let records = volumes.iter_unreadable().flat_map(|(_, subtree)| subtree.unreadable.values());
    records.filter(|record| match key::parse_volume(&record.key) {
        Some(VolumeEntry::Claim(volume, alloc)) => {
            covers(namespace, &volume.namespace)
                && query.volume.as_ref().is_none_or(|queried| *queried == volume.volume)
                && query.alloc.as_ref().is_none_or(|queried| *queried == alloc)
                && volume.volume.as_str().starts_with(&query.prefix)
        }
        _ => false,
    })
}

/// The claims that match the query, by volume and alloc, from this volume on.
fn matching<'a>(
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
            query.plugin.as_ref().is_none_or(|id| spec.is_none_or(|spec| spec.plugin == *id))
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
                && (query.plugin.is_none()
                    || claim.plugin.is_none()
                    || claim.plugin == query.plugin)
        })
        .map(|(place, _)| place)
}

/// All claims of one alloc. An alloc has claims only on volumes that it requested.
pub fn claims_of(
    state: &StateInner,
    namespace: &Namespace,
    id: &AllocId,
    alloc: &Alloc,
) -> Vec<ClaimStatus> {
    let requested = alloc.requests().map(|(volume, _)| VolumeKey::new(namespace.clone(), volume));
    let mut requested: Vec<VolumeKey> = requested.collect();
    requested.sort();
    state.volumes.mirror.read(|volumes| {
        let known = requested.iter().filter_map(|key| volumes.get_key_value(key));
        let shown = known.filter_map(|(key, subtree)| {
            ShownVolume::new(volumes, key, subtree).show_claim(state, id)
        });
        shown.collect()
    })
}

/// The unreadable claims of one alloc.
pub fn unreadable_claims_of(
    state: &StateInner,
    namespace: &Namespace,
    id: &AllocId,
    alloc: &Alloc,
) -> Vec<UnreadableRecord> {
    state.volumes.mirror.read(|volumes| {
        let of = |volume| {
            let key = VolumeKey::new(namespace.clone(), volume);
            volumes.get(&key)?.unreadable.get(&key::claim(&key, id)).cloned()
        };
        alloc.requests().filter_map(|(volume, _)| of(volume)).collect()
    })
}

/// The claims of these allocs on one volume.
pub fn show_claims<'a>(
    state: &StateInner,
    volumes: &Volumes,
    key: &VolumeKey,
    subtree: &Subtree,
    allocs: impl IntoIterator<Item = &'a AllocId>,
) -> Vec<ClaimStatus> {
    let volume = ShownVolume::new(volumes, key, subtree);
    allocs.into_iter().filter_map(|alloc| volume.show_claim(state, alloc)).collect()
}

/// The first claims of one volume, as many as there is room for.
pub(super) fn show_first_claims(
    state: &StateInner,
    volumes: &Volumes,
    key: &VolumeKey,
    subtree: &Subtree,
    room: Room,
) -> Vec<ClaimStatus> {
    let volume = ShownVolume::new(volumes, key, subtree);
    let show = |alloc: &&AllocId| volume.show_claim(state, alloc);
    let page = page(subtree.volume.claims.keys(), room, show, ToString::to_string);
    page.entries.into_iter().flatten().collect()
}

/// The alloc's record, if it is unreadable. Such an alloc may be running, so its claim stays.
fn unreadable_alloc(
    state: &StateInner,
    key: &VolumeKey,
    alloc: &AllocId,
) -> Option<UnreadableRecord> {
    state.allocs.mirror.read(|allocs| allocs.unreadable_of(&key.namespace, alloc).cloned())
}

/// A volume whose claims are shown.
struct ShownVolume<'a> {
    volumes: &'a Volumes,
    key: &'a VolumeKey,
    subtree: &'a Subtree,
    line: VolumeQueue<'a>,
}

impl<'a> ShownVolume<'a> {
    fn new(volumes: &'a Volumes, key: &'a VolumeKey, subtree: &'a Subtree) -> Self {
        Self { volumes, key, subtree, line: VolumeQueue::new(&subtree.volume) }
    }

    fn show_claim(&self, state: &StateInner, alloc: &AllocId) -> Option<ClaimStatus> {
        let Self { key, subtree, .. } = self;
        let claim = subtree.volume.claims.get(alloc)?;
        let context = ClaimContext {
            now: clock::now(),
            volume: key,
            alloc,
            claim,
            line: &self.line,
            wanted: state.is_wanted(&key.namespace, alloc),
        };
        let (position, ahead) = context.ahead().unzip();
        let (waits_for, hint) = self.waits_for(state, &context);
        let (wait, waits_for) = waits_for.unzip();
        Some(ClaimStatus {
            namespace: key.namespace.clone(),
            volume: key.volume.clone(),
            alloc: alloc.clone(),
            state: claim.state,
            node: claim.node.clone(),
            mode: claim.mode,
            since: claim.since,
            step: context.step(),
            wait,
            waits_for,
            position,
            ahead: ahead.unwrap_or_default(),
            tries: claim.progress.tries,
            failure: claim.progress.failure.as_deref().cloned(),
            next_try: claim.progress.next_try,
            exhausted: claim.exhausted,
            reason: claim.reason.clone(),
            proof: claim.proof.clone(),
            unstaged_by: claim.unstaged_by.clone(),
            hint,
            attempt: claim.progress.attempt.as_ref().map(Attempt::with_believed_deadline),
            plugin: plugin_of(subtree, claim).cloned(),
            external_id: claim.external_id.clone(),
            stray: is_stray(key, subtree, claim),
            mount: claim.mount.clone(),
            epoch: claim.epoch,
            trace: subtree.trace(alloc),
        })
    }

    /// What the claim waits for, and the hint.
    fn waits_for(
        &self,
        state: &StateInner,
        context: &ClaimContext<'_>,
    ) -> (Option<(ClaimWait, String)>, Option<String>) {
        let Self { volumes, key, subtree, .. } = self;
        // Also for a claim at rest: the release that was requested may be what cannot be stored.
        if let Some(fault) = state.volumes.bucket.store_fault() {
            let (waits_for, hint) = waits_for_store(&fault);
            return (Some((ClaimWait::Store, waits_for)), Some(hint));
        }
        let claim = context.claim;
        let clock_margin = state.policy.clock_margin;
        if let Some((waits_for, hint)) = waits_for_other_name(volumes, context, clock_margin) {
            return (Some((ClaimWait::OtherName, waits_for)), Some(hint));
        }
        let waits_for = unreadable_alloc(state, key, context.alloc)
            .map(|record| (ClaimWait::Record, record.to_string()))
            .or_else(|| context.waits_for());
        let hint = hint(state, subtree, context);
        if waits_for.is_some() {
            return (waits_for, hint);
        }
        let plugin = plugin_of(subtree, claim).map(PluginId::as_str);
        let on_node = state
            .nodes
            .mirror
            .read(|nodes| node_mount::waits_for(key, plugin, claim, nodes.get(&claim.node)));
        on_node.map_or((None, hint), |(waits_for, hint)| (Some(waits_for), hint))
    }
}

/// The plugin of the volume that was granted.
fn plugin_of<'a>(subtree: &'a Subtree, claim: &'a Claim) -> Option<&'a PluginId> {
    claim.plugin.as_ref().or_else(|| Some(&subtree.volume.spec.as_ref()?.plugin))
}

/// Whether the volume that was granted is not registered under this name any more.
fn is_stray(key: &VolumeKey, subtree: &Subtree, claim: &Claim) -> bool {
    let handle = subtree.volume.spec.as_ref().and_then(|spec| spec.handle(&key.volume));
    claim.is_held() && (handle.is_none() || claim.is_of_other_than(handle.as_ref()))
}

/// What ends a claim whose volume's registration was lost.
fn stray_hint(volume: &VolumeKey, alloc: &AllocId, claim: &Claim) -> String {
    let namespace = hint::namespace_option(&volume.namespace);
    let release = format!(
        "end its workload, then `berth alloc stop {}{namespace}`",
        hint::quoted(alloc.as_str())
    );
    match claim.handle() {
        Some(handle) => format!(
            "{release}; or register the volume again as it was: plugin {}, external id {:?}",
            handle.plugin, handle.external_id
        ),
        None => format!(
            "the claim does not say which volume it is of: register the volume again as it was, \
             then {release}"
        ),
    }
}

/// What a claim waits for, and the hint, while the server stores no writes.
fn waits_for_store(fault: &StoreFault) -> (String, String) {
    let waits_for = format!(
        "the server to store the next write to bucket {}; since {} it stores none: {}",
        bucket::VOLUMES.name,
        fault.since,
        fault.reason
    );
    let hint = "see the log and the disk of nats-server; a server whose disk was full stores \
                nothing until it is restarted";
    (waits_for, hint.to_owned())
}

/// The claim of the same storage volume under another name that keeps the controller from detaching
/// this one, and the hint.
fn waits_for_other_name(
    volumes: &Volumes,
    context: &ClaimContext<'_>,
    clock_margin: Duration,
) -> Option<(String, String)> {
    let (key, claim) = (context.volume, context.claim);
    let leaves = claim.state == ClaimState::NodeDetached
        && claim.controller
        && claim.progress.attempt.is_none();
    let known = leaves.then(|| handle::current_use(volumes, key))?;
    let other = known.in_the_way(claim, context.now, clock_margin)?;
    let name = name_in(&key.namespace, &other.volume);
    let whose = if other.volume.namespace == key.namespace {
        format!("alloc {}", other.alloc)
    } else {
        "an alloc".to_owned()
    };
    let claim = format!("the claim of {whose} on {name}, the same volume of the plugin");
    let (waits_for, hint) = if other.stands {
        let waits_for = format!("{claim}, which stands on node {}", other.node);
        let next = "if both volumes are registered, then deregister one of them";
        (waits_for, format!("stop {whose}; {next}"))
    } else {
        let waits_for = format!("the controller, which works on {claim}");
        (waits_for, "it goes on by itself: by the deadline of that call at the latest".to_owned())
    };
    Some((waits_for, hint))
}

fn hint(state: &StateInner, subtree: &Subtree, context: &ClaimContext<'_>) -> Option<String> {
    let node = &context.claim.node;
    let node_record = || state.nodes.mirror.read(|nodes| nodes.unreadable().get(node).cloned());
    if let Some(record) = subtree.first_unreadable().cloned().or_else(node_record) {
        return Some(format!("{record}; until it can be, the claim stays as it is"));
    }
    if is_stray(context.volume, subtree, context.claim) {
        return Some(stray_hint(context.volume, context.alloc, context.claim));
    }
    let plugin = plugin_of(subtree, context.claim);
    state.nodes.mirror.read(|nodes| {
        state.plugins.mirror.read(|plugins| {
            let found = plugin.and_then(|id| Some((id, plugins.get(id)?)));
            let known = nodes.get(node).map(|known| (known, nodes.revision(node)));
            context.hint(known, found, |node| nodes.is_ready(node))
        })
    })
}
