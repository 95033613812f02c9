//! The health of what is mounted here.
//!
//! **Owns** the probe of each published mount at an interval, and the last known health.
//!
//! **Promises** that a mount which is gone, dead or hung is known within one round. An event tells
//! that once, and another that the mount answers again. A hung mount delays no other probe. A mount
//! that is being taken down is not reported as missing.
//!
//! **Never** repairs a mount: a workload may use it, and the agent does not know what it needs.

mod probe;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use berth_contract::event::EventName;
use berth_contract::message::agent::MountHealth;
use berth_domain::access::AttachmentMode;
use berth_domain::{AllocId, PluginId, Timestamp, VolumeKey};
use berth_host::{HostPool, MountTable};
use berth_service::clock;
use berth_service::shutdown::Shutdown;
use futures_util::{StreamExt as _, stream};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::fleet::events::EventPublisher;
use crate::host::pool::INSPECT_MAX;
use crate::journal::{Disk, Journal, JournalledUse, UseKey, UseState};
use probe::MountProbes;
pub use probe::ProbeAnswer;

/// Time for one mount to answer.
pub const PROBE_TIMEOUT: Duration = INSPECT_MAX;
/// Largest number of mounts that are probed at once.
const PROBES_AT_ONCE_MAX: usize = 16;

/// The health of a mount by its last probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastMountHealth {
    epoch: u64,
    pub health: MountHealth,
    pub trouble: Option<String>,
    pub since: Timestamp,
}

/// The last known health of each mount. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct MountHealths {
    probes: MountProbes,
    seen: Arc<RwLock<BTreeMap<UseKey, LastMountHealth>>>,
    /// What plugins call abnormal, of the claim of that epoch.
    conditions: Arc<RwLock<BTreeMap<UseKey, (u64, String)>>>,
    again: Arc<Notify>,
}

impl MountHealths {
    /// The last known health of the use's mount. `None` before its first probe. Of a mount that is
    /// well, `trouble` is what its plugin calls abnormal.
    pub fn get_health(
        &self,
        volume: &VolumeKey,
        alloc: &AllocId,
        epoch: u64,
    ) -> Option<LastMountHealth> {
        let key = (volume.clone(), alloc.clone());
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
        let mut seen = seen.get(&key).filter(|seen| seen.epoch == epoch)?.clone();
        if seen.health == MountHealth::Well {
            let conditions = self.conditions.read().unwrap_or_else(PoisonError::into_inner);
            let said = conditions.get(&key).filter(|(of, _)| *of == epoch);
            seen.trouble = said.map(|(_, said)| said.clone());
        }
        Some(seen)
    }

    /// Stores what a plugin calls abnormal; `None` if the volume is well. Returns whether that is
    /// news.
    pub fn record_condition(&self, key: &UseKey, epoch: u64, said: Option<String>) -> bool {
        let mut all = self.conditions.write().unwrap_or_else(PoisonError::into_inner);
        let said = said.map(|said| (epoch, said));
        let is_news = all.get(key) != said.as_ref();
        match said {
            Some(said) => drop(all.insert(key.clone(), said)),
            None => drop(all.remove(key)),
        }
        is_news
    }

    /// Probes run on threads of this pool.
    pub fn new(pool: &HostPool) -> Self {
        Self { probes: MountProbes::new(pool), ..Self::default() }
    }

    /// Probes what the plugin has published at `target`. Returns within `patience`. A mount counts
    /// as dead if another disk than `was` is behind it, or if the directory that it shows was
    /// deleted.
    pub async fn probe_mount(
        &self,
        (plugin, target): (&PluginId, &Path),
        attachment: AttachmentMode,
        table: &MountTable,
        was: Option<&Disk>,
        patience: Duration,
    ) -> ProbeAnswer {
        let found = match attachment {
            AttachmentMode::BlockDevice => self.probes.probe_device(plugin, target, patience).await,
            AttachmentMode::FileSystem if table.has(target) => {
                self.probes.probe_file_system(plugin, target, patience).await
            }
            AttachmentMode::FileSystem => ProbeAnswer::Missing,
        };
        // A device node still works after it was unlinked.
        let is_directory = attachment == AttachmentMode::FileSystem;
        let deleted = table.deleted_source(target).filter(|_| is_directory);
        match (found, was) {
            (ProbeAnswer::Well(_), _) if deleted.is_some() => ProbeAnswer::Dead(format!(
                "what is mounted, {}, was deleted; what is written there is lost",
                deleted.unwrap_or_default().display()
            )),
            (ProbeAnswer::Well(Some(is)), Some(was)) if is != *was => ProbeAnswer::Dead(format!(
                "another disk is behind it: {} (diskseq {}), and was {} (diskseq {})",
                is.device, is.seq, was.device, was.seq
            )),
            (found, _) => found,
        }
    }

