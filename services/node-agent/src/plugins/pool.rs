//! The instances of one plugin on this node, and the choice of the instance that is called.
//!
//! **Owns** which instance has mounted which volume, as long as a plugin has several instances.
//!
//! **Promises** that a call in flight keeps its instance from being removed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_contract::event::EventName;
use berth_csi::Rpc;
use berth_csi::failure::one_line;
use berth_csi::rpc::Service;
use berth_domain::plugin::{Half, StorageTrouble};
use tokio::sync::watch;

use super::fold::{self, InstanceCandidate};
use super::member::{CallInFlight, PluginInstance};
use super::room::NodeRoom;
use super::storage_health::StorageHealth;
use super::view::{InstanceView, PluginHalves};
use crate::fleet::events::EventPublisher;

/// The instances of one plugin.
#[derive(Debug)]
pub(crate) struct InstancePool {
    members: Mutex<InstanceSet>,
    controller: watch::Sender<InstanceView>,
    changes: watch::Sender<u64>,
    events: Option<EventPublisher>,
    room: NodeRoom,
    storage: StorageHealth,
}

#[derive(Debug)]
struct InstanceSet {
    // The present instances. `controller` and `node` stay set after the last one is removed.
    all: Vec<Arc<PluginInstance>>,
    controller: Arc<PluginInstance>,
    node: Arc<PluginInstance>,
    halves: PluginHalves,
}

impl InstancePool {
    /// The pool of a plugin with one instance.
    pub(crate) fn new(
        first: Arc<PluginInstance>,
        changes: watch::Sender<u64>,
        events: Option<EventPublisher>,
    ) -> Arc<Self> {
        let halves = fold::fold_halves(&[first.candidate()], 0, 0).unwrap_or_else(|| {
            let view = first.view();
            PluginHalves { controller: view.clone(), node: view }
        });
        let controller = watch::Sender::new(halves.controller.clone());
        let (all, node) = (vec![Arc::clone(&first)], Arc::clone(&first));
        let members = Mutex::new(InstanceSet { all, controller: first, node, halves });
        let (room, storage) = (NodeRoom::default(), StorageHealth::default());
        Arc::new(Self { members, controller, changes, events, room, storage })
    }

