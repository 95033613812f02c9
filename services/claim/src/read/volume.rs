//! `volume.status` and `volume.list`.

use std::collections::BTreeSet;

use berth_contract::code::Code;
use berth_contract::key::{self, VolumeEntry};
use berth_contract::message::query::{Page, RefusedRequest};
use berth_contract::message::storage::{StorageStatus, StorageWait};
use berth_contract::message::volume::{
    Health, ListVolumes, VolumeQuery, VolumeStatus, VolumeStub, Volumes as Listed,
};
use berth_contract::problem::Problem;
use berth_domain::access::Mode;
use berth_domain::volume::storage::{Operation, Stage};
use berth_domain::volume::{Claim, Holders, Refusal, State as ClaimState, Volume, VolumeSpec};
use berth_domain::{AllocId, Namespace, VolumeKey};
use berth_service::clock;
use berth_service::page::{Room, after, page};
use berth_service::projection::{Subtree, VolumeChange, Volumes};

use super::claim::show_first_claims;
use super::storage::show_storage;
use super::volume_health::{PluginView, PluginViews, read_plugin};
use super::{Reader, first_unreadable};
use crate::caller::Caller;
use crate::store::handle;
use crate::store::refuse;
use crate::store::state::State;

/// One volume with its claims and its health.
pub async fn volume_status(
    state: &State,
    namespace: &Namespace,
    query: VolumeQuery,
    caller: &Caller,
) -> Result<VolumeStatus, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let key = VolumeKey::new(namespace.clone(), query.id);
    let with_volume = |problem: Problem| problem.volume(&key);
    let reader = Reader::new(query.newer, deadline);
    let head = |volumes: &Volumes| Some(volumes.get(&key)?.head);
    state.wait_for_newer(reader, &state.volumes, head).await.map_err(with_volume)?;
    let filter = key::subtree(&key);
    let caught_up = state.catch_up_with_leader(reader, &state.volumes, &filter);
    let refusal = state.last_refusal(&key.namespace, Some(&key.volume), None, deadline);
    let (caught_up, refusal) = tokio::join!(caught_up, refusal);
    caught_up.map_err(with_volume)?;
    // A program may act on the absence of a volume, so a leader with a quorum confirms it.
    let is_absent = state.volumes.mirror.read(|volumes| {
        let subtree = volumes.get(&key);
        subtree
            .is_none_or(|subtree| subtree.volume.spec.is_none() && subtree.unreadable().is_empty())
    });
    if is_absent {
        let confirmed = state.catch_up_surely(&key, trace).await;
        confirmed.map_err(|error| state.problem(error, &key))?;
    }
    state.volumes.mirror.read(|volumes| {
        let subtree = volumes.get(&key);
        // An unreadable spec is not replaced by its last readable state, which may be outdated.
        let unreadable = subtree.and_then(|subtree| subtree.unreadable().get(&key::spec(&key)));
        if let Some(record) = unreadable {
            return Err(with_volume(record.problem()));
        }
        let registered = subtree.and_then(|subtree| Some((subtree, subtree.volume.spec.as_ref()?)));
        if let Some(lost) = subtree.and_then(|subtree| registration_lost(&key, &subtree.volume)) {
            return Err(with_volume(lost));
        }
        let no_such_volume =
            || with_volume(Problem::new(Code::NoSuchVolume, format!("no volume {key}")));
        let (subtree, spec) = registered.ok_or_else(no_such_volume)?;
        Ok(build_status(state, volumes, &key, subtree, spec, refusal))
    })
}

/// The problem of a name with claims, but without a registered volume.
fn registration_lost(key: &VolumeKey, now: &Volume) -> Option<Problem> {
    let holders: Holders = now.holders().collect();
    let is_lost = now.spec.is_none() && !holders.named.is_empty();
    let handle = now.holders().find_map(|(_, claim)| claim.handle());
    let name = handle
        .map(|handle| format!(" (plugin {}, external id {:?})", handle.plugin, handle.external_id));
    is_lost.then(|| {
        let refusal = Refusal::OtherVolumesClaims { holders: holders.clone() };
        let message = format!(
            "no volume {key} is registered, and claims of one that was{} stand: {holders}",
            name.unwrap_or_default()
        );
        Problem { message, ..refuse::to_problem(key, &refusal) }
    })
}

