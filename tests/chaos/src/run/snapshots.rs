//! Snapshots are cut alone or as a group, and deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::snapshot::{
    CreateSnapshot, DeleteSnapshot, ListSnapshots, SnapshotStub, Snapshots, SnapshotsChanged,
};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::volume::storage::SnapshotState;
use berth_domain::{Namespace, SnapshotId, VolumeId};
use tokio::time::{Instant, sleep};

use super::Run;
use super::client::volume_id;
use crate::ledger::CutSnapshot;
use crate::plan::kind_of;

/// How long a request is repeated that must get through.
const INSIST: Duration = Duration::from_secs(30);
/// How long a caller waits for the end of its request. The request goes on without the caller.
const WAITS: Duration = Duration::from_secs(20);

impl Run {
    /// Cuts a snapshot of each volume. The id of a snapshot is never used again.
    pub(super) async fn cut(
        &self,
        number: usize,
        volumes: &[usize],
        ready_after: Duration,
        abandon: Option<Duration>,
    ) -> String {
        let id = SnapshotId::new(format!("s{number}")).expect("the id is valid");
        let parameter = ("ready-after-ms".to_owned(), ready_after.as_millis().to_string());
        let body = CreateSnapshot {
            snapshot: id.clone(),
            volumes: volumes.iter().map(|volume| volume_id(*volume)).collect(),
            group: volumes.len() > 1,
            parameters: BTreeMap::from([parameter]),
        };
        let subject = verb::SnapshotCreate::subject(&Namespace::default());
        let waits_long = [Code::VolumeNotReady, Code::OperationUnderWay];
        let again = |problem: &Problem| problem.retryable && !waits_long.contains(&problem.code);
        let requested = self.pursue::<SnapshotsChanged>(&subject, &body, INSIST, again).await;
        if let Err(problem) = requested {
            self.ledger.note(format!("{id} of {volumes:?} not cut: {problem}"));
            return problem.code.as_str().to_owned();
        }
        if let Some(abandon_after) = abandon {
            sleep(abandon_after).await;
            let cut = CutSnapshot {
                volume: kind_of(volumes[0]).id.to_owned(),
                snapshot: id.to_string(),
                external_id: String::new(),
                in_group: body.group,
                let_go: None,
                gone: false,
            };
            return self.delete_cut(&cut, INSIST).await;
        }
        let end = Instant::now() + WAITS;
        while Instant::now() < end {
            let listed = self.snapshots_called(&id).await.unwrap_or_default();
            let all_are = |state| listed.iter().all(|snapshot| snapshot.state == state);
            if listed.len() == volumes.len() && all_are(SnapshotState::Ready) {
                for snapshot in &listed {
                    self.ledger.cut(acknowledged(snapshot));
                }
                return "done".to_owned();
            }
            if let Some(failed) = listed.first().filter(|_| all_are(SnapshotState::Failed)) {
                let _: String = self.delete_cut(&acknowledged(failed), INSIST).await;
                return "failed".to_owned();
            }
            sleep(Duration::from_millis(200)).await;
        }
        "under way".to_owned()
    }

    /// Deletes a snapshot with its group, and waits until it is gone.
    pub(super) async fn delete_cut(&self, cut: &CutSnapshot, patience: Duration) -> String {
        self.ledger.lets_cut_go(&cut.snapshot);
        let id = SnapshotId::new(cut.snapshot.clone()).expect("the id was answered");
        let volume = VolumeId::new(cut.volume.clone()).expect("the id was answered");
        let body = DeleteSnapshot {
            volume,
            snapshot: id.clone(),
            group: cut.in_group,
            forget: false,
            // Ids are never used again.
            create_index: None,
        };
        let subject = verb::SnapshotDelete::subject(&Namespace::default());
        let again = |problem: &Problem| problem.retryable && problem.code != Code::StorageInUse;
        match self.pursue::<SnapshotsChanged>(&subject, &body, patience, again).await {
            Ok(_) => {}
            Err(problem) if problem.code == Code::NoSuchSnapshot => {}
            Err(problem) => {
                self.ledger.note(format!("{id} not deleted: {problem}"));
                return problem.code.as_str().to_owned();
            }
        }
        let end = Instant::now() + WAITS;
        while Instant::now() < end {
            match self.snapshots_called(&id).await {
                Ok(listed) if listed.is_empty() => {
                    self.ledger.cut_is_gone(&cut.snapshot);
                    return "gone".to_owned();
                }
                // The plugin refused the deletion and said why.
                Ok(listed)
                    if listed.iter().all(|snapshot| snapshot.state == SnapshotState::Ready) =>
                {
                    return "refused".to_owned();
                }
                _ => sleep(Duration::from_millis(200)).await,
            }
        }
        "under way".to_owned()
    }

    /// The snapshots with this id, as a caller sees them.
    async fn snapshots_called(&self, id: &SnapshotId) -> Result<Vec<SnapshotStub>, Problem> {
        let list = ListSnapshots { prefix: id.to_string(), ..ListSnapshots::default() };
        let listed: Snapshots = self.about::<verb::SnapshotList>(&list, WAITS).await?;
        let same_id = listed.snapshots.into_iter().filter(|snapshot| snapshot.snapshot == *id);
        Ok(same_id.collect())
    }

    /// All snapshots as a caller sees them, one of each group.
    pub(super) async fn all_snapshots(&self) -> Result<Vec<CutSnapshot>, Problem> {
        let mut list = ListSnapshots::default();
        let mut snapshots: Vec<CutSnapshot> = Vec::new();
        loop {
            let listed: Snapshots = self.about::<verb::SnapshotList>(&list, WAITS).await?;
            snapshots.extend(listed.snapshots.iter().map(acknowledged));
            list.page.after = listed.next;
            if list.page.after.is_none() {
                break;
            }
        }
        snapshots.sort_by(|one, other| one.snapshot.cmp(&other.snapshot));
        snapshots.dedup_by(|one, other| one.snapshot == other.snapshot);
        Ok(snapshots)
    }
}

fn acknowledged(stub: &SnapshotStub) -> CutSnapshot {
    CutSnapshot {
        volume: stub.volume.to_string(),
        snapshot: stub.snapshot.to_string(),
        external_id: stub.external_id.clone().unwrap_or_default(),
        in_group: !stub.group.is_empty(),
        let_go: None,
        gone: false,
    }
}
