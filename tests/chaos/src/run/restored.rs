//! The buckets are set back to a backup under running workloads, while other faults strike.
//!
//! Owns: workloads that are younger than the backup, others that want their volumes, the restore,
//! and what an operator can do afterwards. Promises: the backup is taken at rest, so it contains
//! everything that was acknowledged before. What it does not contain is in the ledger as held:
//! those mounts stay, and no other node is granted their volumes. Never: helps a process along.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::alloc::AllocStatus;
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_harness::dirs::Dir;
use berth_harness::nats::stock;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Keeper, Run, client};
use crate::plan::{Event, EventKind, Restore, Tool, Workload, kind_of};

/// How long each step is repeated.
const PATIENCE: Duration = Duration::from_secs(60);
/// The buckets in the backup's directories, without the record of buckets.
const BUCKETS: [&str; 5] = ["volumes", "allocs", "secrets", "plugins", "nodes"];

/// A workload that the backup does not contain.
struct YoungWorkload {
    alloc: String,
    workload: Workload,
    file: PathBuf,
}

impl Run {
    /// Runs the restore from the backup until the last mount is resolved.
    pub(crate) async fn restored(self: &Arc<Self>, plan: Restore) {
        let keeper = Keeper(tokio::spawn(Arc::clone(self).keep_running()));
        self.end_all().await;
        for (volume, _) in &plan.held {
            if let Err(problem) = self.register_again(*volume).await {
                let what = format!("{} is not registered again: {problem}", kind_of(*volume).id);
                self.ledger.violated("stuck", what);
            }
        }
        let backup = Dir::new("chaos-backup");
        if let Err(why) = self.back_up(backup.path()).await {
            return self.ledger.violated("stuck", format!("no backup: {why}"));
        }
        let mut young = Vec::new();
        for (volume, node) in &plan.held {
            young.extend(self.begin_young(*volume, *node).await);
        }
        let ends = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for young_workload in &young {
            let rival = Workload {
                node: self.other_node(young_workload.workload.node),
                ..young_workload.workload
            };
            let (run, ends) = (Arc::clone(self), Arc::clone(&ends));
            tasks.spawn(async move { run.rival(&rival, &ends).await });
        }
        for event in plan.strikes {
            let run = Arc::clone(self);
            tasks.spawn(async move { run.strike_then(event).await });
        }
        sleep(plan.after).await;
        self.ledger.struck(plan.tool.kind());
        let done = match plan.tool {
            Tool::Berth => self.restore(backup.path()).await,
            Tool::Stock => self.set_back(backup.path()).await,
        };
        self.ledger.note(format!("{}: {done:?}", plan.tool.kind()));
        if let Err(why) = done {
            self.ledger.violated("stuck", format!("not restored: {why}"));
        }
        for young_workload in &young {
            self.check_kept(young_workload);
        }
        let (again, by_hand): (Vec<_>, Vec<_>) =
            young.iter().enumerate().partition(|(at, _)| at % 2 == 0);
        for (_, one) in again {
            self.claim_again(one).await;
        }
        for (_, one) in by_hand {
            self.check_kept(one);
            self.resolve_by_hand(one).await;
        }
        ends.store(true, Ordering::Relaxed);
        while tasks.join_next().await.is_some() {}
        drop(keeper);
        self.revive();
    }

    fn other_node(&self, node: usize) -> usize {
        (node + 1) % self.site.shape.nodes
    }

    async fn strike_then(self: Arc<Self>, event: Event) {
        sleep_until(Instant::now() + event.at).await;
        self.ledger.note(&event.kind);
        if let EventKind::Strike(strike) = event.kind {
            let _turn = self.turns[&strike.target].lock().await;
            self.hurt(strike).await;
        }
    }

    async fn begin_young(&self, volume: usize, node: usize) -> Option<YoungWorkload> {
        let alloc = format!("young{volume}");
        let workload = Workload::waiting(volume, node, PATIENCE);
        let begun = self.claim_for(&alloc, &workload).await;
        let file = match begun {
            Ok(path) => Path::new(&path).join(&alloc),
            Err(problem) => {
                self.ledger.violated("stuck", format!("{alloc} cannot begin: {problem}"));
                return None;
            }
        };
        std::fs::write(&file, &alloc).expect("a workload writes what it was granted");
        Some(YoungWorkload { alloc, workload, file })
    }

    /// Registers the alloc, and has the volume mounted for it.
    async fn claim_for(&self, alloc: &str, workload: &Workload) -> Result<String, Problem> {
        self.ledger.placed(alloc);
        let register = client::register(alloc, workload);
        let _: AllocStatus = self.about::<verb::AllocRegister>(&register, PATIENCE).await?;
        Ok(self.mount(alloc, workload, workload.patience).await?.path)
    }

