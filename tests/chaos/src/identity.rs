//! The identities of the processes on the bus. Each process has its own, and the bus uses TLS.

use std::path::Path;

use berth_access::{LocalFleet, Role};
use berth_bus::{Config, Credentials, Tls};
use berth_domain::{NodeId, PluginId};
use berth_harness::nats::Login;

use crate::plan::{PLUGINS, Target};

/// The name in the certificate of every server.
const SERVER: &str = "berth";

/// The files of the identities of one system.
pub struct Identities(LocalFleet);

impl Identities {
    /// Writes the files of all identities below `dir`.
    pub fn make(dir: &Path) -> Self {
        let fleet = LocalFleet::create(&dir.join("access"), &[SERVER]);
        Self(fleet.expect("identities can be made"))
    }

    /// The part of each server's configuration that names the identities.
    pub fn server_config(&self) -> String {
        self.0.server_config(SERVER).expect("the configuration can be made")
    }

    /// The login of an operator who may do everything.
    pub fn admin(&self) -> Login {
        self.login(&Role::Admin { name: "chaos".to_owned() })
    }

    /// The login of a process; `None` for a process that is not a client of the bus.
    pub fn process(&self, target: Target) -> Option<Login> {
        let role = match target {
            Target::Claim(_) => Role::Claim,
            Target::Registry(_) => Role::PluginRegistry,
            Target::Watcher(_) => Role::Volumewatcher,
            Target::Gc(_) => Role::Gc,
            Target::Agent(node) => {
                let plugin = |id: &&str| PluginId::new(*id).expect("the plugin has an id");
                let node = NodeId::new(format!("n{}", node + 1)).expect("the node has an id");
                Role::Node { node, controllers: PLUGINS.iter().map(plugin).collect() }
            }
            Target::Nats(_) | Target::Driver { .. } | Target::Link(..) | Target::Records => {
                return None;
            }
        };
        Some(self.login(&role))
    }

    fn login(&self, role: &Role) -> Login {
        let creds_file = self.0.creds(role).expect("the identity can be made");
        Login { creds_file, ca_file: self.0.ca() }
    }
}

/// The configuration that the test itself connects with.
pub fn config(url: String, login: &Login) -> Config {
    let Login { creds_file, ca_file } = login.clone();
    Config {
        credentials: Credentials::CredsFile(creds_file),
        tls: Tls { ca_file: Some(ca_file), ..Tls::default() },
        ..Config::new([url], "chaos")
    }
}
