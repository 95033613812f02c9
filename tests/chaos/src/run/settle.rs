//! The end of a run: everything ends, and nothing is left.
//!
//! Owns: what "at rest" means. Promises: a system that is not at rest within [`REST`] is a
//! violation that says what is left. Never: restarts a running process to help it.

use std::time::{Duration, Instant};

use berth_bus::Bucket;
use berth_contract::bucket;
use berth_contract::message::agent::AgentStatus;
use berth_contract::message::volume::VolumeStatus;
use berth_contract::verb::{self, Verb as _};
use berth_harness::dirs::loops_beneath;
use berth_harness::judge::judge;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Run;
use super::client::{claims, node_id, volume_id};
use crate::ledger::Violation;
use crate::plan::{CREATED_NUMBERS, PLUGINS, Read, SCRATCH, Target, VOLUMES, Workload, kind_of};
use crate::site::PLUGIN_PATIENCE;
use crate::verdict;

/// How long the system may take to come to rest. An agent waits this long for an answer that
/// its plugin lost, and what waited for the answer is done within the same time.
const REST: Duration = Duration::from_secs(35 + PLUGIN_PATIENCE.as_secs());
/// How long a single step may take at rest. A machine that is busy otherwise is not stuck.
const SOON: Duration = Duration::from_secs(60);

impl Run {
    /// Ends what still runs, waits until the system is at rest, and checks everything. Returns
    /// the time after which no claim was left.
    pub(crate) async fn come_to_rest(self: &std::sync::Arc<Self>) -> Duration {
        self.ledger.note("every fault is mended");
        let took = self.end_all().await;
        self.nothing_is_left().await;
        self.volumes_are_there().await;
        self.storage_is_known(true).await;
        self.looking_changes_nothing().await;
        self.all_works_again().await;
        self.storage_comes_to_rest(false).await;
        self.nothing_is_left().await;
        self.storage_is_known(false).await;
        self.all_can_be_deleted().await;
        self.storage_is_known(false).await;
        self.judged();
        took
    }

    /// Ends every alloc, and waits until no claim is left and no operation is under way.
    /// Returns the time after which no claim was left.
    pub(super) async fn end_all(&self) -> Duration {
        let began = Instant::now();
        for alloc in self.ledger.unstopped() {
            if let Err(problem) = self.stop(&alloc, REST).await
                && problem.code != berth_contract::code::Code::NoSuchAlloc
            {
                self.ledger.violated("stuck", format!("{alloc} cannot be stopped: {problem}"));
            }
        }
        self.settles("no claim is left", REST, || async {
            let claims_left = claims(&self.volumes).await?;
            if claims_left.is_empty() { Ok(()) } else { Err(format!("{claims_left:#?}")) }
        })
        .await;
        let took = began.elapsed();
        self.ledger.note(format!("no claim is left after {took:?}"));
        // An expansion may wait for the next staging.
        self.storage_comes_to_rest(true).await;
        took
    }

    /// Waits for a condition. It is a violation if the condition is not met, and the run goes
    /// on.
    async fn settles<L: Future<Output = Result<(), String>>>(
        &self,
        what: &str,
        within: Duration,
        mut check: impl FnMut() -> L,
    ) {
        let end = Instant::now() + within;
        loop {
            let seen = check().await;
            match seen {
                Ok(()) => return,
                Err(seen) if Instant::now() > end => {
                    let what = format!("not within {within:?}: {what}; {seen}");
                    return self.ledger.violated("stuck", what);
                }
                Err(_) => sleep(Duration::from_millis(200)).await,
            }
        }
    }

