//! A process that outlives the agent.
//!
//! **Owns** how a plugin's process is started, known again, and told to end. It is the leader of a
//! process group of its own, and its output goes to a file: neither a signal to the agent's group
//! nor the end of a pipe ends it when the agent ends.
//!
//! **Promises** that a process is known by its pid *and* the time it was started, in this boot of
//! the host: a pid is soon another's.
//!
//! **Never** signals what the process has started: a FUSE daemon may carry mounts, and is its
//! parent's to end.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::declaration::{CSI_ENDPOINT, Command};

/// Where programs look for others, when the agent's own environment does not say.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Which process it is, of all that ever were on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: u32,
    /// When it was started, in clock ticks since the boot.
    pub started: u64,
    /// Which boot.
    pub boot_id: String,
}

/// A process of ours, or of an earlier life of this agent.
#[derive(Debug)]
pub struct Process {
    /// Which.
    pub id: ProcessId,
    // None of one that an earlier life of this agent started.
    child: Option<Child>,
}

impl Process {
    /// Starts the command, to serve `socket`, with its output added to the file `output`.
    pub fn start(
        command: &Command,
        socket: &Path,
        output: &Path,
        boot_id: &str,
    ) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let log = options.create(true).append(true).mode(0o600).open(output)?;
        let same = log.try_clone()?;
        // Only what we know to be a socket, and ours by its path, is taken away.
        match fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (program, arguments) = command.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut run = std::process::Command::new(program);
        let endpoint = endpoint(socket);
        run.args(arguments.iter().map(|word| Command::expand(word, &endpoint))).env_clear();
        run.env("PATH", std::env::var_os("PATH").unwrap_or_else(|| PATH.into()));
        let variables = command.env.iter();
        run.envs(variables.map(|(name, word)| (name, Command::expand(word, &endpoint))));
        run.env(CSI_ENDPOINT, endpoint);
        run.current_dir("/").stdin(Stdio::null()).stdout(log).stderr(same).process_group(0);
        let child = run.spawn()?;
        let pid = child.id();
        // Also of one that has ended already: it is ours, and still to be waited for.
        let started = stat(pid).map_or(0, |stat| stat.started);
        let id = ProcessId { pid, started, boot_id: boot_id.to_owned() };
        Ok(Self { id, child: Some(child) })
    }

    /// The process that an earlier life of this agent started, if it still runs.
    pub fn adopt(id: ProcessId, boot_id: &str) -> Option<Self> {
        (id.boot_id == boot_id && runs(&id)).then_some(Self { id, child: None })
    }

    /// A process that was started to serve `socket`, of which no record was written: the agent was
    /// killed at that very moment.
    pub fn find(socket: &Path, boot_id: &str) -> Option<Self> {
        let wanted = format!("{CSI_ENDPOINT}={}", endpoint(socket));
        let pids = fs::read_dir("/proc").ok()?.flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids {
            let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { continue };
            let serves = environment.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes());
            let Some(stat) = stat(pid).filter(|_| serves) else { continue };
            // What it has started bears its environment too, and is in its group.
            if stat.group == pid {
                let id = ProcessId { pid, started: stat.started, boot_id: boot_id.to_owned() };
                return Self::adopt(id, boot_id);
            }
        }
        None
    }

    /// How it ended, in words; none while it runs.
    pub fn ended(&mut self) -> Option<String> {
        match &mut self.child {
            Some(child) => match child.try_wait() {
                Ok(status) => status.map(in_words),
                Err(error) => Some(format!("it cannot be waited for: {error}")),
            },
            None => (!runs(&self.id)).then(|| "it ended, nobody saw how".to_owned()),
        }
    }

    /// Tells it to end.
    pub fn terminate(&mut self) -> io::Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Ends it.
    pub fn kill(&mut self) -> io::Result<()> {
        self.signal(Signal::SIGKILL)
    }

    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        // A child that was not waited for keeps its pid; of another it is looked.
        if self.ended().is_some() {
            return Ok(());
        }
        let Ok(pid) = i32::try_from(self.id.pid) else { return Ok(()) };
        match kill(Pid::from_raw(pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn endpoint(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}

fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it exited with status {code}"),
        (None, Some(signal)) => {
            let name = Signal::try_from(signal).map_or("", Signal::as_str);
            format!("it was ended by signal {signal} {name}").trim_end().to_owned()
        }
        (None, None) => "it ended".to_owned(),
    }
}

fn runs(id: &ProcessId) -> bool {
    stat(id.pid).is_some_and(|stat| stat.started == id.started && stat.state != 'Z')
}

struct Stat {
    state: char,
    group: u32,
    started: u64,
}

/// `/proc/<pid>/stat`: the fields after the name, which stands in brackets and may hold any byte.
fn stat(pid: u32) -> Option<Stat> {
    let text = String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?).into_owned();
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    // Third and fifth: the process group; the 22nd: the time of its start (proc(5)).
    let group = fields.nth(1)?.parse().ok()?;
    let started = fields.nth(16)?.parse().ok()?;
    Some(Stat { state, group, started })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    use super::*;

    fn sleeper() -> Command {
        Command {
            argv: vec!["/bin/sleep".to_owned(), "1000".to_owned()],
            env: BTreeMap::new(),
            health_timeout_ms: 1000,
            stop_timeout_ms: 1000,
        }
    }

    fn until<T>(what: &str, mut is_so: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(so) = is_so() {
                return so;
            }
            assert!(Instant::now() < end, "not so: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn until_ended(process: &mut Process) -> String {
        until("it has ended", || process.ended())
    }

    #[test]
    fn a_process_is_known_again_until_it_ended() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, output) = (dir.path().join("csi.sock"), dir.path().join("out"));
        let mut ours = Process::start(&sleeper(), &socket, &output, "this").unwrap();
        let id = ours.id.clone();
        let mut again = Process::adopt(id.clone(), "this").unwrap();
        assert_eq!(again.ended(), None);
        // Its environment can be read a moment after its starter goes on.
        assert_eq!(until("it is found", || Process::find(&socket, "this")).id, id);
        assert!(Process::adopt(id.clone(), "another boot").is_none());
        let other = ProcessId { started: id.started + 1, ..id.clone() };
        assert!(Process::adopt(other, "this").is_none(), "its pid was given to another");
        again.terminate().unwrap();
        assert_eq!(until_ended(&mut ours), "it was ended by signal 15 SIGTERM");
        assert!(until_ended(&mut again).contains("nobody saw"));
        assert!(Process::adopt(id, "this").is_none());
        assert!(Process::find(&socket, "this").is_none());
        again.kill().unwrap();
    }

    #[test]
    fn what_cannot_be_started_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, output) = (dir.path().join("csi.sock"), dir.path().join("out"));
        let command = Command { argv: vec!["/nowhere/at/all".to_owned()], ..sleeper() };
        let error = Process::start(&command, &socket, &output, "this").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
