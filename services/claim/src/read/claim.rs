//! `claim.status`: claims, of a volume, of an alloc, or all.

use std::cell::RefCell;

use berth_contract::key::{self, VolumeEntry};
use berth_contract::message::claim::{ClaimStatus, ClaimWait, Claims, ListClaims};
use berth_contract::message::query::LongPoll;
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_domain::alloc::Alloc;
use berth_domain::volume::{Attempt, Claim, OtherClaim, State as ClaimState};
use berth_domain::{AllocId, Namespace, PluginId, VolumeKey};
use berth_explain::{Holders, WaitReason};
use berth_service::clock;
use berth_service::page::{Room, after, page};
use berth_service::projection::{ClaimKey, Nodes, Subtree, VolumeChange, Volumes};

use super::reach::{ClaimRef, Reach};
use super::records::ReplyRecords;
use super::wait::{ClaimContext, VolumeQueue, waits_on_node};
use super::{Reader, first_unreadable};
use crate::caller::Caller;
use crate::store::handle;
use crate::store::state::{State, StateInner};

/// A claim with its volume.
type ClaimOf<'a> = (&'a VolumeKey, &'a Subtree, &'a AllocId, &'a Claim);

/// Claims of a namespace that match the query.
pub async fn list_claims(
    state: &State,
    namespace: &Namespace,
    query: ListClaims,
    caller: &Caller,
) -> Result<Claims, Problem> {
    let deadline = caller.deadline;
    let after = after(&query.page, |token| match key::parse_volume(token)? {
        VolumeEntry::Claim(volume, alloc) => Some((volume, alloc)),
        _ => None,
    })?;
    let reader = Reader::new(query.newer, deadline);
    if query.leaving {
        // An alloc that has just ended counts.
        let at_once = Reader::new(LongPoll::default(), deadline);
        state.catch_up_with_leader(at_once, &state.allocs, ">").await?;
    }
    let show_page = |volumes: &Volumes| {
        // Claims of one volume follow each other, so its line is built only once.
        let last: RefCell<Option<ShownVolume<'_>>> = RefCell::new(None);
        let records = ReplyRecords::new(state);
        let show = |(key, alloc): &ClaimRef<'_>| {
            let (key, subtree) = volumes.get_key_value(key)?;
            let mut last = last.borrow_mut();
            if last.as_ref().is_none_or(|last| last.key != key) {
                *last = Some(ShownVolume::new(&records, volumes, key, subtree));
            }
            last.as_ref()?.show_claim(alloc)
        };
        let room = Room::for_page(&query.page);
        let reach = Reach::of_list(&query);
        let matching = matching(volumes, namespace, &query, after.as_ref(), &reach);
        let is_meant = |(volume, alloc): &ClaimRef<'_>| {
            !query.leaving || is_leaving(state, volumes, volume, alloc)
        };
        let token = |(volume, alloc): &ClaimRef<'_>| key::claim(volume, alloc);
        let mut page = page(matching.filter(is_meant).take(room.keys()), room, show, token);
        page.next = page.next.or_else(|| reach.end().map(|last| token(&last)));
        (page, first_unreadable(unreadable(volumes, namespace, &query)))
    };
    let concerns = |volumes: &Volumes, than: u64| {
        volumes.changes().has_since(than, |change| changes_list(namespace, &query, change))
    };
    let (index, (page, unreadable)) =
        state.snapshot(reader, &state.volumes, concerns, show_page).await?;
    let claims = page.entries.into_iter().flatten().collect();
    let incarnation = state.volumes.bucket.incarnation();
    let incarnation = if incarnation.origin.may_lack_records() { incarnation.number } else { 0 };
    Ok(Claims { index, incarnation, claims, next: page.next, unreadable })
}

/// Whether the change may affect what the query lists.
fn changes_list(namespace: &Namespace, query: &ListClaims, change: &VolumeChange) -> bool {
    let VolumeChange { volume, plugin, claim } = change;
    let is_meant = namespace.covers(&volume.namespace)
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

/// Unreadable claims that may match the query: their nodes and states are unknown.
fn unreadable<'a>(
    volumes: &'a Volumes,
    namespace: &'a Namespace,
    query: &'a ListClaims,
) -> impl Iterator<Item = &'a UnreadableRecord> {
    let records = volumes.iter_unreadable().flat_map(|(_, subtree)| subtree.unreadable().values());
    records.filter(|record| match key::parse_volume(&record.key) {
        Some(VolumeEntry::Claim(volume, alloc)) => {
            namespace.covers(&volume.namespace)
                && query.volume.as_ref().is_none_or(|queried| *queried == volume.volume)
                && query.alloc.as_ref().is_none_or(|queried| *queried == alloc)
                && volume.volume.as_str().starts_with(&query.prefix)
        }
        _ => false,
    })
}

