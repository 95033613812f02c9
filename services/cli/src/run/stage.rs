//! The last step before the command: this program once more, which becomes it.
//!
//! **Owns** what a process can only arrange for itself: that the kernel ends it when its runner is
//! gone. A command must not outlive its runner. Its volumes would not be given back when it ends,
//! and a service manager that restarts the runner would find them held by a process that it does
//! not know.
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

/// The name (argv[0]) of this program while it is that step.
const NAME: &str = "berth-run-stage";
/// The program that runs now, also when its file was replaced by a newer one.
const OWN: &str = "/proc/self/exe";

/// A command that becomes this one, with its end tied to that of the thread that starts it.
pub fn command(words: &[OsString]) -> Command {
    let mut command = Command::new(OWN);
    command.arg0(NAME).arg(getpid().to_string()).args(words);
    command
}

/// Becomes the command, when that is what this process is for; the exit code, when it cannot.
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
        // It was gone before its end was tied to ours.
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
