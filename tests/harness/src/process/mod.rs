//! Programs that run as processes of their own.
//!
//! Owns: [`Program`] (what to run), [`Daemon`] (a running program), and where the workspace's
//! binaries are ([`binary`]). Promises: one log file per process; a process and its group are
//! killed when its `Daemon` is dropped; the kernel kills the process when the test process dies; a
//! failing test prints the end of the log and keeps all of it. Never: kills what it did not start.

mod binary;
pub mod clock;
mod daemon;
mod service;
mod spawn;

use std::ffi::OsString;
use std::path::PathBuf;

pub use binary::{binary, binary_of_last_release};
pub use daemon::Daemon;

/// A program with its arguments, environment and log. It can be started again and again.
#[derive(Clone, Debug)]
pub struct Program {
    name: String,
    path: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    log: PathBuf,
}

impl Program {
    /// `path`, known as `name` in messages, with its output appended to the file `log`.
    pub fn new(name: &str, path: impl Into<PathBuf>, log: impl Into<PathBuf>) -> Self {
        let (path, log) = (path.into(), log.into());
        Self { name: name.to_owned(), path, args: Vec::new(), env: Vec::new(), log }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable. The rest of the environment is the test's, without any `BERTH_*` or
    /// `OTEL_*`: a developer's shell must not change a test.
    #[must_use]
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Sets variables.
    #[must_use]
    pub fn envs<K: Into<OsString>, V: Into<OsString>>(
        mut self,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.env.extend(variables.into_iter().map(|(key, value)| (key.into(), value.into())));
        self
    }

    /// Starts it.
    pub fn start(self) -> Daemon {
        Daemon::start(self)
    }
}
