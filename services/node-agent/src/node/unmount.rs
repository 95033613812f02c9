//! `agent.unmount`: takes down mounts that no claim covers, on an operator's request.
//!
//! **Promises** that nothing is unmounted that a claim covers or that a process uses, and that the
//! plugin undoes the mount as the journal says it was made.

use berth_contract::code::Code;
use berth_contract::hint;
use berth_contract::message::agent::{Unmount, Unmounted, UnmountedMount};
use berth_contract::problem::Problem;
use berth_domain::plugin::UnaccountedMount;
use berth_domain::{AllocId, NodeId, VolumeKey};

use super::Mounter;
use super::endpoints::RequestContext;
use super::grant::time_left;
use crate::claimed::read_claimed_uses;

const STEP: &str = "agent.unmount";

impl Mounter {
    /// Takes mounts of a volume down that no claim covers.
    pub(super) async fn unmount_unclaimed(
        self,
        request: Unmount,
        RequestContext { deadline, trace }: RequestContext,
    ) -> Result<Unmounted, Problem> {
        let volume = VolumeKey::new(request.namespace.clone(), request.volume.clone());
        let locate = |problem: Problem| self.locate_problem(problem, &volume).at_step(STEP);
        let node = &self.shared.host.node;
        // Read before the claims, so that a newer use is not compared with an older list.
        let mut uses = self.shared.journal.volume(&volume).uses;
        uses.retain(|alloc, _| request.alloc.as_ref().is_none_or(|meant| meant == alloc));
        if uses.is_empty() {
            return Err(locate(nothing_due(&volume, &self.shared.host.node, None)));
        }
        let here = uses.keys().map(|alloc| (volume.clone(), alloc.clone())).collect();
        let claimed = read_claimed_uses(&self.shared.bus, node, &here, time_left(deadline)).await;
        let claimed = claimed.map_err(locate)?;
        let claimed = claimed.ok_or_else(|| {
            let message = format!("not all claims of node {node} could be read");
            locate(Problem::new(Code::Overloaded, message).retryable())
        })?;
        let (mut covered, mut due) = (Vec::new(), Vec::new());
        for (alloc, entry) in uses {
            let is_certain = claimed.is_younger_than(&entry);
            let key = (volume.clone(), alloc.clone());
            if claimed.covers(&key) {
                covered.push(alloc);
            } else if is_certain || self.shared.unaccounted.has(&volume, &alloc) {
                due.push((alloc, entry));
            } else {
                let message = format!(
                    "the list of claims is older than the mount of alloc {alloc}, so it may have a \
                     claim"
                );
                return Err(locate(Problem::new(Code::Busy, message).retryable()));
            }
        }
        if due.is_empty() {
            return Err(locate(nothing_due(&volume, &self.shared.host.node, covered.first())));
        }
        let mut mounts = Vec::new();
        for (alloc, entry) in due {
            let path = entry.target.to_string_lossy().into_owned();
            self.undo_use(volume.clone(), alloc.clone(), entry, trace).await.map_err(locate)?;
            self.shared.unaccounted.remove(&volume, &alloc);
            tracing::info!(%volume, %alloc, path, trace = trace.trace_id(), "unmounted by hand");
            mounts.push(UnmountedMount { alloc, path });
        }
        Ok(Unmounted { mounts })
    }

    /// Stores the mounts of the node that no claim covers. Each new one becomes an event.
    pub(crate) fn report_unaccounted(&self, all: Vec<UnaccountedMount>) {
        for mount in self.shared.unaccounted.replace(all) {
            let volume = VolumeKey::new(mount.namespace.clone(), mount.volume.clone());
            self.shared.events.publish_unaccounted(&mount);
            tracing::warn!(
                namespace = %mount.namespace,
                volume = %mount.volume,
                alloc = %mount.alloc,
                path = mount.path,
                next = hint::unmount(&volume, &self.shared.host.node),
                "mounted here, and its claim is gone: its workload must not write any more"
            );
        }
    }
}

fn nothing_due(volume: &VolumeKey, node: &NodeId, covered: Option<&AllocId>) -> Problem {
    if let Some(alloc) = covered {
        let message = format!("alloc {alloc} has a claim on volume {volume} for this node");
        let namespace = hint::namespace_option(&volume.namespace);
        let next = format!("end its workload, then `berth alloc stop {alloc}{namespace}`");
        return Problem::new(Code::Held, message).next(next);
    }
    let message = format!("the journal of this node has no mount of volume {volume}");
    let next = format!(
        "`berth node status {node}` shows what is mounted; a mount that the journal does not know \
         is unmounted by hand"
    );
    Problem::new(Code::NoSuchClaim, message).next(next)
}
