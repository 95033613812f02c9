//! Undoes everything that is mounted here, because the node counted as gone (rule 12).

use std::sync::Arc;

use berth_bus::Call;
use berth_contract::code::Code;
use berth_contract::message::alloc;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb;
use berth_domain::alloc::AllocState;
use berth_domain::limits::{CALL_TIMEOUT, REQUEST_TIMEOUT};
use berth_domain::proof::Proof;
use berth_domain::{AllocId, Namespace, VolumeKey};
use berth_service::clock;
use futures_util::{StreamExt as _, stream};

use super::unmounting::{DepartingUse, Unmounting};
use crate::caller::RequestContext;
use crate::journal::JournalledUse;
use crate::mounts::node_faults::read_mount_table;

/// Largest number of uses that are undone, or of allocs that are ended, at once.
const AT_ONCE_MAX: usize = 16;
/// Largest number of pages of allocs that are ended.
const PAGES_MAX: usize = 1000;
/// Largest number of paths that a problem names.
const NAMED: usize = 3;

impl Unmounting {
    /// Ends the allocs of this node, and takes down each use in the journal. Succeeds when the
    /// allocs have ended, the journal has no use and the mount table shows nothing below the
    /// agent's paths.
    ///
    /// The mounts are taken down even if the claim service does not answer for the allocs: cached
    /// writes wait behind a fence as long as a mount stays.
    pub async fn undo_all(self: &Arc<Self>, proof: &Proof) -> Result<(), Problem> {
        let trace = clock::begin_trace();
        let ended = self.end_allocs(proof, trace).await;
        self.undo_uses(trace).await?;
        ended
    }

    async fn undo_uses(self: &Arc<Self>, trace: TraceContext) -> Result<(), Problem> {
        crate::mounts::runs::end_all(&self.runs).await?;
        let undone = stream::iter(self.local.journal.uses())
            .map(|(volume, alloc, entry)| self.undo_use(volume, alloc, entry, trace))
            .buffer_unordered(AT_ONCE_MAX)
            .collect::<Vec<_>>();
        // A use that fails keeps no other from being undone.
        undone.await.into_iter().collect::<Result<(), Problem>>()?;
        let table = read_mount_table(Code::UnmountFailed).await?;
        let left: Vec<_> = table.beneath(self.local.paths.root()).collect();
        if left.is_empty() {
            return Ok(());
        }
        let named: Vec<_> =
            left.iter().take(NAMED).map(|path| path.display().to_string()).collect();
        let message = format!(
            "{} mounts are left that the journal does not know: {}",
            left.len(),
            named.join(", ")
        );
        let next = "no workload may use them any more: unmount them by hand";
        Err(Problem::new(Code::UnmountFailed, message).retryable().next(next))
    }

    /// Takes one use down while its volume's lock is held.
    pub(crate) async fn undo_use(
        self: &Arc<Self>,
        volume: VolumeKey,
        alloc: AllocId,
        entry: JournalledUse,
        trace: TraceContext,
    ) -> Result<(), Problem> {
        let leaving = DepartingUse {
            volume: volume.clone(),
            alloc,
            epoch: entry.epoch,
            plugin: entry.plugin.clone(),
            external_id: entry.external_id,
            beside: None,
            unstaged_by: None,
            is_journalled: true,
        };
        let context = RequestContext { deadline: clock::now().after(CALL_TIMEOUT), trace };
        let (done, _) = self.run_take_down(leaving, None, context).await;
        done.map_err(|problem| self.local.locate_problem(problem, &volume).plugin(&entry.plugin))
    }

    /// Stops every alloc of this node, also those without a mount: an alloc may have a claim, whose
    /// grant would still be good once the node is back.
    async fn end_allocs(&self, proof: &Proof, trace: TraceContext) -> Result<(), Problem> {
        let client = self.claims.client();
        let everywhere = Namespace::wildcard();
        let of_this_node = alloc::ListAllocs {
            node: Some(self.local.node.clone()),
            state: Some(AllocState::Live),
            ..alloc::ListAllocs::default()
        };
        for _page in 0..PAGES_MAX {
            let call = Call::within(trace, REQUEST_TIMEOUT);
            let listed = client.once::<verb::AllocList>(&everywhere, &of_this_node, &call).await?;
            let live = listed.allocs.into_iter().filter(|one| !one.state.is_terminal());
            let live: Vec<_> = live.map(|one| (one.namespace, one.id)).collect();
            if live.is_empty() {
                return Ok(());
            }
            let stopped = stream::iter(live)
                .map(|(namespace, id)| self.end_alloc(namespace, id, proof, trace))
                .buffer_unordered(AT_ONCE_MAX)
                .collect::<Vec<_>>();
            // An alloc that fails keeps no other from being stopped.
            stopped.await.into_iter().collect::<Result<(), Problem>>()?;
        }
        Err(Problem::new(Code::Busy, "allocs are registered here faster than they end").retryable())
    }

    async fn end_alloc(
        &self,
        namespace: Namespace,
        id: AllocId,
        proof: &Proof,
        trace: TraceContext,
    ) -> Result<(), Problem> {
        let note = Some(format!("its node counted as gone: {proof}"));
        let stop = alloc::StopAlloc::new(id, AllocState::Failed, note);
        let call = Call::within(trace, REQUEST_TIMEOUT);
        let client = self.claims.client();
        match client.once::<verb::AllocStop>(&namespace, &stop, &call).await {
            Err(problem) if problem.code != Code::NoSuchAlloc => Err(problem),
            _ => Ok(()),
        }
    }
}
