//! `volume.external`: what the storage has, compared with what is registered (A12, A16).
//!
//! **Owns** the comparison of the plugin's list with the records.
//!
//! **Promises** that a page fits a message. A list is read on where the page before ended, so that
//! the plugin is asked for each of its pages once. What is registered and not listed comes last.
//! Only the whole list shows it: if the list had several pages, and lacked something that is
//! registered, it is read once more.
//!
//! **Never** changes anything, here or at the storage.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use berth_contract::code::Code;
use berth_contract::message::storage::{
    ExternalSnapshot, ExternalVolume, Externals, ListExternals, Registration,
};
use berth_contract::problem::Problem;
use berth_domain::Namespace;
use berth_domain::limits::PAGE_MAX;
use berth_service::page::{Room, after, bytes_of, page};
use tokio::time::Instant;

use super::ability::Ability;
use super::cursor::{ListingCursor, ListingTally, PagePosition};
use super::external::{ListKind, PluginLists};
use super::registered::{ExternalEntry, RegisteredIds};
use crate::caller::Caller;
use crate::store::state::State;

/// The position of an entry that is not listed: the plugin's id, and the name under which it is
/// registered. One id may be registered for several volumes.
type MissingKey = (String, String);

/// What a plugin has, compared with what is registered.
pub async fn list_externals(
    state: &State,
    namespace: &Namespace,
    query: ListExternals,
    caller: &Caller,
) -> Result<Externals, Problem> {
    let cursor = after(&query.page, ListingCursor::decode)?;
    let comparison = Comparison { state, namespace, query: &query, deadline: caller.deadline };
    let answer = async {
        if query.snapshots {
            state.require(&query.plugin, Ability::ListSnapshots)?;
            let lists = PluginLists::new(state, &query.plugin, ListKind::Snapshots, caller.trace);
            return comparison.compare::<ExternalSnapshot>(&lists, cursor).await;
        }
        let can_list = state.require(&query.plugin, Ability::ListVolumes);
        let lists = |kind| PluginLists::new(state, &query.plugin, kind, caller.trace);
        if let Some(id) = comparison.single_id() {
            let by_id = lists(ListKind::Volume { id, is_only_way: can_list.is_err() });
            if can_list.is_err() {
                return comparison.compare::<ExternalVolume>(&by_id, cursor).await;
            }
            // Where each host has its own storage, their lists show which of them has the volume.
            if by_id.is_one_storage() && cursor.is_none() {
                let found = comparison.compare::<ExternalVolume>(&by_id, None).await?;
                if !found.volumes.is_empty() || !found.not_asked.is_empty() {
                    return Ok(found);
                }
            }
        }
        can_list?;
        comparison.compare::<ExternalVolume>(&lists(ListKind::Volumes), cursor).await
    };
    answer.await.map_err(|problem| problem.plugin(&query.plugin))
}

/// One request.
struct Comparison<'a> {
    state: &'a State,
    namespace: &'a Namespace,
    query: &'a ListExternals,
    deadline: Instant,
}

/// What was read of a plugin's lists.
struct GatheredPages<T> {
    /// Each with its entries that the request wants.
    pages: Vec<(PagePosition, Vec<T>)>,
    /// Where the next page is; none at the end.
    next: Option<PagePosition>,
}

