//! `volume.external`: what the storage has, compared with what is registered (A12, A16).
//!
//! **Owns** the comparison of the plugin's list with the records.
//!
//! **Promises** that a page fits a message, and that registrations of other namespaces are not
//! named. The plugin is asked for its whole list for each page, because only the whole list shows
//! what is missing in it.
//!
//! **Never** changes anything, here or at the storage.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use berth_contract::code::Code;
use berth_contract::message::storage::{
    ExternalSnapshot, ExternalVolume, Externals, ListExternals, Registration,
};
use berth_contract::message::storage_call::{PluginSnapshotStatus, PluginVolumeStatus, Question};
use berth_contract::problem::Problem;
use berth_domain::volume::Handle;
use berth_domain::{Namespace, SnapshotId, VolumeKey};
use berth_service::page::{Page, Room, after, page};
use berth_service::projection::Volumes;
use serde::Serialize;

use super::ability::Ability;
use super::external::ask_everywhere;
use crate::caller::Caller;
use crate::store::state::State;

/// The position of an entry in the list: its registration, the plugin's id, and the name under
/// which it is registered, if that may be shown. One id may be registered for several volumes.
type ListKey = (Registration, String, String);

/// What a plugin has, compared with what is registered. Registrations of other namespaces are not
/// named.
pub async fn list_externals(
    state: &State,
    namespace: &Namespace,
    query: ListExternals,
    caller: &Caller,
) -> Result<Externals, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let after = after(&query.page, |token| serde_json::from_str::<ListKey>(token).ok())?;
    let with_plugin = |problem: Problem| problem.plugin(&query.plugin);
    // The plugin is asked for one volume by its id, if it can. A registered volume is found in the
    // list: another call may be under way for it, and CSI requires one call at a time per volume.
    let can_get = state.require(&query.plugin, Ability::GetVolume).is_ok();
    let can_get_alone =
        |id: &String| can_get && !query.snapshots && !is_registered(state, &query, id);
    let single_id = query.id.clone().filter(can_get_alone);
    let ability = match (&single_id, query.snapshots) {
        (Some(_), _) => Ability::GetVolume,
        (None, true) => Ability::ListSnapshots,
        (None, false) => Ability::ListVolumes,
    };
    state.require(&query.plugin, ability).map_err(with_plugin)?;
    let question = |token| match (&single_id, query.snapshots) {
        (Some(id), _) => Question::Volume { id: id.clone() },
        (None, true) => Question::Snapshots { token, limit: 0 },
        (None, false) => Question::Volumes { token, limit: 0 },
    };
    let listed = ask_everywhere(state, &query.plugin, question, trace, deadline).await;
    let listed = listed.map_err(with_plugin)?;
    // So this replica has everything that was registered before the plugin was asked.
    let caught_up = state.catch_up_with_all().await;
    caught_up.map_err(|error| {
        let why = berth_service::process::chain(&error);
        with_plugin(Problem::new(Code::BusUnavailable, why).retryable())
    })?;
    let is_complete = !listed.truncated && listed.not_asked.is_empty();
    let mut reply = Externals {
        plugin: query.plugin.clone(),
        volumes: Vec::new(),
        snapshots: Vec::new(),
        next: None,
        truncated: listed.truncated,
        not_asked: listed.not_asked,
    };
    let room = Room::for_page(&query.page).beside(&reply);
    let is_wanted = |key: &ListKey| query.id.as_ref().is_none_or(|id| *id == key.1);
    state.volumes.mirror.read(|volumes| {
        if query.snapshots {
            let mut entries =
                match_snapshots(volumes, namespace, &query, listed.snapshots, is_complete);
            entries.retain(|key, _| is_wanted(key));
            let page = cut_page(&entries, after.as_ref(), room);
            (reply.snapshots, reply.next) = (page.entries, page.next);
        } else {
            let mut entries =
                match_volumes(volumes, namespace, &query, listed.volumes, is_complete);
            entries.retain(|key, _| is_wanted(key));
            let page = cut_page(&entries, after.as_ref(), room);
            (reply.volumes, reply.next) = (page.entries, page.next);
        }
    });
    Ok(reply)
}

