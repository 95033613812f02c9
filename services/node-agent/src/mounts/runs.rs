//! Commands that `berth run` started on this node, watched to their end.
//!
//! **Owns** the end of a run whose runner was killed, and that of an alloc whose guard has ended.
//! The agent ends the processes that a run left behind, and reports the end of its alloc only after
//! that. So no other node gets the volume while a process of the run may write to it, and a killed
//! runner leaves no claim behind.
//!
//! **Promises** that nothing is unpublished under a run that is not over, or of which that cannot
//! be looked at ([`check_not_running`]). This holds after a restart of the agent or of the host:
//! the state of a run is in files and in the locks on them ([`berth_service::runs`]).
//!
//! **Never** ends a process whose runner is there, unless its node counted as gone ([`end_all`]);
//! and never one that a scheduler named as its alloc's guard: it may be any process of the host.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use berth_bus::{Bus, Call};
use berth_client::Client;
use berth_contract::code::Code;
use berth_contract::message::alloc::StopAlloc;
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::alloc::AllocState;
use berth_domain::limits::REQUEST_TIMEOUT;
use berth_domain::{AllocId, VolumeKey};
use berth_host::ProcessHandle;
use berth_host::process::{Signal, list_pids};
use berth_service::Shutdown;
use berth_service::clock;
use berth_service::fault_report::FaultReport;
use berth_service::process::chain;
use berth_service::runs::{Ended, ObservedRun, RunGuard, Runs, Unread, is_inherited, is_of};
use tokio::time::sleep;

use crate::host::pool::with_processes;

/// Interval at which the runs are read.
const INTERVAL: Duration = Duration::from_millis(500);
/// Longest interval while the claim service does not answer.
const INTERVAL_MAX: Duration = Duration::from_secs(5);
/// Age up to which the agent asks again about an alloc that the claim service does not know. The
/// killed runner's registration may arrive that late.
const LATE_REGISTRATION_MAX: Duration = Duration::from_secs(60);
/// Largest number of runs that cannot be looked at and that the node's report names.
const NAMED_UNKNOWN_MAX: usize = 2;
/// Largest number of processes that a message names.
const NAMED_PIDS_MAX: usize = 5;
/// Largest number of processes of a run that are ended in one go. Each is held open meanwhile.
const PROCESSES_MAX: usize = 256;

/// Watches until the shutdown. `fault` says what cannot be looked at.
pub async fn watch_runs(runs: Runs, bus: Bus, fault: FaultReport, shutdown: Shutdown) {
    let mut pause = INTERVAL;
    loop {
        tokio::select! {
            () = sleep(pause) => {}
            () = shutdown.requested() => return,
        }
        let unknown = find_unknown(&runs).await;
        if fault.set(unknown.clone()) {
            if let Some(why) = unknown {
                tracing::warn!(why, "not all that runs here can be seen");
            } else {
                tracing::info!("all that runs here can be seen again");
            }
        }
        pause = match end_orphans(&runs, &bus).await {
            Ok(()) => INTERVAL,
            Err(problem) => {
                let trace = problem.trace.as_deref();
                tracing::info!(trace, %problem, "a run that is over could not be told");
                (pause * 2).min(INTERVAL_MAX)
            }
        };
    }
}

/// Makes again what is missing of the runs' files, and says what cannot be looked at.
async fn find_unknown(runs: &Runs) -> Option<String> {
    let healed = on_host(runs, "heal", Runs::heal).await;
    let listed = list_runs(runs).await;
    let (seen, unread) = match (healed, listed) {
        (Err(problem), _) | (_, Err(problem)) => {
            let dir = runs.dir().display();
            let why = problem.message;
            return Some(format!("{why}; make {dir} a directory that the agent can use"));
        }
        (Ok(()), Ok(listed)) => listed,
    };
    let unread = unread.into_iter().map(|(name, error)| format!("{name}: {}", chain(&error)));
    let unknown = seen.into_iter().filter_map(|one| {
        let why = one.unknown.as_ref()?;
        Some(format!("alloc {}: {why}; {}", one.run.alloc, forget_by_hand(runs, &one)))
    });
    let all: Vec<String> = unread.chain(unknown).collect();
    let more = all.len().saturating_sub(NAMED_UNKNOWN_MAX);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let named: Vec<String> = all.into_iter().take(NAMED_UNKNOWN_MAX).collect();
    (!named.is_empty()).then(|| format!("{}{more}", named.join("; ")))
}

