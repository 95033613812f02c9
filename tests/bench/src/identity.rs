//! Who the processes of a measured system are: each has an identity, and the bus has TLS, as in a
//! fleet.

use std::path::Path;

use berth_access::{LocalFleet, Role};
use berth_bus::{Config, Credentials, Tls};
use berth_harness::nats::Login;

use crate::Fatal;

/// The server's name in its certificate, which each of three servers has.
pub const SERVER: &str = "berth";

/// One who may do everything.
pub fn admin(name: &str) -> Role {
    Role::Admin { name: name.to_owned() }
}

/// How a process in this role gets in.
pub fn login(fleet: &LocalFleet, role: &Role) -> Result<Login, Fatal> {
    Ok(Login { creds_file: fleet.creds(role)?, ca_file: fleet.ca() })
}

/// How one of the benchmark's own processes connects: by the name of its work, with every right.
pub fn config(access: &Path, url: String, work: &str) -> Result<Config, Fatal> {
    let Login { creds_file, ca_file } = login(&LocalFleet::open(access)?, &admin(work))?;
    let config = Config::new([url], &format!("{work}/bench/{}", std::process::id()));
    Ok(Config {
        credentials: Credentials::CredsFile(creds_file),
        tls: Tls { ca_file: Some(ca_file), ..Tls::default() },
        ..config
    })
}