/// Adds that no call is made because the controller that knows the volume is away. This is in no
/// record, because it may end at any moment.
fn with_controller_wait(state: &State, now: &Volume, mut shown: StorageStatus) -> StorageStatus {
    if let Some(operation) = &mut shown.operation
        && !operation.calling
        && operation.waits_for.is_none()
        && state.storage_executor(now, None).is_err()
    {
        operation.waits_for = Some(StorageWait::Controller);
    }
    shown
}

fn build_status(
    state: &State,
    volumes: &Volumes,
    key: &VolumeKey,
    subtree: &Subtree,
    spec: &VolumeSpec,
    last_refusal: Option<RefusedRequest>,
) -> VolumeStatus {
    let handle_use = handle::current_use(volumes, key);
    let now = &subtree.volume;
    let full = now.claims.exhausted().next();
    let plugin = read_plugin(state, &spec.plugin);
    let health = plugin.health_of(spec, now);
    let handle = spec.handle(&key.volume);
    let mounts = handle.map(|handle| state.mounts_of_handle(key, &handle)).unwrap_or_default();
    let mut status = VolumeStatus {
        id: key.volume.clone(),
        namespace: key.namespace.clone(),
        name: spec.name.to_value(),
        closing: spec.closing.as_deref().cloned(),
        plugin: spec.plugin.clone(),
        provider: plugin.provider,
        external_id: spec.handle(&key.volume).map(|handle| handle.external_id),
        capabilities: spec.capabilities.to_value(),
        in_use: now.in_use(),
        fs_type: spec.mount.fs_type.clone(),
        mount_flags: spec.mount.flags.len(),
        mount_group: spec.mount.group.clone(),
        topologies: spec.topologies.to_value(),
        capacity_bytes: spec.capacity_bytes,
        parameters: spec.parameters.to_value(),
        context: spec.context.to_value(),
        has_secrets: spec.secrets.is_some(),
        exhausted: full.map(|(_, claim)| {
            let message = claim.progress.failure.as_ref().map(|failure| failure.message.clone());
            message.unwrap_or_else(|| "the plugin has no room for it".to_owned())
        }),
        hint: None,
        registered_twice: handle_use.others,
        unaccounted: mounts
            .iter()
            .filter(|doubt| doubt.is_mounted())
            .map(ToString::to_string)
            .collect(),
        mounts,
        health,
        last_refusal,
        storage: Some(with_controller_wait(state, now, show_storage(now, spec))),
        snapshot_count: now.snapshots.len(),
        claim_count: now.claims.len(),
        claims: Vec::new(),
        create_index: spec.create_index,
        modify_index: subtree.head,
        unreadable: first_unreadable(subtree.unreadable().values()),
    };
    let room = Room::for_page(&Page::default()).beside(&status);
    status.claims = show_first_claims(state, volumes, key, subtree, room);
    status.hint = hint(key, &status, full);
    status
}

/// What an operator can do about the volume. A claim has its own hint, but the one without room may
/// be on a later page.
fn hint(
    key: &VolumeKey,
    status: &VolumeStatus,
    full: Option<(&AllocId, &Claim)>,
) -> Option<String> {
    let no_room = |(alloc, claim): (&AllocId, &Claim)| {
        berth_explain::no_room(Some(&status.plugin), key, &claim.node, alloc)
    };
    let finding = berth_explain::find_volume(clock::now(), status);
    finding.or_else(|| full.map(no_room))?.hint()
}

/// Volumes of a namespace, as stubs.
pub async fn list_volumes(
    state: &State,
    namespace: &Namespace,
    query: ListVolumes,
    caller: &Caller,
) -> Result<Listed, Problem> {
    let deadline = caller.deadline;
    let after = after(&query.page, |token| match key::parse_volume(token)? {
        VolumeEntry::Spec(volume) => Some(volume),
        _ => None,
    })?;
    let reader = Reader::new(query.newer, deadline);
    let show_page = |volumes: &Volumes| {
        let room = Room::for_page(&query.page);
        let matching = candidates(volumes, namespace, &query, after.as_ref())
            .filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after))
            .filter(|(key, subtree)| matches(&query, key, subtree))
            .map(|(key, _)| key)
            .take(room.keys());
        let plugins = PluginViews::new(|id| read_plugin(state, id));
        let show = |key: &&VolumeKey| {
            let subtree = volumes.get(key)?;
            let spec = subtree.volume.spec.as_ref()?;
            Some(stub(volumes, key, subtree, spec, plugins.view(&spec.plugin)))
        };
        let page = page(matching, room, show, |volume| key::spec(volume));
        let matching = volumes.iter_unreadable().filter(|(key, _)| {
            namespace.covers(&key.namespace) && key.volume.as_str().starts_with(&query.prefix)
        });
        let unreadable = matching.flat_map(|(_, subtree)| subtree.unreadable().values());
        (page, first_unreadable(unreadable))
    };
    let concerns = |volumes: &Volumes, than: u64| {
        volumes.changes().has_since(than, |change| changes_list(namespace, &query, change))
    };
    let (index, (page, unreadable)) =
        state.snapshot(reader, &state.volumes, concerns, show_page).await?;
    let volumes = page.entries.into_iter().flatten().collect();
    Ok(Listed { index, volumes, next: page.next, unreadable })
}

