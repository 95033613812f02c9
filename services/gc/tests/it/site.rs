//! One nats-server, some collectors, a claim service if needed, and records that the test writes.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_bus::{Bus, Call, Change, Config, Guard, RequestError, Write};
use berth_contract::bucket::{self, BucketSpec};
use berth_contract::message::claim::{Claims, ListClaims};
use berth_contract::message::collect::{Force, Sweep};
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_contract::{key, record};
use berth_domain::access::{AccessMode, AttachmentMode, Capability, Mode};
use berth_domain::alloc::{Alloc, AllocState, VolumeRequest};
use berth_domain::volume::{Claim, Closing, State, VolumeSpec};
use berth_domain::{AllocId, Namespace, NodeId, PluginId, Timestamp, VolumeId, VolumeKey};
use berth_harness::dirs::Dir;
use berth_harness::nats::Server;
use berth_harness::process::{Daemon, Program};
use berth_harness::wait;
use berth_service::clock;
use serde_json::{Value, json};

/// The deadline of each wait, which only a failing test reaches.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The configuration of the collectors of a test.
#[derive(Clone, Copy)]
pub struct Pace {
    pub interval_ms: u64,
    pub grace_ms: u64,
    pub lease_ttl_s: u64,
}

/// A collector that sweeps on request only.
pub const ON_DEMAND: Pace = Pace { interval_ms: 3_600_000, grace_ms: 3_600_000, lease_ttl_s: 2 };

impl Pace {
    fn of(self, program: Program) -> Program {
        program
            .env("BERTH__GC__INTERVAL_MS", self.interval_ms.to_string())
            .env("BERTH__GC__GRACE_MS", self.grace_ms.to_string())
            .env("BERTH__GC__LEASE_TTL_S", self.lease_ttl_s.to_string())
    }
}

/// A bus with the services of a test; it ends with the test.
pub struct Site {
    // The fields are dropped in this order.
    pub collectors: Vec<Daemon>,
    claim: Option<Daemon>,
    registry: Option<Daemon>,
    pub bus: Bus,
    pub server: Server,
    dir: Dir,
}

impl Site {
    /// Starts a server and this many collectors, and waits until one of them leads.
    pub async fn start(collectors: usize, pace: Pace) -> Self {
        let mut site = Self::new().await;
        site.start_collectors(collectors, pace);
        site.led().await;
        site
    }

    /// Starts a server only.
    pub async fn new() -> Self {
        let server = Server::start().await;
        let bus =
            Bus::connect(Config::new([server.url()], "test/host/1").insecure()).await.unwrap();
        let dir = Dir::new("gc");
        Self { collectors: vec![], claim: None, registry: None, bus, server, dir }
    }

    /// Starts this many collectors.
    pub fn start_collectors(&mut self, collectors: usize, pace: Pace) {
        for at in 0..collectors {
            let program = Program::service("berth-gc", &format!("gc-{at}"), &self.dir);
            let program = pace.of(program.on_bus(self.server.url(), 1));
            self.collectors.push(program.start());
        }
    }

    /// Starts the claim service, and waits until it answers.
    pub async fn start_claim(&mut self) {
        let program = Program::service("berth-claim", "claim", &self.dir);
        self.claim = Some(program.on_bus(self.server.url(), 1).start());
        let subject = verb::ClaimStatus::subject(&namespace());
        wait::until("the claim service answers", PATIENCE, async || {
            let call = Call::within(trace(), Duration::from_secs(1));
            self.bus.request::<Claims>(&subject, &ListClaims::default(), &call).await
        })
        .await;
    }

    /// Starts the plugin registry, and waits until it answers.
    pub async fn start_registry(&mut self) {
        let program = Program::service("berth-plugin-registry", "registry", &self.dir);
        self.registry = Some(program.on_bus(self.server.url(), 1).start());
        let subject = verb::NodeStatus::subject(&());
        wait::until("the registry answers", PATIENCE, async || {
            let call = Call::within(trace(), Duration::from_secs(1));
            self.bus.request::<Value>(&subject, &json!({}), &call).await
        })
        .await;
    }

    /// Sweeps now, with the default options.
    pub async fn force(&self) -> Result<Sweep, RequestError> {
        self.force_with(&Force::default()).await
    }

    /// Sweeps now.
    pub async fn force_with(&self, force: &Force) -> Result<Sweep, RequestError> {
        let call = Call::within(trace(), Duration::from_secs(5));
        self.bus.request(&verb::GcForce::subject(&()), force, &call).await
    }

