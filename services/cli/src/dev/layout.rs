//! The directory of a `berth dev`, and the paths in it.
//!
//! **Promises** that every path is absolute, that no socket's path is too long to be bound, and
//! that two `berth dev` never share a directory.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The plugin id of the development driver.
pub const PLUGIN: &str = "dev.berth";

/// The longest path of a socket, in bytes (unix(7), `sun_path` with its closing zero).
const SOCKET_BYTES_MAX: usize = 107;

/// Where things are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    dir: PathBuf,
}

/// The directory, locked against a second `berth dev` while this exists.
#[derive(Debug)]
pub struct Claimed(#[expect(dead_code, reason = "held for its lock")] File);

impl Layout {
    /// The layout in `dir`, which is absolute.
    pub fn in_dir(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub fn make(dir: &Path, nodes: &[String]) -> Result<(Self, Claimed), Failure> {
        let fail = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| {
                let next = "name a directory that you may write with --dir";
                Failure::local(format!("{path} cannot be made or used: {error}"), next)
            }
        };
        fs::create_dir_all(dir).map_err(fail(dir))?;
        let layout = Self::in_dir(fs::canonicalize(dir).map_err(fail(dir))?);
        layout.check_sockets(nodes)?;
        for dir in ["config", "log", "pids", "nats", "backend", "calls", "run"] {
            let dir = layout.dir.join(dir);
            fs::create_dir_all(&dir).map_err(fail(&dir))?;
        }
        let lock = layout.dir.join("lock");
        let file = File::create(&lock).map_err(fail(&lock))?;
        match file.try_lock() {
            Ok(()) => Ok((layout, Claimed(file))),
            Err(TryLockError::Error(error)) => Err(fail(&lock)(error)),
            Err(TryLockError::WouldBlock) => Err(Failure::local(
                format!("another `berth dev` runs in {}", layout.dir.display()),
                "use that one, end it, or name another directory with --dir",
            )),
        }
    }

    fn check_sockets(&self, nodes: &[String]) -> Result<(), Failure> {
        let longest = nodes.iter().map(|node| self.own_socket(node, 1).as_os_str().len()).max();
        let beyond = longest.unwrap_or_default().saturating_sub(SOCKET_BYTES_MAX);
        if beyond == 0 {
            return Ok(());
        }
        let message =
            format!("{} is {beyond} bytes too long for the sockets in it", self.dir.display());
        Err(Failure::local(message, "name a shorter directory, such as --dir /tmp/berth"))
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The configuration file of a process.
    pub fn config(&self, name: &str, extension: &str) -> PathBuf {
        self.dir.join("config").join(format!("{name}.{extension}"))
    }

    /// The log of a process, over all its starts.
    pub fn log(&self, name: &str) -> PathBuf {
        self.dir.join("log").join(format!("{name}.log"))
    }

    /// The file with the process id of a process, written at each start.
    pub fn pid(&self, name: &str) -> PathBuf {
        self.dir.join("pids").join(format!("{name}.pid"))
    }

    /// The nats-server's store.
    pub fn store(&self) -> PathBuf {
        self.dir.join("nats")
    }

    /// The storage that all instances of the driver share.
    pub fn backend(&self) -> PathBuf {
        self.dir.join("backend")
    }

    /// The driver's log of calls on a node: what `berth-csi-dev judge` reads.
    pub fn calls(&self, node: &str) -> PathBuf {
        self.dir.join("calls").join(format!("{node}.jsonl"))
    }

    /// The file with a driver's planted faults.
    pub fn faults(&self) -> PathBuf {
        self.dir.join("faults.json")
    }

    /// The driver's socket on a node.
    pub fn socket(&self, node: &str) -> PathBuf {
        self.dir.join("run").join(format!("{node}.sock"))
    }

    /// The socket on a node of the user's own driver with this number.
    pub fn own_socket(&self, node: &str, number: usize) -> PathBuf {
        self.dir.join("run").join(format!("{node}-p{number}.sock"))
    }

    /// An agent's journal and mounts. Directly here, because paths passed to plugins must be short.
    pub fn state(&self, node: &str) -> PathBuf {
        self.dir.join(node)
    }

    /// The key that secrets are sealed for. It is kept over restarts, like the secrets.
    pub fn secrets_key(&self) -> PathBuf {
        self.dir.join("secrets.key")
    }

    /// The identities of the processes, and the authority of the server's certificate.
    pub fn access(&self) -> PathBuf {
        self.dir.join("access")
    }

    /// The file to source in a shell.
    pub fn env(&self) -> PathBuf {
        self.dir.join("env")
    }

    /// The file with the bus's port, so that the port stays the same after a restart.
    pub fn port(&self) -> PathBuf {
        self.dir.join("nats.port")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_serves_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let nodes = ["n1".to_owned()];
        let (layout, claimed) = Layout::make(dir.path(), &nodes).unwrap();
        assert!(layout.dir().is_absolute());
        let second = Layout::make(dir.path(), &nodes).unwrap_err().to_string();
        assert!(second.contains("another `berth dev`"), "{second}");
        drop(claimed);
        Layout::make(dir.path(), &nodes).unwrap();
    }

    #[test]
    fn a_directory_too_deep_for_sockets_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(100));
        let failure = Layout::make(&deep, &["n1".to_owned()]).unwrap_err().to_string();
        assert!(failure.contains("too long") && failure.contains("--dir"), "{failure}");
    }
}
