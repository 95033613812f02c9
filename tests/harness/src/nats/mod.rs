//! Real nats-servers, alone or three together, run with the configuration that Berth ships.
//!
//! Owns: the servers and their stores. Promises: what `deploy/nats/nats.conf` says holds in the
//! tests too (`sync_interval: always`, limits, pings). Only names, addresses and the store's path
//! are set here, in place of the host's own file that it includes. Never: reuses a store or a
//! server between tests.

pub mod raw;
mod server;
mod servers;
mod spy;
pub mod stock;
mod wire;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

pub use server::Server;
pub use servers::{NatsOptions, NatsServers};
pub use spy::{HeardMessage, Spy};

use crate::repository;

/// The files with which the harness connects to a guarded server, as an admin.
#[derive(Debug, Clone)]
pub struct Login {
    /// The identity.
    pub creds_file: PathBuf,
    /// The authority that signed the server's certificate.
    pub ca_file: PathBuf,
}

/// The nats-server to run, as `deploy/nats/get-nats-server` finds or fetches it, once per process.
///
/// # Panics
/// When there is none. The script has then printed on stderr what would help.
pub fn program() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let script = repository().join("deploy/nats/get-nats-server");
        let output = Command::new(&script).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", script.display()));
        assert!(output.status.success(), "{} found no nats-server", script.display());
        let path = String::from_utf8(output.stdout).expect("the script prints a path in UTF-8");
        PathBuf::from(path.trim_end())
    })
}

/// The line of the shipped configuration that includes what `berth access` writes for a host.
const HOST_FILE: &str = "include \"nats/host.conf\"";

/// The shipped configuration with its store moved to `store`, and with `extra` in place of the
/// host's own file.
fn shipped_config(store: &Path, extra: &str) -> String {
    let path = repository().join("deploy/nats/nats.conf");
    let shipped = fs::read_to_string(&path).expect("the shipped configuration can be read");
    let store_of_line = |line: &str| {
        line.trim().strip_prefix("store_dir: \"")?.strip_suffix('"').map(str::to_owned)
    };
    let shipped_store = shipped.lines().find_map(store_of_line);
    let shipped_store =
        shipped_store.unwrap_or_else(|| panic!("{} no longer names its store", path.display()));
    let store = store.to_str().expect("temporary paths are UTF-8");
    assert!(shipped.contains(HOST_FILE), "{} includes no host file", path.display());
    shipped.replace(&shipped_store, store).replace(HOST_FILE, extra) + "\n"
}
