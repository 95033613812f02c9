//! The last step before the command: this program runs again, and executes the command.
//!
//! **Owns** what a process can only set for itself: that the kernel kills it when its runner ends.
//! A command must not outlive its runner. Its volumes would not be released when it ends, and a
//! service manager that restarts the runner would find them held by an unknown process.
//!
//! **Never** returns once the command runs.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid};

use crate::exit;
use crate::failure::Failure;
use crate::output::print_note;

/// The name (argv[0]) of this program in that step.
const NAME: &str = "berth-run-stage";
/// The running program, even when its file was replaced by a newer one.
const OWN: &str = "/proc/self/exe";

/// A process that becomes this command, and is killed when the thread that starts it ends.
pub fn command(words: &[OsString]) -> Command {
    let mut command = Command::new(OWN);
    command.arg0(NAME).arg(getpid().to_string()).args(words);
    command
}

/// Executes the command, if this process is that step; returns the exit code if it cannot.
pub fn enter(mut args: impl Iterator<Item = OsString>) -> Option<u8> {
    if args.next()? != NAME {
        return None;
    }
    let runner = args.next()?.to_str()?.parse().ok().map(Pid::from_raw)?;
    let program = args.next()?;
    if let Err(error) = set_pdeathsig(Signal::SIGKILL) {
        print_note(Failure::local(error, "it takes a kernel of this century"));
        return Some(exit::RUN_NOT_STARTED);
    }
    if getppid() != runner {
        // The runner ended before the kernel tied this process to it.
        return Some(exit::RUN_NOT_STARTED);
    }
    let error = Command::new(&program).args(args).exec();
    let (code, next) = match error.kind() {
        ErrorKind::NotFound => (exit::RUN_NO_SUCH_COMMAND, "check its name, and the PATH"),
        _ => (exit::RUN_NOT_EXECUTABLE, "check that it may be executed"),
    };
    let message = format!("{} cannot be started: {error}", program.to_string_lossy());
    print_note(Failure::local(message, next));
    Some(code)
}