/// The volumes that the query can mean: those that are closing, those with claims on a node, those
/// with claims, or all.
fn candidates<'a>(
    volumes: &'a Volumes,
    namespace: &'a Namespace,
    query: &'a ListVolumes,
    first: Option<&'a VolumeKey>,
) -> Box<dyn Iterator<Item = (&'a VolumeKey, &'a Subtree)> + 'a> {
    let ListVolumes { prefix, node, state, .. } = query;
    if query.closing {
        let closing = volumes.index().closing();
        let there = closing.filter(|key| namespace.covers(&key.namespace));
        return Box::new(there.filter_map(|key| volumes.get_key_value(key)));
    }
    match (node, state) {
        (Some(node), _) => {
            let claims = volumes.index().claims_on(node, None).map(|(key, _)| key);
            let keys: BTreeSet<&VolumeKey> =
                claims.filter(|key| first.is_none_or(|first| *key >= first)).collect();
            let there = keys.into_iter().filter(|key| namespace.covers(&key.namespace));
            Box::new(there.filter_map(|key| volumes.get_key_value(key)))
        }
        (None, Some(_)) => Box::new(volumes.iter_used(namespace, prefix, first)),
        (None, None) => Box::new(volumes.iter_listed(namespace, prefix, first)),
    }
}

/// Whether the change may affect what the query lists: the entry of a volume counts its claims.
fn changes_list(namespace: &Namespace, query: &ListVolumes, change: &VolumeChange) -> bool {
    let VolumeChange { volume, plugin, claim } = change;
    namespace.covers(&volume.namespace)
        && volume.volume.as_str().starts_with(&query.prefix)
        && query.plugin.as_ref().is_none_or(|queried| plugin.as_ref() == Some(queried))
        && match (&query.node, claim) {
            (Some(queried), Some(claim)) => claim.touches(|node, _| node == queried),
            _ => true,
        }
}

fn matches(query: &ListVolumes, key: &VolumeKey, subtree: &Subtree) -> bool {
    let readable = !subtree.unreadable().contains_key(&key::spec(key));
    let Some(spec) = subtree.volume.spec.as_ref().filter(|_| readable) else { return false };
    let claimed = |state| subtree.volume.claims.count(state) > 0;
    key.volume.as_str().starts_with(&query.prefix)
        && query.plugin.as_ref().is_none_or(|plugin| *plugin == spec.plugin)
        && query.node.as_ref().is_none_or(|node| subtree.volume.claims.held_on(node))
        && query.state.is_none_or(claimed)
        && (!query.closing || spec.closing.is_some())
}

