//! The unix socket that a CO finds the plugin at.
//!
//! Owns: the form of endpoints, and the socket file. Promises: a socket left by a killed process is
//! replaced; one that somebody serves, and a file that is no socket, is left alone. Never: makes
//! other files beside it (CSI, "Supervised Lifecycle Management").

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tokio::net::UnixListener;

/// A socket that this process serves. Dropping it removes the file, if it is still the same.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    file: Identity,
}

/// Tells one file from another that has taken its name: inodes alone are used again.
type Identity = (u64, i64, i64);

/// Why an endpoint cannot be served.
#[derive(Debug, Error)]
pub enum SocketError {
    /// It is no endpoint in CSI's form.
    #[error("endpoint {endpoint:?} {wrong}; it has the form unix:///run/plugin/csi.sock")]
    Form {
        /// As given.
        endpoint: String,
        /// What is wrong with it.
        wrong: &'static str,
    },
    /// Another process serves it.
    #[error(
        "{} is served by another process; stop that one, or choose another endpoint",
        path.display()
    )]
    Served {
        /// Which socket.
        path: PathBuf,
    },
    /// There is something else.
    #[error("{} exists and is not a socket; remove it, or choose another endpoint", path.display())]
    NotASocket {
        /// Which file.
        path: PathBuf,
    },
    /// The system said no.
    #[error("cannot serve at {}", path.display())]
    Io {
        /// Which socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The path of an endpoint: `unix:///dir/name.sock`.
pub fn parse(endpoint: &str) -> Result<PathBuf, SocketError> {
    let wrong = |wrong| SocketError::Form { endpoint: endpoint.to_owned(), wrong };
    let path = endpoint.strip_prefix("unix:").ok_or_else(|| wrong("does not start with unix:"))?;
    let path = Path::new(path.strip_prefix("//").unwrap_or(path));
    if !path.is_absolute() {
        return Err(wrong("has no absolute path"));
    }
    if path.extension().is_none_or(|extension| extension != "sock") {
        return Err(wrong("does not end in .sock"));
    }
    Ok(path.to_owned())
}

/// Listens at `path`.
pub fn listen(path: &Path) -> Result<(UnixListener, Socket), SocketError> {
    let failed = |source| SocketError::Io { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(SocketError::NotASocket { path: path.to_owned() });
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(SocketError::Served { path: path.to_owned() });
        }
        Ok(_) => fs::remove_file(path).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(failed(source)),
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    let file = identity(path).map_err(failed)?;
    Ok((listener, Socket { path: path.to_owned(), file }))
}

fn identity(path: &Path) -> io::Result<Identity> {
    let meta = fs::symlink_metadata(path)?;
    Ok((meta.ino(), meta.ctime(), meta.ctime_nsec()))
}

impl Drop for Socket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            // A file that stays is replaced by the next process.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_csis_form() {
        assert_eq!(parse("unix:///a/csi.sock").unwrap(), Path::new("/a/csi.sock"));
        assert_eq!(parse("unix:/a/csi.sock").unwrap(), Path::new("/a/csi.sock"));
        for endpoint in ["/a/csi.sock", "tcp://h:1", "unix://a/csi.sock", "unix:///a/csi", ""] {
            assert!(matches!(parse(endpoint), Err(SocketError::Form { .. })), "{endpoint}");
        }
    }

    #[tokio::test]
    async fn only_a_dead_socket_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let (listener, socket) = listen(&path).unwrap();
        assert!(matches!(listen(&path), Err(SocketError::Served { .. })));
        // As SIGKILL leaves it: the file without a listener.
        drop(listener);
        let (_listener, second) = listen(&path).unwrap();
        drop(socket);
        assert!(path.exists(), "the first owner must not remove the second's socket");
        drop(second);
        assert!(!path.exists());

        fs::write(&path, "a file").unwrap();
        assert!(matches!(listen(&path), Err(SocketError::NotASocket { .. })));
    }
}