/// The claims that match the query, by volume and alloc, after this claim.
fn matching<'a>(
    volumes: &'a Volumes,
    namespace: &'a Namespace,
    query: &'a ListClaims,
    after: Option<&'a ClaimKey>,
    reach: &'a Reach<'a>,
) -> impl Iterator<Item = ClaimRef<'a>> {
    let claims = candidates(volumes, namespace, query, after);
    // The first volume comes with all of its claims.
    let later = claims.filter(move |(volume, _, alloc, _)| {
        after.is_none_or(|(last_volume, last)| (*volume, *alloc) > (last_volume, last))
    });
    let covered = later.take_while(|(volume, _, alloc, _)| reach.covers((volume, alloc)));
    let matching = covered.filter(|(key, subtree, alloc, claim)| {
        let spec = subtree.volume.spec.as_ref();
        let is_of_plugin = |id: &PluginId| {
            spec.is_none_or(|spec| spec.plugin == *id)
                && claim.plugin.as_ref().is_none_or(|granted| granted == id)
        };
        namespace.covers(&key.namespace)
            && query.volume.as_ref().is_none_or(|volume| *volume == key.volume)
            && key.volume.as_str().starts_with(&query.prefix)
            && query.alloc.as_ref().is_none_or(|queried| queried == *alloc)
            && query.node.as_ref().is_none_or(|node| claim.node == *node)
            && query.state.is_none_or(|state| claim.state == state)
            && query.plugin.as_ref().is_none_or(is_of_plugin)
    });
    matching.map(|(key, _, alloc, _)| (key, alloc))
}

/// Whether the claim is to end: it is being released, or its alloc has ended or is not known.
fn is_leaving(state: &State, volumes: &Volumes, key: &VolumeKey, alloc: &AllocId) -> bool {
    let claim = volumes.get(key).and_then(|subtree| subtree.volume.claims.get(alloc));
    claim.is_some_and(|claim| match claim.state {
        ClaimState::Unpublishing | ClaimState::NodeDetached => true,
        ClaimState::Waiting | ClaimState::Publishing | ClaimState::Taken => {
            !state.is_wanted(&key.namespace, alloc)
        }
    })
}

