//! The nats-server that `berth dev` runs, and its port.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use berth_bus::version::{OLDEST, Version};

use super::layout::Layout;
use crate::failure::Failure;

/// Ports for the server, below the range from which the kernel takes ports for outgoing
/// connections. A client that keeps dialling such a port without a listener may connect to itself,
/// and the server could not bind the port again.
const PORTS: Range<u16> = 20_000..32_000;

/// A server that is new enough: the one in `BERTH_NATS_SERVER`, or the first on the `PATH`, or the
/// one that `make` downloaded.
pub fn find() -> Result<PathBuf, Failure> {
    let mut rejected = Vec::new();
    let mut accept = |path: PathBuf| match version(&path) {
        Ok(version) if version >= OLDEST => Some(path),
        Ok(version) => {
            rejected.push(format!("{} is {version}", path.display()));
            None
        }
        Err(problem) => {
            rejected.push(format!("{} {problem}", path.display()));
            None
        }
    };
    if let Some(named) = env::var_os("BERTH_NATS_SERVER").filter(|named| !named.is_empty()) {
        // A server named by the user is not replaced by another.
        return accept(PathBuf::from(named)).ok_or_else(|| none(&rejected));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|dir| dir.join("nats-server"));
    let fetched = PathBuf::from(".bin/nats-server");
    let mut candidates = on_path.chain([fetched]).filter(|path| path.is_file());
    candidates.find_map(accept).ok_or_else(|| none(&rejected))
}

fn none(rejected: &[String]) -> Failure {
    let rejected = match rejected {
        [] => "none was found on the PATH or in .bin/".to_owned(),
        rejected => rejected.join("; "),
    };
    Failure::local(
        format!("no nats-server {OLDEST} or newer: {rejected}"),
        "one of these:\n\
         put a nats-server on the PATH, or name it in BERTH_NATS_SERVER\n\
         in Berth's repository: make nats-server (fetches and checks one)\n\
         go install github.com/nats-io/nats-server/v2@v2.15.1",
    )
}

fn version(path: &Path) -> Result<Version, String> {
    let output = Command::new(path).arg("--version").output();
    let output = output.map_err(|error| format!("cannot be run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    read_version(&text).ok_or_else(|| "does not answer with a version".to_owned())
}

/// Reads `nats-server: v2.15.1`.
fn read_version(text: &str) -> Option<Version> {
    Version::parse(text.trim().strip_prefix("nats-server: ")?)
}

/// The previous port of this directory's server, if it is free; else a free one.
pub fn choose_port(layout: &Layout, chance: u16) -> Result<u16, Failure> {
    let previous = fs::read_to_string(layout.port()).ok().and_then(|text| text.trim().parse().ok());
    let first = usize::from(chance) % PORTS.len();
    let others = PORTS.skip(first).chain(PORTS.take(first));
    let port = previous.into_iter().chain(others).find(|port| is_free(*port)).ok_or_else(|| {
        let message = format!("no port of {PORTS:?} is free on 127.0.0.1");
        Failure::local(message, "end what listens there: ss -ltnp")
    })?;
    fs::write(layout.port(), port.to_string())
        .map_err(|error| Failure::local(error, "name a directory that you may write with --dir"))?;
    Ok(port)
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_the_server_prints_it() {
        assert!(read_version("nats-server: v2.15.1\n").unwrap() > OLDEST);
        assert!(read_version("nats-server: v2.9.10\n").unwrap() < OLDEST);
        assert_eq!(read_version("bash: nats-server: not found"), None);
    }

    #[test]
    fn the_port_stays_the_same_while_it_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::in_dir(dir.path().to_owned());
        let port = choose_port(&layout, 500).unwrap();
        assert!(PORTS.contains(&port));
        assert_eq!(choose_port(&layout, 7).unwrap(), port);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert_ne!(choose_port(&layout, 7).unwrap(), port);
        drop(listener);
    }
}
