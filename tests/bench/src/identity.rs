//! The identities of the processes of a measured system. The bus has TLS, as in a fleet.

use std::path::Path;

use berth_access::{LocalFleet, Role};
use berth_bus::{Config, Credentials, Tls};
use berth_harness::nats::Login;

use crate::Fatal;

/// The name in the servers' certificate: three servers share one.
pub const SERVER: &str = "berth";

/// A role that may do everything.
pub fn admin(name: &str) -> Role {
    Role::Admin { name: name.to_owned() }
}

/// The credentials of a process in this role.
pub fn login(fleet: &LocalFleet, role: &Role) -> Result<Login, Fatal> {
    Ok(Login { creds_file: fleet.creds(role)?, ca_file: fleet.ca() })
}

/// The configuration of one of the benchmark's own processes: named after its work, an admin.
pub fn config(access: &Path, url: String, work: &str) -> Result<Config, Fatal> {
    let Login { creds_file, ca_file } = login(&LocalFleet::open(access)?, &admin(work))?;
    let config = Config::new([url], &format!("{work}/bench/{}", std::process::id()));
    Ok(Config {
        credentials: Credentials::CredsFile(creds_file),
        tls: Tls { ca_file: Some(ca_file), ..Tls::default() },
        ..config
    })
}