/// The claims that the query can mean: those of a node, of a volume, or of all volumes with claims.
fn candidates<'a>(
    volumes: &'a Volumes,
    namespace: &'a Namespace,
    query: &'a ListClaims,
    after: Option<&'a ClaimKey>,
) -> Box<dyn Iterator<Item = ClaimOf<'a>> + 'a> {
    let of_volume = |(key, subtree): (&'a VolumeKey, &'a Subtree)| {
        let claims = &subtree.volume.claims;
        let one = query.alloc.as_ref().map(|alloc| claims.get_key_value(alloc));
        let all = query.alloc.is_none().then(|| claims.iter()).into_iter().flatten();
        let meant = one.flatten().into_iter().chain(all);
        meant.map(move |(alloc, claim)| (key, subtree, alloc, claim))
    };
    match (&query.volume, &query.node) {
        (Some(volume), _) if !namespace.is_wildcard() => {
            let key = VolumeKey::new(namespace.clone(), volume.clone());
            Box::new(volumes.get_key_value(&key).into_iter().flat_map(of_volume))
        }
        (_, Some(node)) => {
            let claims = volumes.index().claims_on(node, after);
            Box::new(claims.filter_map(|(key, alloc)| {
                let subtree = volumes.get(key)?;
                Some((key, subtree, alloc, subtree.volume.claims.get(alloc)?))
            }))
        }
        _ => {
            let first = after.map(|(volume, _)| volume);
            Box::new(volumes.iter_used(namespace, &query.prefix, first).flat_map(of_volume))
        }
    }
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
    let records = ReplyRecords::new(state);
    state.volumes.mirror.read(|volumes| {
        let subtrees = requested.iter().filter_map(|key| volumes.get_key_value(key));
        let statuses = subtrees.filter_map(|(key, subtree)| {
            ShownVolume::new(&records, volumes, key, subtree).show_claim(id)
        });
        statuses.collect()
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
        let unreadable_claim = |volume| {
            let key = VolumeKey::new(namespace.clone(), volume);
            volumes.get(&key)?.unreadable().get(&key::claim(&key, id)).cloned()
        };
        alloc.requests().filter_map(|(volume, _)| unreadable_claim(volume)).collect()
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
    let records = ReplyRecords::new(state);
    let volume = ShownVolume::new(&records, volumes, key, subtree);
    allocs.into_iter().filter_map(|alloc| volume.show_claim(alloc)).collect()
}

/// The first claims of one volume, as many as fit.
pub(super) fn show_first_claims(
    state: &StateInner,
    volumes: &Volumes,
    key: &VolumeKey,
    subtree: &Subtree,
    room: Room,
) -> Vec<ClaimStatus> {
    let records = ReplyRecords::new(state);
    let volume = ShownVolume::new(&records, volumes, key, subtree);
    let show = |alloc: &&AllocId| volume.show_claim(alloc);
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
    records: &'a ReplyRecords<'a>,
    volumes: &'a Volumes,
    key: &'a VolumeKey,
    subtree: &'a Subtree,
    line: VolumeQueue<'a>,
}

impl<'a> ShownVolume<'a> {
    fn new(
        records: &'a ReplyRecords<'a>,
        volumes: &'a Volumes,
        key: &'a VolumeKey,
        subtree: &'a Subtree,
    ) -> Self {
        let line = VolumeQueue::new(&subtree.volume);
        Self { records, volumes, key, subtree, line }
    }

    fn show_claim(&self, alloc: &AllocId) -> Option<ClaimStatus> {
        let mut status = self.show_without_hint(alloc)?;
        status.hint = self.hint(&status);
        Some(status)
    }

    fn show_without_hint(&self, alloc: &AllocId) -> Option<ClaimStatus> {
        let state = self.records.state;
        let Self { key, subtree, .. } = self;
        let claim = subtree.volume.claims.get(alloc)?;
        let context = ClaimContext {
            now: clock::now(),
            claim,
            line: &self.line,
            wanted: state.is_wanted(&key.namespace, alloc),
        };
        let (position, ahead) = context.ahead().unzip();
        let (wait, waits_for) = self.waits_for(alloc, &context).unzip();
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
            hint: None,
            attempt: claim.progress.attempt.as_ref().map(Attempt::with_believed_deadline),
            plugin: plugin_of(subtree, claim).cloned(),
            external_id: claim.external_id.clone(),
            stray: is_stray(key, subtree, claim),
            mount: claim.mount.clone(),
            epoch: claim.epoch,
            trace: subtree.trace(alloc),
        })
    }

    /// What the claim waits for, in words.
    fn waits_for(
        &self,
        alloc: &AllocId,
        context: &ClaimContext<'_>,
    ) -> Option<(ClaimWait, String)> {
        let state = self.records.state;
        let words = |reason: WaitReason<'_>| (reason.kind(), reason.to_string());
        // Also for a claim at rest: its requested release may be what cannot be stored.
        if let Some(fault) = state.volumes.bucket.store_fault() {
            return Some(words(WaitReason::Store(fault.since, &fault.reason)));
        }
        let of_other =
            |other: OtherClaim| words(WaitReason::OtherName(&self.key.namespace, &other));
        let own = || {
            if let Some(record) = unreadable_alloc(state, self.key, alloc) {
                return Some(words(WaitReason::Record(&record)));
            }
            if let Some(reason) = context.waits_for() {
                return Some(words(reason));
            }
            let claim = context.claim;
            let on_node = |nodes: &Nodes| waits_on_node(claim, nodes.get(&claim.node)).map(words);
            state.nodes.mirror.read(on_node)
        };
        self.other_name(context.claim).map(of_other).or_else(own)
    }

    /// The claim of the same storage volume under another name that keeps the controller from
    /// detaching this one.
    fn other_name(&self, claim: &Claim) -> Option<OtherClaim> {
        let leaves = claim.state == ClaimState::NodeDetached
            && claim.controller
            && claim.progress.attempt.is_none();
        let handle_use = leaves.then(|| handle::current_use(self.volumes, self.key))?;
        handle_use.in_the_way(claim, clock::now(), self.records.state.policy.clock_margin).cloned()
    }

    /// What an operator can do, from the records alone.
    fn hint(&self, shown: &ClaimStatus) -> Option<String> {
        let state = self.records.state;
        let unreadable = self.subtree.first_unreadable();
        let is_at_rest = shown.wait.is_none() && !shown.stray && unreadable.is_none();
        let has_readable_node =
            || state.nodes.mirror.read(|nodes| !nodes.unreadable().contains_key(&shown.node));
        if is_at_rest && has_readable_node() {
            return None;
        }
        if shown.wait == Some(ClaimWait::OtherName) {
            let other = self.other_name(self.subtree.volume.claims.get(&shown.alloc)?)?;
            return berth_explain::behind_other_name(&self.key.namespace, &other).hint();
        }
        if shown.state == ClaimState::Waiting {
            self.add_holders();
        } else {
            self.records.add(shown);
        }
        let mut facts = self.records.facts.borrow_mut();
        if let Some(record) = unreadable {
            facts.volumes.insert(self.key.clone(), Err(record.problem()));
        }
        if let Some(record) = unreadable_alloc(state, self.key, &shown.alloc) {
            let alloc = (self.key.namespace.clone(), shown.alloc.clone());
            facts.allocs.insert(alloc, Err(record.problem()));
        }
        berth_explain::find_claim(&facts, shown).hint()
    }

    /// Adds the claims that those in line wait for, the first in line with them, and what explains
    /// each.
    fn add_holders(&self) {
        if self.records.facts.borrow().holders.contains_key(self.key) {
            return;
        }
        let nodes = &self.records.state.nodes.mirror;
        let holders = nodes.read(|nodes| self.line.first_holders(|node| nodes.is_ready(node)));
        let holders = holders.into_iter().chain(self.line.first_in_line());
        let holders = holders.filter_map(|alloc| self.show_without_hint(alloc));
        let claims: Vec<ClaimStatus> = holders.collect();
        for holder in &claims {
            self.records.add(holder);
        }
        let access = self.line.access();
        let holders = Holders { access, claims };
        self.records.facts.borrow_mut().holders.insert(self.key.clone(), holders);
    }
}

