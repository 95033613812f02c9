//! The identities of a `berth dev`: each of its processes has one of its own, and the bus has TLS.
//!
//! **Promises** that a restart in the same directory keeps them.
//!
//! With `--insecure` there are none, and the bus accepts every client.

use std::path::{Path, PathBuf};

use berth_access::local::LocalFleet;
use berth_contract::role::Role;
use berth_domain::{NodeId, PluginId};
use serde_json::{Value, json};

use super::layout::Layout;
use crate::failure::Failure;

/// The server's name.
pub const SERVER: &str = "berth";
/// The user whose credentials the file to source names.
pub const PERSON: &str = "dev";

/// The identities of the processes; none with `--insecure`.
#[derive(Debug)]
pub struct Identities {
    fleet: Option<LocalFleet>,
}

/// The files by which a process proves who it is, and checks who the server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The credentials.
    pub creds: PathBuf,
    /// The authority of the server's certificate.
    pub authority: PathBuf,
}

impl Identities {
    /// Reads the identities of the directory, or makes them; none with `--insecure`.
    pub fn prepare(layout: &Layout, insecure: bool) -> Result<Self, Failure> {
        if insecure {
            return Ok(Self { fleet: None });
        }
        let dir = layout.access();
        let is_there = dir.join("ca.pem").exists();
        let fleet =
            if is_there { LocalFleet::open(&dir) } else { LocalFleet::create(&dir, &[SERVER]) };
        fleet.map(|fleet| Self { fleet: Some(fleet) }).map_err(|error| failed(&error))
    }

    /// The part of the server's configuration, in the directory `config`, that accepts these
    /// identities. After `berth access revoke` a reload is enough.
    pub fn server_config(&self, config: &Path) -> Result<String, Failure> {
        self.fleet.as_ref().map_or(Ok(String::new()), |fleet| {
            fleet.server_config_in(config, SERVER).map_err(|error| failed(&error))
        })
    }

    /// The credentials of a service.
    pub fn of_service(&self, name: &str) -> Result<Option<Proof>, Failure> {
        self.prove(match name {
            "claim" => Role::Claim,
            "plugin-registry" => Role::PluginRegistry,
            "volumewatcher" => Role::Volumewatcher,
            _ => Role::Gc,
        })
    }

    /// The credentials of a node's agent, which may host these controllers.
    pub fn of_node(&self, node: &str, controllers: &[&str]) -> Result<Option<Proof>, Failure> {
        let bad = |fault: &dyn std::fmt::Display| Failure::usage(fault, "choose another name");
        let node = NodeId::new(node).map_err(|fault| bad(&fault))?;
        let controllers = controllers.iter().map(|id| PluginId::new(*id));
        let controllers = controllers.collect::<Result<_, _>>().map_err(|fault| bad(&fault))?;
        self.prove(Role::Node { node, controllers })
    }

    /// The credentials of the user, who may do everything.
    pub fn of_person(&self) -> Result<Option<Proof>, Failure> {
        self.prove(Role::Admin { name: PERSON.to_owned() })
    }

    fn prove(&self, role: Role) -> Result<Option<Proof>, Failure> {
        let Some(fleet) = &self.fleet else { return Ok(None) };
        let creds = fleet.creds(&role).map_err(|error| failed(&error))?;
        Ok(Some(Proof { creds, authority: fleet.ca() }))
    }
}

impl Proof {
    /// `[nats]` of a program's configuration.
    pub fn nats(proof: Option<&Self>, url: &str) -> Value {
        match proof {
            Some(Self { creds, authority }) => {
                json!({ "url": url, "creds_file": creds, "ca_file": authority })
            }
            None => json!({ "url": url, "insecure": true }),
        }
    }
}

fn failed(error: &dyn std::fmt::Display) -> Failure {
    Failure::local(error, "remove the directory `access` in --dir: it is made again")
}
