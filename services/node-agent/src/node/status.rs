//! What is here, by the journal and by the mount table.

use berth_contract::code::Code;
use berth_contract::message::agent::{AgentStatus, MountStatus};
use berth_contract::problem::Problem;

use super::{Mounter, mounts};
use crate::journal::{Journal, UseState};
use crate::paths::Paths;
use berth_service::mount_table::{MountTable, MountTableError};

impl Mounter {
    /// `agent.status`.
    pub(super) async fn status(&self) -> Result<AgentStatus, Problem> {
        let table = mounts(Code::Internal).await?;
        let uses = self.parts.journal.uses().into_iter();
        let mounts = uses.map(|(volume, alloc, entry)| MountStatus {
            namespace: volume.namespace,
            volume: volume.volume,
            alloc,
            epoch: entry.epoch,
            mounted: table.has(&entry.target),
            path: entry.target.to_string_lossy().into_owned(),
        });
        Ok(AgentStatus {
            node: self.parts.host.node.clone(),
            mounts: mounts.collect(),
            controllers: self.parts.hosted.list(),
        })
    }
}

/// Says at the start what an earlier life of this agent left, and does nothing about it: whoever
/// wants a volume asks again, and what is to go is told to (rule 10).
pub async fn log_what_is_here(journal: &Journal, paths: &Paths) -> Result<(), MountTableError> {
    let table = MountTable::read().await?;
    let uses = journal.uses();
    for (volume, alloc, entry) in &uses {
        let mounted = table.has(&entry.target);
        let state = match entry.state {
            UseState::Intent => "begun",
            UseState::Published => "published",
        };
        let epoch = entry.epoch;
        tracing::info!(%volume, %alloc, epoch, state, mounted, "found in the journal");
    }
    let known = |point: &std::path::Path| {
        uses.iter().any(|(.., entry)| {
            point.starts_with(&entry.target)
                || entry.staging.as_ref().is_some_and(|staging| point.starts_with(staging))
        })
    };
    for point in table.beneath(paths.root()).filter(|point| !known(point)) {
        tracing::warn!(
            path = %point.display(),
            "mounted, and not in the journal; it goes when its claim is released"
        );
    }
    Ok(())
}
