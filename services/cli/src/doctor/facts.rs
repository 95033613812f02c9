//! The facts of all checks. Each is a source's answer, or why it did not answer.

use std::collections::BTreeMap;

use berth_bus::replication::CopiesReport;
use berth_bus::{Identity, ServerReport, StreamReport};
use berth_contract::message::alloc::AllocStub;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::registry::{NodeStatus, PluginStatus};
use berth_contract::message::snapshot::SnapshotStub;
use berth_contract::message::volume::VolumeStatus;
use berth_contract::record::UnreadableRecord;
use berth_domain::{PluginId, Timestamp};

use super::certificate::Certificate;
use super::replica::Replica;
use berth_explain::{Facts, SourceAnswer};

/// Everything that was read.
#[derive(Debug, Clone)]
pub struct SystemFacts {
    /// The time of the reads.
    pub now: Timestamp,
    /// The version of this `berth`.
    pub own_version: String,
    /// The server of the connection.
    pub server: ServerReport,
    /// Who the caller is, and the certificates of the connection.
    pub access: AccessFacts,
    /// Each stream of Berth by name; `None` is one that does not exist.
    pub streams: BTreeMap<String, SourceAnswer<Option<StreamReport>>>,
    /// How many copies the streams have and should have; none if this could not be read in time.
    pub copies: Option<CopiesReport>,
    /// The replicas of each service.
    pub replicas: BTreeMap<&'static str, SourceAnswer<Vec<Replica>>>,
    /// Nodes and plugins, by the registry.
    pub registry: SourceAnswer<RegistryLists>,
    /// Claims, by the claim service.
    pub claims: SourceAnswer<ClaimList>,
    /// Volumes that are changed at their storage, and snapshots, by the claim service.
    pub storage: SourceAnswer<StorageFacts>,
    /// Live allocs whose owner's lease has ended, by the claim service.
    pub unowned: SourceAnswer<UnownedAllocs>,
    /// Volumes and allocs that cannot be read, by the claim service.
    pub volume_records: SourceAnswer<Vec<UnreadableRecord>>,
    /// The facts in the form in which `berth why` judges them, with the answers of agents.
    pub why: Facts,
    /// How many agents were not asked, because there are too many.
    pub agents_left_out: usize,
}

/// What the connection depends on. It is known also where the connection is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessFacts {
    /// The caller's identity; none where no file says it.
    pub identity: Option<Identity>,
    /// The certificates of the servers, and the authorities.
    pub certificates: Vec<Certificate>,
}

/// All nodes and plugins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryLists {
    /// The nodes, with the plugin instances of each.
    pub nodes: Vec<NodeStatus>,
    /// The plugins, with their instances.
    pub plugins: Vec<PluginStatus>,
    /// Records that cannot be read.
    pub unreadable: Vec<UnreadableRecord>,
    /// Whether the lists are cut.
    pub is_cut: bool,
}

/// The claims of all namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimList {
    /// The claims.
    pub claims: Vec<ClaimStatus>,
    /// Claims that cannot be read.
    pub unreadable: Vec<UnreadableRecord>,
    /// Whether the list is cut.
    pub is_cut: bool,
}

/// The live allocs of all namespaces whose owner's lease has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnownedAllocs {
    /// The allocs.
    pub allocs: Vec<AllocStub>,
    /// Whether the list is cut.
    pub is_cut: bool,
}

/// The changes of volumes at their storage, and the snapshots, of all namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageFacts {
    /// How many volumes there are.
    pub volume_count: usize,
    /// The volumes with a change under way, and those that were refused one.
    pub volumes: Vec<VolumeStatus>,
    /// How many volumes were not read, because there are too many: a change of one that is ready is
    /// not known.
    pub unread: usize,
    /// How many snapshots there are.
    pub snapshot_count: usize,
    /// The snapshots that are not ready, and those that were refused a deletion.
    pub snapshots: Vec<SnapshotStub>,
    /// The number of volumes of each plugin that the plugin can serve nowhere.
    pub unserved: BTreeMap<PluginId, usize>,
    /// Whether the lists are cut.
    pub is_cut: bool,
}

impl SystemFacts {
    /// The most copies that a stream has.
    pub fn copies_max(&self) -> u64 {
        let streams = self.streams.values().filter_map(|stream| stream.as_ref().ok()?.as_ref());
        streams.map(|stream| stream.copies).max().unwrap_or(1)
    }

    /// Every replica of every service, with the service's name.
    pub fn all_replicas(&self) -> impl Iterator<Item = (&'static str, &Replica)> {
        let answered =
            self.replicas.iter().filter_map(|(name, all)| Some((*name, all.as_ref().ok()?)));
        answered.flat_map(|(name, replicas)| replicas.iter().map(move |replica| (name, replica)))
    }
}
