//! The unix socket at which a CO finds the plugin.
//!
//! Owns: the form of endpoints. The socket file is [`berth_host::socket`]'s.

use std::path::{Path, PathBuf};

use berth_host::socket::{self, ServeError};
use thiserror::Error;
use tokio::net::UnixListener;

pub use berth_host::socket::Socket;

/// Why an endpoint cannot be served.
#[derive(Debug, Error)]
pub enum SocketError {
    #[error("endpoint {endpoint:?} {wrong}; it has the form unix:///run/plugin/csi.sock")]
    Form { endpoint: String, wrong: &'static str },
    #[error(transparent)]
    Serve(#[from] ServeError),
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
    let (listener, socket) = socket::listen(path)?;
    let failed = |source| ServeError::Io { path: path.to_owned(), source };
    listener.set_nonblocking(true).map_err(failed)?;
    Ok((UnixListener::from_std(listener).map_err(failed)?, socket))
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
}