/// The plugin of the volume that was granted.
fn plugin_of<'a>(subtree: &'a Subtree, claim: &'a Claim) -> Option<&'a PluginId> {
    claim.plugin.as_ref().or_else(|| Some(&subtree.volume.spec.as_ref()?.plugin))
}

/// Whether the volume of the grant is no longer registered under this name.
fn is_stray(key: &VolumeKey, subtree: &Subtree, claim: &Claim) -> bool {
    let handle = subtree.volume.spec.as_ref().and_then(|spec| spec.handle(&key.volume));
    claim.is_held() && (handle.is_none() || claim.is_of_other_than(handle.as_ref()))
}

#[cfg(test)]
mod tests {
    use berth_bus::Fold as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn pages_get_past_a_volume_with_more_claims_than_one_page_reads() {
        let (mut volumes, namespace) = (Volumes::default(), Namespace::default());
        for (at, key) in ["v.claim.a", "v.claim.b", "v.claim.c", "v.claim.d", "w.claim.e"]
            .into_iter()
            .enumerate()
        {
            let claim = json!({
                "state": "taken", "node": "n1", "mode": "write",
                "since": "2026-01-31T12:00:00.000Z", "access": "multi-node-multi-writer",
                "attachment": "file-system", "controller": false, "epoch": at + 1, "schema": 1,
            });
            let (key, revision) = (format!("default.{key}"), at as u64 + 1);
            volumes.put(&key, revision, claim.to_string().as_bytes());
        }
        let query = ListClaims { leaving: true, ..ListClaims::default() };
        let (mut read, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let reach = Reach::new(2);
            let page = matching(&volumes, &namespace, &query, after.as_ref(), &reach);
            read.extend(page.map(|(_, alloc)| alloc.to_string()));
            pages += 1;
            assert!(pages < 9, "a page begins where the last one ended: {read:?}");
            let end = reach.end().map(|(volume, alloc)| (volume.clone(), alloc.clone()));
            match end {
                Some(end) => after = Some(end),
                None => break,
            }
        }
        assert_eq!((read.join(""), pages), ("abcde".to_owned(), 3));
    }
}