impl Comparison<'_> {
    /// The volume that `ControllerGetVolume` is asked for. A registered volume is found in the
    /// list: another call may be under way for it, and CSI requires one call at a time per volume.
    fn single_id(&self) -> Option<String> {
        let id = self.query.id.as_ref()?;
        let can_get = self.state.require(&self.query.plugin, Ability::GetVolume).is_ok();
        let is_registered = || !self.registered_ids().is_empty();
        (can_get && !is_registered()).then(|| id.clone())
    }

    fn with_registered<T>(&self, read: impl FnOnce(&RegisteredIds<'_>) -> T) -> T {
        let volumes = &self.state.volumes.mirror;
        volumes.read(|volumes| read(&RegisteredIds::read(volumes, self.query)))
    }

    fn registered_ids(&self) -> BTreeSet<String> {
        self.with_registered(|registered| registered.ids(self.query.id.as_ref()))
    }

    /// Waits until this replica has everything that is registered by now.
    async fn catch_up(&self) -> Result<(), Problem> {
        self.state.catch_up_with_all().await.map_err(|error| {
            let why = berth_service::process::chain(&error);
            Problem::new(Code::BusUnavailable, why).retryable()
        })
    }

    async fn compare<E: ExternalEntry>(
        &self,
        lists: &PluginLists<'_>,
        cursor: Option<ListingCursor>,
    ) -> Result<Externals, Problem> {
        let mut reply = Externals {
            plugin: self.query.plugin.clone(),
            volumes: Vec::new(),
            snapshots: Vec::new(),
            next: None,
            truncated: false,
            not_asked: Vec::new(),
        };
        let mut before = BTreeSet::new();
        if !matches!(cursor, Some(ListingCursor::Listed { .. })) {
            // What was registered before a list was read should be in it.
            self.catch_up().await?;
            before = self.registered_ids();
        }
        let is_first = cursor.is_none();
        let (position, mut tally) = match cursor {
            None => (lists.first_page()?, ListingTally::default()),
            Some(ListingCursor::Listed { position, tally }) => (position, tally),
            Some(ListingCursor::NotListed(after)) => {
                let whole = lists.read_all(self.deadline).await?;
                if whole.is_complete {
                    self.catch_up().await?;
                    self.add_missing::<E>(&before, &whole.ids(), after, Vec::new(), &mut reply);
                }
                reply.truncated = !whole.is_complete;
                return Ok(reply);
            }
        };
        let read = self.gather::<E>(lists, (position, is_first), &mut reply).await?;
        // So this replica has everything that was registered before the plugin listed it.
        self.catch_up().await?;
        tally.has_gaps |= reply.truncated || !reply.not_asked.is_empty();
        let room = Room::for_page(&self.query.page).beside(&reply);
        let id = self.query.id.as_ref();
        let (shown, next, has_all) = self.with_registered(|registered| {
            let (shown, rest) = fill::<E>(self.namespace, registered, &read.pages, room);
            let known = shown.iter().map(E::key).filter(|(it, _)| *it == Registration::Known);
            let known: BTreeSet<&str> = known.map(|(_, id)| id).collect();
            for id in known {
                tally.count(id);
            }
            let next = rest.or(read.next);
            let has_all = next.is_none() && tally.has_all(registered.ids(id).iter());
            (shown, next, has_all)
        });
        match next {
            Some(position) => set_next(&mut reply, &ListingCursor::Listed { position, tally }),
            None if tally.has_gaps || has_all => {}
            None if is_first => {
                let listed = read.pages.iter().flat_map(|(_, entries)| entries);
                let listed = listed.map(|entry| E::identity(entry).0).collect();
                self.add_missing(&before, &listed, None, shown, &mut reply);
                return Ok(reply);
            }
            None => set_next(&mut reply, &ListingCursor::NotListed(None)),
        }
        E::put(shown, &mut reply);
        Ok(reply)
    }

    /// Reads pages of the plugin's lists, as far as the time and a page of the reply go. Fails if
    /// nothing at all can be read.
    async fn gather<E: ExternalEntry>(
        &self,
        lists: &PluginLists<'_>,
        (position, is_first): (PagePosition, bool),
        reply: &mut Externals,
    ) -> Result<GatheredPages<E::Listed>, Problem> {
        let stop_at = PluginLists::stop_at(self.deadline);
        let room = Room::for_page(&self.query.page);
        let (mut pages, mut entries, mut bytes) = (Vec::new(), 0_usize, 0);
        let mut next = Some(position);
        while let Some(position) = next {
            let wanted = match &self.query.id {
                Some(_) => PAGE_MAX,
                None => room.entries.saturating_sub(entries).saturating_add(position.skip),
            };
            let read = lists.read_page(&position, wanted, self.deadline).await;
            reply.truncated |= read.is_cut;
            if let Some((node, problem)) = read.failure {
                if lists.is_shared() && is_first && entries == 0 {
                    return Err(problem);
                }
                reply.not_asked.push(format!("node {node}: {problem}"));
            }
            let mut listed = E::listed(read.page);
            listed.retain(|entry| self.is_wanted(E::identity(entry).0));
            // All is known of one id, if it can be at one storage only.
            let is_found = self.query.id.is_some() && !listed.is_empty() && lists.is_one_storage();
            next = read.next.filter(|_| !is_found);
            entries += listed.len().saturating_sub(position.skip);
            bytes += listed.iter().skip(position.skip).map(bytes_of).sum::<usize>();
            pages.push((position, listed));
            if entries >= room.entries || bytes >= room.bytes || Instant::now() >= stop_at {
                break;
            }
        }
        Ok(GatheredPages { pages, next })
    }

    fn is_wanted(&self, external_id: &str) -> bool {
        self.query.id.as_ref().is_none_or(|id| id == external_id)
    }

    /// Adds what was registered before the list was read, still is, and is not listed.
    fn add_missing<E: ExternalEntry>(
        &self,
        before: &BTreeSet<String>,
        listed: &BTreeSet<&str>,
        after: Option<MissingKey>,
        mut shown: Vec<E>,
        reply: &mut Externals,
    ) {
        let missing: BTreeMap<MissingKey, E> = self.with_registered(|registered| {
            let ids = before.iter().filter(|id| !listed.contains(id.as_str()));
            let entries = ids.flat_map(|id| {
                let owners = registered.owners(id).into_iter();
                let owners = owners.filter_map(|owner| owner.seen_by(self.namespace));
                owners.map(move |owner| {
                    let key = (id.clone(), owner.to_string());
                    let listed = E::unlisted(id.clone());
                    (key, E::new(Registration::NotListed, listed, Some(owner)))
                })
            });
            entries.collect()
        });
        let room = Room::for_page(&self.query.page).beside(reply).beside(&shown);
        let room = Room { entries: room.entries.saturating_sub(shown.len()), ..room };
        let first = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut keys = missing.range((first, Bound::Unbounded)).map(|(key, _)| key).peekable();
        let next = if keys.peek().is_some() && (room.entries == 0 || room.bytes == 0) {
            Some(ListingCursor::NotListed(after.clone()))
        } else {
            let encode = |key: &&MissingKey| serde_json::to_string(key).unwrap_or_default();
            let page = page(keys.take(room.keys()), room, |key| missing.get(*key).cloned(), encode);
            shown.extend(page.entries.into_iter().flatten());
            page.next.map(|key| ListingCursor::NotListed(serde_json::from_str(&key).ok()))
        };
        E::put(shown, reply);
        if let Some(next) = next {
            set_next(reply, &next);
        }
    }
}

