//! Cleans up after a test process that was killed, and so dropped nothing.
//!
//! Owns: one shell a process, in a session of its own, which waits at a pipe for the process's end.
//! Promises: it then takes away what is in its list, as a drop would have done. Never: touches a
//! directory that was not entered, or whose owner still runs.

use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Enters a directory: it is to go when this process does.
pub(super) fn enter(dir: &Path) {
    tell('+', dir);
}

/// Strikes out a directory that is gone.
pub(super) fn strike_out(dir: &Path) {
    tell('-', dir);
}

fn tell(sign: char, dir: &Path) {
    // Held until the process ends: the kernel closes it, whatever ends the process.
    static LIST: OnceLock<Mutex<ChildStdin>> = OnceLock::new();
    let list = LIST.get_or_init(|| Mutex::new(start()));
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    writeln!(list, "{sign} {}", dir.display()).expect("the janitor reads as long as we live");
}

fn start() -> ChildStdin {
    // A session of its own, so that the end of the test's process group or terminal does not reach
    // it.
    let janitor = Command::new("setsid")
        .args(["sh", "-c", include_str!("janitor.sh")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .current_dir("/")
        .spawn();
    janitor.expect("setsid of util-linux is here").stdin.expect("its input is a pipe")
}
