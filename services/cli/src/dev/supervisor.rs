//! Keeps processes running, and stops them in order.
//!
//! **Promises** that an ended process is restarted, soon at first and then more slowly. A stop is
//! bounded: a process that ignores SIGTERM is killed after a delay.

use std::fs;
use std::process::ExitStatus;
use std::time::Duration;

use berth_domain::retry::Schedule;
use berth_service::clock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::log_tail::LogTail;
use super::program::{Program, Tier};

/// The pauses before an ended process is restarted.
const RESTART_PAUSES: Schedule =
    Schedule { first: Duration::from_millis(100), max: Duration::from_secs(2) };
/// After this running time, a process is restarted with the shortest pause.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// How long a process may take to end after SIGTERM, before SIGKILL.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// The most reports in the queue to the reader.
const REPORTS_WAITING_MAX: usize = 256;

/// A process ended, and will be restarted.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The process's name.
    pub name: String,
    /// How it ended, as text.
    pub how: String,
    /// Its exit code, if it ended by itself.
    pub code: Option<i32>,
    /// How often it has ended so far.
    pub times: u32,
    /// The pause before its restart.
    pub again_in: Duration,
    /// The last line of its log, if it ended with an error soon after its start.
    pub last_line: Option<String>,
}

/// All supervised processes.
#[derive(Debug)]
pub struct Supervisor {
    tiers: Vec<(Tier, CancellationToken, JoinSet<()>)>,
    ended: mpsc::Receiver<Ended>,
}

impl Supervisor {
    /// Starts all processes, and restarts each that ends.
    pub fn start(programs: Vec<Program>) -> Self {
        let (tell, ended) = mpsc::channel(REPORTS_WAITING_MAX);
        let mut tiers: Vec<_> = Tier::STOPPING
            .into_iter()
            .map(|tier| (tier, CancellationToken::new(), JoinSet::new()))
            .collect();
        for program in programs {
            for (tier, stop, tasks) in &mut tiers {
                if *tier == program.tier {
                    tasks.spawn(keep_running(program.clone(), stop.clone(), tell.clone()));
                }
            }
        }
        Self { tiers, ended }
    }

    /// Waits for the next end of a process.
    pub async fn ended(&mut self) -> Option<Ended> {
        self.ended.recv().await
    }

    /// Stops all processes, tier by tier.
    pub async fn stop(self) {
        for (_, stop, mut tasks) in self.tiers {
            stop.cancel();
            while tasks.join_next().await.is_some() {}
        }
    }
}

async fn keep_running(program: Program, stop: CancellationToken, tell: mpsc::Sender<Ended>) {
    let mut times = 0;
    let mut in_a_row = 0;
    loop {
        let started = Instant::now();
        let log = LogTail::from_now(&program.log);
        let (how, code) = match program.start() {
            Err(error) => (format!("could not be started: {error}"), None),
            Ok(mut child) => {
                // The process runs on even if the pid file cannot be written.
                let pid = child.id().unwrap_or_default();
                let _ = fs::write(&program.pid, format!("{pid}\n"));
                let ended = tokio::select! {
                    ended = child.wait() => ended,
                    () = stop.cancelled() => {
                        end(&mut child).await;
                        let _ = fs::remove_file(&program.pid);
                        return;
                    }
                };
                match ended {
                    Ok(status) => (in_words(status), status.code()),
                    Err(error) => (format!("was lost: {error}"), None),
                }
            }
        };
        times += 1;
        in_a_row = if started.elapsed() >= STABLE_AFTER { 1 } else { in_a_row + 1 };
        // A process that a signal ended has not logged its end.
        let is_failed_start = code.is_some() && started.elapsed() < STABLE_AFTER;
        let last_line = is_failed_start.then(|| log.last_lines(1).pop()).flatten();
        let again_in = RESTART_PAUSES.wait(in_a_row, clock::jitter());
        // A report is lost when the queue is full, and nothing else.
        let _ = tell.try_send(Ended {
            name: program.name.clone(),
            how,
            code,
            times,
            again_in,
            last_line,
        });
        tokio::select! {
            () = sleep(again_in) => {}
            () = stop.cancelled() => return,
        }
    }
}

async fn end(child: &mut Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    if timeout(DRAIN_MAX, child.wait()).await.is_err() {
        // The process has ended, or we may not signal it: there is nothing to do either way.
        let _ = child.kill().await;
    }
}

/// `ended with exit code 64`, `was killed by signal 9`.
fn in_words(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
