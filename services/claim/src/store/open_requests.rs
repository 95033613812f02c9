//! The requests of this replica that wait for a volume.
//!
//! **Owns** which of them a change of the volume wakes: the first in line, and those that are not
//! in line. Hundreds may stand behind the first, and a change costs them nothing.
//!
//! **Never** decides who gets the volume.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_domain::{AllocId, VolumeKey};
use berth_service::projection::Volumes;
use tokio::sync::watch;

/// The open requests, by volume and alloc. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct OpenRequests(Arc<Mutex<HashMap<VolumeKey, VolumeRequests>>>);

#[derive(Debug, Default)]
struct VolumeRequests {
    /// The volume's newest revision when its requests were last woken.
    head: u64,
    wakers: BTreeMap<AllocId, watch::Sender<()>>,
}

/// A request that is open until this is dropped.
#[derive(Debug)]
pub struct OpenRequest {
    requests: OpenRequests,
    volume: VolumeKey,
    alloc: AllocId,
    // Dropped before the map is checked, because it counts as a request of the alloc.
    changes: Option<watch::Receiver<()>>,
}

impl OpenRequests {
    /// Enters a request. It counts as woken: the volume may have changed since it was looked at.
    pub fn enter(&self, volume: &VolumeKey, alloc: &AllocId) -> OpenRequest {
        let mut all = self.lock();
        let wakers = &mut all.entry(volume.clone()).or_default().wakers;
        let waker = wakers.entry(alloc.clone()).or_insert_with(|| watch::Sender::new(()));
        let mut changes = waker.subscribe();
        changes.mark_changed();
        let changes = Some(changes);
        let (requests, volume, alloc) = (self.clone(), volume.clone(), alloc.clone());
        OpenRequest { requests, volume, alloc, changes }
    }

    /// Wakes the requests whose volume has changed, unless they stand behind others.
    pub fn wake(&self, volumes: &Volumes) {
        for (volume, requests) in self.lock().iter_mut() {
            let subtree = volumes.get(volume);
            let head = subtree.map_or(0, |subtree| subtree.head);
            if std::mem::replace(&mut requests.head, head) == head {
                continue;
            }
            let is_behind = |alloc: &AllocId| {
                subtree.is_some_and(|subtree| subtree.volume.claims.is_behind_in_line(alloc))
            };
            for (_, waker) in requests.wakers.iter().filter(|(alloc, _)| !is_behind(alloc)) {
                waker.send_replace(());
            }
        }
    }

    /// Each volume with the allocs whose requests are open.
    pub fn by_volume(&self) -> Vec<(VolumeKey, Vec<AllocId>)> {
        let allocs = |requests: &VolumeRequests| requests.wakers.keys().cloned().collect();
        self.lock().iter().map(|(volume, requests)| (volume.clone(), allocs(requests))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<VolumeKey, VolumeRequests>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenRequest {
    /// What comes from now on is a change.
    pub fn mark_unchanged(&mut self) {
        if let Some(changes) = &mut self.changes {
            changes.mark_unchanged();
        }
    }

    /// Waits for a change that may concern the request.
    pub async fn changed(&mut self) {
        match &mut self.changes {
            // The sender is in the map for as long as this request is.
            Some(changes) => drop(changes.changed().await),
            None => std::future::pending().await,
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut all = self.requests.lock();
        self.changes = None;
        let Some(requests) = all.get_mut(&self.volume) else { return };
        if requests.wakers.get(&self.alloc).is_some_and(|waker| waker.receiver_count() == 0) {
            requests.wakers.remove(&self.alloc);
        }
        if requests.wakers.is_empty() {
            all.remove(&self.volume);
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_bus::Fold as _;
    use berth_domain::{Namespace, VolumeId};
    use serde_json::json;

    use super::*;

    fn put(volumes: &mut Volumes, revision: u64, alloc: &str, state: &str) {
        let claim = json!({
            "state": state, "node": "n1", "mode": "write", "since": "2026-01-31T12:00:00.000Z",
            "access": "single-node-writer", "attachment": "file-system", "controller": false,
            "epoch": revision, "schema": 1,
        });
        let key = format!("default.data.claim.{alloc}");
        volumes.put(&key, revision, claim.to_string().as_bytes());
    }

    fn is_woken(request: &mut OpenRequest) -> bool {
        let changes = request.changes.as_mut().unwrap();
        let woken = changes.has_changed().unwrap();
        changes.mark_unchanged();
        woken
    }

    #[test]
    fn a_change_wakes_the_first_in_line_and_nobody_behind() {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
        let id = |alloc: &str| AllocId::new(alloc).unwrap();
        let (requests, mut volumes) = (OpenRequests::default(), Volumes::default());
        put(&mut volumes, 1, "holder", "taken");
        put(&mut volumes, 2, "first", "waiting");
        put(&mut volumes, 3, "second", "waiting");
        let mut first = requests.enter(&volume, &id("first"));
        let mut second = requests.enter(&volume, &id("second"));
        let mut newcomer = requests.enter(&volume, &id("newcomer"));
        assert!([&mut first, &mut second, &mut newcomer].into_iter().all(is_woken));
        requests.wake(&volumes);
        let mut woken = || [&mut first, &mut second, &mut newcomer].map(is_woken);
        assert_eq!(woken(), [true, false, true]);
        requests.wake(&volumes);
        assert_eq!(woken(), [false; 3], "nothing has changed");
        volumes.delete("default.data.claim.holder", 4);
        requests.wake(&volumes);
        assert_eq!(woken(), [true, false, true]);
        put(&mut volumes, 5, "first", "taken");
        requests.wake(&volumes);
        assert_eq!(woken(), [true; 3], "the second is the first in line now");
        volumes.delete("default.data.claim.second", 6);
        requests.wake(&volumes);
        assert!(woken()[1], "its place is lost");
    }

    #[test]
    fn a_request_that_has_ended_leaves_nothing() {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
        let alloc = AllocId::new("a").unwrap();
        let requests = OpenRequests::default();
        let (one, other) = (requests.enter(&volume, &alloc), requests.enter(&volume, &alloc));
        drop(one);
        assert_eq!(requests.by_volume(), [(volume, vec![alloc])]);
        drop(other);
        assert!(requests.lock().is_empty());
    }
}
