//! Who the processes of a measured system are: each has an identity, and the bus has TLS, as in a
//! fleet.

use std::path::Path;

use berth_access::{LocalFleet, Role};
use berth_bus::{Config, Credentials, Tls};

use crate::Fatal;

/// The server's name in its certificate, which each of three servers has.
pub const SERVER: &str = "berth";

/// How one of the benchmark's own processes connects: by the name of its work, with every right.
pub fn config(access: &Path, url: String, work: &str) -> Result<Config, Fatal> {
    let fleet = LocalFleet::open(access)?;
    let creds = fleet.creds(&Role::Admin { name: work.to_owned() })?;
    let config = Config::new([url], &format!("{work}/bench/{}", std::process::id()));
    Ok(Config {
        credentials: Credentials::CredsFile(creds),
        tls: Tls { ca_file: Some(fleet.ca()), ..Tls::default() },
        ..config
    })
}
