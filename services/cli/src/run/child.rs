//! The command as a child process, with volumes at paths that only it sees.
//!
//! **Owns** the thread that starts the child. Where a volume is to be at a path of its own, the
//! thread first takes a mount namespace of its own, and the child inherits it: no other process
//! sees those mounts, and they go with the last process in it.
//!
//! **Promises** that unmounts on the host reach the namespace (it is a slave of the host's), so
//! that the child does not keep other workloads' volumes busy.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use thiserror::Error;
use tokio::sync::oneshot;

use crate::exit;

/// Something that is to be seen at another path too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// Where it is.
    pub from: PathBuf,
    /// Where it is to be seen.
    pub to: PathBuf,
}

/// Why the command was not started.
#[derive(Debug, Error)]
pub enum StartError {
    /// A mount namespace could not be had.
    #[error("a mount namespace of its own was refused ({0})")]
    Namespace(nix::Error),
    /// A volume could not be put at its path.
    #[error(
        "the volume at {} could not be put at {}: {source}",
        bind.from.display(), bind.to.display()
    )]
    Bind {
        /// Which.
        bind: Bind,
        /// Why.
        source: nix::Error,
    },
    /// The program could not be executed.
    #[error("{command} could not be executed")]
    Spawn {
        /// Its name.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// The thread could not be started, or ended at once.
    #[error("no thread to start the command from")]
    Thread,
}

/// A running command.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    ended: oneshot::Receiver<io::Result<ExitStatus>>,
}

/// Starts the command, in a mount namespace of its own when there is something to bind.
pub async fn start(mut command: Command, binds: Vec<Bind>) -> Result<Child, StartError> {
    let (tell_started, started) = oneshot::channel();
    let (tell_ended, ended) = oneshot::channel();
    let work = move || {
        let spawned = prepare(&binds).and_then(|()| {
            let name = command.get_program().to_string_lossy().into_owned();
            command.spawn().map_err(|source| StartError::Spawn { command: name, source })
        });
        // Both receivers live until they are told, unless the whole process ends.
        match spawned {
            Err(error) => _ = tell_started.send(Err(error)),
            Ok(mut child) => {
                let _ = tell_started.send(Ok(child.id()));
                let _ = tell_ended.send(child.wait());
            }
        }
    };
    let thread = std::thread::Builder::new().name("berth-run".to_owned()).spawn(work);
    thread.map_err(|_| StartError::Thread)?;
    let pid = started.await.map_err(|_| StartError::Thread)??;
    let pid = Pid::from_raw(pid.try_into().map_err(|_| StartError::Thread)?);
    Ok(Child { pid, ended })
}

/// Makes the mounts, for this thread and what it starts.
fn prepare(binds: &[Bind]) -> Result<(), StartError> {
    if binds.is_empty() {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWNS).map_err(StartError::Namespace)?;
    let none: Option<&Path> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)
        .map_err(StartError::Namespace)?;
    for bind in binds {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(&bind.from), &bind.to, none, flags, none)
            .map_err(|source| StartError::Bind { bind: bind.clone(), source })?;
    }
    Ok(())
}

impl Child {
    /// Waits for its end. May be asked again after it was not waited out.
    pub async fn ended(&mut self) -> Option<ExitStatus> {
        (&mut self.ended).await.ok()?.ok()
    }

    /// Hands a signal on; one that has just ended gets none.
    pub fn tell(&self, signal: Signal) {
        let _ = kill(self.pid, signal);
    }
}

/// The command's exit code, or 128 + n; ours when nobody could learn it.
pub fn exit_code(status: Option<ExitStatus>) -> u8 {
    let Some(status) = status else { return exit::RUN_NOT_STARTED };
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(exit::FAILED),
        (None, Some(signal)) => super::signal_exit(signal),
        (None, None) => exit::FAILED,
    }
}
