//! Two schedulers share a fleet while everything is killed in turn.
//!
//! **Promises** that in the end every volume is free, no job ran twice, and no alloc was stopped
//! under its job. A scheduler that is killed between its last request and the start of a job does
//! not run that job: the report says how many jobs ran, and a job that did not is no mistake here.

use std::path::PathBuf;
use std::time::Duration;

use berth_integration::{Options, Part, System};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{Instant, sleep};

use crate::event_log::EventLog;
use crate::job::runs_of;
use crate::mistakes::{Kind, Mistake, ObservedJob, mistakes_with};
use crate::scene::{UnderTest, end_of_all, left_of, start};
use crate::scheduler::{Scheduler, Start};

/// The volumes that the jobs use.
const VOLUMES: [&str; 4] = ["w", "x", "y", "z"];
/// The number of jobs of each scheduler in a round. They all wait at once: a job that holds one
/// volume while it waits in a long line for another delays two lines.
const JOBS: u32 = 24;
/// How long faults go on in a round before its jobs may end.
const ROUND: Duration = Duration::from_secs(40);
/// The longest pause between two faults, in milliseconds.
const PAUSE_MS: u64 = 3_000;

/// The result of a storm.
#[derive(Debug)]
pub struct StormReport {
    /// The mistakes.
    pub mistakes: Vec<Mistake>,
    /// The number of jobs.
    pub jobs: usize,
    /// The number of jobs that ran.
    pub ran: usize,
    /// The faults, in order.
    pub faults: Vec<String>,
}

/// Plays a storm of this length, in rounds. The seed chooses the jobs and the faults.
pub async fn storm(test: &UnderTest, length: Duration, seed: u64) -> StormReport {
    let mut dice = StdRng::seed_from_u64(seed);
    let options = Options { nodes: 2, replicas: 2, ..Options::default() };
    let system = System::start(options).await;
    for volume in VOLUMES {
        system.volume(volume, &["single-node-writer"]).await;
    }
    let event_log = EventLog::listen(&system.bus).await;
    let logs: PathBuf = system.dir().join("jobs");
    std::fs::create_dir(&logs).expect("the logs have a directory");
    let mut report = StormReport { mistakes: Vec::new(), jobs: 0, ran: 0, faults: Vec::new() };
    let end = Instant::now() + length;
    for round in 0.. {
        let round_ends = end.min(Instant::now() + ROUND);
        let mut ids = Vec::new();
        let starts = ["1", "2"].map(|number| {
            let jobs = jobs(&mut dice, &format!("job-{round}-{number}"));
            ids.extend(jobs.iter().map(|(id, ..)| id.clone()));
            let owner = format!("scheduler-{number}");
            start(&system, test, (&owner, &format!("n{number}")), &jobs, &logs)
        });
        let mut schedulers = starts.each_ref().map(Scheduler::start);
        while Instant::now() < round_ends {
            sleep(Duration::from_millis(dice.random_range(PAUSE_MS / 3..PAUSE_MS))).await;
            report.faults.push(strike(&system, &mut dice, &starts, &mut schedulers).await);
        }
        end_of_all(&system, &ids).await;
        drop(schedulers);
        report.jobs += ids.len();
        for id in ids {
            let runs = runs_of(&logs, &id).expect("the logs can be read");
            report.ran += usize::from(!runs.is_empty());
            let events = event_log.of_alloc(&id);
            let left = left_of(&system, &id).await;
            let job = ObservedJob { id, runs, events, left, ..ObservedJob::default() };
            report.mistakes.extend(mistakes_with(&job).into_iter().filter(is_counted));
        }
        if !report.mistakes.is_empty() || Instant::now() >= end {
            break;
        }
    }
    for volume in VOLUMES {
        system.settle(volume).await;
    }
    report
}

/// The jobs of one scheduler in one round, each with its volumes and its length in milliseconds.
fn jobs(dice: &mut StdRng, name: &str) -> Vec<(String, String, u32)> {
    (0..JOBS)
        .map(|at| {
            let first = dice.random_range(0..VOLUMES.len());
            let second = (first + dice.random_range(1..VOLUMES.len())) % VOLUMES.len();
            let both = format!("{},{}", VOLUMES[first], VOLUMES[second]);
            let one = VOLUMES[first].to_owned();
            let volumes = if dice.random_bool(0.5) { both } else { one };
            (format!("{name}-{at}"), volumes, dice.random_range(100..900))
        })
        .collect()
}

/// Kills one process or one scheduler, starts it again, and returns its name.
async fn strike(
    system: &System,
    dice: &mut StdRng,
    starts: &[Start; 2],
    schedulers: &mut [Scheduler; 2],
) -> String {
    let part = match dice.random_range(0..10) {
        0 => Part::Claim,
        1 => Part::SecondClaim,
        2 => Part::Watcher,
        3 => Part::Registry,
        4 => Part::Agent(0),
        5 => Part::Agent(1),
        6 => Part::Driver(0),
        7 => Part::Nats,
        at => {
            let at = usize::from(at == 8);
            schedulers[at].kill();
            schedulers[at] = Scheduler::start(&starts[at]);
            return format!("scheduler {at}");
        }
    };
    system.kill9_and_restart(part).await;
    format!("{part:?}")
}

/// Whether the mistake counts: a job that did not run, or ran out of turn, is no mistake in a
/// storm.
fn is_counted(mistake: &Mistake) -> bool {
    !matches!(mistake.kind, Kind::NeverRan | Kind::GaveUpPlaceInLine)
}
