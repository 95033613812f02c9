//! `alloc.status` and `alloc.list`.

use std::collections::BTreeSet;

use berth_contract::key;
use berth_contract::message::alloc::{
    AllocQuery, AllocStatus, AllocStub, Allocs as Listed, ListAllocs, RequestedMount,
};
use berth_contract::problem::Problem;
use berth_domain::alloc::{Alloc, VolumeRequest};
use berth_domain::{AllocId, Namespace, NodeId, Timestamp, VolumeKey};
use berth_service::newer::await_newer;
use berth_service::page::{Room, after, page};
use berth_service::projection::{AllocChange, AllocKey, Allocs};

use super::claim::{claims_of, unreadable_claims_of};
use super::{Reader, first_unreadable};
use crate::caller::Caller;
use crate::store::forgettable::is_forgettable;
use crate::store::records::{is_known_to, no_such_alloc};
use crate::store::state::{State, StateInner};

/// One alloc with its claims, from the leader.
pub async fn alloc_status(
    state: &State,
    namespace: &Namespace,
    query: AllocQuery,
    caller: &Caller,
) -> Result<AllocStatus, Problem> {
    let deadline = caller.deadline;
    let own_node = caller.own_node();
    let id = query.id;
    let reader = Reader::new(query.newer, deadline);
    state.wait_for_newer_status(reader, namespace, &id, own_node.as_ref()).await?;
    let (revision, alloc) = state.read_alloc(namespace, &id).await?;
    let alloc = alloc.filter(|alloc| is_known_to(alloc, own_node.as_ref()));
    let alloc = alloc.ok_or_else(|| no_such_alloc(&id))?;
    let caught_up = state.catch_up_with_leader(reader, &state.volumes, ">");
    let refusal = state.last_refusal(namespace, None, Some(&id), deadline);
    let (caught_up, last_refusal) = tokio::join!(caught_up, refusal);
    caught_up?;
    Ok(AllocStatus { last_refusal, ..build_alloc_status(state, namespace, &id, &alloc, revision) })
}

/// The reply about an alloc, with its claims.
pub fn build_alloc_status(
    state: &StateInner,
    namespace: &Namespace,
    id: &AllocId,
    alloc: &Alloc,
    revision: u64,
) -> AllocStatus {
    AllocStatus {
        id: id.clone(),
        namespace: namespace.clone(),
        state: alloc.state,
        node: alloc.node.clone(),
        index: alloc.index,
        since: alloc.since,
        note: alloc.note.clone(),
        owner: alloc.owner.as_ref().map(|owner| owner.name.clone()),
        unowned_since: unowned_since(alloc),
        by: alloc.by.clone(),
        meta: alloc.meta.clone(),
        volumes: alloc.volumes.iter().map(VolumeRequest::struck_out).collect(),
        claims: claims_of(state, namespace, id, alloc),
        last_refusal: None,
        modify_index: revision,
        status_index: status_index(state, namespace, alloc, revision),
        unreadable: unreadable_claims_of(state, namespace, id, alloc),
    }
}

fn unowned_since(alloc: &Alloc) -> Option<Timestamp> {
    alloc.owner.as_ref().filter(|_| alloc.is_unowned())?.unowned_since
}

/// The sum of the alloc's revision and the heads of its volumes. No head falls while the alloc has
/// a claim there.
fn status_index(state: &StateInner, namespace: &Namespace, alloc: &Alloc, revision: u64) -> u64 {
    state.volumes.mirror.read(|volumes| {
        let key = |volume| VolumeKey::new(namespace.clone(), volume);
        let heads =
            alloc.requests().filter_map(|(volume, _)| Some(volumes.get(&key(volume))?.head));
        revision + heads.sum::<u64>()
    })
}

impl StateInner {
    /// Waits until the alloc or one of its volumes is newer than the reader has seen, or the wait
    /// is over. A missing alloc counts as newer if the reader has seen it.
    async fn wait_for_newer_status(
        &self,
        reader: Reader,
        namespace: &Namespace,
        id: &AllocId,
        own_node: Option<&NodeId>,
    ) -> Result<(), Problem> {
        let index = || {
            let record = self.allocs.mirror.read(|allocs| {
                let record =
                    allocs.get(namespace, id).filter(|(_, alloc)| is_known_to(alloc, own_node));
                record.map(|(revision, alloc)| (revision, alloc.clone()))
            });
            record.map(|(revision, alloc)| status_index(self, namespace, &alloc, revision))
        };
        let is_newer = |than: u64| index().map_or(than > 0, |index| index > than);
        self.wait_for_alloc_change(reader, is_newer).await
    }

    /// Waits until `is_met` holds, and tests it after each change of an alloc or a volume.
    pub(super) async fn wait_for_alloc_change(
        &self,
        reader: Reader,
        is_met: impl Fn(u64) -> bool,
    ) -> Result<(), Problem> {
        let (mut allocs, mut volumes) =
            (self.allocs.mirror.subscribe(), self.volumes.mirror.subscribe());
        let arrival = |than| {
            let is_met = &is_met;
            async move {
                while !is_met(than) {
                    // The mirrors live as long as the state, so neither of these can fail.
                    tokio::select! {
                        _ = allocs.changed() => {}
                        _ = volumes.changed() => {}
                    }
                }
            }
        };
        await_newer(reader.newer, reader.until, &is_met, arrival).await
    }
}

