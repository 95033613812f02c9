//! The identity and capabilities of a plugin.
//!
//! **Owns** the calls that identify a plugin, in CSI's order, and their plain results.
//!
//! **Promises** a complete fingerprint, or an error that names the failed call. `None` and `false`
//! mean that the plugin does not offer something. A plugin may serve only a controller or only a
//! node.
//!
//! **Never** waits for a plugin to become ready, and keeps no state.

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

/// The longest version in bytes, which is CSI's limit for any text.
const VERSION_BYTES_MAX: usize = 128;

/// One ready instance of a plugin, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// `GetPluginInfo.name`, a valid id.
    pub name: String,
    /// `GetPluginInfo.vendor_version` on one line of bounded length.
    pub vendor_version: String,
    /// The services of the plugin as a whole. Another instance may serve the controller.
    pub services: PluginServices,
    /// Whether volumes can grow online or offline.
    pub expansion: VolumeExpansion,
    /// Whether this instance cuts snapshots of several volumes at once.
    pub group_snapshots: bool,
    /// The controller service, if this instance serves it.
    pub controller: Option<ControllerCapabilities>,
    /// The node service, if this instance serves it.
    pub node: Option<NodeFingerprint>,
}

/// The node service of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFingerprint {
    /// The plugin's id of this host, passed to its controller unchanged. A plugin that does not
    /// attach volumes may leave it out.
    pub node_id: Option<String>,
    /// The plugin's limit of volumes on this host, if it has one.
    pub max_volumes: Option<u64>,
    /// The topology of this host; empty for a plugin without topology.
    pub topology: BTreeMap<String, String>,
    /// What the node service can do.
    pub capabilities: NodeCapabilities,
}

/// Why the plugin could not be identified.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IdentifyError {
    /// A call failed. `FAILED_PRECONDITION` from `Probe` means that the plugin is unhealthy.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The plugin is healthy and not ready yet.
    #[error("plugin {name} at {socket} is still starting")]
    Starting {
        /// Its name.
        name: String,
        /// Its socket.
        socket: String,
    },
    /// The name of the plugin is no valid id.
    #[error("the plugin at {socket} answers GetPluginInfo with a name that {fault}")]
    Name {
        /// Its socket.
        socket: String,
        /// What is wrong with the name.
        fault: IdFault,
    },
    /// Volumes are attached to a node by its id, and the plugin gives none.
    #[error(
        "plugin {name} at {socket} attaches volumes to nodes, and gives this one no id \
         (NodeGetInfo.node_id)"
    )]
    NoNodeId {
        /// Its name.
        name: String,
        /// Its socket.
        socket: String,
    },
    /// An answer exceeds a size limit of CSI.
    #[error("plugin {name} at {socket} breaks a limit of CSI: {what}")]
    Oversized {
        /// Its name.
        name: String,
        /// Its socket.
        socket: String,
        /// The field that is too large.
        what: &'static str,
    },
}

/// Identifies a plugin. `timeout` is per call: some plugins take seconds for any answer.
///
/// Makes up to seven calls without side effects: plugin info, plugin capabilities, probe,
/// capabilities of the controller and of the group controller if the plugin lists them, node
/// capabilities, node info.
pub async fn identify(client: &Client, timeout: Duration) -> Result<Fingerprint, IdentifyError> {
    let inquiry = Inquiry { client, timeout };
    let socket = client.socket().display().to_string();

    let info = inquiry.call_plugin(v1::GetPluginInfoRequest {}).await?;
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
    // A plugin without `GetPluginCapabilities` may still have a controller.
    let controller = if services.controller_service || !is_listed {
        inquiry.ask_if_served(v1::ControllerGetCapabilitiesRequest {}).await?
    } else {
        None
    };
    services.controller_service |= controller.is_some();
    let group_snapshots = services.group_controller_service && inquiry.groups().await?;
    let node = inquiry.node().await?;
    if let Some(field) = node.as_ref().and_then(oversized) {
        return Err(IdentifyError::Oversized { name, socket, what: field });
    }
    let controller = controller.as_ref().map(ControllerCapabilities::from);
    let attaches = controller.as_ref().is_some_and(|can| can.publish_unpublish_volume);
    if attaches && node.as_ref().is_some_and(|node| node.node_id.is_none()) {
        return Err(IdentifyError::NoNodeId { name, socket });
    }
    Ok(Fingerprint {
        name,
        vendor_version: shortened(&info.vendor_version, VERSION_BYTES_MAX),
        services,
        expansion: VolumeExpansion::from(&capabilities),
        group_snapshots,
        controller,
        node,
    })
}

/// Whether the plugin is ready. An unhealthy plugin answers with an error.
pub async fn probe(client: &Client, timeout: Duration) -> Result<bool, CallError> {
    match client.call(v1::ProbeRequest {}, timeout).await {
        // CSI: `ready` absent means ready.
        Ok(answer) => Ok(answer.ready.unwrap_or(true)),
        // CSI requires `Probe`. A plugin without it has still answered.
        Err(error) if error.code() == Some(Code::Unimplemented) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Calls of one plugin with one timeout.
struct Inquiry<'a> {
    client: &'a Client,
    timeout: Duration,
}

impl Inquiry<'_> {
    async fn call_plugin<R: Unary>(&self, request: R) -> Result<R::Response, CallError> {
        self.client.call(request, self.timeout).await
    }

    /// `None` if this instance does not serve the call.
    async fn ask_if_served<R: Unary>(&self, request: R) -> Result<Option<R::Response>, CallError> {
        match self.call_plugin(request).await {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.code() == Some(Code::Unimplemented) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the group controller cuts snapshots of groups.
    async fn groups(&self) -> Result<bool, CallError> {
        use v1::group_controller_service_capability::{Type, rpc};
        let asked = self.ask_if_served(v1::GroupControllerGetCapabilitiesRequest {}).await?;
        let cuts = |listed: &v1::GroupControllerServiceCapability| {
            let Some(Type::Rpc(listed)) = &listed.r#type else { return false };
            listed.r#type() == rpc::Type::CreateDeleteGetVolumeGroupSnapshot
        };
        Ok(asked.is_some_and(|answer| answer.capabilities.iter().any(cuts)))
    }

    /// CSI has no capability for the node service, so the service itself is called.
    async fn node(&self) -> Result<Option<NodeFingerprint>, CallError> {
        let capabilities = self.ask_if_served(v1::NodeGetCapabilitiesRequest {}).await?;
        let info = self.ask_if_served(v1::NodeGetInfoRequest {}).await?;
        if capabilities.is_none() && info.is_none() {
            return Ok(None);
        }
        // A node service without these two calls can still publish and unpublish.
        let (capabilities, info) = (capabilities.unwrap_or_default(), info.unwrap_or_default());
        Ok(Some(NodeFingerprint {
            node_id: Some(info.node_id).filter(|id| !id.is_empty()),
            // 0 means no limit. CSI forbids negative numbers; they mean no limit, too.
            max_volumes: u64::try_from(info.max_volumes_per_node).ok().filter(|&max| max > 0),
            topology: info.accessible_topology.unwrap_or_default().segments,
            capabilities: NodeCapabilities::from(&capabilities),
        }))
    }
}

/// The field of a node's answer that is too large for a record (CSI, size limits).
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
