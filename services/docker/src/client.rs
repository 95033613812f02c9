//! Requests to the claim service and to this node's agent, with the rights of any client.

use std::time::Duration;

use berth_bus::{Bus, Call};
use berth_client::Client;
use berth_contract::code::Code;
use berth_contract::message::agent::{Mount, Mounted};
use berth_contract::message::alloc::{self, AllocStatus};
use berth_contract::message::class::{self, ClassStatus};
use berth_contract::message::query::Page;
use berth_contract::message::storage::{self, StorageChanged};
use berth_contract::message::volume::{self, VolumeStatus, VolumeStub};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb};
use berth_domain::access::{AttachmentMode, Mode};
use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_domain::limits::{PAGE_MAX, REQUEST_TIMEOUT};
use berth_domain::volume::MountOptions;
use berth_domain::{Namespace, NodeId, VolumeKey};
use berth_service::clock;

use super::record::Session;
use super::target::VolumeTarget;

/// How long one request for a mount may take. The retry joins the mount that is under way.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a list may take, with all its pages. No caller of the plugin waits for it.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Pages of a list that are read at most.
const PAGES_MAX: usize = 10;

/// A client in the name of one node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct BerthClient {
    client: Client,
    node: NodeId,
}

impl BerthClient {
    pub fn new(bus: Bus, node: NodeId) -> Self {
        Self { client: Client::new(bus), node }
    }

    /// The node of this host's agent.
    pub fn node(&self) -> &NodeId {
        &self.node
    }

    /// Registers the alloc of a session. Repeating it changes nothing.
    pub async fn register_alloc(&self, name: &str, session: &Session) -> Result<(), Problem> {
        let VolumeTarget { namespace, volume, mode, access, fs, .. } = &session.target;
        let request = VolumeRequest {
            read_only: *mode == Mode::Read,
            access: *access,
            attachment: Some(AttachmentMode::FileSystem),
            mount: MountOptions { fs_type: fs.clone(), ..MountOptions::default() },
            ..VolumeRequest::for_volume(volume.clone())
        };
        let (id, node) = (session.alloc.clone(), self.node.clone());
        let register = alloc::RegisterAlloc {
            note: Some(format!("Docker volume {name}")),
            ..alloc::RegisterAlloc::new(id, node, vec![request])
        };
        self.ask_claim::<verb::AllocRegister>(namespace, &register).await.map(drop)
    }

    /// Has the agent claim and mount the session's volume. The agent checks an existing mount
    /// again.
    pub async fn mount(&self, session: &Session) -> Result<Mounted, Problem> {
        let mount = Mount {
            namespace: session.target.namespace.clone(),
            alloc: session.alloc.clone(),
            volume: session.target.volume.clone(),
            wait: false,
            alias: None,
            path: None,
        };
        let call = Call::within(clock::begin_trace(), MOUNT_TIMEOUT);
        let (node, namespace) = (self.node.clone(), session.target.namespace.clone());
        let target = verb::NodeAndNamespace { node, namespace };
        let mounted = self.client.once::<verb::AgentMount>(&target, &mount, &call).await;
        mounted.map_err(|problem| self.name_identity(problem, &target.namespace))
    }

    pub async fn stop_alloc(&self, session: &Session) -> Result<AllocStatus, Problem> {
        let note = Some("no container uses it any more".to_owned());
        let stop = alloc::StopAlloc::new(session.alloc.clone(), AllocState::Complete, note);
        let namespace = &session.target.namespace;
        self.ask_claim::<verb::AllocStop>(namespace, &stop).await
    }

    pub async fn alloc_status(&self, session: &Session) -> Result<AllocStatus, Problem> {
        let namespace = &session.target.namespace;
        let query = alloc::AllocQuery::current(session.alloc.clone());
        self.ask_claim::<verb::AllocStatus>(namespace, &query).await
    }

    /// A volume with its claims.
    pub async fn volume_status(&self, key: &VolumeKey) -> Result<VolumeStatus, Problem> {
        let query = volume::VolumeQuery::current(key.volume.clone());
        self.ask_claim::<verb::VolumeStatus>(&key.namespace, &query).await
    }

    /// Has a volume created at its storage. Repeating the same request changes nothing.
    pub async fn create_volume(
        &self,
        namespace: &Namespace,
        document: &storage::Create,
    ) -> Result<StorageChanged, Problem> {
        self.ask_claim::<verb::VolumeCreate>(namespace, document).await
    }

    /// Has the volume with this `create_index` deleted, and no later volume of its id.
    pub async fn delete_volume(
        &self,
        key: &VolumeKey,
        create_index: u64,
        reason: String,
    ) -> Result<StorageChanged, Problem> {
        let (id, create_index) = (key.volume.clone(), Some(create_index));
        let delete = storage::DeleteVolume { id, reason, create_index };
        self.ask_claim::<verb::VolumeDelete>(&key.namespace, &delete).await
    }

    /// The classes that the namespace may use; at most [`PAGES_MAX`] pages of them.
    pub async fn list_classes(&self, namespace: &Namespace) -> Result<Vec<ClassStatus>, Problem> {
        let mut classes = Vec::new();
        let list = class::ListClasses::default();
        let call = Call::within(clock::begin_trace(), LIST_TIMEOUT);
        let take = |page: class::Classes| classes.extend(page.classes);
        self.client.pages::<verb::ClassList>(namespace, list, &call, PAGES_MAX, take).await?;
        Ok(classes)
    }

    /// The volumes of a namespace; at most [`PAGES_MAX`] pages of them.
    pub async fn list_volumes(&self, namespace: &Namespace) -> Result<Vec<VolumeStub>, Problem> {
        let mut volumes = Vec::new();
        let page = Page { limit: u32::try_from(PAGE_MAX).ok(), after: None };
        let list = volume::ListVolumes { page, ..volume::ListVolumes::default() };
        let call = Call::within(clock::begin_trace(), LIST_TIMEOUT);
        let take = |page: volume::Volumes| volumes.extend(page.volumes);
        self.client.pages::<verb::VolumeList>(namespace, list, &call, PAGES_MAX, take).await?;
        Ok(volumes)
    }

    async fn ask_claim<V: Verb<To = Namespace>>(
        &self,
        namespace: &Namespace,
        request: &V::Request,
    ) -> Result<V::Reply, Problem> {
        let call = Call::within(clock::begin_trace(), REQUEST_TIMEOUT);
        let answer = self.client.once::<V>(namespace, request, &call).await;
        answer.map_err(|problem| self.name_identity(problem, namespace))
    }

    /// Adds to a refused request which identity of this host would have the right.
    fn name_identity(&self, problem: Problem, namespace: &Namespace) -> Problem {
        if problem.code != Code::NotAllowed {
            return problem;
        }
        let mut namespaces = vec![Namespace::default(), namespace.clone()];
        namespaces.dedup();
        let names: Vec<&str> = namespaces.iter().map(Namespace::as_str).collect();
        let (node, names) = (&self.node, names.join(","));
        problem.next(format!(
            "see with `berth-docker --check-access` what the identity of this host may do; for \
             volumes of namespace {namespace}, have the fleet's operator make it again: `berth \
             access docker {node} --namespaces {names} --replace`"
        ))
    }
}
