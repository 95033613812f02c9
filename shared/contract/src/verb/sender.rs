//! Who may send a verb.
//!
//! **Owns** the capabilities that a person or a program may be given, and which of our services
//! send what. The permissions of every identity are made from the rows, and from nothing else.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::service::ServiceName;

/// Who may send a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// A person or a program that has this capability.
    Holder(Capability),
    /// This service of ours.
    Service(ServiceName),
}

/// What a person or a program may be given. The first four are given for a namespace, or for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Capability {
    /// To list volumes and allocs, one short line each. Every other capability for the namespace
    /// contains it.
    List,
    /// To see volumes, claims, allocs and their events, with all details.
    Read,
    /// To register, create, change and delete volumes, with their secrets and snapshots.
    Write,
    /// To run workloads with volumes: to register and stop allocs, and to mount.
    Mount,
    /// To see plugins.
    PluginRead,
    /// To see nodes, and the plugins on them.
    NodeRead,
    /// To decide about hosts and storage: a node is gone, a plugin ends, a claim is released, a
    /// class is defined, what a plugin has is listed.
    Operator,
}

impl Capability {
    /// Every capability.
    pub const ALL: [Self; 7] = [
        Self::List,
        Self::Read,
        Self::Write,
        Self::Mount,
        Self::PluginRead,
        Self::NodeRead,
        Self::Operator,
    ];

    /// Its name, as people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Read => "read",
            Self::Write => "write",
            Self::Mount => "mount",
            Self::PluginRead => "plugin:read",
            Self::NodeRead => "node:read",
            Self::Operator => "operator",
        }
    }

    /// Whether it is given for a namespace.
    pub const fn is_of_namespace(self) -> bool {
        matches!(self, Self::List | Self::Read | Self::Write | Self::Mount)
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// For people: the capability, or the service.
impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holder(capability) => capability.fmt(f),
            Self::Service(service) => f.write_str(service.name),
        }
    }
}

/// The senders, as the rows name them.
pub(super) mod senders {
    use super::{Capability, Sender};
    use crate::service;

    pub const LIST: Sender = Sender::Holder(Capability::List);
    pub const READ: Sender = Sender::Holder(Capability::Read);
    pub const WRITE: Sender = Sender::Holder(Capability::Write);
    pub const MOUNT: Sender = Sender::Holder(Capability::Mount);
    pub const PLUGIN_READ: Sender = Sender::Holder(Capability::PluginRead);
    pub const NODE_READ: Sender = Sender::Holder(Capability::NodeRead);
    pub const OPERATOR: Sender = Sender::Holder(Capability::Operator);
    pub const CLAIM: Sender = Sender::Service(service::CLAIM);
    pub const PLUGIN_REGISTRY: Sender = Sender::Service(service::PLUGIN_REGISTRY);
    pub const VOLUMEWATCHER: Sender = Sender::Service(service::VOLUMEWATCHER);
    pub const GC: Sender = Sender::Service(service::GC);
    pub const NODE_AGENT: Sender = Sender::Service(service::NODE_AGENT);
    pub const CONTROLLER: Sender = Sender::Service(service::CONTROLLER);
    pub const DOCKER: Sender = Sender::Service(service::DOCKER);
}
