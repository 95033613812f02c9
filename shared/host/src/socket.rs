//! Unix sockets: served at a path, and connected to by an owner's name.
//!
//! **Owns** the socket's file of a server, and, for a client, the check and the name of the process
//! behind a socket.
//!
//! **Promises** that a server replaces a socket only if no process answers at it and its file is
//! the server's own to remove: another process's socket, another user's, and a file that is no
//! socket are left alone. That a client sends nothing before the path ([`crate::trust`]) and the
//! process behind it belong to trusted users.
//!
//! **Never** makes other files beside a socket (CSI, "Supervised Lifecycle Management").

use std::fs::{self, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use thiserror::Error;

use crate::holders::{HolderProcess, name_running};
use crate::pool::{HostOperation, HostPool, directory_share};
use crate::trust::{self, TrustError, TrustedUsers};

/// How long opening the path of a socket may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long [`read_identity`] may take. Its caller waits with a call, which may have little time.
const READ_IDENTITY_MAX: Duration = Duration::from_millis(100);

/// A socket that this process serves. Dropping it removes the file, if the file is still the same.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    file: FileIdentity,
}

/// Tells the file of a socket from that of another one at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    /// Seconds and nanoseconds, because inode numbers are reused.
    changed: (i64, i64),
}

impl From<&Metadata> for FileIdentity {
    fn from(file: &Metadata) -> Self {
        let changed = (file.ctime(), file.ctime_nsec());
        Self { device: file.dev(), inode: file.ino(), changed }
    }
}

/// A connection to the process behind a socket.
#[derive(Debug)]
pub struct ListenerConnection {
    /// The connection.
    pub stream: UnixStream,
    /// The socket's file.
    pub file: FileIdentity,
    /// The process that called listen(2): of a socket that systemd hands to a service, systemd.
    /// `None` if it has ended, or is in a pid namespace that this process does not see.
    pub process: Option<HolderProcess>,
}

