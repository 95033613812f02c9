//! Finds allocs that wait for each other's volumes, because they ask for them one by one.
//!
//! **Promises** that one alloc of a circle is refused, the same by every replica, and that the
//! refusal names them all. Mirrors may lag, so a circle may be noticed late: a request is checked
//! repeatedly while it waits.
//!
//! **Never** releases a claim that an alloc holds.

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_domain::volume::deadlock::{Deadlock, InLine};
use berth_domain::volume::{Claim, Volume};
use berth_domain::{AllocId, Namespace, VolumeKey};

use crate::store::state::StateInner;

impl StateInner {
    /// Refuses an alloc that waits in a circle, if it is the one that must give up.
    pub fn check_no_deadlock(&self, namespace: &Namespace, alloc: &AllocId) -> Result<(), Problem> {
        // A usual alloc wants one volume, or holds none yet. Checked first: a line may be long.
        if !self.holds_some(namespace, alloc) {
            return Ok(());
        }
        let Some(deadlock) = Deadlock::find(alloc, |alloc| self.lines(namespace, alloc)) else {
            return Ok(());
        };
        tracing::warn!(%namespace, %alloc, %deadlock, "allocs wait for each other");
        Err(Problem::new(Code::Deadlock, deadlock))
    }

    /// The lines in which a live alloc waits.
    fn lines(&self, namespace: &Namespace, alloc: &AllocId) -> Vec<InLine> {
        self.each_volume_of(namespace, alloc, |volume, now| now.in_line(&volume.volume, alloc))
    }

    fn holds_some(&self, namespace: &Namespace, alloc: &AllocId) -> bool {
        let held_volumes = self.each_volume_of(namespace, alloc, |_, now| {
            now.claims.get(alloc).is_some_and(Claim::is_held).then_some(())
        });
        !held_volumes.is_empty()
    }

    fn each_volume_of<T>(
        &self,
        namespace: &Namespace,
        alloc: &AllocId,
        look: impl Fn(&VolumeKey, &Volume) -> Option<T>,
    ) -> Vec<T> {
        let requested: Vec<VolumeKey> = self.allocs.mirror.read(|allocs| {
            let live =
                allocs.get(namespace, alloc).filter(|(_, record)| !record.state.is_terminal());
            let requests = live.into_iter().flat_map(|(_, record)| record.requests());
            requests.map(|(volume, _)| VolumeKey::new(namespace.clone(), volume)).collect()
        });
        self.volumes.mirror.read(|volumes| {
            let subtrees = requested.iter().filter_map(|key| Some((key, volumes.get(key)?)));
            subtrees.filter_map(|(key, subtree)| look(key, &subtree.volume)).collect()
        })
    }
}