/// What a person does about a run that cannot be looked at.
fn forget_by_hand(runs: &Runs, one: &ObservedRun) -> String {
    let files = runs.files_of(&one.name).map(|path| path.display().to_string()).join(" ");
    format!("once nothing of it runs, remove {files}")
}

async fn end_orphans(runs: &Runs, bus: &Bus) -> Result<(), Problem> {
    let (seen, _) = list_runs(runs).await?;
    let is_looked_at = |one: &ObservedRun| !one.has_runner && one.unknown.is_none();
    for one in seen.into_iter().filter(is_looked_at) {
        if one.run.ended.is_none() {
            let left = processes_of(runs, &one.held_name).await?;
            // The runner of a command whose files are gone may be among them.
            let is_orphaned = one.run.guard.is_none() && !one.is_lost;
            for process in left.iter().filter(|_| is_orphaned) {
                let pid = process.pid();
                tracing::warn!(run = one.name, pid, "its `berth run` is gone; it is ended too");
                kill(process);
            }
            if one.is_held || !left.is_empty() {
                continue;
            }
        }
        stop_alloc(runs, bus, one).await?;
    }
    Ok(())
}

/// Reports to the claim service that a run's alloc has ended.
async fn stop_alloc(runs: &Runs, bus: &Bus, over: ObservedRun) -> Result<(), Problem> {
    let ObservedRun { run, name, held_name, age, .. } = over;
    let unsaid = || match &run.guard {
        // Its scheduler would have said how it ended, and is gone or was slower.
        Some(RunGuard { guard, .. }) => {
            Ended { state: AllocState::Failed, note: format!("{guard} has ended") }
        }
        None => Ended {
            state: AllocState::Failed,
            note: "its `berth run` ended without a word".to_owned(),
        },
    };
    let Ended { state, note } = run.ended.clone().unwrap_or_else(unsaid);
    let stop = StopAlloc::new(run.alloc.clone(), state, Some(note.clone()));
    let call = Call::within(clock::begin_trace(), REQUEST_TIMEOUT);
    let client = Client::new(bus.clone());
    match client.once::<verb::AllocStop>(&run.namespace, &stop, &call).await {
        Err(problem) if problem.code != Code::NoSuchAlloc => return Err(problem),
        Err(_) if age < LATE_REGISTRATION_MAX => return Ok(()),
        _ => {}
    }
    tracing::info!(namespace = %run.namespace, alloc = %run.alloc, note, "a run is over");
    on_host(runs, &name.clone(), move |runs| runs.forget(&name, &held_name)).await
}

/// Refuses while a command of the alloc may use its volumes, or while that cannot be looked at.
pub async fn check_not_running(
    runs: &Runs,
    volume: &VolumeKey,
    alloc: &AllocId,
) -> Result<(), Problem> {
    let (namespace, id) = (volume.namespace.clone(), alloc.clone());
    let for_whom = format!("{volume}/{alloc}");
    let still = on_host(runs, &for_whom, move |runs| {
        let Some(seen) = runs.find(&namespace, &id)? else { return Ok(None) };
        if seen.run.ended.is_some() {
            return Ok(None);
        }
        let left = processes(&seen.held_name)?;
        Ok((!seen.is_over() || !left.is_empty()).then_some((seen, left)))
    });
    let still = still.await.map_err(|problem| {
        let dir = runs.dir().display();
        let message = format!("it is not known whether alloc {alloc} runs: {}", problem.message);
        let next = format!(
            "make {dir} a directory that the agent can use: it fills it again, and the release \
             goes on by itself then"
        );
        Problem::new(Code::RunUnknown, message).next(next)
    })?;
    let Some((seen, left)) = still else { return Ok(()) };
    if let Some(why) = &seen.unknown {
        let guard =
            seen.run.guard.as_ref().map_or("its command".to_owned(), |one| one.guard.to_string());
        let message = format!("it is not known whether {guard} runs alloc {alloc}: {why}");
        let next = format!("{}; the release goes on by itself then", forget_by_hand(runs, &seen));
        return Err(Problem::new(Code::RunUnknown, message).next(next));
    }
    if let Some(RunGuard { guard, .. }) = &seen.run.guard {
        let message = format!("alloc {alloc} is guarded by {guard}, which lives");
        let next = format!("end {guard}; the release goes on by itself then");
        return Err(Problem::new(Code::VolumeHeldByProcess, message).retryable().next(next));
    }
    let runner = if seen.has_runner {
        format!(", started by `berth run`, pid {}", seen.run.pid)
    } else {
        String::new()
    };
    let pids: Vec<String> =
        left.iter().take(NAMED_PIDS_MAX).map(|one| one.pid().to_string()).collect();
    let processes =
        if left.is_empty() { String::new() } else { format!(": processes {}", pids.join(", ")) };
    let message = format!("the command of alloc {alloc} still runs{runner}{processes}");
    let next = "end the command; the release goes on by itself then";
    Err(Problem::new(Code::UnmountFailed, message).retryable().next(next))
}

