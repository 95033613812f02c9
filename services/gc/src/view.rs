//! The records of nodes and plugins, read again for each sweep that looks for plugin instances of
//! nodes without a record.
//!
//! **Owns** a reading of their buckets while a sweep is planned.
//!
//! **Promises** that the reading has everything that was stored before it began.
//!
//! **Never** follows a bucket between two sweeps: in a busy fleet every report of every node would
//! be sent to it.

use berth_bus::{Bucket, Fold, Mirror, MirrorError, MirrorOptions};
use berth_contract::problem::Problem;
use berth_domain::Timestamp;
use berth_service::projection::{Instances, Nodes};
use tokio::time::Instant;

use crate::collector::Collector;
use crate::plan::SweepView;

/// The records of nodes and plugins.
pub struct SweepMirrors {
    nodes: Mirror<Nodes>,
    plugins: Mirror<Instances>,
}

impl Collector {
    /// Reads all nodes and plugins that are stored by now.
    pub(crate) async fn view(&self, deadline: Instant) -> Result<SweepMirrors, Problem> {
        let heads = tokio::try_join!(self.nodes.newest(), self.plugins.newest())?;
        let view = tokio::try_join!(
            read::<Nodes>(&self.nodes, heads.0, deadline),
            read::<Instances>(&self.plugins, heads.1, deadline),
        );
        let (nodes, plugins) = view?;
        Ok(SweepMirrors { nodes, plugins })
    }
}

impl SweepMirrors {
    /// Calls `with` while both mirrors are locked.
    pub fn with_view<T>(&self, now: Timestamp, with: impl FnOnce(&SweepView<'_>) -> T) -> T {
        self.nodes
            .read(|nodes| self.plugins.read(|plugins| with(&SweepView { nodes, plugins, now })))
    }
}

async fn read<F: Fold + Default>(
    bucket: &Bucket,
    head: u64,
    deadline: Instant,
) -> Result<Mirror<F>, MirrorError> {
    let start_within = deadline.saturating_duration_since(Instant::now());
    let options = MirrorOptions { start_within, ..MirrorOptions::default() };
    let mirror = Mirror::start(bucket, ">", F::default(), options).await?;
    // The replica that answered the read may lag behind the one that answered with the head.
    mirror.reach(head, deadline).await?;
    Ok(mirror)
}
