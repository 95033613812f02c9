//! An upgrade as an operator does it: every process is restarted, one at a time, under load, with
//! the same program or with that of another version.

use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use berth_bus::Call;
use berth_client::{Client, Retry};
use berth_contract::code::Code;
use berth_contract::message::{agent, alloc, claim};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb};
use berth_domain::access::AttachmentMode;
use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_domain::volume::storage::{SnapshotState, Stage};
use berth_domain::{AllocId, Namespace, NodeId, VolumeId};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System, Version};
use berth_service::clock;
use serde_json::json;

/// The volumes of the clients' allocs: one client for each volume, and two for the shared one.
const VOLUMES: [Kind; 5] = [
    Kind { source: "plain", ..Kind::PLAIN },
    Kind { source: "each", per_alloc: true, ..Kind::PLAIN },
    Kind { source: "block", block: true, ..Kind::PLAIN },
    Kind { source: "shared", access: "multi-node-multi-writer", ..Kind::PLAIN },
    Kind { source: "shared", access: "multi-node-multi-writer", ..Kind::PLAIN },
];
/// How long a client waits for one answer. Far longer than any restart takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A kind of registered volume.
#[derive(Debug, Clone, Copy)]
struct Kind {
    /// The name in requests.
    source: &'static str,
    access: &'static str,
    per_alloc: bool,
    block: bool,
}

impl Kind {
    const PLAIN: Self =
        Self { source: "", access: "single-node-writer", per_alloc: false, block: false };

    fn volume(self) -> VolumeId {
        let id =
            if self.per_alloc { format!("{}[0]", self.source) } else { self.source.to_owned() };
        VolumeId::new(id).unwrap()
    }

    fn request(self) -> VolumeRequest {
        let source = VolumeId::new(self.source).unwrap();
        let attachment = self.block.then_some(AttachmentMode::BlockDevice);
        let request = VolumeRequest::for_volume(source);
        VolumeRequest { per_alloc: self.per_alloc, attachment, ..request }
    }

    async fn register(self, system: &System) {
        let volume = self.volume();
        if self.block {
            system.volume_of_block(volume.as_str()).await;
        } else {
            system.volume(volume.as_str(), &[self.access]).await;
        }
    }
}

/// One client, and how many rounds it has done.
struct Worker {
    client: Client,
    number: usize,
    kind: Kind,
    rounds: AtomicUsize,
}

impl Worker {
    /// Sends a request as users do: the client repeats it while the refusal is retryable.
    async fn send<V: Verb>(&self, to: &V::To, request: &V::Request) -> Result<V::Reply, Problem> {
        let call = Call::within(clock::begin_trace(), PATIENCE);
        let is_retryable = |failed: &berth_client::FailedTry<'_>| failed.problem.retryable;
        self.client.persist::<V>(to, request, &call, Retry::each(PATIENCE / 4), is_retryable).await
    }

