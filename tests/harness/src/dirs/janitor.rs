//! Cleans up after a test process that was killed, and so dropped nothing.
//!
//! Owns: one shell per process, in its own session, which reads a pipe until the process ends.
//! Promises: the shell then removes the directories on its list, as a drop would have done. Never:
//! touches a directory that was not entered, or whose owner still runs.

use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Enters a directory: it is removed when this process ends.
pub(super) fn enter(dir: &Path) {
    write_line('+', dir);
}

/// Strikes out a directory that was removed.
pub(super) fn strike_out(dir: &Path) {
    write_line('-', dir);
}

fn write_line(sign: char, dir: &Path) {
    // Open until the process ends: then the kernel closes it.
    static LIST: OnceLock<Mutex<ChildStdin>> = OnceLock::new();
    let list = LIST.get_or_init(|| Mutex::new(start()));
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    writeln!(list, "{sign} {}", dir.display()).expect("the janitor reads while this process lives");
}

fn start() -> ChildStdin {
    // Its own session: a signal to the test's process group or terminal does not reach it.
    let janitor = Command::new("setsid")
        .args(["sh", "-c", include_str!("janitor.sh")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .current_dir("/")
        .spawn();
    janitor.expect("setsid of util-linux is here").stdin.expect("its input is a pipe")
}
