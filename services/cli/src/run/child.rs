//! The command as a child process, with volumes at paths that only it sees.
//!
//! **Owns** the thread that starts the child and waits for it. If a volume needs its own path, the
//! thread first enters its own mount namespace, and the child inherits it. No other process sees
//! those mounts, and they end with the last process in it.
//!
//! **Promises** that unmounts on the host reach the namespace (it is a slave of the host's), so
//! that the child does not keep other workloads' volumes busy; that the child has none of those
//! where the host's mounts are private; that the child ends with us; and that its descendants
//! become our children when their parents end.

use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::Pid;
use thiserror::Error;
use tokio::sync::oneshot;

use super::others;
use crate::exit;

/// A bind mount for the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// The source path.
    pub from: PathBuf,
    /// The target path.
    pub to: PathBuf,
    /// Whether the target is read-only.
    pub read_only: bool,
}

/// Why the command was not started.
#[derive(Debug, Error)]
pub enum StartError {
    /// A mount namespace could not be created.
    #[error("a mount namespace of its own was refused ({0})")]
    Namespace(nix::Error),
    /// The volumes of other allocs could not be unmounted in it.
    #[error("other volumes could not be taken out of its mount namespace ({0})")]
    Others(io::Error),
    /// The inherited mark could not be passed to it.
    #[error("what tells that it runs could not be handed to it ({0})")]
    Inherit(nix::Error),
    /// A volume could not be mounted at its path.
    #[error(
        "the volume at {} could not be put at {}: {source}",
        bind.from.display(), bind.to.display()
    )]
    Bind {
        /// The mount that failed.
        bind: Bind,
        source: nix::Error,
    },
    /// This program could not be executed once more.
    #[error("no process for the command")]
    Spawn(#[source] io::Error),
    /// The thread could not be started, or ended at once.
    #[error("no thread to start the command from")]
    Thread,
}

/// Identifies the command and its children, as long as one of them exists.
#[derive(Debug)]
pub struct Mark {
    /// The open file that each process inherits, unless it closes it.
    pub file: File,
    /// The path of the file. Mounted onto itself, it is visible in every process of the mount
    /// namespace.
    pub path: PathBuf,
}

/// A running command.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    ended: oneshot::Receiver<ExitStatus>,
    gone: oneshot::Receiver<()>,
}

/// Starts the command, in its own mount namespace when there is something to bind. Of the volumes
/// on this host it then sees only those at the paths `own`.
pub async fn start(
    mut command: Command,
    binds: Vec<Bind>,
    own: Vec<PathBuf>,
    mark: Option<Mark>,
) -> Result<Child, StartError> {
    let (tell_started, started) = oneshot::channel();
    let (tell_ended, ended) = oneshot::channel();
    let (tell_gone, gone) = oneshot::channel();
    let work = move || {
        let spawned = prepare(&binds, &own, mark.as_ref())
            .and_then(|()| command.spawn().map_err(StartError::Spawn));
        // Our copy is closed: the command holds the lock now.
        drop(mark);
        // All receivers exist until they get the signal, unless the whole process ends.
        match spawned {
            Err(error) => _ = tell_started.send(Err(error)),
            Ok(child) => {
                let _ = tell_started.send(Ok(child.id()));
                wait_for_all(child, tell_ended);
                let _ = tell_gone.send(());
            }
        }
    };
    let thread = std::thread::Builder::new().name("berth-run".to_owned()).spawn(work);
    thread.map_err(|_| StartError::Thread)?;
    let pid = started.await.map_err(|_| StartError::Thread)??;
    let pid = Pid::from_raw(pid.try_into().map_err(|_| StartError::Thread)?);
    Ok(Child { pid, ended, gone })
}

/// Makes the mounts, for this thread and its children.
fn prepare(binds: &[Bind], own: &[PathBuf], mark: Option<&Mark>) -> Result<(), StartError> {
    set_child_subreaper(true).map_err(StartError::Inherit)?;
    if let Some(mark) = mark {
        let inherited = FcntlArg::F_SETFD(FdFlag::empty());
        fcntl(&mark.file, inherited).map_err(StartError::Inherit)?;
    }
    if binds.is_empty() {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWNS).map_err(StartError::Namespace)?;
    let no_source: Option<&Path> = None;
    mount(no_source, "/", no_source, MsFlags::MS_REC | MsFlags::MS_SLAVE, no_source)
        .map_err(StartError::Namespace)?;
    others::hide(own).map_err(StartError::Others)?;
    if let Some(Mark { path, .. }) = mark {
        mount(Some(path), path, no_source, MsFlags::MS_BIND, no_source)
            .map_err(StartError::Namespace)?;
    }
    for bind in binds {
        put(bind).map_err(|source| StartError::Bind { bind: bind.clone(), source })?;
    }
    Ok(())
}

fn put(bind: &Bind) -> Result<(), nix::Error> {
    let no_source: Option<&Path> = None;
    mount(Some(&bind.from), &bind.to, no_source, MsFlags::MS_BIND | MsFlags::MS_REC, no_source)?;
    if bind.read_only {
        // A remount sets all flags of the mount, so its present flags are repeated.
        let has = statvfs(&bind.to)?.flags();
        let kept_flags = [
            (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
            (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
            (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
            (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
            (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
            (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
        ];
        let kept_flags = kept_flags.into_iter().filter(|(flag, _)| has.contains(*flag));
        let flags = kept_flags.fold(MsFlags::empty(), |flags, (_, flag)| flags | flag);
        let flags = flags | MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(no_source, &bind.to, no_source, flags, no_source)?;
    }
    Ok(())
}

/// Waits for the command and for its orphaned descendants, which became our children: they may
/// outlive the command and still write to a volume.
fn wait_for_all(mut child: std::process::Child, ended: oneshot::Sender<ExitStatus>) {
    let mut ended = Some(ended);
    loop {
        // Reads only the process id, so that the command's own status is kept.
        let next = waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        match next {
            Err(Errno::ECHILD) => return,
            Err(Errno::EINTR) => continue,
            _ => {}
        }
        if ended.is_some()
            && let Ok(Some(status)) = child.try_wait()
        {
            let _ = ended.take().map(|ended| ended.send(status));
            continue;
        }
        // The process id is missing if a real-time signal ended the process.
        let pid = next.ok().and_then(|status| status.pid());
        let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
    }
}

impl Child {
    /// Waits for the command's end. May be called again after a cancelled call.
    pub async fn ended(&mut self) -> Option<ExitStatus> {
        (&mut self.ended).await.ok()
    }

    /// Waits until all of the command's descendants have ended, too.
    pub async fn gone(&mut self) {
        // An error means that the waiting thread has ended, which it does only after all
        // descendants.
        let _ = (&mut self.gone).await;
    }

    /// Forwards a signal; a command that has just ended gets none.
    pub fn send_signal(&self, signal: Signal) {
        let _ = kill(self.pid, signal);
    }
}

/// The command's exit code, or 128 + n; ours when it is not known.
pub fn exit_code(status: Option<ExitStatus>) -> u8 {
    let Some(status) = status else { return exit::RUN_NOT_STARTED };
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(exit::FAILED),
        (None, Some(signal)) => exit::signal_exit(signal),
        (None, None) => exit::FAILED,
    }
}
