//! The scenes: a fleet, jobs for the scheduler, and faults.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_access::{Grants, Role};
use berth_contract::event::EventName;
use berth_contract::message::alloc::{AllocQuery, AllocStatus};
use berth_contract::verb::{self, Verb as _};
use berth_domain::{AllocId, Namespace};
use berth_integration::{Options, Part, System};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::event_log::EventLog;
use crate::job::runs_of;
use crate::mistakes::{Mistake, ObservedJob, mistakes_with};
use crate::scheduler::{Scheduler, Start};

/// How long a scene may take to come to rest.
const REST: Duration = Duration::from_secs(90);
/// How long a place in line is kept in the scenes, without another request.
const PLACE_KEPT: Duration = Duration::from_secs(4);
/// The volumes of every scene, each for one writer.
const VOLUMES: [&str; 3] = ["x", "y", "z"];

/// What is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    /// Jobs with volumes of their own and with the same ones, and no fault.
    Life,
    /// The scheduler is killed while jobs run, and started again with the same jobs.
    Restart,
    /// The claim service is away, and the plugin fails, when a job begins.
    Retryable,
    /// A job's volume is held for longer than a place in line is kept.
    Line,
}

impl Scene {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Life, Self::Restart, Self::Retryable, Self::Line];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Life => "life",
            Self::Restart => "restart",
            Self::Retryable => "retryable",
            Self::Line => "line",
        }
    }

    /// Each job: its id, its volumes, and how many milliseconds it runs.
    const fn jobs(self) -> &'static [(&'static str, &'static str, u32)] {
        match self {
            Self::Life => {
                &[("a", "x", 1_000), ("b", "y", 1_000), ("c", "x,y", 500), ("d", "y,x", 500)]
            }
            Self::Restart => &[("a", "x", 6_000), ("b", "y", 4_000), ("c", "x", 500)],
            Self::Retryable => &[("a", "x", 500), ("b", "y", 500)],
            Self::Line => &[("a", "x", 500)],
        }
    }
}

/// The program under test.
#[derive(Debug, Clone)]
pub struct UnderTest {
    /// Its command, with placeholders.
    pub command: Vec<String>,
    /// Whether it reads jobs as JSON lines, and not as `ID VOLUMES COMMAND`.
    pub json: bool,
    /// The program whose subcommand `job` runs a job.
    pub kit: PathBuf,
}

/// Plays a scene. Returns the mistakes and the observed jobs.
pub async fn play(scene: Scene, test: &UnderTest) -> (Vec<Mistake>, Vec<ObservedJob>) {
    let place_kept_ms = u64::try_from(PLACE_KEPT.as_millis()).unwrap_or(u64::MAX);
    let system = System::start(Options { nodes: 1, place_kept_ms, ..Options::default() }).await;
    for volume in VOLUMES {
        system.volume(volume, &["single-node-writer"]).await;
    }
    let stage =
        Stage { logs: system.dir().join("jobs"), event_log: EventLog::listen(&system.bus).await };
    std::fs::create_dir(&stage.logs).expect("the logs have a directory");
    let jobs: Vec<(String, String, u32)> = scene
        .jobs()
        .iter()
        .map(|(id, volumes, ms)| ((*id).to_owned(), (*volumes).to_owned(), *ms))
        .collect();
    let start = start(&system, test, ("scheduler-1", "n1"), &jobs, &stage.logs);
    match scene {
        Scene::Life => stage.life(&system, &start).await,
        Scene::Restart => stage.restart(&system, &start).await,
        Scene::Retryable => stage.retryable(&system, &start).await,
        Scene::Line => stage.line(&system, &start).await,
    }
    let mut observed_jobs = Vec::new();
    for (id, ..) in scene.jobs() {
        observed_jobs.push(ObservedJob {
            id: (*id).to_owned(),
            runs: runs_of(&stage.logs, id).expect("the logs can be read"),
            events: stage.event_log.of_alloc(id),
            met_retryable: scene == Scene::Retryable,
            was_stopped_by_kit: false,
            left: left_of(&system, id).await,
        });
    }
    (observed_jobs.iter().flat_map(mistakes_with).collect(), observed_jobs)
}