    /// Runs allocs on both nodes in turn, until `ends` is set.
    async fn run(&self, ends: &AtomicBool) -> Result<(), Problem> {
        while !ends.load(Ordering::Relaxed) {
            self.run_alloc(self.rounds.load(Ordering::Relaxed)).await?;
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes the round's number into the volume, which must contain that of the previous round.
    fn write(&self, mounted: &std::path::Path, round: usize) {
        let path = if self.kind.block {
            mounted.to_owned()
        } else {
            mounted.join(format!("round-{}", self.number))
        };
        let mut file = std::fs::OpenOptions::new();
        file.read(true).write(true).create(!self.kind.block).truncate(false);
        let file = file.open(path).unwrap();
        let mut before = [0; 8];
        let read = file.read_at(&mut before, 0).unwrap();
        let expected = (round as u64).to_be_bytes();
        assert!(read == 0 || before == expected, "{:?}: round {round} has {before:?}", self.kind);
        assert!(round == 0 || read > 0, "{:?}: round {round} finds nothing", self.kind);
        file.write_all_at(&(round as u64 + 1).to_be_bytes(), 0).unwrap();
        file.sync_all().unwrap();
    }

    async fn run_alloc(&self, round: usize) -> Result<(), Problem> {
        let namespace = Namespace::default();
        let volume = self.kind.volume();
        let id = AllocId::new(format!("w{}-{round}", self.number)).unwrap();
        let node = NodeId::new(format!("n{}", round % 2 + 1)).unwrap();
        let register = alloc::RegisterAlloc {
            index: Some(0),
            ..alloc::RegisterAlloc::new(id.clone(), node.clone(), vec![self.kind.request()])
        };
        self.send::<verb::AllocRegister>(&namespace, &register).await?;
        let mount = agent::Mount {
            namespace: namespace.clone(),
            alloc: id.clone(),
            volume: volume.clone(),
            wait: true,
            alias: None,
            path: None,
        };
        let to = verb::NodeAndNamespace::any_of(node);
        let mounted = self.send::<verb::AgentMount>(&to, &mount).await?;
        self.write(std::path::Path::new(&mounted.path), round);
        let stop = alloc::StopAlloc::new(id.clone(), AllocState::Complete, None);
        self.send::<verb::AllocStop>(&namespace, &stop).await?;
        let status = claim::ListClaims { alloc: Some(id), ..claim::ListClaims::default() };
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let claims = self.send::<verb::ClaimStatus>(&namespace, &status).await?.claims;
            if claims.is_empty() {
                return Ok(());
            }
            assert!(tokio::time::Instant::now() < deadline, "not released: {claims:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Waits until each client has run two more allocs: one that began before, and one after.
async fn work_goes_on(workers: &[Worker]) {
    let rounds = |worker: &Worker| worker.rounds.load(Ordering::Relaxed);
    let before: Vec<usize> = workers.iter().map(rounds).collect();
    wait::until("every client goes on", PATIENCE, async || {
        let now: Vec<usize> = workers.iter().map(rounds).collect();
        let goes_on = now.iter().zip(&before).all(|(now, before)| *now >= before + 2);
        if goes_on { Ok(()) } else { Err(format!("{before:?}, and now {now:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_process_is_restarted_in_turn_and_no_client_sees_a_failure() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { servers: 3, replicas: 2, ..Options::default() };
    let system = System::start(options).await;
    let allocs = under_load(&system, async |workers| {
        for part in Part::all(options).filter(|part| *part != Part::Nats) {
            system.install(part, Version::This).await;
            system.healthy().await;
            work_goes_on(workers).await;
        }
        for server in system.servers() {
            server.terminate().await;
            server.restart().await;
            system.healthy().await;
            work_goes_on(workers).await;
        }
    })
    .await;
    println!("{allocs} allocs");
}

/// In an upgrade, services go first; in a downgrade, last (`docs/install.md`). In the middle,
/// services and agents of both versions run.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_release_is_upgraded_and_restored_and_no_client_sees_a_failure() {
    if !or_skip("real mounts") || !Version::LastRelease.is_here_or_skip() {
        return;
    }
    let options = Options { version: Version::LastRelease, replicas: 2, ..Options::default() };
    let system = System::start(options).await;
    let allocs = under_load(&system, async |workers| {
        let (upgrade_order, mut downgrade_order) = (upgrade(options), upgrade(options));
        downgrade_order.reverse();
        for (version, order) in
            [(Version::This, upgrade_order), (Version::LastRelease, downgrade_order)]
        {
            for part in order {
                system.install(part, version).await;
                system.healthy().await;
                work_goes_on(workers).await;
                assert_berth_works(&system).await;
            }
        }
    })
    .await;
    println!("{allocs} allocs");
}

/// A mount that lives through an upgrade.
struct HeldMount {
    alloc: &'static str,
    path: std::path::PathBuf,
}

impl HeldMount {
    async fn of(system: &System, alloc: &'static str, volume: &str) -> Self {
        let path = std::path::PathBuf::from(system.run(alloc, 0, volume).await.path).join(alloc);
        let mount = Self { alloc, path };
        mount.write("before");
        mount
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.path, text).unwrap();
    }

    fn has(&self, text: &str) {
        assert_eq!(std::fs::read_to_string(&self.path).unwrap(), text, "{}", self.alloc);
    }
}

/// Volumes of every kind that is created on demand, some with operations under way.
const ON_DEMAND: [&str; 6] = ["made", "bound", "many", "first", "grown", "source"];

async fn make_on_demand(system: &System) -> Vec<HeldMount> {
    let size = || json!({"size": "1MiB"});
    for volume in ["made", "grown", "source"] {
        system.created(volume, size()).await;
    }
    system.created("bound", json!({"size": "1MiB", "topology": [{"host": "h1"}]})).await;
    let access = json!([{"access": "multi-node-multi-writer"}]);
    system.created("many", json!({"size": "1MiB", "capability": access})).await;
    let first = json!({"size": "1MiB", "topology_policy": "first-use"});
    system.create("first", first).await.unwrap();
    system.snapshot(&["source"], "monday", json!({})).await.unwrap();
    system.snapshot(&["source", "made"], "group", json!({})).await.unwrap();
    for (volume, snapshot) in [("source", "monday"), ("source", "group"), ("made", "group")] {
        system.snapshot_is(volume, snapshot, SnapshotState::Ready).await;
    }
    system.plant(0, &json!([{"rpc": "ControllerExpandVolume", "code": "UNAVAILABLE"}]));
    system.expand("grown", json!({"size": "4MiB"})).await.unwrap();
    let mut mounts = Vec::new();
    for (alloc, volume) in
        [("a", "made"), ("b", "bound"), ("c", "many"), ("d", "many"), ("e", "grown")]
    {
        mounts.push(HeldMount::of(system, alloc, volume).await);
    }
    mounts
}

/// The last release cannot read records of volumes that are created on demand. It leaves the
/// volumes and their mounts alone until this version is back, in any order of the processes.
#[tokio::test(flavor = "multi_thread")]
async fn volumes_made_on_demand_stay_as_they_are_while_the_last_release_is_back() {
    if !or_skip("real mounts") || !Version::LastRelease.is_here_or_skip() {
        return;
    }
    let driver = |_| vec!["--topology".to_owned(), "host=h1".to_owned()];
    let options = Options { nodes: 1, driver, ..Options::default() };
    let system = System::start(options).await;
    system.volume("plain", &["single-node-writer"]).await;
    let mounts = make_on_demand(&system).await;
    let (mut downgrade_order, mut upgrade_order) = (upgrade(options), upgrade(options));
    downgrade_order.reverse();
    // Agents first, and the claim service last.
    upgrade_order.reverse();
    for part in downgrade_order {
        system.install(part, Version::LastRelease).await;
    }
    system.healthy().await;
    for volume in ON_DEMAND {
        assert_eq!(system.volume_status(volume).await.unwrap_err().code, Code::NewerRecord);
    }
    system.run("p", 0, "plain").await;
    system.stop("p").await;
    system.freed("plain").await;
    for mount in &mounts {
        mount.has("before");
        mount.write("meanwhile");
    }
    system.let_go();

    for part in upgrade_order {
        system.install(part, Version::This).await;
        for mount in &mounts {
            mount.has("meanwhile");
        }
    }
    system.healthy().await;
    system.staged_as("grown", Stage::Ready).await;
    assert_eq!(system.volume_status("grown").await.unwrap().capacity_bytes, Some(4 << 20));
    system.run("f", 0, "first").await;
    for alloc in mounts.iter().map(|mount| mount.alloc).chain(["f"]) {
        system.stop(alloc).await;
    }
    for volume in ON_DEMAND {
        system.freed(volume).await;
    }
    let mounted = system.run("g", 0, "made").await;
    let file = std::path::Path::new(&mounted.path).join("a");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "meanwhile");
    system.stop("g").await;
    system.settle("made").await;
    system.snapshot_deleted("source", "group", true).await;
    system.snapshot_deleted("source", "monday", false).await;
    for volume in ON_DEMAND {
        system.deleted(volume).await;
    }
    system.assert_known().await;
    system.judge();
}

/// Checks that `berth` of both versions lists volumes, nodes and claims.
async fn assert_berth_works(system: &System) {
    for version in [Version::This, Version::LastRelease] {
        for args in [["volume", "list"], ["node", "list"], ["claim", "list"]] {
            let output = system.berth_of(version).args(args).output().await.unwrap();
            assert!(output.status.success(), "{version:?} {args:?}: {output:?}");
        }
    }
}

/// Services and agents in the order of an upgrade, one host after the other.
fn upgrade(options: Options) -> Vec<Part> {
    let is_on_second_host = |part: &Part| {
        let second = [Part::SecondClaim, Part::SecondRegistry, Part::SecondWatcher, Part::SecondGc];
        second.contains(part) || *part == Part::Agent(1)
    };
    let (second, first): (Vec<_>, Vec<_>) = berths(options).partition(is_on_second_host);
    first.into_iter().chain(second).collect()
}

/// Services and agents.
fn berths(options: Options) -> impl Iterator<Item = Part> {
    Part::all(options).filter(|part| !matches!(part, Part::Nats | Part::Driver(_)))
}

/// Does some work while clients run allocs, none of which may fail. Returns the number of allocs.
async fn under_load(system: &System, work: impl AsyncFnOnce(&[Worker])) -> usize {
    let mut workers = Vec::new();
    for (number, kind) in VOLUMES.into_iter().enumerate() {
        kind.register(system).await;
        let (client, rounds) = (Client::new(system.bus.clone()), AtomicUsize::new(0));
        workers.push(Worker { client, number, kind, rounds });
    }
    let ends = AtomicBool::new(false);
    let load = futures_util::future::try_join_all(workers.iter().map(|worker| worker.run(&ends)));
    let work = async {
        work_goes_on(&workers).await;
        work(&workers).await;
        ends.store(true, Ordering::Relaxed);
    };
    let (load, ()) = tokio::join!(load, work);
    load.unwrap();
    system.judge();
    workers.iter().map(|worker| worker.rounds.load(Ordering::Relaxed)).sum()
}
