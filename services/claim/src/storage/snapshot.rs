//! `snapshot.create`, `snapshot.delete`, `snapshot.adopt` and `snapshot.list` (rule 23).
//!
//! **Owns** the requests about snapshots, single ones and groups.
//!
//! **Promises** that a group is requested, deleted and forgotten as a whole, and that a snapshot of
//! the plugin is registered only once.
//!
//! **Never** calls the plugin, and deletes no snapshot whose id another record has.

use berth_contract::code::Code;
use berth_contract::hint::{namespace_option, quoted};
use berth_contract::key::{self, VolumeEntry};
use berth_contract::message::snapshot::{
    AdoptSnapshot, CreateSnapshot, DeleteSnapshot, ListSnapshots, SnapshotStub, Snapshots,
    SnapshotsChanged,
};
use berth_contract::problem::Problem;
use berth_domain::limits::UNREADABLE_MAX;
use berth_domain::volume::storage::{Snapshot, SnapshotWish};
use berth_domain::volume::{Command, CutSnapshot, Handle, Volume};
use berth_domain::{Namespace, SnapshotId, VolumeId, VolumeKey};
use berth_service::clock;
use berth_service::page::{Room, after, page};
use berth_service::projection::Volumes;

use super::ability::Ability;
use super::external::{ListKind, PluginLists};
use super::group::{check_members, keys, members_of, transact_members};
use super::snapshot_id::find_other;
use crate::caller::Caller;
use crate::read::{Reader, show_snapshot};
use crate::store::state::State;

/// Stores snapshots that are to be cut. The volumewatcher makes the call.
pub async fn create_snapshots(
    state: &State,
    namespace: &Namespace,
    request: CreateSnapshot,
    caller: &Caller,
) -> Result<SnapshotsChanged, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let volumes = keys(namespace, &request.volumes);
    let is_group = request.group || volumes.len() > 1;
    let members: Vec<_> = volumes.iter().map(|volume| volume.volume.clone()).collect();
    let name = format!("berth-snapshot-{}", clock::new_secrets_id());
    let first_plugin = state
        .volumes
        .mirror
        .read(|all| Some(all.get(volumes.first()?)?.volume.spec.as_ref()?.plugin.clone()));
    let command = |volume: &VolumeKey, now: &Volume| {
        let spec = now.spec.as_ref();
        if let Some(spec) = spec {
            state.require(&spec.plugin, Ability::CreateDeleteSnapshot)?;
            if is_group {
                state.require(&spec.plugin, Ability::GroupSnapshot)?;
                if Some(&spec.plugin) != first_plugin.as_ref() {
                    let message = "the volumes of a group are of one plugin; these are of several";
                    return Err(Problem::new(Code::PluginLacks, message));
                }
            }
        }
        let source = spec.map(|spec| spec.external_id(&volume.volume)).unwrap_or_default();
        Ok(Command::CutSnapshot {
            snapshot: request.snapshot.clone(),
            wish: SnapshotWish {
                name: name.clone(),
                source,
                parameters: request.parameters.clone(),
                members: if is_group { members.clone() } else { Vec::new() },
            },
        })
    };
    let done = transact_members(state, &volumes, trace, Some(deadline), command).await;
    let done = done.map_err(|(volume, error)| state.problem(error, &volume))?;
    let snapshots = show_snapshots(state, &volumes, &request.snapshot);
    Ok(SnapshotsChanged { changed: done.written, snapshots })
}

/// Has a snapshot deleted at its storage, or its whole group.
pub async fn delete_snapshots(
    state: &State,
    namespace: &Namespace,
    request: DeleteSnapshot,
    caller: &Caller,
) -> Result<SnapshotsChanged, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let volume = VolumeKey::new(namespace.clone(), request.volume.clone());
    let volumes = if request.group {
        let caught_up = state.catch_up(&volume).await;
        caught_up.map_err(|error| state.problem(error, &volume))?;
        members_of(state, &volume, &request.snapshot)
    } else {
        vec![volume]
    };
    check_deletable(state, &volumes, &request).await?;
    let command = |member: &VolumeKey, now: &Volume| {
        if request.group {
            check_members(now, Some(&request.snapshot), &volumes)?;
        }
        if member.volume == request.volume {
            check_create_index(now, &request)?;
        }
        if let Some(record) = now.snapshots.get(&request.snapshot)
            && (record.external_id.is_some() || record.foreign)
            && !request.forget
        {
            let ability =
                if request.group { Ability::GroupSnapshot } else { Ability::CreateDeleteSnapshot };
            state.require(&record.plugin, ability)?;
        }
        Ok(Command::DeleteSnapshot {
            snapshot: request.snapshot.clone(),
            as_group: request.group,
            forget: request.forget,
        })
    };
    let done = transact_members(state, &volumes, trace, Some(deadline), command).await;
    let done = done.map_err(|(volume, error)| {
        let problem = state.problem(error, &volume);
        match problem.code {
            Code::SnapshotInGroup => problem.next(delete_group(&volume, &request)),
            _ => problem,
        }
    })?;
    let snapshots = show_snapshots(state, &volumes, &request.snapshot);
    Ok(SnapshotsChanged { changed: done.written, snapshots })
}