    /// Asks for the volume on another node until `ends` is set. Every grant is recorded in the
    /// ledger, which is judged.
    async fn rival(&self, workload: &Workload, ends: &AtomicBool) {
        let mut number = 0;
        while !ends.load(Ordering::Relaxed) {
            number += 1;
            let alloc = format!("rival{}-{number}", workload.volume);
            let patience = Duration::from_secs(3);
            let short = Workload { patience, wait: number % 2 == 0, ..workload.clone() };
            let mounted = self.claim_for(&alloc, &short).await;
            self.ledger.note(format!("{alloc}: {:?}", mounted.map_err(|problem| problem.code)));
            let stopped = self.stop(&alloc, PATIENCE).await;
            if let Err(problem) = stopped {
                self.ledger.note(format!("{alloc} not stopped: {problem}"));
            }
            sleep(Duration::from_millis(300)).await;
        }
    }

    /// Checks that its mount and its file are as they were.
    fn check_kept(&self, young: &YoungWorkload) {
        let YoungWorkload { alloc, file, .. } = young;
        if !std::fs::read_to_string(file).is_ok_and(|text| text == *alloc) {
            let what =
                format!("{alloc} is younger than the backup, and {} is gone", file.display());
            self.ledger.violated("acknowledged claim lost", what);
        }
    }

    /// The first remedy: the alloc claims its volume again, and its mount belongs to a claim
    /// again.
    async fn claim_again(&self, young: &YoungWorkload) {
        let YoungWorkload { alloc, workload, .. } = young;
        // The ledger forgets the claim that the backup does not contain.
        self.ledger.lets_go(alloc);
        let patience = self.stuck_at(PATIENCE).saturating_duration_since(Instant::now());
        let workload = Workload { patience, ..workload.clone() };
        if let Err(problem) = self.claim_for(alloc, &workload).await {
            self.ledger.violated("stuck", format!("{alloc} cannot claim again: {problem}"));
        }
        self.check_kept(young);
        self.end_young(alloc).await;
    }

    /// The second remedy, as in docs/node.md: the workload ends, and a person unmounts. That
    /// records a claim, and the volume is detached by it before a rival is granted the volume.
    async fn resolve_by_hand(&self, young: &YoungWorkload) {
        let YoungWorkload { alloc, workload, .. } = young;
        self.end_young(alloc).await;
        self.unmount_by_hand(workload.node, alloc, workload.volume).await;
        let after = format!("after{}", workload.volume);
        let end = self.workload(&after, workload).await;
        if end != "held" {
            self.ledger.violated("stuck", format!("{after} is refused what was unmounted: {end}"));
        }
    }

    /// Ends the alloc. The backup may not contain its registration either.
    async fn end_young(&self, alloc: &str) {
        match self.stop(alloc, PATIENCE).await {
            Err(problem) if problem.code == Code::NoSuchAlloc => self.ledger.stopped(alloc),
            Err(problem) => {
                let what = format!("{alloc} not stopped: {problem}");
                self.ledger.violated("stuck", what);
            }
            Ok(()) => {}
        }
    }

    async fn back_up(&self, dir: &Path) -> Result<(), String> {
        self.insist(&["bus", "backup", text(dir)]).await
    }

    async fn restore(&self, dir: &Path) -> Result<(), String> {
        // A restore that was interrupted is repeated.
        self.insist(&["bus", "restore", text(dir), "--yes"]).await
    }

    /// Restores by the stock tool: each stream is removed and restored, and then accepted.
    async fn set_back(&self, dir: &Path) -> Result<(), String> {
        let server = self.site.server().ok_or("no server answers")?;
        for bucket in BUCKETS {
            stock::remove(server, &dir.join(bucket)).await;
        }
        for bucket in BUCKETS {
            stock::restore(server, &dir.join(bucket)).await;
        }
        let accepted = BUCKETS.map(|bucket| format!("berth-{bucket}"));
        let mut accept = vec!["bus", "accept", "--yes"];
        accept.extend(accepted.iter().map(String::as_str));
        self.insist(&accept).await
    }

    /// Runs a command until it succeeds.
    async fn insist(&self, arguments: &[&str]) -> Result<(), String> {
        let end = self.stuck_at(PATIENCE);
        loop {
            let output = self.site.berth().args(arguments).output().await;
            let output = output.map_err(|error| error.to_string())?;
            if output.status.success() {
                return Ok(());
            }
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            self.ledger.note(format!("{arguments:?}: {message}"));
            if Instant::now() > end {
                return Err(message);
            }
            sleep(Duration::from_millis(500)).await;
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
