//! Who a plugin is: what is asked of it after connecting.
//!
//! **Owns** those calls, in the order CSI expects them, and the plain values they give.
//!
//! **Promises** a whole fingerprint, or an error that says which question went wrong: "no" in it
//! means that the plugin said no. A plugin may serve only a controller or only a node.
//!
//! **Never** waits for a plugin to become ready, and keeps nothing: ask again later.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_domain::PluginId;
use berth_domain::id::IdFault;
use berth_domain::limits::{ID_BYTES_MAX, MAP_BYTES_MAX, MAP_ENTRIES_MAX};
use thiserror::Error;

use crate::advertised::{
    ControllerCapabilities, NodeCapabilities, PluginServices, VolumeExpansion,
};
use crate::client::Client;
use crate::code::Code;
use crate::failure::{CallError, shortened};
use crate::rpc::Unary;
use crate::v1;

/// The longest version, in bytes: what CSI allows for any text. It stands in the midst of others.
const VERSION_BYTES_MAX: usize = 128;

/// One ready instance of a plugin, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// `GetPluginInfo.name`, a valid id.
    pub name: String,
    /// `GetPluginInfo.vendor_version` on one line of bounded length; instances that share it have
    /// the same plugin capabilities.
    pub vendor_version: String,
    /// What the plugin offers as a whole. A controller service named here may be served by other
    /// instances only.
    pub services: PluginServices,
    /// When its volumes may grow.
    pub expansion: VolumeExpansion,
    /// The controller service, if this instance serves it.
    pub controller: Option<ControllerCapabilities>,
    /// The node service, if this instance serves it.
    pub node: Option<NodeFingerprint>,
}

/// The node service of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFingerprint {
    /// The plugin's own name of this host, to be handed to its controller as it is. A plugin whose
    /// controller does not attach volumes may leave it out.
    pub node_id: Option<String>,
    /// How many volumes this host takes, if the plugin sets a limit.
    pub max_volumes: Option<u64>,
    /// Where this host is; empty for a plugin without topology.
    pub topology: BTreeMap<String, String>,
    /// Calls and features.
    pub capabilities: NodeCapabilities,
}

/// Why there is no fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IdentifyError {
    /// A question was not answered. `FAILED_PRECONDITION` from `Probe` is how a plugin says that it
    /// is unhealthy.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The plugin is healthy and still starting: ask again soon.
    #[error("plugin {name} at {socket} is still starting")]
    Starting {
        /// Its name.
        name: String,
        /// Its socket.
        socket: String,
    },
    /// The plugin gave itself a name that cannot be used.
    #[error("the plugin at {socket} answers GetPluginInfo with a name that {fault}")]
    Name {
        /// Its socket.
        socket: String,
        /// What is wrong with the name.
        fault: IdFault,
    },
    /// An answer breaks the limits of CSI.
    #[error("plugin {name} at {socket} breaks a limit of CSI: {what}")]
    Oversized {
        /// Its name.
        name: String,
        /// Its socket.
        socket: String,
        /// Which answer, in words.
        what: &'static str,
    },
}

/// Asks a plugin who it is and what it can do, with `timeout` for each question: there are plugins
/// that take seconds for any answer.
///
/// Up to six calls, none of which changes anything: plugin info, plugin capabilities, probe, then
/// the controller's capabilities if the plugin claims to have one, the node's, and the node's info.
pub async fn identify(client: &Client, timeout: Duration) -> Result<Fingerprint, IdentifyError> {
    let inquiry = Inquiry { client, timeout };
    let socket = client.socket().display().to_string();

    let info = inquiry.ask(v1::GetPluginInfoRequest {}).await?;
    let name = match PluginId::new(info.name) {
        Ok(name) => String::from(name),
        Err(fault) => return Err(IdentifyError::Name { socket, fault }),
    };
    let listed = inquiry.ask_if_served(v1::GetPluginCapabilitiesRequest {}).await?;
    if !probe(client, timeout).await? {
        return Err(IdentifyError::Starting { name, socket });
    }
    let is_listed = listed.is_some();
    let capabilities = listed.unwrap_or_default();
    let mut services = PluginServices::from(&capabilities);
    // One that does not list its services is asked for each.
    let controller = if services.controller_service || !is_listed {
        inquiry.ask_if_served(v1::ControllerGetCapabilitiesRequest {}).await?
    } else {
        None
    };
    services.controller_service |= controller.is_some();
    let node = inquiry.node().await?;
    if let Some(what) = node.as_ref().and_then(oversized) {
        return Err(IdentifyError::Oversized { name, socket, what });
    }
    Ok(Fingerprint {
        name,
        vendor_version: shortened(&info.vendor_version, VERSION_BYTES_MAX),
        services,
        expansion: VolumeExpansion::from(&capabilities),
        controller: controller.as_ref().map(ControllerCapabilities::from),
        node,
    })
}

/// Whether a plugin that is well is ready; one that is not well answers with an error.
pub async fn probe(client: &Client, timeout: Duration) -> Result<bool, CallError> {
    match client.call(v1::ProbeRequest {}, timeout).await {
        // An answer without the flag means ready (CSI, Probe).
        Ok(answer) => Ok(answer.ready.unwrap_or(true)),
        // CSI wants the call of every plugin. One that does not have it has answered all the same.
        Err(error) if error.code() == Some(Code::Unimplemented) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Questions to one plugin.
struct Inquiry<'a> {
    client: &'a Client,
    timeout: Duration,
}

impl Inquiry<'_> {
    async fn ask<R: Unary>(&self, request: R) -> Result<R::Response, CallError> {
        self.client.call(request, self.timeout).await
    }

    /// `None` when the plugin, or this instance of it, does not serve the call.
    async fn ask_if_served<R: Unary>(&self, request: R) -> Result<Option<R::Response>, CallError> {
        match self.ask(request).await {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.code() == Some(Code::Unimplemented) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// No plugin capability says whether there is a node service: asking it does.
    async fn node(&self) -> Result<Option<NodeFingerprint>, CallError> {
        let capabilities = self.ask_if_served(v1::NodeGetCapabilitiesRequest {}).await?;
        let info = self.ask_if_served(v1::NodeGetInfoRequest {}).await?;
        if capabilities.is_none() && info.is_none() {
            return Ok(None);
        }
        // A node service with nothing to say of itself can publish and unpublish.
        let (capabilities, info) = (capabilities.unwrap_or_default(), info.unwrap_or_default());
        Ok(Some(NodeFingerprint {
            node_id: Some(info.node_id).filter(|id| !id.is_empty()),
            // Zero leaves the limit to us; a negative one is not allowed, and no limit either.
            max_volumes: u64::try_from(info.max_volumes_per_node).ok().filter(|&max| max > 0),
            topology: info.accessible_topology.unwrap_or_default().segments,
            capabilities: NodeCapabilities::from(&capabilities),
        }))
    }
}

/// What of the node's answer is too large to be kept in a record (CSI, size limits).
fn oversized(node: &NodeFingerprint) -> Option<&'static str> {
    let id_bytes = node.node_id.as_ref().map_or(0, String::len);
    let map_bytes: usize = node.topology.iter().map(|(key, value)| key.len() + value.len()).sum();
    if id_bytes > ID_BYTES_MAX {
        Some("NodeGetInfo.node_id")
    } else if node.topology.len() > MAP_ENTRIES_MAX || map_bytes > MAP_BYTES_MAX {
        Some("NodeGetInfo.accessible_topology")
    } else {
        None
    }
}
