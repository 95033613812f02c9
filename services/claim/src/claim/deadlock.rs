//! Allocs that wait for each other's volumes, which they ask for one by one.
//!
//! **Promises** that of the allocs in a circle one is refused, by whichever replica, and that the
//! refusal names them all. Mirrors may be behind, so a circle may be noticed late: the request is
//! looked at again for as long as it waits.
//!
//! **Never** releases what an alloc holds.

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_domain::volume::deadlock::{Deadlock, InLine};
use berth_domain::volume::{Claim, Volume};
use berth_domain::{AllocId, Namespace, VolumeKey};

use crate::store::state::StateInner;

impl StateInner {
    /// Refuses an alloc that waits in a circle and is the one to give up.
    pub fn check_no_deadlock(&self, namespace: &Namespace, alloc: &AllocId) -> Result<(), Problem> {
        // The usual alloc wants one volume, or holds nothing yet.
        let lines = self.lines(namespace, alloc);
        if lines.is_empty() || !self.holds_some(namespace, alloc) {
            return Ok(());
        }
        let Some(deadlock) = Deadlock::find(alloc, |alloc| self.lines(namespace, alloc)) else {
            return Ok(());
        };
        tracing::warn!(%namespace, %alloc, %deadlock, "allocs wait for each other");
        Err(Problem::new(Code::Deadlock, deadlock))
    }

    /// Where a live alloc waits in line.
    fn lines(&self, namespace: &Namespace, alloc: &AllocId) -> Vec<InLine> {
        self.each_volume_of(namespace, alloc, |volume, found| found.in_line(&volume.volume, alloc))
    }

    fn holds_some(&self, namespace: &Namespace, alloc: &AllocId) -> bool {
        let held = self.each_volume_of(namespace, alloc, |_, found| {
            found.claims.get(alloc).is_some_and(Claim::is_held).then_some(())
        });
        !held.is_empty()
    }

    fn each_volume_of<T>(
        &self,
        namespace: &Namespace,
        alloc: &AllocId,
        look: impl Fn(&VolumeKey, &Volume) -> Option<T>,
    ) -> Vec<T> {
        let requested: Vec<VolumeKey> = self.allocs.mirror.read(|allocs| {
            let live = allocs.get(namespace, alloc).filter(|(_, one)| !one.state.is_terminal());
            let requests = live.into_iter().flat_map(|(_, one)| one.requests());
            requests.map(|(volume, _)| VolumeKey::new(namespace.clone(), volume)).collect()
        });
        self.volumes.mirror.read(|volumes| {
            let found = requested.iter().filter_map(|key| Some((key, volumes.get(key)?)));
            found.filter_map(|(key, subtree)| look(key, &subtree.volume)).collect()
        })
    }
}