fn stub(
    volumes: &Volumes,
    key: &VolumeKey,
    subtree: &Subtree,
    spec: &VolumeSpec,
    plugin: PluginView,
) -> VolumeStub {
    let now = &subtree.volume;
    let count_held = |mode| {
        let states = [ClaimState::Publishing, ClaimState::Taken];
        states.into_iter().map(|state| now.claims.count_of(state, mode)).sum()
    };
    let Health { healthy, controllers, nodes, abnormal, .. } = plugin.health_of(spec, now);
    let releasing = [ClaimState::Unpublishing, ClaimState::NodeDetached];
    VolumeStub {
        id: key.volume.clone(),
        namespace: key.namespace.clone(),
        name: spec.name.to_value(),
        plugin: spec.plugin.clone(),
        provider: plugin.provider,
        external_id: spec.handle(&key.volume).map(|handle| handle.external_id),
        capabilities: spec.capabilities.to_value(),
        in_use: now.in_use(),
        topologies: spec.topologies.to_value(),
        readers: count_held(Mode::Read),
        writers: count_held(Mode::Write),
        releasing: releasing.into_iter().map(|state| now.claims.count(state)).sum(),
        waiting: now.claims.count(ClaimState::Waiting),
        healthy,
        controllers,
        nodes: Some(nodes),
        abnormal,
        closing: spec.closing.is_some(),
        stage: Some(spec.stage()).filter(|stage| *stage != Stage::Ready),
        operation: spec.operation().map(Operation::kind),
        refused: spec.failure().map(|failure| failure.operation),
        class: spec.provision().and_then(|provision| provision.class.clone()),
        capacity_bytes: spec.capacity_bytes,
        registered_twice: !handle::current_use(volumes, key).others.is_empty(),
        mount: spec.mount.summary(),
        create_index: spec.create_index,
        modify_index: subtree.head,
    }
}

#[cfg(test)]
mod tests {
    use berth_bus::Fold as _;
    use berth_contract::record;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_listed_volume_says_how_it_may_be_used_and_by_which_plugin_and_shows_no_flag() {
        let key = VolumeKey::new(Namespace::default(), "data".parse().unwrap());
        let spec = json!({
            "plugin": "p", "external_id": "vol-1", "topologies": [{"zone": "a"}],
            "capabilities": [{"access": "single-node-writer", "attachment": "file-system"}],
            "mount": {"fs_type": "xfs", "flags": ["password=hunter2", "noatime"], "group": "7"},
            "parameters": {"tier": "hidden"}, "context": {"token": "hidden"},
        });
        let spec: VolumeSpec = serde_json::from_value(spec).unwrap();
        let mut volumes = Volumes::default();
        volumes.put(&key::spec(&key), 8, &record::write_spec(&spec, None).unwrap());
        let subtree = volumes.get(&key).unwrap();
        let count = |healthy| json!({"healthy": healthy, "expected": 3});
        let health = json!({"healthy": true, "description": "healthy",
            "controllers": count(1), "nodes": count(2)});
        let health = serde_json::from_value(health).unwrap();
        let plugin = PluginView { provider: "csi.example".to_owned(), health };
        let spec = subtree.volume.spec.as_ref().unwrap();
        let shown = serde_json::to_value(stub(&volumes, &key, subtree, spec, plugin)).unwrap();
        for (field, expected) in [
            ("plugin", json!("p")),
            ("provider", json!("csi.example")),
            ("controllers", count(1)),
            ("nodes", count(2)),
            ("topologies", json!([{"zone": "a"}])),
            (
                "capabilities",
                json!([{"access": "single-node-writer", "attachment": "file-system"}]),
            ),
            ("fs_type", json!("xfs")),
            ("mount_flags", json!(2)),
            ("mount_group", json!("7")),
            ("create_index", json!(8)),
            ("modify_index", json!(8)),
        ] {
            assert_eq!(shown[field], expected, "{field} of {shown}");
        }
        let text = shown.to_string();
        assert!(!text.contains("hunter2") && !text.contains("hidden"), "{text}");
    }

    #[test]
    fn a_volume_names_a_claim_without_room_that_is_beyond_its_first_claims() {
        let key = VolumeKey::new(Namespace::default(), "data".parse().unwrap());
        let status = json!({"id": "data", "namespace": "default", "plugin": "p",
            "capabilities": [], "claims": [], "create_index": 1, "modify_index": 2,
            "health": {"healthy": true, "description": "",
                "nodes": {"healthy": 1, "expected": 1}}});
        let status: VolumeStatus = serde_json::from_value(status).unwrap();
        let claim = json!({"state": "publishing", "node": "n9", "mode": "read",
            "since": "2026-11-21T20:00:00.000Z", "access": "multi-node-reader-only",
            "attachment": "file-system", "controller": true, "exhausted": true});
        let claim: Claim = serde_json::from_value(claim).unwrap();
        let alloc = AllocId::new("b").unwrap();
        let hint_text = hint(&key, &status, Some((&alloc, &claim))).unwrap();
        assert!(hint_text.contains("no room for one more volume on node n9"), "{hint_text}");
        assert!(hint_text.contains("`berth alloc stop b` (then run it there)"), "{hint_text}");
        assert_eq!(hint(&key, &status, None), None);
    }
}
