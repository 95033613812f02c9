//! What the adapter asks of the claim service and of its own agent, as any client would.

use std::time::{Duration, Instant};

use berth_bus::{Bus, Call};
use berth_client::Client;
use berth_contract::message::agent::{Mount, Mounted};
use berth_contract::message::alloc::{self, AllocStatus};
use berth_contract::message::query::Page;
use berth_contract::message::volume::{self, VolumeStatus, VolumeStub};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb};
use berth_domain::access::{AttachmentMode, Mode};
use berth_domain::alloc::{AllocState, TaskDriverMounts, VolumeRequest};
use berth_domain::limits::{PAGE_MAX, REQUEST_TIMEOUT};
use berth_domain::volume::MountOptions;
use berth_domain::{AllocId, Namespace, NodeId, VolumeKey};
use berth_service::clock;

use super::record::{Session, Target};

/// How long one asking for a mount may take; whoever asks again joins what is under way.
const MOUNT: Duration = Duration::from_secs(30);
/// How long a list may take, with all its pages; nobody waits for it.
const LIST: Duration = Duration::from_secs(10);
/// Pages of a list that are read.
const PAGES_MAX: usize = 10;

/// Asks in the name of one node. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    client: Client,
    node: NodeId,
}

impl Asker {
    /// Asks in the name of `node`.
    pub(super) fn new(bus: Bus, node: NodeId) -> Self {
        Self { client: Client::new(bus), node }
    }

    /// Registers the alloc of a session; again is nothing.
    pub(super) async fn register(&self, name: &str, session: &Session) -> Result<(), Problem> {
        let Target { namespace, volume, mode, access, fs, .. } = &session.target;
        let request = VolumeRequest {
            read_only: *mode == Mode::Read,
            access: *access,
            attachment: Some(AttachmentMode::FileSystem),
            mount: MountOptions { fs_type: fs.clone(), ..MountOptions::default() },
            ..VolumeRequest::of(volume.clone())
        };
        let register = alloc::Register {
            id: session.alloc.clone(),
            node: self.node.clone(),
            index: None,
            volumes: vec![request],
            note: Some(format!("Docker volume {name}")),
            task_driver_mounts: TaskDriverMounts::All,
            allow_missing: false,
        };
        self.about::<verb::AllocRegister>(namespace, &register, REQUEST_TIMEOUT).await.map(drop)
    }

    /// Has the session's volume claimed and mounted; where it is already, that is looked at again.
    pub(super) async fn mount(&self, session: &Session) -> Result<Mounted, Problem> {
        let mount = Mount {
            namespace: session.target.namespace.clone(),
            alloc: session.alloc.clone(),
            volume: session.target.volume.clone(),
            wait: false,
            alias: None,
            path: None,
        };
        let call = Call::within(clock::begin_trace(), MOUNT);
        self.request::<verb::AgentMount>(&self.node, &mount, call).await
    }

    /// Says that the session has ended.
    pub(super) async fn stop(&self, session: &Session) -> Result<AllocStatus, Problem> {
        let stop = alloc::Stop {
            id: session.alloc.clone(),
            state: AllocState::Complete,
            note: Some("no container uses it any more".to_owned()),
        };
        let namespace = &session.target.namespace;
        self.about::<verb::AllocStop>(namespace, &stop, REQUEST_TIMEOUT).await
    }

    /// What is left of a session that has ended.
    pub(super) async fn status(&self, session: &Session) -> Result<AllocStatus, Problem> {
        let namespace = &session.target.namespace;
        let of = alloc::Status::of(session.alloc.clone());
        self.about::<verb::AllocStatus>(namespace, &of, REQUEST_TIMEOUT).await
    }

    /// A volume with its claims.
    pub(super) async fn volume(&self, key: &VolumeKey) -> Result<VolumeStatus, Problem> {
        let of = volume::Status::of(key.volume.clone());
        self.about::<verb::VolumeStatus>(&key.namespace, &of, REQUEST_TIMEOUT).await
    }

    /// The volumes of a namespace.
    pub(super) async fn volumes(&self, namespace: &Namespace) -> Result<Vec<VolumeStub>, Problem> {
        let (mut all, mut after) = (Vec::new(), None);
        let until = Instant::now() + LIST;
        for _page in 0..PAGES_MAX {
            let page = Page { limit: u32::try_from(PAGE_MAX).ok(), after: after.take() };
            let list = volume::List { page, ..volume::List::default() };
            let left = until.saturating_duration_since(Instant::now()).min(REQUEST_TIMEOUT);
            let page = self.about::<verb::VolumeList>(namespace, &list, left).await?;
            all.extend(page.volumes);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(all)
    }

    async fn about<V: Verb<To = Namespace>>(
        &self,
        namespace: &Namespace,
        request: &V::Request,
        within: Duration,
    ) -> Result<V::Reply, Problem> {
        let call = Call::within(clock::begin_trace(), within);
        self.request::<V>(namespace, request, call).await
    }

    async fn request<V: Verb>(
        &self,
        to: &V::To,
        request: &V::Request,
        call: Call,
    ) -> Result<V::Reply, Problem> {
        self.client.once::<V>(to, request, &call).await
    }
}

/// An id for the alloc of a session that begins: a new one each time.
pub(super) fn alloc_id(name: &str, random: u64) -> Option<AllocId> {
    // A name is bounded by Docker, not by us; the random part alone tells sessions apart.
    let name: String = name.chars().take(128).collect();
    AllocId::new(format!("docker/{name}/{random:016x}")).ok()
}