/// Refuses to delete a snapshot that was created later, under the name of the intended one.
fn check_create_index(now: &Volume, request: &DeleteSnapshot) -> Result<(), Problem> {
    let Some(record) = now.snapshots.get(&request.snapshot) else { return Ok(()) };
    match request.create_index.filter(|meant| *meant != record.create_index) {
        Some(meant) => {
            let created = record.create_index;
            let message = format!("it was made again at {created}, and {meant} was meant");
            Err(Problem::new(Code::NoSuchSnapshot, message))
        }
        None => Ok(()),
    }
}

/// Refuses to delete a snapshot at the storage if another record has its id, and to delete a
/// snapshot without a group as a group.
async fn check_deletable(
    state: &State,
    volumes: &[VolumeKey],
    request: &DeleteSnapshot,
) -> Result<(), Problem> {
    let Some(volume) = volumes.first() else { return Ok(()) };
    let with_volume = |problem: Problem| problem.volume(volume);
    let caught_up = state.catch_up_with_all().await;
    caught_up.map_err(|error| state.problem(error, volume))?;
    let (is_groupless, ids) = state.volumes.mirror.read(|all| {
        let record_of = |key: &VolumeKey| all.get(key)?.volume.snapshots.get(&request.snapshot);
        let records: Vec<&Snapshot> =
            volumes.iter().filter_map(record_of).map(|record| &**record).collect();
        let is_groupless =
            !records.is_empty() && records.iter().all(|record| record.group.is_none());
        let ids = records
            .iter()
            .flat_map(|record| record.ids().map(|id| (record.plugin.clone(), id.clone())));
        (is_groupless, ids.collect::<Vec<_>>())
    });
    let named = format!("{}@{}", volume.volume, request.snapshot);
    if request.group && is_groupless {
        let next = format!(
            "delete it alone: `berth snapshot delete {}@{}{}`",
            quoted(volume.volume.as_str()),
            quoted(request.snapshot.as_str()),
            namespace_option(&volume.namespace)
        );
        let message = format!("snapshot {named} is in no group");
        return Err(with_volume(Problem::new(Code::BadInput, message).next(next)));
    }
    let has_same_id = |other: &Snapshot| {
        ids.iter().any(|(plugin, id)| {
            other.plugin == *plugin && other.ids().any(|other_id| other_id == id)
        })
    };
    match find_other(state, volumes, &request.snapshot, has_same_id).filter(|_| !request.forget) {
        Some(other) => {
            let message = format!("its plugin has one id for it and for {other}");
            let next = "look at the storage which of them it is, and forget the other (--forget)";
            Err(with_volume(Problem::new(Code::SnapshotExists, message).next(next)))
        }
        None => Ok(()),
    }
}

fn delete_group(volume: &VolumeKey, request: &DeleteSnapshot) -> String {
    let forget = if request.forget { " --forget" } else { "" };
    format!(
        "delete the group: `berth snapshot group delete {}@{}{forget}{}`",
        quoted(volume.volume.as_str()),
        quoted(request.snapshot.as_str()),
        namespace_option(&volume.namespace)
    )
}

/// Registers a snapshot that the plugin has and Berth does not know (A16).
pub async fn adopt_snapshot(
    state: &State,
    namespace: &Namespace,
    request: AdoptSnapshot,
    caller: &Caller,
) -> Result<SnapshotsChanged, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let volume = VolumeKey::new(namespace.clone(), request.volume.clone());
    let with_volume = |problem: Problem| problem.volume(&volume).plugin(&request.plugin);
    state.require(&request.plugin, Ability::ListSnapshots).map_err(with_volume)?;
    let lists = PluginLists::new(state, &request.plugin, ListKind::Snapshots, trace);
    let listed = lists.read_all(deadline).await.map_err(with_volume)?;
    let (adopted, home) = listed.snapshot(&request.external_id).map_err(with_volume)?;
    let cut = CutSnapshot {
        external_id: adopted.external_id,
        source: adopted.source,
        size_bytes: adopted.size_bytes.unwrap_or_default(),
        cut_at: adopted.cut_at,
        ready: adopted.ready,
        usable_from: adopted.usable_from,
    };
    // After the list: the mirror then has any request that led to a listed snapshot.
    let caught_up = state.catch_up_with_all().await;
    caught_up.map_err(|error| with_volume(state.problem(error, &volume)))?;
    check_owner(state, &volume, &request, &cut.source).map_err(with_volume)?;
    let own = std::slice::from_ref(&volume);
    let may_be_same = |record: &Snapshot| record.may_be(&request.plugin, &cut);
    let other_name = find_other(state, own, &request.snapshot, may_be_same);
    if let Some(other_name) = other_name {
        let message =
            format!("the plugin's snapshot {} is {other_name}, or may be", request.external_id);
        return Err(with_volume(Problem::new(Code::SnapshotExists, message)));
    }
    let (snapshot, plugin) = (request.snapshot.clone(), request.plugin.clone());
    let topologies = adopted.topologies;
    let command = Command::AdoptSnapshot { snapshot, plugin, cut, topologies, home };
    let done = state.transact_until(&volume, trace, deadline, |_| Ok(command.clone())).await;
    let done = done.map_err(|error| with_volume(state.problem(error, &volume)))?;
    let snapshots = show_snapshots(state, &[volume], &request.snapshot);
    Ok(SnapshotsChanged { changed: done.step.write.is_some(), snapshots })
}