    fn members(&self) -> MutexGuard<'_, InstanceSet> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn halves(&self) -> PluginHalves {
        self.members().halves.clone()
    }

    pub(crate) fn follow_controller(&self) -> watch::Receiver<InstanceView> {
        self.controller.subscribe()
    }

    /// Every instance, the newest first.
    pub(crate) fn list(&self) -> Vec<Arc<PluginInstance>> {
        let mut all = self.members().all.clone();
        all.sort_by_key(|member| (std::cmp::Reverse(member.since), member.key.clone()));
        all
    }

    /// Whether a probe of any instance has ended.
    pub(crate) fn is_probed(&self) -> bool {
        self.members().all.iter().any(|member| member.is_probed())
    }

    /// Whether calls go to this instance.
    pub(crate) fn serves(&self, member: &PluginInstance) -> bool {
        let members = self.members();
        members.controller.key == member.key || members.node.key == member.key
    }

    pub(crate) fn add_instance(&self, member: Arc<PluginInstance>) {
        self.members().all.push(member);
        self.choose_instances();
    }

    /// Removes an instance. True if it was the last.
    pub(crate) fn remove_instance(&self, key: &str) -> bool {
        let mut members = self.members();
        members.all.retain(|member| member.key != key);
        let is_last = members.all.is_empty();
        if let [alone] = &members.all[..] {
            alone.forget_volumes();
        }
        drop(members);
        if !is_last {
            self.choose_instances();
        }
        is_last
    }

    /// The instance that a call goes to. The roster keeps it until the call has ended.
    pub(crate) fn start_call(&self, rpc: Rpc) -> CallInFlight {
        let members = self.members();
        match rpc.service() {
            Service::Node => members.node.start_call(),
            _ => members.controller.start_call(),
        }
    }

    /// The plugin has no room for a further volume on this node. Its limit is asked again: it may
    /// have changed.
    pub(crate) fn record_full(&self, volume: &str, why: &str) {
        if self.room.set_full(volume, one_line(why)) {
            self.changes.send_modify(|count| *count += 1);
            let node = Arc::clone(&self.members().node);
            node.request_identify();
        }
    }

    /// A volume of the plugin left this node.
    pub(crate) fn record_room(&self) {
        if self.room.clear() {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Forgets that the plugin had no room, once that is long ago.
    pub(crate) fn expire_full(&self) {
        if self.room.expire() {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Why the plugin takes no further volume on this node.
    pub(crate) fn why_full(&self) -> Option<String> {
        self.room.why_full()
    }

    /// Stores what the plugin says of its storage, seen from this node.
    pub(crate) fn record_storage(&self, troubles: Vec<StorageTrouble>) {
        if self.storage.set(troubles) {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// What is wrong with the storage.
    pub(crate) fn storage_troubles(&self) -> Vec<StorageTrouble> {
        self.storage.troubles()
    }

    /// Whether calls of the node go to this instance.
    pub(crate) fn mounts_by(&self, member: &PluginInstance) -> bool {
        self.members().node.key == member.key
    }

    /// Records that an instance mounts a volume, if the plugin has other instances. A single
    /// instance has mounted all volumes. Before another one joins, [`Self::record_unknown_volumes`]
    /// takes them from the journal.
    pub(crate) async fn record_volume(&self, member: &Arc<PluginInstance>, volume: &str) {
        let has_others = self.members().all.len() > 1;
        if has_others && member.add_volume(volume) {
            member.save().await;
        }
    }

    /// Whether the record of an instance is due to be reduced to the volumes that are mounted.
    pub(crate) fn has_old_volumes(&self) -> bool {
        self.members().all.iter().any(|member| member.has_old_volumes())
    }

    /// Forgets the volumes that are no longer mounted on this node.
    pub(crate) fn keep_volumes(&self, mounted: &BTreeSet<String>) {
        for member in &self.members().all {
            member.keep_volumes(mounted);
        }
    }

    /// Number of these mounted volumes that an instance may have mounted. A volume without a record
    /// counts for every instance.
    pub(crate) fn count_needing_mounts<'a>(
        &self,
        member: &PluginInstance,
        mounted: impl IntoIterator<Item = &'a str>,
    ) -> usize {
        let all = self.members().all.clone();
        let may_be_its = |volume: &&str| {
            member.has_mounted(volume) || !all.iter().any(|other| other.has_mounted(volume))
        };
        mounted.into_iter().filter(may_be_its).count()
    }

    /// Records for every present instance the mounted volumes that no instance has on record.
    /// Called before another instance joins: it has mounted none of them.
    pub(crate) async fn record_unknown_volumes(&self, mounted: &BTreeSet<String>) {
        let all = self.members().all.clone();
        let known = |volume: &str| all.iter().any(|member| member.has_mounted(volume));
        let unknown: Vec<&String> = mounted.iter().filter(|volume| !known(volume)).collect();
        for member in &all {
            member.keep_volumes(mounted);
            for volume in &unknown {
                member.add_volume(volume);
            }
            member.save().await;
        }
    }

    /// Chooses again which instances are called, and updates the plugin's views.
    pub(crate) fn choose_instances(&self) {
        let mut members = self.members();
        let all: Vec<InstanceCandidate> =
            members.all.iter().map(|member| member.candidate()).collect();
        let controller =
            fold::choose_instance(&all, Half::Controller, Some(&members.controller.key));
        let node = fold::choose_instance(&all, Half::Node, Some(&members.node.key));
        let Some(halves) = fold::fold_halves(&all, controller, node) else { return };
        let moved = members.all.get(node).filter(|next| next.key != members.node.key).cloned();
        for (half, index) in [(Half::Controller, controller), (Half::Node, node)] {
            let Some(next) = members.all.get(index).cloned() else { continue };
            match half {
                Half::Controller => members.controller = next,
                Half::Node => members.node = next,
            }
        }
        if let Some(next) = moved {
            self.publish_move(&next, &halves.node);
        }
        if members.halves == halves {
            return;
        }
        self.controller.send_if_modified(|view| {
            let is_news = *view != halves.controller;
            view.clone_from(&halves.controller);
            is_news
        });
        members.halves = halves;
        drop(members);
        self.changes.send_modify(|count| *count += 1);
    }

    fn publish_move(&self, next: &PluginInstance, view: &InstanceView) {
        let (plugin, instance) = (&next.declaration.id, &next.key);
        let version = view.fingerprint.as_ref().map_or("", |known| known.vendor_version.as_str());
        tracing::info!(%plugin, instance, version, "calls go to another instance of a plugin");
        if let Some(events) = &self.events {
            let source = &next.record().source;
            let detail = format!("calls go to instance {instance} {version}, of {source}");
            events.publish_plugin_event(EventName::PluginMoved, plugin, detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::{PluginId, Timestamp};

    use super::*;
    use crate::plugins::declaration::{Declaration, PluginSource};
    use crate::plugins::record::InstanceRecord;

    const VOLUMES: usize = 10_000;

    fn member(socket: &str) -> Arc<PluginInstance> {
        let declaration = Declaration::socket(PluginId::new("p").unwrap(), socket);
        let now = Timestamp::from_unix_ms(7);
        PluginInstance::new(
            InstanceRecord::new(PluginSource::Socket(socket.into()), declaration, now),
            None,
            now,
        )
    }

    fn set(volumes: &[&str]) -> BTreeSet<String> {
        volumes.iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn a_single_instance_keeps_no_record_of_volumes() {
        let first = member("/run/a.sock");
        let pool = InstancePool::new(Arc::clone(&first), watch::Sender::new(0), None);
        for number in 0..VOLUMES {
            pool.record_volume(&first, &format!("v{number}")).await;
        }
        assert_eq!(first.record().volumes, set(&[]));
        // The first instance has mounted what is mounted when another one joins.
        pool.record_unknown_volumes(&set(&["v1"])).await;
        let second = member("/run/b.sock");
        pool.add_instance(Arc::clone(&second));
        pool.record_volume(&second, "w").await;
        let mounted = ["v1", "w"];
        assert_eq!(
            (
                pool.count_needing_mounts(&first, mounted),
                pool.count_needing_mounts(&second, mounted)
            ),
            (1, 1)
        );
        // The remaining instance counts as having mounted everything.
        assert!(!pool.remove_instance(&first.key));
        assert_eq!(second.record().volumes, set(&[]));
        assert_eq!(pool.count_needing_mounts(&second, mounted), 2);
    }

    #[tokio::test]
    async fn one_of_two_instances_forgets_volumes_that_are_gone() {
        let (first, second) = (member("/run/a.sock"), member("/run/b.sock"));
        let pool = InstancePool::new(Arc::clone(&first), watch::Sender::new(0), None);
        pool.add_instance(Arc::clone(&second));
        pool.record_volume(&first, "stays").await;
        let mut most = 0;
        for number in 0..VOLUMES {
            pool.record_volume(&second, &format!("v{number}")).await;
            most = most.max(second.record().volumes.len());
            // As the roster does at each scan. Only these two are mounted.
            if pool.has_old_volumes() {
                pool.keep_volumes(&set(&["stays", "v0"]));
            }
        }
        assert!(most < 1_000, "{most} volumes are on record, and 2 are mounted");
        let mounted = ["stays", "v0"];
        assert_eq!(
            (
                pool.count_needing_mounts(&first, mounted),
                pool.count_needing_mounts(&second, mounted)
            ),
            (1, 1)
        );
    }
}
