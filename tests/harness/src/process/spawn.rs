//! Starting a child that cannot outlive this process.
//!
//! Owns: the one thread that starts children. Promises: the kernel kills the child when this
//! process dies for any reason. Never: forks by hand; `setpriv` (util-linux) sets the death signal.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use super::Program;

const SETPRIV: &str = "setpriv";

type Job = (Command, Sender<io::Result<Child>>);

/// Starts `program` in a process group of its own, its output appended to its log.
pub(super) fn spawn(program: &Program) -> Child {
    let command = command(program);
    let started = hand_over(command).and_then(await_death_signal);
    started.unwrap_or_else(|error| {
        panic!("{} could not be started: {error} (is setpriv of util-linux here?)", program.name)
    })
}

/// Waits until `setpriv` has become the program: then the death signal is set. If this process died
/// before, the child would stay.
fn await_death_signal(mut child: Child) -> io::Result<Child> {
    let name = format!("/proc/{}/comm", child.id());
    while child.try_wait()?.is_none() && fs::read_to_string(&name)?.trim_end() == SETPRIV {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(child)
}

fn command(program: &Program) -> Command {
    let log = OpenOptions::new().create(true).append(true).open(&program.log);
    let log = log.unwrap_or_else(|error| panic!("log {}: {error}", program.log.display()));
    let same_log = log.try_clone().expect("a file handle can be cloned");

    // The child becomes the program itself: same pid, with the death signal set.
    let mut command = Command::new(SETPRIV);
    command.args(["--pdeathsig", "KILL", "--"]).arg(&program.path).args(&program.args);
    for (key, _) in std::env::vars_os() {
        let key_text = key.to_string_lossy();
        if key_text.starts_with("BERTH_") || key_text.starts_with("OTEL_") {
            command.env_remove(key);
        }
    }
    command.envs(program.env.iter().map(|(key, value)| (key, value)));
    command.stdin(Stdio::null()).stdout(log).stderr(same_log).process_group(0);
    command
}

/// Has the command started by a thread that lives as long as the process. The kernel's death signal
/// comes when the *thread* that started the child ends, and threads of tests end early.
fn hand_over(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Sender<Job>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, jobs) = channel::<Job>();
        let run_jobs = move || {
            for (mut command, answer) in jobs {
                let _ = answer.send(command.spawn());
            }
        };
        std::thread::Builder::new()
            .name("harness-starter".to_owned())
            .spawn(run_jobs)
            .expect("a thread can be started");
        sender
    });
    let (answer, outcome) = channel();
    starter.send((command, answer)).expect("the starter lives as long as the process");
    outcome.recv().expect("the starter answers every job")
}
