//! An upgrade as an operator does it: every process is restarted, one at a time, under load, with
//! the same program or with that of another version.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use berth_bus::Call;
use berth_client::{Client, Retry};
use berth_contract::code::Code;
use berth_contract::message::{agent, alloc, claim};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb};
use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_domain::{AllocId, Namespace, NodeId, VolumeId};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System, Version};
use berth_service::clock;
use serde_json::json;

/// Clients that run allocs, each with a volume of its own.
const WORKERS: usize = 3;
/// What a client waits for one answer. Far longer than any restart takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// One client, and how far it is.
struct Worker {
    client: Client,
    number: usize,
    rounds: AtomicUsize,
}

impl Worker {
    /// Sends a request as users do: the client sends it again while the answer is "later".
    async fn send<V: Verb>(&self, to: &V::To, request: &V::Request) -> Result<V::Reply, Problem> {
        let call = Call::within(clock::begin_trace(), PATIENCE);
        let again = |failed: &berth_client::FailedTry<'_>| failed.problem.retryable;
        self.client.persist::<V>(to, request, &call, Retry::each(PATIENCE / 4), again).await
    }

    /// Runs allocs on both nodes in turn, until it is told to end.
    async fn run(&self, ends: &AtomicBool) -> Result<(), Problem> {
        while !ends.load(Ordering::Relaxed) {
            self.run_alloc(self.rounds.load(Ordering::Relaxed)).await?;
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn run_alloc(&self, round: usize) -> Result<(), Problem> {
        let namespace = Namespace::default();
        let volume = VolumeId::new(format!("v{}", self.number)).unwrap();
        let id = AllocId::new(format!("w{}-{round}", self.number)).unwrap();
        let node = NodeId::new(format!("n{}", round % 2 + 1)).unwrap();
        let volumes = vec![VolumeRequest::for_volume(volume.clone())];
        let register = alloc::Register::new(id.clone(), node.clone(), volumes);
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
        let path = std::path::Path::new(&mounted.path);
        std::fs::write(path.join("round"), round.to_string()).unwrap();
        let stop = alloc::Stop::new(id.clone(), AllocState::Complete, None);
        self.send::<verb::AllocStop>(&namespace, &stop).await?;
        let status = claim::Status { alloc: Some(id), ..claim::Status::default() };
        let freed = tokio::time::Instant::now() + PATIENCE;
        loop {
            let claims = self.send::<verb::ClaimStatus>(&namespace, &status).await?.claims;
            if claims.is_empty() {
                return Ok(());
            }
            assert!(tokio::time::Instant::now() < freed, "not released: {claims:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Waits until each client has run two allocs more: one that began before, and one after.
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
        for part in berths(options) {
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

/// Services go first, as `docs/install.md` says. So services of each version meet agents of the
/// other.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_release_is_upgraded_and_restored_and_no_client_sees_a_failure() {
    if !or_skip("real mounts") || !Version::LastRelease.is_here_or_skip() {
        return;
    }
    let options = Options { version: Version::LastRelease, replicas: 2, ..Options::default() };
    let system = System::start(options).await;
    let allocs = under_load(&system, async |workers| {
        for version in [Version::This, Version::LastRelease] {
            for part in berths(options) {
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

/// The last release cannot read what makes a volume on demand. It leaves that alone, with its
/// mount, until this version is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_made_on_demand_stays_as_it_is_while_the_last_release_is_back() {
    if !or_skip("real mounts") || !Version::LastRelease.is_here_or_skip() {
        return;
    }
    let options = Options { nodes: 1, ..Options::default() };
    let system = System::start(options).await;
    system.volume("plain", &["single-node-writer"]).await;
    system.created("made", json!({"size": "1MiB"})).await;
    let mounted = system.run("a", 0, "made").await;
    let written = || std::fs::read_to_string(std::path::Path::new(&mounted.path).join("said"));
    let write = |text: &str| {
        std::fs::write(std::path::Path::new(&mounted.path).join("said"), text).unwrap();
    };
    write("before");
    for part in berths(options) {
        system.install(part, Version::LastRelease).await;
    }
    system.healthy().await;
    assert_eq!(system.volume_status("made").await.unwrap_err().code, Code::NewerRecord);
    system.run("b", 0, "plain").await;
    system.stop("b").await;
    system.freed("plain").await;
    assert_eq!(written().unwrap(), "before", "its workload goes on");
    write("meanwhile");

    for part in berths(options) {
        system.install(part, Version::This).await;
    }
    system.healthy().await;
    assert_eq!(written().unwrap(), "meanwhile");
    system.stop("a").await;
    system.settle("made").await;
    let again = system.run("c", 0, "made").await;
    let said = std::path::Path::new(&again.path).join("said");
    assert_eq!(std::fs::read_to_string(said).unwrap(), "meanwhile");
    system.stop("c").await;
    system.settle("made").await;
    system.deleted("made").await;
    system.judge();
}

/// `berth` of both versions shows the volumes and finds no service that it cannot talk to.
async fn assert_berth_works(system: &System) {
    for version in [Version::This, Version::LastRelease] {
        for args in [["volume", "list"], ["node", "list"], ["claim", "list"]] {
            let ran = system.berth_of(version).args(args).output().await.unwrap();
            assert!(ran.status.success(), "{version:?} {args:?}: {ran:?}");
        }
    }
}

/// Services and agents, in the order of an upgrade.
fn berths(options: Options) -> impl Iterator<Item = Part> {
    Part::all(options).filter(|part| !matches!(part, Part::Nats | Part::Driver(_)))
}

/// Does this while clients run allocs, none of which may fail. Returns how many.
async fn under_load(system: &System, work: impl AsyncFnOnce(&[Worker])) -> usize {
    for number in 0..WORKERS {
        system.volume(&format!("v{number}"), &["single-node-writer"]).await;
    }
    let worker = |number| {
        let (client, rounds) = (Client::new(system.bus.clone()), AtomicUsize::new(0));
        Worker { client, number, rounds }
    };
    let workers: Vec<Worker> = (0..WORKERS).map(worker).collect();
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