/// Refuses to register a snapshot below another volume than its source, if the source is
/// registered. So of two requests for one snapshot, the second finds the first on one record.
fn check_owner(
    state: &State,
    volume: &VolumeKey,
    request: &AdoptSnapshot,
    source: &str,
) -> Result<(), Problem> {
    let handle = Handle { plugin: request.plugin.clone(), external_id: source.to_owned() };
    let owner = state.volumes.mirror.read(|volumes| {
        let registered = volumes.handles().get(&handle)?.registered();
        registered.first().filter(|_| !registered.contains(volume)).cloned()
    });
    let Some(owner) = owner else { return Ok(()) };
    let message = format!("the plugin's snapshot {} is of volume {owner}", request.external_id);
    let next = format!(
        "register it there: `berth snapshot adopt {} {} {}@{}{}`",
        quoted(request.plugin.as_str()),
        quoted(&request.external_id),
        quoted(owner.volume.as_str()),
        quoted(request.snapshot.as_str()),
        namespace_option(&owner.namespace)
    );
    Err(Problem::new(Code::BadInput, message).next(next))
}

fn show_snapshots(state: &State, volumes: &[VolumeKey], id: &SnapshotId) -> Vec<SnapshotStub> {
    state.volumes.mirror.read(|all| {
        volumes.iter().filter_map(|volume| show_snapshot(state, all, volume, id)).collect()
    })
}

/// Snapshots of a namespace.
pub async fn list_snapshots(
    state: &State,
    namespace: &Namespace,
    query: ListSnapshots,
    caller: &Caller,
) -> Result<Snapshots, Problem> {
    let deadline = caller.deadline;
    let after = after(&query.page, |token| match key::parse_volume(token)? {
        VolumeEntry::Snapshot(volume, snapshot) => Some((volume, snapshot)),
        _ => None,
    })?;
    let reader = Reader::new(query.newer, deadline);
    let is_wanted = |volume: &VolumeKey, id: &SnapshotId| {
        namespace.covers(&volume.namespace)
            && query.volume.as_ref().is_none_or(|wanted| *wanted == volume.volume)
            && id.as_str().starts_with(&query.prefix)
    };
    let show_page = |volumes: &Volumes| {
        let room = Room::for_page(&query.page);
        let first = after.as_ref().map(|(volume, _)| volume);
        let of_volume = query.volume.as_ref().map_or("", VolumeId::as_str);
        let all = volumes.iter_listed(namespace, of_volume, first);
        let wanted = all
            .flat_map(|(volume, subtree)| {
                let of_plugin = subtree.volume.snapshots.iter().filter(|(_, snapshot)| {
                    query.plugin.as_ref().is_none_or(|wanted| *wanted == snapshot.plugin)
                });
                of_plugin.map(move |(id, _)| (volume, id))
            })
            .filter(|(volume, id)| is_wanted(volume, id))
            .filter(|(volume, id)| {
                after
                    .as_ref()
                    .is_none_or(|(last_volume, last_id)| (*volume, *id) > (last_volume, last_id))
            })
            .take(room.keys());
        let show =
            |(volume, id): &(&VolumeKey, &SnapshotId)| show_snapshot(state, volumes, volume, id);
        let page = page(wanted, room, show, |(volume, id)| key::snapshot(volume, id));
        let unreadable = volumes
            .iter_unreadable()
            .filter(|(volume, _)| namespace.covers(&volume.namespace))
            .flat_map(|(_, subtree)| subtree.unreadable().values().cloned());
        (page, unreadable.take(UNREADABLE_MAX).collect())
    };
    let concerns = |volumes: &Volumes, than: u64| {
        volumes.changes().has_since(than, |change| {
            namespace.covers(&change.volume.namespace)
                && query.volume.as_ref().is_none_or(|wanted| *wanted == change.volume.volume)
        })
    };
    let (index, (page, unreadable)) =
        state.snapshot(reader, &state.volumes, concerns, show_page).await?;
    let snapshots = page.entries.into_iter().flatten().collect();
    Ok(Snapshots { index, snapshots, next: page.next, unreadable })
}
