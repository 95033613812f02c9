//! The instances of one plugin on this node, and which of them is asked.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_contract::event::EventName;
use berth_csi::Rpc;
use berth_csi::rpc::Service;
use berth_domain::plugin::Half;
use tokio::sync::watch;

use super::fold::{self, InstanceCandidate};
use super::member::CallInFlight;
use super::{InstanceView, PluginHalves, PluginInstance};
use crate::events::EventPublisher;

/// One plugin's instances.
#[derive(Debug)]
pub(crate) struct InstancePool {
    members: Mutex<InstanceSet>,
    controller: watch::Sender<InstanceView>,
    changes: watch::Sender<u64>,
    events: Option<EventPublisher>,
}

#[derive(Debug)]
struct InstanceSet {
    // Those that are here; the last to leave stays known to work that still has it.
    all: Vec<Arc<PluginInstance>>,
    controller: Arc<PluginInstance>,
    node: Arc<PluginInstance>,
    halves: PluginHalves,
}

impl InstancePool {
    /// Of a plugin with one instance.
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
        Arc::new(Self { members, controller, changes, events })
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

    /// Whether calls go to it.
    pub(crate) fn serves(&self, member: &PluginInstance) -> bool {
        let members = self.members();
        members.controller.key == member.key || members.node.key == member.key
    }

    pub(crate) fn add_instance(&self, member: Arc<PluginInstance>) {
        self.members().all.push(member);
        self.choose_instances();
    }

    /// Lets an instance go; true when it was the last.
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

    /// The instance that a call goes to; it does not go while the call lasts.
    pub(crate) fn start_call(&self, rpc: Rpc) -> CallInFlight {
        let members = self.members();
        match rpc.service() {
            Service::Node => members.node.start_call(),
            _ => members.controller.start_call(),
        }
    }

    /// Notes that an instance mounts a volume, while it has company: alone it has mounted all that
    /// there is. Before another one joins, [`Self::attribute_unknown`] takes that from the journal.
    pub(crate) async fn attribute(&self, member: &Arc<PluginInstance>, volume: &str) {
        let has_company = self.members().all.len() > 1;
        if has_company && member.add_volume(volume) {
            member.save().await;
        }
    }

    /// Whether an instance has volumes on record that may be gone.
    pub(crate) fn has_old_volumes(&self) -> bool {
        self.members().all.iter().any(|member| member.has_old_volumes())
    }

    /// Forgets the volumes of which nothing is mounted here any more.
    pub(crate) fn keep_volumes(&self, mounted: &BTreeSet<String>) {
        for member in &self.members().all {
            member.keep_volumes(mounted);
        }
    }

    /// How many of these volumes, of which something is mounted here, an instance has mounted, or
    /// may have: nobody on record for a volume means that anybody may be.
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

    /// Another instance is about to join: what is mounted is the work of those that are here, as
    /// far as it is not known whose.
    pub(crate) async fn attribute_unknown(&self, mounted: &BTreeSet<String>) {
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

    /// Looks at all instances and decides anew which is asked, and what the plugin is by that.
    pub(crate) fn choose_instances(&self) {
        let mut members = self.members();
        let all: Vec<InstanceCandidate> =
            members.all.iter().map(|member| member.candidate()).collect();
        let controller =
            fold::choose_instance(&all, Half::Controller, Some(&members.controller.key));
        let node = fold::choose_instance(&all, Half::Node, Some(&members.node.key));
        let Some(halves) = fold::fold_halves(&all, controller, node) else { return };
        let moved = members.all.get(node).filter(|next| next.key != members.node.key).cloned();
        for (half, at) in [(Half::Controller, controller), (Half::Node, node)] {
            let Some(next) = members.all.get(at).cloned() else { continue };
            match half {
                Half::Controller => members.controller = next,
                Half::Node => members.node = next,
            }
        }
        if let Some(next) = moved {
            self.tell_move(&next, &halves.node);
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

    fn tell_move(&self, next: &PluginInstance, view: &InstanceView) {
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
    use crate::plugin::declaration::{Declaration, PluginSource};
    use crate::plugin::record::InstanceRecord;

    const VOLUMES: usize = 10_000;

    fn member(socket: &str) -> Arc<PluginInstance> {
        let said = Declaration::socket(PluginId::new("p").unwrap(), socket);
        let now = Timestamp::from_unix_ms(7);
        PluginInstance::new(
            InstanceRecord::new(PluginSource::Socket(socket.into()), said, now),
            None,
            now,
        )
    }

    fn set(volumes: &[&str]) -> BTreeSet<String> {
        volumes.iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn an_instance_that_is_alone_keeps_no_list_of_what_it_mounted() {
        let first = member("/run/a.sock");
        let slot = InstancePool::new(Arc::clone(&first), watch::Sender::new(0), None);
        for number in 0..VOLUMES {
            slot.attribute(&first, &format!("v{number}")).await;
        }
        assert_eq!(first.record().volumes, set(&[]));
        // What is mounted when another one joins is the work of the first.
        slot.attribute_unknown(&set(&["v1"])).await;
        let second = member("/run/b.sock");
        slot.add_instance(Arc::clone(&second));
        slot.attribute(&second, "w").await;
        let mounted = ["v1", "w"];
        assert_eq!(
            (
                slot.count_needing_mounts(&first, mounted),
                slot.count_needing_mounts(&second, mounted)
            ),
            (1, 1)
        );
        // The one that stays answers for all that is left.
        assert!(!slot.remove_instance(&first.key));
        assert_eq!(second.record().volumes, set(&[]));
        assert_eq!(slot.count_needing_mounts(&second, mounted), 2);
    }

    #[tokio::test]
    async fn an_instance_in_company_forgets_volumes_that_are_gone() {
        let (first, second) = (member("/run/a.sock"), member("/run/b.sock"));
        let slot = InstancePool::new(Arc::clone(&first), watch::Sender::new(0), None);
        slot.add_instance(Arc::clone(&second));
        slot.attribute(&first, "stays").await;
        let mut most = 0;
        for number in 0..VOLUMES {
            slot.attribute(&second, &format!("v{number}")).await;
            most = most.max(second.record().volumes.len());
            // As the roster does each time that it looks; nothing but this is mounted.
            if slot.has_old_volumes() {
                slot.keep_volumes(&set(&["stays", "v0"]));
            }
        }
        assert!(most < 1_000, "{most} volumes are on record, and 2 are mounted");
        let mounted = ["stays", "v0"];
        assert_eq!(
            (
                slot.count_needing_mounts(&first, mounted),
                slot.count_needing_mounts(&second, mounted)
            ),
            (1, 1)
        );
    }
}