    /// Probes all mounts now, because one of them may have changed.
    pub fn request_probe(&self) {
        self.again.notify_one();
    }

    /// Stores what a probe found. Returns the change, if it is worth an event.
    fn record_health(
        &self,
        key: &UseKey,
        epoch: u64,
        found: (MountHealth, Option<String>),
    ) -> Option<HealthChange> {
        let (health, trouble) = found;
        let mut seen = self.seen.write().unwrap_or_else(PoisonError::into_inner);
        let last = seen.get(key).filter(|last| last.epoch == epoch);
        let same = last.filter(|last| last.health == health);
        let since = same.map_or_else(clock::now, |last| last.since);
        let change = match (last.map(|last| last.health), health) {
            (None | Some(MountHealth::Well | MountHealth::Unknown), now) if is_bad(now) => {
                Some(HealthChange::Bad)
            }
            (Some(was), now) if is_bad(was) && is_bad(now) && was != now => Some(HealthChange::Bad),
            (Some(was), MountHealth::Well) if is_bad(was) => Some(HealthChange::Well),
            _ => None,
        };
        seen.insert(key.clone(), LastMountHealth { epoch, health, trouble, since });
        change
    }

    fn retain_uses(&self, uses: &BTreeSet<UseKey>) {
        let mut seen = self.seen.write().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|key, _| uses.contains(key));
        let mut conditions = self.conditions.write().unwrap_or_else(PoisonError::into_inner);
        conditions.retain(|key, _| uses.contains(key));
    }
}

/// A change of a mount's health that is worth an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HealthChange {
    Bad,
    Well,
}

fn is_bad(health: MountHealth) -> bool {
    matches!(health, MountHealth::Missing | MountHealth::Dead | MountHealth::Hung)
}

/// Probes the mounts of this node.
pub struct MountWatcher {
    pub journal: Journal,
    pub boot_id: String,
    pub healths: MountHealths,
    pub events: EventPublisher,
    pub interval: Duration,
}

impl MountWatcher {
    /// Probes until the shutdown.
    pub async fn run(self, shutdown: Shutdown) {
        loop {
            self.probe_all().await;
            tokio::select! {
                // Agents that started together do not probe together.
                () = sleep(self.interval.mul_f64(0.75 + rand::random::<f64>() / 2.0)) => {}
                () = self.healths.again.notified() => {}
                () = shutdown.requested() => return,
            }
        }
    }

    async fn probe_all(&self) {
        let uses = self.journal.uses();
        // A mount that is being brought back stays known: its recovery is an event.
        let known = uses.iter().map(|(volume, alloc, _)| (volume.clone(), alloc.clone()));
        self.healths.retain_uses(&known.collect());
        let each = uses.into_iter().map(|(volume, alloc, entry)| ((volume, alloc), entry));
        let published: Vec<(UseKey, JournalledUse)> =
            each.filter(|(key, entry)| is_published(&self.journal, key, entry)).collect();
        if published.is_empty() {
            return;
        }
        let table = match MountTable::read().await {
            Ok(table) => table,
            Err(error) => {
                let why = berth_service::process::chain(&error);
                return tracing::warn!(why, "the mounts cannot be probed");
            }
        };
        stream::iter(published)
            .for_each_concurrent(PROBES_AT_ONCE_MAX, |(key, entry)| {
                let table = Arc::clone(&table);
                async move { self.probe_use(&table, &key, &entry).await }
            })
            .await;
    }

