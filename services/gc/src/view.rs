//! The records that a sweep is planned from, read again for each sweep.
//!
//! **Owns** a reading of the buckets while a sweep is planned.
//!
//! **Promises** that the reading has everything that was stored before it began.
//!
//! **Never** follows a bucket between two sweeps: in a busy fleet every step of every release would
//! be sent to it.

use berth_bus::{Bucket, Fold, Mirror, MirrorError, MirrorOptions};
use berth_contract::problem::Problem;
use berth_domain::Timestamp;
use berth_service::projection::{Allocs, Instances, Nodes, Volumes};
use tokio::time::Instant;

use crate::collector::Collector;
use crate::plan::SweepView;

/// The records that a sweep reads.
pub struct SweepMirrors {
    volumes: Mirror<Volumes>,
    allocs: Mirror<Allocs>,
    nodes: Mirror<Nodes>,
    plugins: Mirror<Instances>,
}

impl Collector {
    /// Reads everything that is stored by now.
    pub(crate) async fn view(&self, deadline: Instant) -> Result<SweepMirrors, Problem> {
        let heads = tokio::try_join!(
            self.volumes.newest(),
            self.allocs.newest(),
            self.nodes.newest(),
            self.plugins.newest(),
        );
        let heads = heads?;
        let view = tokio::try_join!(
            read::<Volumes>(&self.volumes, heads.0, deadline),
            read::<Allocs>(&self.allocs, heads.1, deadline),
            read::<Nodes>(&self.nodes, heads.2, deadline),
            read::<Instances>(&self.plugins, heads.3, deadline),
        );
        let (volumes, allocs, nodes, plugins) = view?;
        Ok(SweepMirrors { volumes, allocs, nodes, plugins })
    }
}

impl SweepMirrors {
    /// Calls `with` while all mirrors are locked.
    pub fn with_view<T>(&self, now: Timestamp, with: impl FnOnce(&SweepView<'_>) -> T) -> T {
        self.volumes.read(|volumes| {
            self.allocs.read(|allocs| {
                self.nodes.read(|nodes| {
                    self.plugins
                        .read(|plugins| with(&SweepView { volumes, allocs, nodes, plugins, now }))
                })
            })
        })
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