/// The start of a scheduler for an owner and a node, with these jobs.
pub(crate) fn start(
    system: &System,
    test: &UnderTest,
    (owner, node): (&str, &str),
    jobs: &[(String, String, u32)],
    logs: &Path,
) -> Start {
    let grants = Grants::parse_namespaces(&["default=read,mount"]).expect("the grants are good");
    let login = system.login(&Role::User { name: "scheduler".to_owned(), grants });
    let mut lines = String::new();
    for (id, volumes, ms) in jobs {
        let (kit, logs) = (test.kit.display(), logs.display());
        let command = format!("exec {kit} job {logs} {id} {ms}");
        let line = if test.json {
            let volumes: Vec<&str> = volumes.split(',').collect();
            json!({"id": id, "volumes": volumes, "command": ["sh", "-c", command]}).to_string()
        } else {
            format!("{id} {volumes} {command}")
        };
        // Writing to a string does not fail.
        let _ = writeln!(lines, "{line}");
    }
    let shown = |path: PathBuf| path.to_string_lossy().into_owned();
    let places = vec![
        ("server", system.url()),
        ("owner", owner.to_owned()),
        ("node", node.to_owned()),
        ("creds", shown(login.creds_file)),
        ("ca", shown(login.ca_file)),
    ];
    Start { command: test.command.clone(), places, jobs: lines }
}

/// The place where a scene is played.
struct Stage {
    logs: PathBuf,
    event_log: EventLog,
}

impl Stage {
    async fn life(&self, system: &System, start: &Start) {
        let scheduler = Scheduler::start(start);
        self.rest(system, Scene::Life).await;
        drop(scheduler);
    }

    async fn restart(&self, system: &System, start: &Start) {
        let mut scheduler = Scheduler::start(start);
        self.until(|| self.runs("a") > 0 && self.runs("b") > 0).await;
        sleep(Duration::from_millis(700)).await;
        scheduler.kill();
        sleep(Duration::from_secs(1)).await;
        let scheduler = Scheduler::start(start);
        self.rest(system, Scene::Restart).await;
        drop(scheduler);
    }

    async fn retryable(&self, system: &System, start: &Start) {
        let failing =
            |rpc: &str| json!({"rpc": rpc, "when": "before", "code": "UNAVAILABLE", "times": 6});
        let faults = json!([failing("ControllerPublishVolume"), failing("NodeStageVolume")]);
        system.plant(0, &faults);
        system.kill9(Part::Claim);
        let scheduler = Scheduler::start(start);
        sleep(Duration::from_secs(4)).await;
        system.restart(Part::Claim);
        self.rest(system, Scene::Retryable).await;
        system.let_go();
        drop(scheduler);
    }

    async fn line(&self, system: &System, start: &Start) {
        system.run("holder", 0, "x").await;
        let scheduler = Scheduler::start(start);
        self.until(|| self.was_published("a", EventName::ClaimWaiting)).await;
        sleep(PLACE_KEPT * 3).await;
        system.stop("holder").await;
        self.rest(system, Scene::Line).await;
        drop(scheduler);
    }

    fn runs(&self, id: &str) -> usize {
        runs_of(&self.logs, id).map_or(0, |runs| runs.len())
    }

    fn was_published(&self, id: &str, event: EventName) -> bool {
        self.event_log.of_alloc(id).iter().any(|(_, published)| *published == event)
    }

    /// Waits for a condition, for at most as long as a scene may take. A condition that is not met
    /// shows as a mistake.
    async fn until(&self, is_so: impl Fn() -> bool) {
        let end = Instant::now() + REST;
        while !is_so() && Instant::now() < end {
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn rest(&self, system: &System, scene: Scene) {
        let ids: Vec<String> = scene.jobs().iter().map(|(id, ..)| (*id).to_owned()).collect();
        end_of_all(system, &ids).await;
    }
}

/// Waits until every alloc has ended, and nothing is left of it. Gives up when none has ended for
/// as long as a scene may take, because many jobs that wait for few volumes take long on a slow
/// machine.
pub(crate) async fn end_of_all(system: &System, ids: &[String]) {
    let mut live_ids: Vec<&String> = ids.iter().collect();
    let mut end = Instant::now() + REST;
    while !live_ids.is_empty() && Instant::now() < end {
        sleep(Duration::from_millis(500)).await;
        let before = live_ids.len();
        let mut still = Vec::new();
        for id in live_ids {
            let alloc = status_of(system, id).await;
            let is_over = |alloc: AllocStatus| alloc.state.is_terminal() && alloc.claims.is_empty();
            if !alloc.is_some_and(is_over) {
                still.push(id);
            }
        }
        live_ids = still;
        if live_ids.len() < before {
            end = Instant::now() + REST;
        }
    }
    // A job that runs a second time starts within a second.
    sleep(Duration::from_secs(1)).await;
}

async fn status_of(system: &System, id: &str) -> Option<AllocStatus> {
    let subject = verb::AllocStatus::subject(&Namespace::default());
    let status = AllocQuery::current(AllocId::new(id).ok()?);
    system.ask(&subject, &status).await.ok()
}

/// What is left of a job's alloc, as text.
pub(crate) async fn left_of(system: &System, id: &str) -> Option<String> {
    let alloc = status_of(system, id).await?;
    let claims = alloc.claims.len();
    let is_left = !alloc.state.is_terminal() || claims > 0;
    is_left.then(|| format!("its alloc is {}, with {claims} claims", alloc.state))
}