    async fn probe_use(&self, table: &MountTable, key: &UseKey, entry: &JournalledUse) {
        // Disk sequence numbers start again with each boot.
        let was = entry.disk.as_ref().filter(|_| entry.boot_id == self.boot_id);
        let found = {
            let at = (&entry.plugin, entry.target.as_path());
            self.healths.probe_mount(at, entry.attachment, table, was, PROBE_TIMEOUT).await
        };
        let found = match found {
            ProbeAnswer::Well(_) => (MountHealth::Well, None),
            ProbeAnswer::Dead(why) => (MountHealth::Dead, Some(why)),
            ProbeAnswer::Hung(since) => {
                let why = format!("it has not answered a look since {since}");
                (MountHealth::Hung, Some(why))
            }
            ProbeAnswer::Unknown(why) => (MountHealth::Unknown, Some(why)),
            ProbeAnswer::Missing if entry.boot_id == self.boot_id => {
                let why = "nothing is mounted there any more, and not by this agent's doing";
                (MountHealth::Missing, Some(why.to_owned()))
            }
            ProbeAnswer::Missing => {
                let why = "the host was booted since, which ended every mount";
                (MountHealth::Missing, Some(why.to_owned()))
            }
        };
        // A detach may have begun during the probe.
        if !is_published(&self.journal, key, entry) {
            return;
        }
        let (volume, alloc) = key;
        let tell = |name, detail| {
            let used = (volume, alloc, &entry.plugin);
            self.events.publish_mount_health(name, used, detail, clock::begin_trace());
        };
        let (health, why) = found.clone();
        let why = why.unwrap_or_default();
        match self.healths.record_health(key, entry.epoch, found) {
            Some(HealthChange::Bad) => {
                let path = entry.target.display();
                tracing::warn!(%volume, %alloc, %path, ?health, why, "a mount does not answer");
                tell(EventName::VolumeMountDead, Some(format!("{path}: {why}")));
            }
            Some(HealthChange::Well) => {
                tracing::info!(%volume, %alloc, "a mount answers again");
                tell(EventName::VolumeMountWell, None);
            }
            None => {}
        }
    }
}

/// Whether the use is published, unchanged, and not being detached.
fn is_published(journal: &Journal, (volume, alloc): &UseKey, entry: &JournalledUse) -> bool {
    let known = journal.volume(volume);
    let is_leaving = known.detached.get(alloc).is_some_and(|detach| detach.epoch >= entry.epoch);
    entry.state == UseState::Published && known.uses.get(alloc) == Some(entry) && !is_leaving
}

#[cfg(test)]
mod tests {
    use berth_domain::{Namespace, VolumeId};

    use super::*;

    fn key() -> UseKey {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
        (volume, AllocId::new("a").unwrap())
    }

    #[test]
    fn each_turn_for_the_worse_and_the_better_is_told_once() {
        use MountHealth::{Dead, Hung, Unknown, Well};
        let healths = MountHealths::default();
        let note = |health| healths.record_health(&key(), 7, (health, None));
        assert_eq!(note(Well), None);
        assert_eq!(note(Dead), Some(HealthChange::Bad));
        assert_eq!(note(Dead), None);
        let since = healths.get_health(&key().0, &key().1, 7).unwrap().since;
        assert_eq!(note(Hung), Some(HealthChange::Bad));
        assert!(healths.get_health(&key().0, &key().1, 7).unwrap().since >= since);
        assert_eq!(note(Unknown), None);
        assert_eq!(note(Well), None, "what was not known did not get better");
        assert_eq!(note(Dead), Some(HealthChange::Bad));
        assert_eq!(note(Well), Some(HealthChange::Well));
    }

    #[test]
    fn what_was_found_is_of_one_claim() {
        let healths = MountHealths::default();
        healths.record_health(&key(), 7, (MountHealth::Dead, Some("no".to_owned())));
        assert_eq!(healths.get_health(&key().0, &key().1, 8), None);
        let change = healths.record_health(&key(), 8, (MountHealth::Well, None));
        assert_eq!(change, None, "the mount of an earlier claim was dead");
        healths.retain_uses(&BTreeSet::new());
        assert_eq!(healths.get_health(&key().0, &key().1, 8), None);
    }

    #[test]
    fn a_mount_that_is_well_has_the_trouble_that_its_plugin_tells() {
        let healths = MountHealths::default();
        let trouble = || healths.get_health(&key().0, &key().1, 7).unwrap().trouble;
        let said = || Some("a disk is failing".to_owned());
        healths.record_health(&key(), 7, (MountHealth::Well, None));
        assert!(!healths.record_condition(&key(), 7, None));
        assert!(healths.record_condition(&key(), 7, said()));
        assert!(!healths.record_condition(&key(), 7, said()), "it is told once");
        assert_eq!(trouble(), said());
        healths.record_health(&key(), 7, (MountHealth::Dead, Some("no".to_owned())));
        assert_eq!(trouble().as_deref(), Some("no"), "what the agent sees counts more");
        healths.record_health(&key(), 7, (MountHealth::Well, None));
        assert!(healths.record_condition(&key(), 7, None));
        assert_eq!(trouble(), None);
    }
}
