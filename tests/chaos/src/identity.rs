//! Who the processes are on the bus: each has an identity of its own, and the bus has TLS.

use std::path::Path;

use berth_access::{LocalFleet, Role};
use berth_bus::{Config, Credentials, Tls};
use berth_domain::{NodeId, PluginId};
use berth_harness::nats::Login;

use crate::plan::{PLUGINS, Target};

/// The server's name in its certificate, which each server has.
const SERVER: &str = "berth";

/// The identities of a system.
pub struct Identities(LocalFleet);

impl Identities {
    /// Writes them below `dir`.
    pub fn make(dir: &Path) -> Self {
        let fleet = LocalFleet::create(&dir.join("access"), &[SERVER]);
        Self(fleet.expect("identities can be made"))
    }

    /// What the configuration of each server says of them.
    pub fn server_config(&self) -> String {
        self.0.server_config(SERVER).expect("the configuration can be made")
    }

    /// One who may do everything.
    pub fn admin(&self) -> Login {
        self.login(&Role::Admin { name: "chaos".to_owned() })
    }

    /// How a process gets in; none for what does not go to the bus by itself.
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

/// How the test itself connects.
pub fn config(url: String, login: &Login) -> Config {
    let Login { creds_file, ca_file } = login.clone();
    Config {
        credentials: Credentials::CredsFile(creds_file),
        tls: Tls { ca_file: Some(ca_file), ..Tls::default() },
        ..Config::new([url], "chaos")
    }
}
