//! A plugin's process that outlives the agent.
//!
//! **Owns** how the agent starts the process, finds it after a restart, and ends it. The process is
//! the leader of its own process group and writes to a file. So it survives the end of the agent:
//! no signal to the agent's group reaches it, and no pipe breaks.
//!
//! **Promises** that no other process is signalled. The kernel reuses pids, so the agent holds a
//! [`ProcessHandle`]. After a restart the agent accepts a process only if its pid, its start time
//! and the boot are those of the record.
//!
//! **Never** signals the children of the process. A FUSE daemon may serve mounts, and its parent
//! decides when it ends.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};

use berth_host::ProcessHandle;
use berth_host::process::{Signal, list_pids, read_stat};
use nix::sys::signal::Signal as Named;
use serde::{Deserialize, Serialize};

use super::declaration::{CSI_ENDPOINT, PluginCommand};

/// The process's `PATH` if the agent has none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Identifies a process among all that ever ran on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: u32,
    /// Its start time, in clock ticks since the boot.
    pub started: u64,
    pub boot_id: String,
}

/// A plugin's process that this agent, or an earlier agent process, has started.
#[derive(Debug)]
pub struct PluginProcess {
    pub id: ProcessId,
    // None if the child ended at once.
    handle: Option<ProcessHandle>,
    // None if an earlier agent process started it.
    child: Option<Child>,
}

/// A process that was just started. It is killed if it is dropped before [`Self::into_process`].
#[derive(Debug)]
pub struct StartedProcess(Option<PluginProcess>);

impl StartedProcess {
    /// The process. From now on the caller ends it.
    pub fn into_process(mut self) -> Option<PluginProcess> {
        self.0.take()
    }
}

impl Drop for StartedProcess {
    fn drop(&mut self) {
        // The caller gave up. The process would run beside the next one.
        if let Some(mut process) = self.0.take()
            && let Err(error) = process.kill()
        {
            tracing::warn!(pid = process.id.pid, %error, "a plugin's process cannot be killed");
        }
    }
}

impl PluginProcess {
    /// Starts the command, which serves `socket`. Its output is appended to the file `output`.
    pub fn start(
        command: &PluginCommand,
        socket: &Path,
        output: &Path,
        boot_id: &str,
    ) -> io::Result<StartedProcess> {
        let mut options = OpenOptions::new();
        let log = options.create(true).append(true).mode(0o600).open(output)?;
        let log_copy = log.try_clone()?;
        // The path is the agent's own: only a plugin's socket can be there.
        match fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (program, arguments) = command.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut run = std::process::Command::new(program);
        let endpoint = endpoint(socket);
        run.args(arguments.iter().map(|word| PluginCommand::expand(word, &endpoint))).env_clear();
        run.env("PATH", std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into()));
        let variables = command.env.iter();
        run.envs(variables.map(|(name, word)| (name, PluginCommand::expand(word, &endpoint))));
        run.env(CSI_ENDPOINT, endpoint);
        run.current_dir("/").stdin(Stdio::null()).stdout(log).stderr(log_copy).process_group(0);
        let mut child = run.spawn()?;
        let pid = child.id();
        // A child that has ended keeps its id until it is waited for.
        let known = || Ok((ProcessHandle::open_if(pid, || Ok(true))?, read_stat(pid)?));
        let (handle, stat) = known().inspect_err(|_: &io::Error| {
            // The agent could not find the process again. The caller gets the first error.
            let _ = child.kill().and_then(|()| child.wait());
        })?;
        let started = stat.map_or(0, |stat| stat.starttime);
        let id = ProcessId { pid, started, boot_id: boot_id.to_owned() };
        Ok(StartedProcess(Some(Self { id, handle, child: Some(child) })))
    }

    /// The process of a record, if it still runs.
    pub fn adopt(id: ProcessId, boot_id: &str) -> io::Result<Option<Self>> {
        if id.boot_id != boot_id {
            return Ok(None);
        }
        let handle = ProcessHandle::open(id.pid, id.started)?;
        Ok(handle.map(|handle| Self { id, handle: Some(handle), child: None }))
    }

    /// Finds a process that was started to serve `socket` and has no record, because the agent was
    /// killed before it wrote one.
    pub fn find(socket: &Path, boot_id: &str) -> io::Result<Option<Self>> {
        let wanted = format!("{CSI_ENDPOINT}={}", endpoint(socket));
        for pid in list_pids()? {
            // The environment of a foreign process may be unreadable.
            let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { continue };
            let serves =
                environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes());
            let Some(stat) = serves.then(|| read_stat(pid)).transpose()?.flatten() else {
                continue;
            };
            // Its children inherit the environment. Only the process itself leads its group.
            if u32::try_from(stat.pgrp).is_ok_and(|group| group == pid) {
                let (started, boot_id) = (stat.starttime, boot_id.to_owned());
                return Self::adopt(ProcessId { pid, started, boot_id: boot_id.clone() }, &boot_id);
            }
        }
        Ok(None)
    }

    /// How it ended, for people. `None` while it runs.
    pub fn describe_end(&mut self) -> Option<String> {
        let Some(child) = &mut self.child else {
            let ended = self.handle.as_ref().map_or(Ok(true), ProcessHandle::has_ended);
            // A process whose state is unknown counts as running.
            return ended.unwrap_or(false).then(|| "it ended, nobody saw how".to_owned());
        };
        match child.try_wait() {
            Ok(status) => status.map(describe_exit),
            Err(error) => Some(format!("it cannot be waited for: {error}")),
        }
    }

    /// Sends SIGTERM.
    pub fn terminate(&mut self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) -> io::Result<()> {
        self.signal(Signal::KILL)
    }

    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        // Without a handle the process has ended.
        self.handle.as_ref().map_or(Ok(false), |handle| handle.signal(signal)).map(drop)
    }
}