/// The page that follows this entry.
fn cut_page<T: Clone + Serialize>(
    entries: &BTreeMap<ListKey, T>,
    after: Option<&ListKey>,
    room: Room,
) -> Page<T> {
    let first = after.map_or(Bound::Unbounded, Bound::Excluded);
    let keys = entries.range((first, Bound::Unbounded)).map(|(key, _)| key).take(room.keys());
    let token = |key: &&ListKey| serde_json::to_string(key).unwrap_or_default();
    let page = page(keys, room, |key| entries.get(*key).cloned(), token);
    Page { entries: page.entries.into_iter().flatten().collect(), next: page.next }
}

fn is_registered(state: &State, query: &ListExternals, id: &str) -> bool {
    let handle = Handle { plugin: query.plugin.clone(), external_id: id.to_owned() };
    state.volumes.mirror.read(|volumes| volumes.handles().get(&handle).is_some())
}

fn match_volumes(
    volumes: &Volumes,
    namespace: &Namespace,
    query: &ListExternals,
    listed: Vec<PluginVolumeStatus>,
    is_complete: bool,
) -> BTreeMap<ListKey, ExternalVolume> {
    let names = |key: &VolumeKey| {
        let is_named = namespace.covers(&key.namespace);
        (is_named.then(|| key.volume.clone()), is_named.then(|| key.namespace.clone()))
    };
    let mut listed_ids = BTreeSet::new();
    let mut entries = BTreeMap::new();
    let mut show = |entry: ExternalVolume| {
        let owner = entry.namespace.as_ref().zip(entry.volume.as_ref());
        let owner = owner.map(|(namespace, volume)| format!("{namespace}/{volume}"));
        let id = entry.listed.external_id.clone();
        entries.insert((entry.registration, id, owner.unwrap_or_default()), entry);
    };
    for listed in listed {
        // A list that changes while it is read may have a volume twice.
        if !listed_ids.insert(listed.external_id.clone()) {
            continue;
        }
        let handle =
            Handle { plugin: query.plugin.clone(), external_id: listed.external_id.clone() };
        let owner = volumes.handles().get(&handle).and_then(|entry| entry.registered.first());
        let (volume, volume_namespace) = owner.map(names).unwrap_or_default();
        let registration = match owner {
            Some(_) => Registration::Known,
            None => Registration::NotRegistered,
        };
        show(ExternalVolume { registration, listed, volume, namespace: volume_namespace });
    }
    let missing = volumes.handles().iter().filter(|(handle, _)| {
        is_complete && handle.plugin == query.plugin && !listed_ids.contains(&handle.external_id)
    });
    for (handle, entry) in missing {
        for owner in entry.registered.iter().filter(|key| namespace.covers(&key.namespace)) {
            let (volume, volume_namespace) = names(owner);
            let listed = PluginVolumeStatus {
                external_id: handle.external_id.clone(),
                capacity_bytes: None,
                context: BTreeMap::new(),
                topologies: Vec::new(),
                published_on: None,
                abnormal: None,
            };
            let registration = Registration::NotListed;
            show(ExternalVolume { registration, listed, volume, namespace: volume_namespace });
        }
    }
    entries
}

