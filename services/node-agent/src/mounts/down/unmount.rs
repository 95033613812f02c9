//! `agent.unmount`: takes down mounts that no claim covers, on an operator's request.
//!
//! **Promises** that nothing is unmounted that a process uses, or that a claim covers which is not
//! being released, and that the plugin undoes the mount as the journal says it was made. The lost
//! claim is recorded first, in release: whatever happens next, the attachment is on record until
//! the storage has ended it.

use std::sync::Arc;

use berth_bus::Call;
use berth_contract::code::Code;
use berth_contract::hint;
use berth_contract::message::agent::{Unmount, Unmounted, UnmountedMount};
use berth_contract::message::claim::Recover;
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::{AllocId, NodeId, VolumeKey};

use super::unmounting::Unmounting;
use crate::caller::{Caller, RequestContext};
use crate::fleet::claimed::read_claimed_uses;
use crate::journal::JournalledUse;
use crate::mounts::claims::time_left;

impl Unmounting {
    /// Takes mounts of a volume down that no claim covers.
    pub async fn unmount_unclaimed(
        self: Arc<Self>,
        _: NodeId,
        request: Unmount,
        Caller { context: RequestContext { deadline, trace }, .. }: Caller,
    ) -> Result<Unmounted, Problem> {
        let volume = VolumeKey::new(request.namespace.clone(), request.volume.clone());
        let locate = |problem: Problem| self.local.locate_problem(problem, &volume);
        let node = &self.local.node;
        // Read before the claims, so that a newer use is not compared with an older list.
        let mut uses = self.local.journal.volume(&volume).uses;
        uses.retain(|alloc, _| request.alloc.as_ref().is_none_or(|meant| meant == alloc));
        if uses.is_empty() {
            return Err(locate(nothing_due(&volume, &self.local.node, None)));
        }
        let here = uses.keys().map(|alloc| (volume.clone(), alloc.clone())).collect();
        let claimed = read_claimed_uses(&self.claims.bus, node, &here, time_left(deadline)).await;
        let claimed = claimed.map_err(locate)?;
        let claimed = claimed.ok_or_else(|| {
            let message = format!("not all claims of node {node} could be read");
            locate(Problem::new(Code::Overloaded, message).retryable())
        })?;
        let (mut covered, mut due) = (Vec::new(), Vec::new());
        for (alloc, entry) in uses {
            let key = (volume.clone(), alloc.clone());
            let is_unclaimed =
                || claimed.is_younger_than(&entry) || self.local.unaccounted.has(&volume, &alloc);
            let is_covered = claimed.covers(&key, &entry);
            if is_covered && !claimed.waits_for_unmount(&key) {
                covered.push(alloc);
            } else if is_covered || is_unclaimed() {
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
            return Err(locate(nothing_due(&volume, &self.local.node, covered.first())));
        }
        let mut mounts = Vec::new();
        for (alloc, entry) in due {
            let path = entry.target.to_string_lossy().into_owned();
            self.record_claim(&volume, &alloc, &entry, RequestContext { deadline, trace })
                .await
                .map_err(locate)?;
            self.undo_use(volume.clone(), alloc.clone(), entry, trace).await.map_err(locate)?;
            tracing::info!(%volume, %alloc, path, trace = trace.trace_id(), "unmounted by hand");
            mounts.push(UnmountedMount { alloc, path });
        }
        Ok(Unmounted { mounts })
    }

    /// Has the lost claim recorded in release, so that the storage detaches the volume once it is
    /// unmounted. A claim that cannot be recorded, because others hold the volume, keeps no
    /// operator from ending a second mount.
    async fn record_claim(
        &self,
        volume: &VolumeKey,
        alloc: &AllocId,
        entry: &JournalledUse,
        RequestContext { deadline, trace }: RequestContext,
    ) -> Result<(), Problem> {
        let lost = Recover {
            alloc: alloc.clone(),
            volume: volume.volume.clone(),
            node: self.local.node.clone(),
            plugin: entry.plugin.clone(),
            external_id: entry.external_id.clone(),
            mode: entry.mode,
            access: entry.access,
            attachment: entry.attachment,
        };
        let client = self.claims.client();
        let call = Call::within(trace, time_left(deadline));
        let recorded = client.once::<verb::ClaimRecover>(&volume.namespace, &lost, &call).await;
        match recorded {
            Err(problem) if excludes_claim(&problem) => {
                let trace = trace.trace_id();
                tracing::warn!(
                    %volume, %alloc, trace, %problem,
                    "unmounted without a claim: the storage may keep it attached to this node"
                );
                Ok(())
            }
            recorded => recorded.map(drop),
        }
    }
}

/// Whether what is on record excludes the lost claim: other claims hold the volume, the name is of
/// a volume that was never made, or no record shows that the alloc had it here.
const fn excludes_claim(problem: &Problem) -> bool {
    let excludes = matches!(
        problem.code,
        Code::Held
            | Code::AccessInUse
            | Code::ClaimDiffers
            | Code::VolumeNotReady
            | Code::NotAllowed
    );
    excludes && !problem.retryable
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
