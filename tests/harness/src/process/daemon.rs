//! One running process, and everything a test does to it.

use std::fs;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::{Program, spawn};
use crate::{failure, wait};

/// How long a process may take to drain after SIGTERM.
const DRAIN: Duration = Duration::from_secs(30);

/// How long a process may take to freeze: some kernel calls end first.
const FREEZE: Duration = Duration::from_secs(10);

/// A started [`Program`]. A drop kills it with its process group. A restart keeps program,
/// arguments, environment and log.
#[derive(Debug)]
pub struct Daemon {
    program: Program,
    child: Mutex<Child>,
}

impl Daemon {
    pub(super) fn start(program: Program) -> Self {
        let child = Mutex::new(spawn::spawn(&program));
        Self { program, child }
    }

    /// Process id of the latest start.
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// Whether it has not ended; true also while it is paused.
    pub fn is_running(&self) -> bool {
        self.exit_status().is_none()
    }

    /// How it ended; `None` while it has not.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.child().try_wait().expect("the child can be waited for")
    }

    /// Ends it as a crash would: SIGKILL, to this process alone. It is gone when this returns.
    pub fn kill9(&self) {
        end(&mut self.child());
    }

    /// Ends it as an operator would: SIGTERM, then waits for it to drain.
    pub async fn terminate(&self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait_exit(DRAIN).await
    }

    /// Waits until it ends by itself.
    pub async fn wait_exit(&self, deadline: Duration) -> ExitStatus {
        let what = format!("{} has ended", self.program.name);
        wait::until(&what, deadline, async || self.exit_status().ok_or("it is running")).await
    }

    /// Starts it again; a process that still runs is killed first.
    pub fn restart(&self) {
        // One lock for both steps: the second of two concurrent restarts ends the process of the
        // first.
        let mut child = self.child();
        end(&mut child);
        *child = spawn::spawn(&self.program);
    }

    /// Starts another process beside it, with the same program, arguments, environment and log.
    #[must_use]
    pub fn start_another(&self) -> Self {
        Self::start(self.program.clone())
    }

    /// The path of its program.
    pub fn program(&self) -> &Path {
        &self.program.path
    }

    /// Freezes it (SIGSTOP): it keeps its memory, ports and connections, and does nothing. Returns
    /// once all threads have stopped, which is a moment after the signal.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        let deadline = Instant::now() + FREEZE;
        while self.is_running() && !is_stopped(self.pid()) {
            assert!(Instant::now() < deadline, "{} does not stop", self.program.name);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets it go on after [`Self::pause`].
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Sends a signal, unless the process has ended.
    pub fn signal(&self, signal: Signal) {
        if let (true, pid) = (self.is_running(), self.raw_pid()) {
            kill(pid, signal).unwrap_or_else(|error| {
                panic!("{} could not be sent {signal}: {error}", self.program.name)
            });
        }
    }

    /// Where its output goes.
    pub fn log_path(&self) -> &Path {
        &self.program.log
    }

    /// All it has written so far, over all its starts.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.program.log).unwrap_or_default()).into_owned()
    }

    fn raw_pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.pid()).expect("a pid fits"))
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        // A panic elsewhere does not damage the child.
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.is_running() {
            // The whole group: what it started ends with it. The id cannot be another process's, as
            // the child has not been waited for.
            let _ = killpg(self.raw_pid(), Signal::SIGKILL);
        }
        self.kill9();
        if std::thread::panicking() {
            failure::print_log(&self.program.name, &self.program.log, &self.log());
        }
    }
}

/// Kills the child, and waits until it has ended.
fn end(child: &mut Child) {
    // Fails only when the child has ended already.
    let _ = child.kill();
    child.wait().expect("the child can be waited for");
}

/// Whether every thread is stopped: `T` after the name, in brackets, in `/proc/<pid>/task/*/stat`.
fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
    })
}