    /// Checks that no mount, loop device, attachment or journal entry is left, and that every
    /// plugin is healthy.
    async fn nothing_is_left(&self) {
        self.settles("every plugin is healthy", SOON, || self.healthy()).await;
        let root = self.site.dir().to_owned();
        self.settles("no mount is left", SOON, || async {
            let mounts = self.site.mounts(None);
            if mounts.is_empty() { Ok(()) } else { Err(format!("{mounts:?}")) }
        })
        .await;
        self.settles("no loop device is left", SOON, || async {
            let loop_devices = loops_beneath(&root);
            if loop_devices.is_empty() { Ok(()) } else { Err(format!("{loop_devices:?}")) }
        })
        .await;
        self.settles("the storage has nothing attached", SOON, || async {
            let used: Vec<Value> =
                (0..PLUGINS.len()).flat_map(|plugin| self.site.in_use(plugin)).collect();
            if used.is_empty() { Ok(()) } else { Err(json!(used).to_string()) }
        })
        .await;
        for node in 0..self.site.shape.nodes {
            self.settles("no journal has a use", SOON, || async {
                let subject =
                    verb::AgentStatus::subject(&verb::NodeAndNamespace::any_of(node_id(node)));
                let status = self.ask::<AgentStatus>(&subject, &json!({})).await;
                let mounts = status.map_err(|problem| problem.to_string())?.mounts;
                if mounts.is_empty() { Ok(()) } else { Err(format!("{mounts:?}")) }
            })
            .await;
        }
    }

    /// Checks that every volume is registered as it was acknowledged last.
    async fn volumes_are_there(&self) {
        for (volume, kind) in VOLUMES.iter().enumerate() {
            let body = json!({"id": volume_id(volume)});
            let acknowledged = self.acknowledged_change(volume);
            let status: Result<VolumeStatus, _> =
                self.about::<verb::VolumeStatus>(&body, SOON).await;
            let named = acknowledged.map(|change| format!("change {change}"));
            match (status, named) {
                (Ok(status), Some(named)) if status.name != named => {
                    let what = format!("{}: {named} was acknowledged, it is {status:?}", kind.id);
                    self.ledger.violated("acknowledged registration lost", what);
                }
                (Err(problem), Some(_)) => {
                    let what = format!("{}: {problem}", kind.id);
                    self.ledger.violated("acknowledged registration lost", what);
                }
                _ => {}
            }
            if let Err(problem) = self.register_again(volume).await {
                let what = format!("{} cannot be registered: {problem}", kind.id);
                self.ledger.violated("stuck", what);
            }
        }
    }

    /// Checks that every operation at the storage ends, and that the volumes of ended allocs
    /// are deleted.
    async fn storage_comes_to_rest(&self, unstaged: bool) {
        let what = "every operation at the storage has ended";
        self.settles(what, REST, || self.storage_rests(unstaged)).await;
    }

    /// Checks that everything can be deleted that was created during the run.
    async fn all_can_be_deleted(&self) {
        for volume in CREATED_NUMBERS {
            self.settles("a volume can be deleted", SOON, || self.delete_at_last(volume)).await;
        }
        // Each deletion has its own time limit: a long run leaves hundreds of snapshots.
        let all = match self.all_snapshots().await {
            Ok(all) => all,
            Err(problem) => return self.ledger.violated("stuck", problem),
        };
        self.ledger.note(format!("{} snapshots and groups are deleted", all.len()));
        for cut in all {
            self.settles("a snapshot can be deleted", SOON, || async {
                match self.delete_cut(&cut, SOON).await.as_str() {
                    "gone" => Ok(()),
                    end => Err(format!("{cut:?}: {end}")),
                }
            })
            .await;
        }
        self.settles("no snapshot is left", SOON, || async {
            let snapshots_left =
                self.all_snapshots().await.map_err(|problem| problem.to_string())?;
            if snapshots_left.is_empty() { Ok(()) } else { Err(format!("{snapshots_left:?}")) }
        })
        .await;
    }