/// Allocs of a namespace, all of them for `*`, as stubs.
pub async fn list_allocs(
    state: &State,
    namespace: &Namespace,
    query: ListAllocs,
    caller: &Caller,
) -> Result<Listed, Problem> {
    let deadline = caller.deadline;
    let after = after(&query.page, key::parse_alloc)?;
    let reader = Reader::new(query.newer, deadline);
    let show_page = |allocs: &Allocs| {
        let room = Room::for_page(&query.page);
        let matching = candidates(allocs, namespace, &query, after.as_ref())
            .filter(|key| {
                let (alloc_namespace, id) = key;
                let is_meant =
                    |alloc| matches(&query, id, alloc) && has_use_ended(state, &query, key, alloc);
                let alloc = allocs.get(alloc_namespace, id);
                namespace.covers(alloc_namespace) && alloc.is_some_and(|(_, alloc)| is_meant(alloc))
            })
            .take(room.keys());
        let show = |(namespace, id): &&AllocKey| {
            let (revision, alloc) = allocs.get(namespace, id)?;
            Some(stub(state, namespace, id, alloc, revision))
        };
        let token = |(namespace, id): &&AllocKey| key::alloc(namespace, id);
        let page = page(matching, room, show, token);
        let unreadable = allocs.unreadable().filter(|(alloc_namespace, id, _)| {
            namespace.covers(alloc_namespace) && id.as_str().starts_with(&query.prefix)
        });
        (page, first_unreadable(unreadable.map(|(.., record)| record)))
    };
    let concerns = |allocs: &Allocs, than: u64| {
        allocs.changes().has_since(
            than,
            |AllocChange { namespace: alloc_namespace, id, before, after }| {
                namespace.covers(alloc_namespace)
                    && [before, after].into_iter().flatten().any(|alloc| matches(&query, id, alloc))
            },
        )
    };
    let (index, (page, unreadable)) =
        state.snapshot(reader, &state.allocs, concerns, show_page).await?;
    let allocs = page.entries.into_iter().flatten().collect();
    Ok(Listed { index, allocs, next: page.next, unreadable })
}

/// The allocs that the query can mean, after this one: those that have ended, those of an owner,
/// those on a node, or all of the namespace.
fn candidates<'a>(
    allocs: &'a Allocs,
    namespace: &'a Namespace,
    query: &ListAllocs,
    after: Option<&'a AllocKey>,
) -> Box<dyn Iterator<Item = &'a AllocKey> + 'a> {
    if let Some(before) = query.forgettable_before {
        // They come by the time of their ends, and those that ended before it are few.
        let ended = allocs.index().ended_before(before);
        let later: BTreeSet<&AllocKey> =
            ended.filter(|key| after.is_none_or(|after| *key > after)).collect();
        return Box::new(later.into_iter());
    }
    match (&query.owner, &query.node) {
        (Some(owner), _) => Box::new(allocs.index().owned_by(owner, after)),
        (None, Some(node)) => Box::new(allocs.index().placed_on(node, after)),
        (None, None) => Box::new(allocs.iter_listed(namespace, after)),
    }
}

/// Whether the alloc's record is of no use any more, if the query asks for such allocs.
fn has_use_ended(state: &State, query: &ListAllocs, key: &AllocKey, alloc: &Alloc) -> bool {
    let (namespace, id) = key;
    query.forgettable_before.is_none_or(|before| {
        state.volumes.mirror.read(|volumes| {
            state
                .nodes
                .mirror
                .read(|nodes| is_forgettable(volumes, nodes, (namespace, id), alloc, before))
        })
    })
}

fn matches(query: &ListAllocs, id: &AllocId, alloc: &Alloc) -> bool {
    id.as_str().starts_with(&query.prefix)
        && query.node.as_ref().is_none_or(|node| *node == alloc.node)
        && query.state.is_none_or(|state| state == alloc.state)
        && query
            .owner
            .as_ref()
            .is_none_or(|name| alloc.owner.as_ref().is_some_and(|owner| owner.name == *name))
        && query.meta.iter().all(|(label, value)| alloc.meta.get(label) == Some(value))
        && (!query.unowned || alloc.is_unowned())
}

fn stub(
    state: &State,
    namespace: &Namespace,
    id: &AllocId,
    alloc: &Alloc,
    revision: u64,
) -> AllocStub {
    let volumes: Vec<_> = alloc.requests().map(|(volume, _)| volume).collect();
    let claims = state.volumes.mirror.read(|mirror| {
        let claimed = volumes.iter().filter(|volume| {
            let key = VolumeKey::new(namespace.clone(), (*volume).clone());
            mirror.get(&key).is_some_and(|subtree| {
                subtree.volume.claims.contains_key(id)
                    || subtree.unreadable().contains_key(&key::claim(&key, id))
            })
        });
        claimed.count()
    });
    AllocStub {
        id: id.clone(),
        namespace: namespace.clone(),
        state: alloc.state,
        node: alloc.node.clone(),
        since: alloc.since,
        note: alloc.note.clone(),
        owner: alloc.owner.as_ref().map(|owner| owner.name.clone()),
        unowned_since: unowned_since(alloc),
        by: alloc.by.clone(),
        meta: alloc.meta.clone(),
        volumes,
        mounts: RequestedMount::list(&alloc.volumes, alloc.index),
        claims,
        modify_index: revision,
    }
}
