//! Workloads that come and go while processes are killed at random: at the end everything is at
//! rest, and the drivers' logs show nothing a CO must never do. `BERTH_CHAOS_SECONDS` says for how
//! long, `BERTH_CHAOS_SERVERS=3` that it be on three servers with two of each service.

use std::time::{Duration, Instant};

use berth_harness::root::or_skip;
use berth_integration::{Options, Part, System};
use serde_json::json;

const VOLUMES: [(&str, &str); 3] = [
    ("one", "single-node-writer"),
    ("node", "single-node-multi-writer"),
    ("many", "multi-node-multi-writer"),
];

const PARTS: [Part; 9] = [
    Part::Nats,
    Part::Claim,
    Part::Registry,
    Part::Watcher,
    Part::Gc,
    Part::Agent(0),
    Part::Agent(1),
    Part::Driver(0),
    Part::Driver(1),
];

const RPCS: [&str; 6] = [
    "ControllerPublishVolume",
    "ControllerUnpublishVolume",
    "NodeStageVolume",
    "NodePublishVolume",
    "NodeUnpublishVolume",
    "NodeUnstageVolume",
];

/// A small generator, so that a run can be told by its seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % below
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_come_and_go_while_processes_are_killed() {
    if !or_skip("real mounts") {
        return;
    }
    let until = Instant::now() + Duration::from_secs(given("BERTH_CHAOS_SECONDS", 20));
    let seed = berth_service::clock::now().unix_ms();
    println!("seed {seed}");
    let servers = usize::try_from(given("BERTH_CHAOS_SERVERS", 1)).unwrap();
    let replicas = if servers == 1 { 1 } else { 2 };
    let options = Options { call_timeout_ms: 2_000, servers, replicas, ..Options::default() };
    let system = System::start(options).await;
    for (volume, access) in VOLUMES {
        system.volume(volume, &[access]).await;
    }
    let workers = (0..6).map(|worker| work(&system, worker, Dice(seed + worker as u64), until));
    let (mounts, kills) = tokio::join!(
        futures_join(workers.collect()),
        kill(&system, Dice(seed ^ 0xdead_beef), until)
    );
    println!("{mounts} mounts, {kills} kills");
    // All are freed before anything is said of the mounts: they are looked at together.
    for (volume, _) in VOLUMES {
        system.freed(volume).await;
    }
    for (volume, _) in VOLUMES {
        system.settle(volume).await;
    }
    assert!(mounts > 0, "nothing was mounted at all");
}

fn given(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

async fn futures_join(work: Vec<impl Future<Output = usize>>) -> usize {
    let mut work: Vec<_> = work.into_iter().map(Box::pin).collect();
    let mut done = 0;
    std::future::poll_fn(|context| {
        work.retain_mut(|one| match one.as_mut().poll(context) {
            std::task::Poll::Ready(mounts) => {
                done += mounts;
                false
            }
            std::task::Poll::Pending => true,
        });
        if work.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done
}

/// One alloc after another: each gets a volume or is refused, holds it for a moment, and ends.
async fn work(system: &System, worker: usize, mut dice: Dice, until: Instant) -> usize {
    let mut mounts = 0;
    let mut round = 0;
    while Instant::now() < until {
        round += 1;
        let (volume, _) = VOLUMES[dice.next(VOLUMES.len())];
        let node = dice.next(2);
        let alloc = format!("w{worker}-{round}");
        system.alloc(&alloc, node, volume, false).await;
        match system.mount(&alloc, node, volume).await {
            Ok(mounted) => {
                mounts += 1;
                std::fs::write(format!("{}/{alloc}", mounted.path), &alloc).unwrap();
                tokio::time::sleep(Duration::from_millis(dice.next(300) as u64)).await;
            }
            Err(problem) => assert!(problem.message.contains("held"), "{problem}"),
        }
        system.stop(&alloc).await;
    }
    mounts
}

/// Kills one process after another, and plants a delay or a failure now and then.
async fn kill(system: &System, mut dice: Dice, until: Instant) -> usize {
    let mut kills = 0;
    while Instant::now() < until {
        let fault = json!([{
            "rpc": RPCS[dice.next(RPCS.len())],
            "when": if dice.next(2) == 0 { "before" } else { "after" },
            "delay_ms": dice.next(1_500),
            "code": if dice.next(2) == 0 { json!("UNAVAILABLE") } else { json!(null) },
            "times": 1 + dice.next(3),
        }]);
        system.plant(dice.next(2), &fault);
        tokio::time::sleep(Duration::from_millis(300 + dice.next(1_200) as u64)).await;
        system.kill9_and_restart(PARTS[dice.next(PARTS.len())]).await;
        kills += 1;
    }
    for node in 0..2 {
        system.plant(node, &json!([]));
    }
    kills
}
