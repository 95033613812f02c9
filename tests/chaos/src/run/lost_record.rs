//! The record of a claim is lost while its workload runs, by hand or by an older backup.
//!
//! Owns: three allocs of one volume on one node. One has ended and is in the backup, one loses its
//! claim, and one ends at the same time. Promises: the lost claim held its volume, and an operator
//! removes the mount at the end. Never: loses a claim that another operation reads.

use std::path::Path;
use std::time::Duration;

use berth_bus::Change;
use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::message::agent::{Mounted, Unmount, Unmounted};
use berth_contract::message::alloc::AllocStatus;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::{Namespace, VolumeKey};
use tokio::time::{Instant, sleep};

use super::Run;
use super::client::{self, alloc_id, node_id, volume_id};
use super::records::write;
use crate::plan::{VOLUMES, Workload};

/// How long each step is repeated.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a person tries to mend the mount. Other faults may keep the agent away for as long
/// as one of them lasts, and it has to start again after that.
const BY_HAND: Duration = Duration::from_secs(100);

impl Run {
    /// Deletes the record of a claim. If `restored`, it also restores the record of an older
    /// one.
    pub(super) async fn lost(&self, node: usize, number: u64, restored: bool, lasts: Duration) {
        let [past, live, ending] = ["past", "live", "beside"].map(|role| format!("{role}{number}"));
        let done = self.lose(node, [&past, &live, &ending], restored, lasts).await;
        self.ledger.note(format!("{live} lost its claim: {done:?}"));
        for alloc in [&past, &live, &ending] {
            if let Err(problem) = self.stop(alloc, PATIENCE).await {
                self.ledger.note(format!("{alloc} not stopped: {problem}"));
            }
        }
        self.unmount_by_hand(node, &live, volume()).await;
    }

    async fn lose(
        &self,
        node: usize,
        [past, live, beside]: [&str; 3],
        restored: bool,
        lasts: Duration,
    ) -> Result<(), String> {
        let calm = self.ledger.calm(node);
        let mut backup: Option<Change> = None;
        if restored {
            self.run_on(node, past).await.map_err(|problem| problem.to_string())?;
            backup = self.record(past).await?;
            self.stop(past, PATIENCE).await.map_err(|problem| problem.to_string())?;
            self.waits_for_end(past).await?;
        }
        let mounted = self.run_on(node, live).await.map_err(|problem| problem.to_string())?;
        let file = Path::new(&mounted.path).join(live);
        std::fs::write(&file, live).map_err(|error| error.to_string())?;
        self.run_on(node, beside).await.map_err(|problem| problem.to_string())?;
        write(&self.volumes, &key_of(live), Change::Delete).await?;
        if let Some(backup) = backup {
            write(&self.volumes, &key_of(past), backup).await?;
        }
        self.ledger.note(format!("the claim of {live} is lost"));
        self.stop(beside, PATIENCE).await.map_err(|problem| problem.to_string())?;
        sleep(lasts).await;
        let is_there = std::fs::read_to_string(&file).is_ok_and(|text| text == live);
        if !is_there && calm.is_some() && self.ledger.calm(node) == calm {
            let what = format!("{live} lost its claim's record, and {} is gone", file.display());
            self.ledger.violated("acknowledged claim lost", what);
        }
        Ok(())
    }

    async fn run_on(&self, node: usize, alloc: &str) -> Result<Mounted, Problem> {
        let workload = Workload::waiting(volume(), node, PATIENCE);
        self.ledger.placed(alloc);
        let register = client::register(alloc, &workload);
        let _: AllocStatus = self.about::<verb::AllocRegister>(&register, PATIENCE).await?;
        self.mount(alloc, &workload, PATIENCE).await
    }

    /// Unmounts as `berth node unmount` does, which BERTH0225 names.
    pub(super) async fn unmount_by_hand(&self, node: usize, alloc: &str, volume: usize) {
        let subject = verb::AgentUnmount::subject(&node_id(node));
        let (namespace, volume) = (Namespace::default(), volume_id(volume));
        let body = Unmount { namespace, volume, alloc: Some(alloc_id(alloc)) };
        let again = |problem: &Problem| problem.code != Code::NoSuchClaim;
        let patience = self.stuck_at(BY_HAND).saturating_duration_since(Instant::now());
        match self.pursue::<Unmounted>(&subject, &body, patience, again).await {
            Ok(unmounted) => self.ledger.note(format!("{alloc}: {unmounted:?}")),
            Err(problem) if problem.code == Code::NoSuchClaim => {}
            Err(problem) => {
                let what = format!("the mount of {alloc} cannot be taken down: {problem}");
                self.ledger.violated("stuck", what);
            }
        }
    }

    async fn record(&self, alloc: &str) -> Result<Option<Change>, String> {
        let entry = self.volumes.get(&key_of(alloc)).await.map_err(|error| error.to_string())?;
        Ok(entry.and_then(|entry| entry.value).map(Change::Put))
    }

    async fn waits_for_end(&self, alloc: &str) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let claim = self.claim(alloc, volume()).await;
            match claim {
                Ok(None) => return Ok(()),
                claim if Instant::now() > end => return Err(format!("not gone: {claim:?}")),
                _ => sleep(Duration::from_millis(200)).await,
            }
        }
    }
}

fn key_of(alloc: &str) -> String {
    key::claim(&VolumeKey::new(Namespace::default(), volume_id(volume())), &alloc_id(alloc))
}

/// A volume that any number of claims may write to. If only one may, nothing but the storage
/// keeps another node from it once the record is lost.
fn volume() -> usize {
    VOLUMES.iter().position(|kind| kind.id == "many").expect("the plan has the volume")
}