    /// Whether the key has a value.
    pub async fn stands(&self, spec: &BucketSpec, key: &str) -> bool {
        let bucket = self.bus.bucket(spec, 1).await.unwrap();
        bucket.get(key).await.unwrap().is_some_and(|entry| entry.value.is_some())
    }

    /// Waits until a leader answers.
    pub async fn led(&self) {
        wait::until("a collector leads", PATIENCE, async || self.force().await).await;
    }

    /// The index of the collector that holds the lease.
    pub async fn leader(&self) -> Option<usize> {
        let leases = self.bus.bucket(&bucket::LEASES, 1).await.unwrap();
        let value = leases.get(&key::leader_lease("gc")).await.unwrap()?.value?;
        let value: Value = serde_json::from_slice(&value).unwrap();
        let holder = value["holder"].as_str().unwrap();
        let pid: u32 = holder.rsplit('/').next().unwrap().parse().unwrap();
        self.collectors.iter().position(|collector| collector.pid() == pid)
    }

    /// Writes a record over any other.
    pub async fn plant(&self, spec: &BucketSpec, key: &str, value: Vec<u8>) -> u64 {
        let bucket = self.bus.bucket(spec, 1).await.unwrap();
        let revision = bucket.head(key).await.unwrap();
        let write = Write {
            key,
            change: Change::Put(value.into()),
            guard: Guard { filter: key, revision },
            operation: "test",
            trace: trace(),
        };
        bucket.commit(write).await.unwrap()
    }

    pub async fn plant_alloc(&self, id: &str, state: AllocState) {
        self.plant_alloc_since(id, state, clock::now()).await;
    }

    /// Writes an alloc on n1 that requested the volume `data`.
    pub async fn plant_alloc_since(&self, id: &str, state: AllocState, since: Timestamp) {
        let alloc = Alloc {
            state,
            node: NodeId::new("n1").unwrap(),
            index: None,
            volumes: vec![VolumeRequest::for_volume(VolumeId::new("data").unwrap())],
            since,
            note: None,
            by: None,
            owner: None,
            meta: BTreeMap::new(),
        };
        let key = key::alloc(&namespace(), &alloc_id(id));
        self.plant(&bucket::ALLOCS, &key, record::write(alloc, None).unwrap()).await;
    }

    pub async fn plant_volume(&self, id: &str, closing: Option<Closing>) {
        let spec = VolumeSpec {
            closing: closing.map(Box::new),
            capabilities: vec![CAPABILITY].into(),
            ..VolumeSpec::empty(&PluginId::new("p").unwrap())
        };
        let key = key::spec(&volume(id));
        self.plant(&bucket::VOLUMES, &key, record::write(spec, None).unwrap()).await;
    }

    /// Writes a claim and returns its epoch.
    pub async fn plant_claim(&self, id: &str, alloc: &str, state: State) -> u64 {
        let value = record::write(claim(state), None).unwrap();
        let key = key::claim(&volume(id), &alloc_id(alloc));
        self.plant(&bucket::VOLUMES, &key, value).await
    }

    /// The stored claim.
    pub async fn claim(&self, id: &str, alloc: &str) -> Option<Claim> {
        let volumes = self.bus.bucket(&bucket::VOLUMES, 1).await.unwrap();
        let key = key::claim(&volume(id), &alloc_id(alloc));
        let value = volumes.get(&key).await.unwrap()?.value?;
        Some(record::read::<Claim>(&value).unwrap().body)
    }

    /// Whether the volume is registered.
    pub async fn volume_stands(&self, id: &str) -> bool {
        let volumes = self.bus.bucket(&bucket::VOLUMES, 1).await.unwrap();
        let entry = volumes.get(&key::spec(&volume(id))).await.unwrap();
        entry.is_some_and(|entry| entry.value.is_some())
    }
}

const CAPABILITY: Capability =
    Capability { access: AccessMode::MultiNodeMultiWriter, attachment: AttachmentMode::FileSystem };

fn claim(state: State) -> Claim {
    let since = Timestamp::from_unix_ms(1_700_000_000_000);
    Claim::new(state, NodeId::new("n1").unwrap(), Mode::Write, CAPABILITY, since)
}

pub fn namespace() -> Namespace {
    Namespace::new("team/a").unwrap()
}

pub fn volume(id: &str) -> VolumeKey {
    VolumeKey::new(namespace(), VolumeId::new(id).unwrap())
}

pub fn alloc_id(id: &str) -> AllocId {
    AllocId::new(id).unwrap()
}

pub fn trace() -> TraceContext {
    TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap()
}