fn endpoint(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}

fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it exited with status {code}"),
        (None, Some(signal)) => {
            let name = Named::try_from(signal).map_or("", Named::as_str);
            format!("it was ended by signal {signal} {name}").trim_end().to_owned()
        }
        (None, None) => "it ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    use super::*;

    fn sleeper() -> PluginCommand {
        PluginCommand {
            argv: vec!["/bin/sleep".to_owned(), "1000".to_owned()],
            env: BTreeMap::new(),
            health_timeout_ms: 1000,
            stop_timeout_ms: 1000,
        }
    }

    fn wait_until<T>(what: &str, mut is_so: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(so) = is_so() {
                return so;
            }
            assert!(Instant::now() < end, "not so: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn until_ended(process: &mut PluginProcess) -> String {
        wait_until("it has ended", || process.describe_end())
    }

    #[test]
    fn a_process_is_found_again_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, output) = (dir.path().join("csi.sock"), dir.path().join("out"));
        let mut ours = PluginProcess::start(&sleeper(), &socket, &output, "this")
            .unwrap()
            .into_process()
            .unwrap();
        let id = ours.id.clone();
        let mut again = PluginProcess::adopt(id.clone(), "this").unwrap().unwrap();
        assert_eq!(again.describe_end(), None);
        // Its environment can be read a moment after its starter goes on.
        assert_eq!(
            wait_until("it is found", || PluginProcess::find(&socket, "this").unwrap()).id,
            id
        );
        assert!(PluginProcess::adopt(id.clone(), "another boot").unwrap().is_none());
        let other = ProcessId { started: id.started + 1, ..id.clone() };
        assert!(
            PluginProcess::adopt(other, "this").unwrap().is_none(),
            "its pid was given to another"
        );
        again.terminate().unwrap();
        assert_eq!(until_ended(&mut ours), "it was ended by signal 15 SIGTERM");
        assert!(until_ended(&mut again).contains("nobody saw"));
        assert!(PluginProcess::adopt(id, "this").unwrap().is_none());
        assert!(PluginProcess::find(&socket, "this").unwrap().is_none());
        again.kill().unwrap();
    }

    #[test]
    fn a_process_that_was_started_for_a_caller_that_gave_up_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, output) = (dir.path().join("csi.sock"), dir.path().join("out"));
        let started = PluginProcess::start(&sleeper(), &socket, &output, "this").unwrap();
        let id = started.0.as_ref().unwrap().id.clone();
        let mut seen = PluginProcess::adopt(id, "this").unwrap().unwrap();
        drop(started);
        assert!(until_ended(&mut seen).contains("nobody saw"));
    }

    #[test]
    fn a_program_that_is_missing_fails_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, output) = (dir.path().join("csi.sock"), dir.path().join("out"));
        let command = PluginCommand { argv: vec!["/nowhere/at/all".to_owned()], ..sleeper() };
        let error = PluginProcess::start(&command, &socket, &output, "this").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