/// Ends every run of this node, and its runner. For a node that counted as gone: another node may
/// have its volumes since then.
pub async fn end_all(runs: &Runs) -> Result<(), Problem> {
    let (seen, _) = list_runs(runs).await?;
    let commands = seen.into_iter().filter(|one| one.run.guard.is_none());
    for one in commands.filter(|one| one.run.ended.is_none()) {
        for process in processes_of(runs, &one.held_name).await? {
            let pid = process.pid();
            tracing::warn!(run = one.name, pid, "killed: its node counted as gone");
            kill(&process);
        }
    }
    Ok(())
}

/// Ends a process, which may just have ended by itself.
fn kill(process: &ProcessHandle) {
    if let Err(error) = process.signal(Signal::KILL) {
        tracing::warn!(pid = process.pid(), %error, "a process cannot be ended");
    }
}

/// All runs.
pub async fn list_runs(runs: &Runs) -> Result<(Vec<ObservedRun>, Vec<Unread>), Problem> {
    on_host(runs, "", Runs::list).await
}

async fn processes_of(runs: &Runs, held_name: &str) -> Result<Vec<ProcessHandle>, Problem> {
    let owned = held_name.to_owned();
    on_host(runs, held_name, move |_| processes(&owned)).await
}

/// The processes that belong to a run: they have open what the command inherited, or are in a mount
/// namespace with the run's mark. At most [`PROCESSES_MAX`].
fn processes(held_name: &str) -> io::Result<Vec<ProcessHandle>> {
    let mut found = Vec::new();
    for pid in list_pids()? {
        if found.len() >= PROCESSES_MAX {
            break;
        }
        let path = Path::new("/proc").join(pid.to_string());
        // A process that ended meanwhile, or is hidden from the agent, has nothing to read.
        let marked =
            || fs::read(path.join("mountinfo")).is_ok_and(|mounts| is_of(held_name, &mounts));
        let inherited = || {
            let files = fs::read_dir(path.join("fd")).into_iter().flatten().flatten();
            let mut files = files.filter_map(|file| fs::read_link(file.path()).ok());
            files.any(|file| is_inherited(held_name, &file))
        };
        let belongs = || inherited() || marked();
        // Looked at twice: another process may have the id by the time that it is opened.
        if belongs() {
            found.extend(ProcessHandle::open_if(pid, || Ok(belongs()))?);
        }
    }
    Ok(found)
}

/// Files and `/proc` are read on a thread that may hang. `for_whom` tells two readings apart.
pub async fn on_host<T: Send + 'static>(
    runs: &Runs,
    for_whom: &str,
    work: impl FnOnce(&Runs) -> io::Result<T> + Send + 'static,
) -> Result<T, Problem> {
    let (runs, place) = (runs.clone(), runs.dir().join(for_whom));
    let done = with_processes("look for a command", &place, move || work(&runs)).await;
    done.map_err(|error| {
        let message = format!("what runs here cannot be looked up: {}", chain(&error));
        Problem::new(Code::UnmountFailed, message).retryable()
    })
}