/// Says where the next page begins. The list is cut off there if the plugin's token is too long.
fn set_next(reply: &mut Externals, next: &ListingCursor) {
    reply.next = next.encode();
    reply.truncated |= reply.next.is_none();
}

/// The entries that a page has room for, and where the next one begins. A list that changes while
/// it is read may have an entry twice; what two hosts list differs in its topology.
fn fill<E: ExternalEntry>(
    namespace: &Namespace,
    registered: &RegisteredIds<'_>,
    pages: &[(PagePosition, Vec<E::Listed>)],
    room: Room,
) -> (Vec<E>, Option<PagePosition>) {
    let (mut shown, mut bytes_left) = (Vec::new(), room.bytes);
    let mut identities = BTreeSet::new();
    for (position, listed) in pages {
        for (at, listed) in listed.iter().enumerate().skip(position.skip) {
            if !identities.insert(E::identity(listed)) {
                continue;
            }
            let owners = registered.owners(E::identity(listed).0);
            let registration = match owners.as_slice() {
                [] => Registration::NotRegistered,
                _ => Registration::Known,
            };
            let owner = owners.into_iter().find_map(|owner| owner.seen_by(namespace));
            let entry = E::new(registration, listed.clone(), owner);
            let bytes = bytes_of(&entry);
            // A page has at least one entry; otherwise a reader could never get past a large one.
            let is_full = shown.len() == room.entries || bytes > bytes_left;
            if is_full && !shown.is_empty() {
                return (shown, Some(position.skip(at)));
            }
            bytes_left = bytes_left.saturating_sub(bytes);
            shown.push(entry);
        }
    }
    (shown, None)
}

#[cfg(test)]
mod tests {
    use berth_bus::Fold as _;
    use berth_contract::message::storage_call::PluginVolumeStatus;
    use berth_contract::{key, record};
    use berth_domain::VolumeKey;
    use berth_domain::volume::VolumeSpec;
    use berth_service::projection::Volumes;
    use serde_json::json;

    use super::*;

    fn query() -> ListExternals {
        serde_json::from_value(json!({"plugin": "p"})).unwrap()
    }