/// Why a path cannot be served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Another process serves it.
    #[error("{} is served by another process; stop that one, or choose another path",
        .0.display())]
    Served(PathBuf),
    /// Another file is there.
    #[error("{} is {is}, not a socket, and is left alone; remove it, or choose another path",
        path.display())]
    NotASocket {
        /// Which file.
        path: PathBuf,
        /// What it is.
        is: &'static str,
    },
    /// Another user's socket is there.
    #[error("{} is a socket of user {user}, and is left alone; remove it, or choose another path",
        path.display())]
    Stranger {
        /// Which file.
        path: PathBuf,
        /// Its owner.
        user: u32,
    },
    /// The system said no.
    #[error("cannot serve at {}", path.display())]
    Io {
        /// Which socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Why a socket is not connected to.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The path is not trusted, or cannot be opened.
    #[error(transparent)]
    Path(#[from] TrustError),
    /// The file is no socket.
    #[error("it is {0}, not a socket")]
    NotASocket(&'static str),
    /// The process behind it belongs to a user who is not trusted.
    #[error("the process that listens there belongs to user {user}, who is not trusted")]
    Peer {
        /// The user.
        user: u32,
    },
    /// The kernel refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Listens at `path`, in place of a socket that a killed process left.
pub fn listen(path: &Path) -> Result<(UnixListener, Socket), ServeError> {
    let failed = |source| ServeError::Io { path: path.to_owned(), source };
    make_room(path)?;
    let listener = UnixListener::bind(path).map_err(failed)?;
    let file = file_identity(path).map_err(failed)?;
    Ok((listener, Socket { path: path.to_owned(), file }))
}

/// Removes the socket that an earlier server left, and nothing else.
fn make_room(path: &Path) -> Result<(), ServeError> {
    let failed = |source| ServeError::Io { path: path.to_owned(), source };
    let there = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        there => there.map_err(failed)?,
    };
    if !there.file_type().is_socket() {
        let kind = FileType::from_raw_mode(there.mode());
        return Err(ServeError::NotASocket { path: path.to_owned(), is: in_words(kind) });
    }
    if !TrustedUsers::own().has(there.uid()) {
        return Err(ServeError::Stranger { path: path.to_owned(), user: there.uid() });
    }
    if is_served(path).map_err(failed)? {
        return Err(ServeError::Served(path.to_owned()));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(failed),
    }
}

/// Whether a process listens there. Only a refused connection proves that none does.
fn is_served(path: &Path) -> io::Result<bool> {
    // With NONBLOCK, a server whose queue is full does not delay this process.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS | Errno::PROTOTYPE) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn file_identity(path: &Path) -> io::Result<FileIdentity> {
    fs::symlink_metadata(path).map(|file| FileIdentity::from(&file))
}

impl Socket {
    /// Sets the permission bits of its file.
    pub fn set_mode(&mut self, mode: u32) -> io::Result<()> {
        fs::set_permissions(&self.path, Permissions::from_mode(mode))?;
        // The change of mode changed the file's identity, but it is still this socket's file.
        self.file = file_identity(&self.path)?;
        Ok(())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if file_identity(&self.path).is_ok_and(|file| file == self.file) {
            // If the file stays, the next process replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The identity of the file that a path leads to. `None` if there is none now, or if it cannot be
/// read in time.
pub async fn read_identity(path: &Arc<Path>) -> Option<FileIdentity> {
    let path = Arc::clone(path);
    let operation = HostOperation::new("stat", socket_share(&path), &*path);
    let read = move || fs::metadata(path).map(|file| FileIdentity::from(&file));
    HostPool::of_process().run(operation, READ_IDENTITY_MAX, read).await.ok()?.ok()
}

fn socket_share(path: &Path) -> Arc<str> {
    directory_share(path.parent().unwrap_or(path))
}

/// As [`connect_trusted_blocking`], off the async threads, because a component of the path may lie
/// in a file system that hangs.
pub async fn connect_trusted(
    path: Arc<Path>,
    users: Arc<TrustedUsers>,
) -> Result<ListenerConnection, ConnectError> {
    let operation = HostOperation::new("connect", socket_share(&path), &*path);
    let connect = move || connect_trusted_blocking(&path, &users);
    HostPool::of_process().run(operation, CONNECT_MAX, connect).await.map_err(io::Error::from)?
}

/// Connects to the socket at `path` once the path is known to be trusted. Returns the connection
/// once the process behind it is known to be trusted, too.
pub fn connect_trusted_blocking(
    path: &Path,
    users: &TrustedUsers,
) -> Result<ListenerConnection, ConnectError> {
    let trusted = trust::open(path, users)?;
    if trusted.kind != FileType::Socket {
        return Err(ConnectError::NotASocket(in_words(trusted.kind)));
    }
    // Through the open file, because the path may lead elsewhere by now.
    let open_path = format!("/proc/self/fd/{}", trusted.file.as_raw_fd());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = socket.map_err(io::Error::from)?;
    let file = FileIdentity::from(&fs::metadata(&open_path)?);
    let address = SocketAddrUnix::new(open_path).map_err(io::Error::from)?;
    connect(&socket, &address).map_err(io::Error::from)?;
    // The kernel stores the process that called listen(2) or made the socket pair.
    let peer = socket_peercred(&socket).map_err(io::Error::from)?;
    let user = peer.uid.as_raw();
    if !users.has(user) {
        return Err(ConnectError::Peer { user });
    }
    // A process that this pid namespace does not see has pid 0, which is no process of `/proc`.
    let pid = u32::try_from(peer.pid.as_raw_nonzero().get()).ok();
    let process = pid.and_then(name_running);
    Ok(ListenerConnection { stream: UnixStream::from(socket), file, process })
}

/// A kind of file, in words.
pub fn in_words(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Socket => "a socket",
        FileType::Fifo => "a pipe",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "a file of an unknown kind",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// Listens where a listener was dropped. A child that another test has just forked has the old
    /// listener, too, until its exec.
    fn listen_once_dead(path: &Path) -> (UnixListener, Socket) {
        for _ in 0..1_000 {
            match listen(path) {
                Err(ServeError::Served(_)) => std::thread::sleep(Duration::from_millis(10)),
                listening => return listening.unwrap(),
            }
        }
        panic!("{} is still served", path.display());
    }

    #[test]
    fn only_a_dead_socket_of_our_own_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let (listener, socket) = listen(&path).unwrap();
        assert!(matches!(listen(&path), Err(ServeError::Served(_))));
        // SIGKILL leaves the file without a listener in the same way.
        drop(listener);
        let (listener, second) = listen_once_dead(&path);
        drop(socket);
        assert!(path.exists(), "the first owner must not remove the second's socket");
        assert!(matches!(listen(&path), Err(ServeError::Served(_))));
        drop(second);
        assert!(!path.exists());
        drop(listener);
        if chown(dir.path(), Some(0), None).is_ok() {
            drop(UnixListener::bind(&path).unwrap());
            chown(&path, Some(4711), None).unwrap();
            let refused = listen(&path).unwrap_err();
            assert!(matches!(refused, ServeError::Stranger { user: 4711, .. }), "{refused}");
        }
    }

    #[test]
    fn a_server_that_is_busy_with_others_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("busy.sock");
        let stream = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
        };
        let (address, server) = (SocketAddrUnix::new(&path).unwrap(), stream());
        rustix::net::bind(&server, &address).unwrap();
        rustix::net::listen(&server, 0).unwrap();
        let mut queue = Vec::new();
        let full = loop {
            queue.push(stream());
            if let Err(errno) = connect(queue.last().unwrap(), &address) {
                break errno;
            }
        };
        assert_eq!(full, Errno::AGAIN);
        assert!(matches!(listen(&path), Err(ServeError::Served(_))));
        assert!(path.exists());
    }

    #[test]
    fn what_is_no_socket_is_left_alone_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let (file, below) = (dir.path().join("file"), dir.path().join("dir"));
        let (link, socket) = (dir.path().join("link"), dir.path().join("socket"));
        fs::write(&file, "kept").unwrap();
        fs::create_dir(&below).unwrap();
        drop(UnixListener::bind(&socket).unwrap());
        symlink(&socket, &link).unwrap();
        for (path, is) in [(&file, "a file"), (&below, "a directory"), (&link, "a symbolic link")] {
            let refused = listen(path).unwrap_err().to_string();
            assert!(refused.contains(is) && refused.contains("left alone"), "{refused}");
            assert!(fs::symlink_metadata(path).is_ok());
        }
        assert_eq!(fs::read_to_string(file).unwrap(), "kept");
    }

    #[tokio::test]
    async fn a_connection_names_its_process_and_the_file_that_it_was_made_to() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("a.sock"), dir.path().join("link"));
        let _first = UnixListener::bind(&path).unwrap();
        symlink(&path, &link).unwrap();
        let path: Arc<Path> = path.into();
        let connected = connect_trusted_blocking(&link, &TrustedUsers::own()).unwrap();
        let process = connected.process.unwrap();
        assert_eq!(process.pid, std::process::id());
        assert_eq!(process, crate::name_process(process.pid));
        assert_eq!(read_identity(&path).await, Some(connected.file));
        assert_eq!(read_identity(&link.into()).await, Some(connected.file));
        fs::remove_file(&path).unwrap();
        assert_eq!(read_identity(&path).await, None);
        let _second = UnixListener::bind(&path).unwrap();
        let second = read_identity(&path).await;
        assert!(second.is_some_and(|second| second != connected.file), "{second:?}");
    }

    #[test]
    fn a_stranger_behind_a_socket_is_not_talked_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let own = TrustedUsers::own();
        connect_trusted_blocking(&path, &own).unwrap();
        let (stream, _) = listener.accept().unwrap();
        assert_eq!(socket_peercred(&stream).unwrap().uid, rustix::process::geteuid());
        if chown(&path, Some(4711), None).is_ok() {
            assert!(matches!(connect_trusted_blocking(&path, &own), Err(ConnectError::Path(_))));
            connect_trusted_blocking(&path, &own.clone().and(Some(4711))).unwrap();
        }
        let refused = connect_trusted_blocking(dir.path(), &own).unwrap_err();
        assert!(matches!(refused, ConnectError::NotASocket("a directory")), "{refused}");
    }

    /// The file is this process's own, so its path is trusted. Only the connection shows who
    /// listens.
    #[test]
    fn a_stranger_who_listens_at_a_file_of_ours_is_not_talked_to() {
        let own = TrustedUsers::own();
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let flags = SocketFlags::CLOEXEC;
        let server = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&server, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        // A user id of this thread only, which ends with the thread.
        let listens = std::thread::spawn(move || {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(4711)).unwrap();
            rustix::net::listen(&server, 8).unwrap();
            server
        });
        let _server = listens.join().unwrap();
        let refused = connect_trusted_blocking(&path, &own).unwrap_err();
        assert!(matches!(refused, ConnectError::Peer { user: 4711 }), "{refused}");
        connect_trusted_blocking(&path, &own.and(Some(4711))).unwrap();
    }
}