fn match_snapshots(
    volumes: &Volumes,
    namespace: &Namespace,
    query: &ListExternals,
    listed: Vec<PluginSnapshotStatus>,
    is_complete: bool,
) -> BTreeMap<ListKey, ExternalSnapshot> {
    let mut registered: BTreeMap<String, (VolumeKey, SnapshotId)> = BTreeMap::new();
    for (key, subtree) in volumes.iter() {
        for (id, snapshot) in &subtree.volume.snapshots {
            for external in snapshot.ids().filter(|_| snapshot.plugin == query.plugin) {
                registered.insert(external.clone(), (key.clone(), id.clone()));
            }
        }
    }
    let mut entries = BTreeMap::new();
    let mut show = |registration, listed: PluginSnapshotStatus, owner: Option<&_>| {
        let named =
            owner.filter(|(key, _): &&(VolumeKey, SnapshotId)| namespace.covers(&key.namespace));
        // An id is registered for one snapshot at most.
        let key = (registration, listed.external_id.clone(), String::new());
        let entry = ExternalSnapshot {
            registration,
            listed,
            volume: named.map(|(key, _)| key.volume.clone()),
            namespace: named.map(|(key, _)| key.namespace.clone()),
            snapshot: named.map(|(_, id)| id.clone()),
        };
        entries.insert(key, entry);
    };
    let mut listed_ids = BTreeSet::new();
    for listed in listed {
        if !listed_ids.insert(listed.external_id.clone()) {
            continue;
        }
        let owner = registered.get(&listed.external_id);
        let registration = match owner {
            Some(_) => Registration::Known,
            None => Registration::NotRegistered,
        };
        show(registration, listed, owner);
    }
    let missing = registered.iter().filter(|(id, _)| is_complete && !listed_ids.contains(*id));
    for (external_id, owner) in missing.filter(|(_, (key, _))| namespace.covers(&key.namespace)) {
        let listed = PluginSnapshotStatus {
            topologies: Vec::new(),
            external_id: external_id.clone(),
            source: String::new(),
            size_bytes: None,
            cut_at: None,
            ready: false,
            group: None,
        };
        show(Registration::NotListed, listed, Some(owner));
    }
    entries
}

#[cfg(test)]
mod tests {
    use berth_bus::Fold as _;
    use berth_contract::{key, record};
    use berth_domain::volume::VolumeSpec;
    use serde_json::json;

    use super::*;

    fn query() -> ListExternals {
        serde_json::from_value(json!({"plugin": "p"})).unwrap()
    }

    fn listed(id: &str) -> PluginVolumeStatus {
        serde_json::from_value(json!({"external_id": id})).unwrap()
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

    #[test]
    fn the_list_of_a_plugin_comes_in_pages_that_end() {
        let entries = match_volumes(
            &volumes(),
            &Namespace::wildcard(),
            &query(),
            vec![listed("c"), listed("a"), listed("c")],
            true,
        );
        let (mut shown, mut after) = (Vec::new(), None);
        loop {
            let page = cut_page(&entries, after.as_ref(), Room { entries: 2, bytes: 10_000 });
            shown.push(page.entries.len());
            let Some(next) = page.next else { break };
            after = Some(serde_json::from_str::<ListKey>(&next).unwrap());
        }
        let ids: Vec<(&str, Registration)> =
            entries.keys().map(|(registration, id, _)| (id.as_str(), *registration)).collect();
        let expected = [
            ("a", Registration::Known),
            ("c", Registration::NotRegistered),
            ("b", Registration::NotListed),
            ("b", Registration::NotListed),
        ];
        assert_eq!((ids.as_slice(), shown), (&expected[..], vec![2, 2]));
    }

    #[test]
    fn a_page_of_a_plugins_list_has_no_more_bytes_than_a_message_carries() {
        let many = (0..4000).map(|at| listed(&format!("{at:0200}"))).collect();
        let entries = match_volumes(&volumes(), &Namespace::default(), &query(), many, false);
        let page = cut_page(&entries, None, Room::for_page(&query().page));
        let bytes = serde_json::to_vec(&page.entries).unwrap().len();
        assert!(bytes <= berth_domain::limits::PAGE_BYTES_MAX, "{bytes}");
        assert!(page.next.is_some() && page.entries.len() > 100, "{}", page.entries.len());
    }
}