    /// Checks that reads change nothing in the buckets of a system at rest.
    async fn looking_changes_nothing(&self) {
        let looks = [Read::Volumes, Read::Claims, Read::Allocs, Read::Plugins, Read::Nodes];
        let volumes = (0..VOLUMES.len()).map(Read::Volume);
        let agents = (0..self.site.shape.nodes).map(Read::Agent);
        let before = self.heads().await;
        for read in looks.into_iter().chain(volumes).chain(agents) {
            // A server goes on sending to a vanished client for half a minute.
            if let Err(problem) = self.read(read, SOON).await {
                self.ledger.violated("stuck", format!("{read:?} at rest: {problem}"));
            }
        }
        let after = self.heads().await;
        // A head falls when its key is purged, and rises when something is written.
        let is_raised = |(before, after): (&Option<u64>, &Option<u64>)| match (before, after) {
            (Some(before), Some(after)) => after > before,
            unread => unread != (&None, &None),
        };
        if before.iter().zip(&after).any(is_raised) {
            let what = format!("{before:?} before, {after:?} after");
            self.ledger.violated("looking changed something", what);
        }
    }

    /// The newest revisions of the keys that only requests write. Agents report on their own.
    async fn heads(&self) -> Vec<Option<u64>> {
        let copies = self.site.nats.copies();
        let mut heads = Vec::new();
        for spec in [bucket::VOLUMES, bucket::ALLOCS, bucket::SECRETS] {
            let opened: Result<Bucket, _> = self.site.bus.bucket(&spec, copies).await;
            heads.push(match opened {
                Ok(bucket) => bucket.head(">").await.ok(),
                Err(_) => None,
            });
        }
        heads
    }

    /// Checks that each volume can be created, and mounted on one node after the other.
    async fn all_works_again(self: &std::sync::Arc<Self>) {
        let mut tasks = JoinSet::new();
        for volume in (0..=SCRATCH).filter(|volume| self.can_create(*volume)) {
            let kind = kind_of(volume);
            let run = std::sync::Arc::clone(self);
            tasks.spawn(async move {
                if CREATED_NUMBERS.contains(&volume) {
                    let created = || run.create_again(volume);
                    run.settles("a volume can be created", SOON, created).await;
                }
                for node in 0..run.site.shape.nodes {
                    let workload = Workload {
                        read_only: kind.writers == 0,
                        ..Workload::waiting(volume, node, SOON)
                    };
                    let alloc = format!("z{volume}-{node}");
                    let end = run.workload(&alloc, &workload).await;
                    if end != "held" {
                        let what = format!("{} cannot be had on n{}: {end}", kind.id, node + 1);
                        run.ledger.violated("stuck", what);
                    }
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            if let Err(defect) = ended {
                self.ledger.violated("a task of the test failed", defect);
            }
        }
        self.settles("no claim is left after all", SOON, || async {
            let left = claims(&self.volumes).await?;
            if left.is_empty() { Ok(()) } else { Err(format!("{left:#?}")) }
        })
        .await;
    }

    /// Judges the drivers' logs: by what no CO may do, and by what the callers were told.
    fn judged(&self) {
        let mut lines: Vec<Value> = Vec::new();
        for (plugin, name) in PLUGINS.iter().enumerate() {
            if let Err(found) = judge(self.site.call_logs(plugin)) {
                self.ledger.violated("judged", format!("{name}:\n{found}"));
            }
            for log in self.site.call_logs(plugin) {
                match std::fs::read_to_string(&log) {
                    // The judge has refused every broken line, except the last one of a driver
                    // that was killed.
                    Ok(text) => lines
                        .extend(text.lines().filter_map(|line| serde_json::from_str(line).ok())),
                    Err(error) => {
                        self.ledger.violated("judged", format!("{}: {error}", log.display()));
                    }
                }
            }
        }
        for line in lines.iter().filter(|line| !line["violation"].is_null()) {
            self.ledger.violated("refused by the driver", line);
        }
        let book = self.ledger.read();
        let calls = verdict::calls(&lines);
        let judged = verdict::judge(&book.holds, &calls, &verdict::deletions(&lines));
        for Violation { kind, what } in judged {
            self.ledger.violated(kind, what);
        }
        for target in Target::processes(self.site.shape) {
            let log = self.site.daemon(target).log();
            for line in log.lines().filter(|line| line.contains("panicked at")) {
                self.ledger.violated("a process panicked", format!("{target}: {line}"));
            }
        }
    }
}