    fn listed(id: &str, host: &str) -> PluginVolumeStatus {
        serde_json::from_value(json!({"external_id": id, "topologies": [{"host": host}]})).unwrap()
    }

    fn begin(node: &str) -> PagePosition {
        PagePosition::first_of(node.parse().unwrap())
    }

    /// `a` and `b` are registered, `b` twice, once in another namespace.
    fn volumes() -> Volumes {
        let mut volumes = Volumes::default();
        for (at, (namespace, id, external)) in
            [("default", "one", "a"), ("default", "two", "b"), ("other", "two", "b")]
                .into_iter()
                .enumerate()
        {
            let spec = json!({"plugin": "p", "capabilities": [], "external_id": external});
            let spec: VolumeSpec = serde_json::from_value(spec).unwrap();
            let key = VolumeKey::new(namespace.parse().unwrap(), id.parse().unwrap());
            let body = record::write_spec(&spec, None).unwrap();
            volumes.put(&key::spec(&key), at as u64 + 1, &body);
        }
        volumes
    }

    fn page_of(
        pages: &[(PagePosition, Vec<PluginVolumeStatus>)],
        entries: usize,
    ) -> (Vec<ExternalVolume>, Option<PagePosition>) {
        let (volumes, query) = (volumes(), query());
        let registered = RegisteredIds::read(&volumes, &query);
        fill(&Namespace::default(), &registered, pages, Room { entries, bytes: 10_000 })
    }

    fn ids(shown: &[ExternalVolume]) -> Vec<(&str, Registration)> {
        shown.iter().map(|entry| (entry.listed.external_id.as_str(), entry.registration)).collect()
    }

    #[test]
    fn what_a_page_has_no_room_for_is_on_the_next() {
        let (first, second) = (begin("n1"), begin("n2"));
        let pages = vec![
            (first, vec![listed("c", "1"), listed("a", "1"), listed("c", "1")]),
            (second.clone(), vec![listed("d", "2"), listed("b", "2"), listed("e", "2")]),
        ];
        let (shown, next) = page_of(&pages, 3);
        let known = [
            ("c", Registration::NotRegistered),
            ("a", Registration::Known),
            ("d", Registration::NotRegistered),
        ];
        assert_eq!(ids(&shown), known);
        let next = next.unwrap();
        assert_eq!(next, second.skip(1));
        let (shown, next) = page_of(&[(next, pages[1].1.clone())], 3);
        assert_eq!(ids(&shown), [("b", Registration::Known), ("e", Registration::NotRegistered)]);
        assert_eq!(next, None);
    }

    #[test]
    fn what_two_hosts_list_is_shown_with_both() {
        let pages = [
            (begin("n1"), vec![listed("c", "1"), listed("d", "1")]),
            (begin("n2"), vec![listed("c", "2"), listed("d", "1")]),
        ];
        let (shown, _) = page_of(&pages, 10);
        let ids: Vec<&str> = ids(&shown).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, ["c", "d", "c"], "d is one volume, by its own topology");
    }

    #[test]
    fn a_page_of_a_plugins_list_has_no_more_bytes_than_a_message_carries() {
        let many: Vec<_> = (0..4000).map(|at| listed(&format!("{at:0200}"), "1")).collect();
        let (volumes, query) = (volumes(), query());
        let registered = RegisteredIds::read(&volumes, &query);
        let room = Room::for_page(&query.page);
        let room = Room { entries: 4000, ..room };
        let pages = [(begin("n1"), many)];
        let (shown, next) =
            fill::<ExternalVolume>(&Namespace::default(), &registered, &pages, room);
        let bytes = serde_json::to_vec(&shown).unwrap().len();
        assert!(bytes <= berth_domain::limits::PAGE_BYTES_MAX, "{bytes}");
        assert!(shown.len() > 100, "{}", shown.len());
        assert_eq!(next.map(|next| next.skip), Some(shown.len()));
    }

    #[test]
    fn the_ids_that_are_registered_are_those_of_all_namespaces() {
        let (volumes, query) = (volumes(), query());
        let registered = RegisteredIds::read(&volumes, &query);
        assert_eq!(registered.ids(None).into_iter().collect::<String>(), "ab");
        let only = |id: &str| registered.ids(Some(&id.to_owned())).into_iter().collect::<String>();
        assert_eq!((only("a"), only("z")), ("a".to_owned(), String::new()));
        assert_eq!(registered.owners("b").len(), 2);
    }
}
