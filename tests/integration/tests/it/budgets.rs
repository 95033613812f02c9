//! What claims, mounts and an idle agent cost: messages on the bus, syncs of the agent's journal,
//! bytes of a grant. The counts do not depend on the machine.
//!
//! They grew while features came, and no measurement told: each run was compared with itself. A
//! change that needs more changes [`BUDGETS`] or [`GRANT_BYTES`] in the same commit, and says why
//! beside the number.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use berth_contract::message::claim::{Grant, Released};
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_harness::nats::{HeardMessage, Spy};
use berth_harness::otlp::Collector;
use berth_harness::root::or_skip;
use berth_integration::{Options, Part, System};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::traces::last_values;

/// The tasks with a budget, in the order of its columns.
#[derive(Debug, Clone, Copy)]
enum Task {
    /// To register an alloc and mount its volume.
    Mount,
    /// To stop the alloc and free the volume.
    Release,
    /// To take a claim for a registered alloc, without a mount.
    Take,
    /// To release that claim.
    GiveBack,
    /// `berth run` with a command that ends at once, until the volume is free.
    Run,
    /// An agent with a mount, for a minute in which nothing happens.
    IdleMinute,
}

const TASKS: usize = Task::IdleMinute as usize + 1;

/// At most so many of a kind for each task. A kind that is not listed may not occur.
#[rustfmt::skip]
const BUDGETS: &[(&str, [usize; TASKS])] = &[
    //                          mount, release, take, give back, run, idle minute
    ("request alloc.register",                  [1, 0, 0, 0, 1, 0]),
    ("request alloc.stop",                      [0, 1, 0, 0, 1, 0]),
    // `berth run` watches the alloc, the node and the mounts while the command runs.
    ("request alloc.status",                    [0, 0, 0, 0, 1, 0]),
    ("request node.status",                     [0, 0, 0, 0, 1, 0]),
    ("request agent.status",                    [0, 0, 0, 0, 1, 0]),
    ("request agent.mount",                     [1, 0, 0, 0, 1, 0]),
    ("request agent.detach",                    [0, 1, 0, 1, 1, 0]),
    ("request claim.take",                      [1, 0, 1, 0, 1, 0]),
    ("request claim.release",                   [0, 0, 0, 1, 0, 0]),
    ("request claim.observe",                   [1, 0, 0, 0, 1, 0]),
    ("request controller.publish",              [1, 0, 1, 0, 1, 0]),
    ("request controller.unpublish",            [0, 1, 0, 1, 1, 0]),
    ("request work.checkpoint",                 [0, 3, 0, 3, 3, 0]),
    ("request node.tell",                       [2, 3, 1, 3, 5, 0]),
    // Each half of the time that the lease lives.
    ("request node.hold",                       [0, 0, 0, 0, 0, 5]),
    // Each `report_interval_ms` in a small fleet.
    ("request node.report",                     [0, 0, 0, 0, 0, 7]),
    // The agent compares its mounts with the claims. Elsewhere it does so, too, and is not counted.
    ("request claim.status",                    [0, 0, 0, 0, 0, 2]),
    ("write berth-allocs",                      [1, 1, 0, 0, 2, 0]),
    // Publishing, taken, and what the agent says of the mount, if it still stands within a second.
    // Then unpublishing, node-detached, and the deletion. A release on request is a write more: no
    // alloc that ended says it.
    ("write berth-volumes",                     [3, 3, 2, 4, 6, 0]),
    ("write berth-leases",                      [0, 0, 0, 0, 0, 5]),
    ("event",                                   [5, 7, 3, 7, 12, 0]),
    ("read berth-allocs at its leader",         [3, 5, 1, 3, 9, 0]),
    // Once for each claim. Claims of a moment share it.
    ("question how far berth-allocs is",        [1, 0, 1, 0, 1, 0]),
    ("read berth-volumes at its leader",        [1, 0, 1, 0, 1, 0]),
    // The intent, staged, published. Then before the first call of the plugin, and after the last.
    (JOURNAL,                                   [3, 2, 0, 2, 5, 0]),
];

/// The kind of a change of the agent's journal, each with a sync of the disk.
const JOURNAL: &str = "sync of the agent's journal";

/// At most so many bytes of a grant, the answer to `claim.take`.
const GRANT_BYTES: &[(&str, usize)] = &[
    ("alone", 265),
    // As alone: what else is at the node does not matter.
    ("on a node with 258 claims", 265),
    // As many as are listed by their ids, here of 4 bytes, with quotes and comma.
    ("beside 256 claims on its volume", 2060),
    ("beside 257 claims on its volume", 330),
];

/// How many messages and syncs of each kind.
type Counts = BTreeMap<String, usize>;

/// A quiet machine needs one round. On a busy one, calls are tried again in some of them.
const ROUNDS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_and_a_release_cost_no_more_than_their_budgets() {
    if !or_skip("real mounts") {
        return;
    }
    let mut meter = Meter::start(Options { nodes: 1, ..Options::default() }).await;
    let (mut mounts, mut releases) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (volume, alloc) = meter.add_volume(round).await;
        meter.system.run(&alloc, 0, &volume).await;
        mounts.push(meter.count_until_quiet().await);
        meter.system.stop(&alloc).await;
        releases.push(meter.count_until_quiet().await);
        meter.is_free(&volume).await;
    }
    check(Task::Mount, &fewest(&mounts));
    check(Task::Release, &fewest(&releases));
    // A service that asks for more than its rights gets its answer later, and an alarm.
    for part in [Part::Claim, Part::Registry, Part::Watcher] {
        let log = meter.system.daemon(part).log();
        assert!(!log.contains("the server's permissions do not allow this"), "{part:?}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_without_a_mount_costs_no_more_than_its_budget() {
    if !or_skip("a driver") {
        return;
    }
    let mut meter = Meter::start(Options { nodes: 1, ..Options::default() }).await;
    let (mut taken, mut given_back) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (volume, alloc) = meter.add_volume(round).await;
        meter.system.alloc(&alloc, 0, &volume, false).await;
        meter.count_until_quiet().await;
        take(&meter.system, &alloc, &volume).await;
        taken.push(meter.count_until_quiet().await);
        let release = verb::ClaimRelease::subject(&Namespace::default());
        let claim = json!({"alloc": alloc, "volume": volume});
        meter.system.persist::<Released>(&release, &claim).await.unwrap();
        given_back.push(meter.count_until_quiet().await);
        meter.is_free(&volume).await;
    }
    check(Task::Take, &fewest(&taken));
    check(Task::GiveBack, &fewest(&given_back));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_berth_run_costs_no_more_than_its_budget() {
    if !or_skip("real mounts") {
        return;
    }
    let mut meter = Meter::start(Options { nodes: 1, ..Options::default() }).await;
    let mut runs = Vec::new();
    for round in 0..ROUNDS {
        let (volume, alloc) = meter.add_volume(round).await;
        let mut run = meter.system.berth();
        run.args(["run", "--volume", &volume, "--node", "n1", "--alloc", &alloc, "--", "true"]);
        run.env("BERTH_NATS_URL", meter.system.url()).stdin(Stdio::null());
        let output = run.output().await.expect("berth runs");
        assert!(output.status.success(), "{output:?}");
        runs.push(meter.count_until_quiet().await);
        meter.is_free(&volume).await;
    }
    check(Task::Run, &fewest(&runs));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_agent_costs_no_more_than_its_budget() {
    if !or_skip("real mounts") {
        return;
    }
    let mut meter = Meter::start(Options { lease_ttl_s: 30, nodes: 1, ..Options::default() }).await;
    let (volume, alloc) = meter.add_volume(0).await;
    meter.system.run(&alloc, 0, &volume).await;
    meter.count_until_quiet().await;
    sleep(Duration::from_secs(60)).await;
    let counts = meter.count(kind_of_idle_agent);
    check(Task::IdleMinute, &counts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_has_no_more_bytes_than_its_budget() {
    if !or_skip("a driver") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    for volume in ["v001", "v002"] {
        system.volume(volume, &["single-node-writer"]).await;
    }
    system.volume("many", &["multi-node-reader-only"]).await;
    let readers: Vec<String> = (1..=258).map(|number| format!("r{number:03}")).collect();
    join_all(readers.iter().map(|alloc| system.alloc(alloc, 0, "many", true))).await;
    system.alloc("a001", 0, "v001", false).await;
    system.alloc("a002", 0, "v002", false).await;

    let spy = Spy::listen(&system.servers()[0]).await;
    let mut bytes = vec![grant_bytes(&system, &spy, "a001", "v001").await];
    let mut of_readers = Vec::new();
    for alloc in &readers {
        of_readers.push(grant_bytes(&system, &spy, alloc, "many").await);
    }
    bytes.push(grant_bytes(&system, &spy, "a002", "v002").await);
    bytes.extend(&of_readers[256..]);
    let over = GRANT_BYTES.iter().zip(&bytes).filter(|((_, budget), bytes)| *bytes > budget);
    let over: Vec<_> = over.collect();
    assert!(over.is_empty(), "grants larger than their budgets, which are listed first: {over:?}");
}

/// Takes a claim, and returns the bytes of the grant as the server passed it on.
async fn grant_bytes(system: &System, spy: &Spy, alloc: &str, volume: &str) -> usize {
    spy.take();
    take(system, alloc, volume).await;
    let mut heard = Vec::new();
    // On a busy machine the spy hears late.
    for _ in 0..1500 {
        heard.extend(spy.take());
        if let Some(bytes) = find_grant(&heard) {
            return bytes;
        }
        sleep(Duration::from_millis(20)).await;
    }
    let subjects: Vec<_> = heard.iter().map(|it| (&it.subject, &it.reply)).collect();
    panic!("the grant was not heard: {subjects:#?}");
}

fn find_grant(heard: &[HeardMessage]) -> Option<usize> {
    let is_take = |message: &&HeardMessage| message.subject.starts_with("berth.v1.claim.take.");
    let replies: Vec<_> = heard.iter().filter(is_take).map(|take| &take.reply).collect();
    let mut answers = heard.iter().filter(|message| {
        replies.iter().any(|reply| reply.as_ref() == Some(&message.subject))
            && serde_json::from_slice::<Grant>(&message.payload).is_ok()
    });
    answers.next().map(|grant| grant.payload.len())
}

async fn take(system: &System, alloc: &str, volume: &str) {
    let subject = verb::ClaimTake::subject(&Namespace::default());
    let take = json!({"alloc": alloc, "volume": volume, "node": "n1"});
    system.persist::<Grant>(&subject, &take).await.expect("the claim is granted");
}

/// A system whose messages and syncs are counted.
struct Meter {
    system: System,
    spy: Spy,
    collector: Collector,
    /// The syncs that were counted so far.
    syncs: usize,
}

impl Meter {
    async fn start(options: Options) -> Self {
        let collector = Collector::start().await;
        let otlp = collector.http().rsplit(':').next().and_then(|port| port.parse().ok());
        let system = System::start(Options { otlp, ..options }).await;
        let spy = Spy::listen(&system.servers()[0]).await;
        Self { system, spy, collector, syncs: 0 }
    }

    /// Registers the volume of a round; returns its id, and one for its alloc.
    async fn add_volume(&mut self, round: usize) -> (String, String) {
        let (volume, alloc) = (format!("v{round}"), format!("a{round}"));
        self.system.volume(&volume, &["single-node-writer"]).await;
        self.count_until_quiet().await;
        (volume, alloc)
    }

    async fn is_free(&self, volume: &str) {
        let claims = self.system.claims(volume).await.claims;
        assert!(claims.is_empty(), "{volume} has claims: {claims:?}");
    }

    /// Counts until nothing of a job is sent for a second: longer than between two exports of
    /// metrics.
    async fn count_until_quiet(&mut self) -> Counts {
        let mut counts = Counts::new();
        loop {
            sleep(Duration::from_secs(1)).await;
            let more = self.count(kind_of_job);
            if more.is_empty() {
                return counts;
            }
            for (kind, count) in more {
                *counts.entry(kind).or_default() += count;
            }
        }
    }

    /// Counts what happened since the last time.
    fn count(&mut self, kind: fn(&HeardMessage) -> Option<String>) -> Counts {
        let mut counts = Counts::new();
        for kind in self.spy.take().iter().filter_map(kind) {
            *counts.entry(kind).or_default() += 1;
        }
        let values = last_values(&self.collector, "berth-node-agent", "berth.journal.writes");
        let syncs: f64 = values.unwrap_or_default().into_values().sum();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let syncs = syncs as usize;
        if syncs > self.syncs {
            counts.insert(JOURNAL.to_owned(), syncs - self.syncs);
            self.syncs = syncs;
        }
        counts
    }
}

fn check(task: Task, counts: &Counts) {
    let allowed = |kind: &str| {
        let row = BUDGETS.iter().find(|(of, _)| *of == kind);
        row.map_or(0, |(_, budgets)| budgets[task as usize])
    };
    let over: Vec<_> = counts.iter().filter(|(kind, count)| **count > allowed(kind)).collect();
    assert!(over.is_empty(), "{task:?} costs more than its budget: {over:?} of {counts:?}");
    let expected = BUDGETS.iter().filter(|(_, budgets)| budgets[task as usize] > 0).count();
    assert!(counts.len() * 2 > expected, "something was counted: {counts:?}");
}

/// The kind of a message that an idle agent causes.
fn kind_of_idle_agent(heard: &HeardMessage) -> Option<String> {
    let tokens: Vec<&str> = heard.subject.split('.').collect();
    match *tokens.as_slice() {
        ["$KV", bucket @ ("berth-nodes" | "berth-plugins"), ..]
        | ["$KV", bucket @ "berth-leases", "node", ..] => Some(format!("write {bucket}")),
        ["berth", "v1", "event", ..] => Some("event".to_owned()),
        ["berth", "v1", service, verb, .., "node", _] => Some(format!("request {service}.{verb}")),
        _ => None,
    }
}

/// The kind of a message that a job causes; none of what is sent now and then anyway.
fn kind_of_job(heard: &HeardMessage) -> Option<String> {
    let tokens: Vec<&str> = heard.subject.split('.').collect();
    match *tokens.as_slice() {
        // A write that cannot pass.
        ["$KV", bucket, "newest"] => Some(format!("question how far {bucket} is")),
        ["$KV", bucket @ ("berth-volumes" | "berth-allocs"), ..] => Some(format!("write {bucket}")),
        ["$JS", "API", "STREAM", "MSG", "GET", _] => {
            let asked: Value = serde_json::from_slice(&heard.payload).ok()?;
            let key = asked["last_by_subj"].as_str()?.strip_prefix("$KV.")?;
            let (bucket, key) = key.split_once('.')?;
            // Mirrors ask for the newest message of all now and then.
            let is_of_job = ["berth-volumes", "berth-allocs"].contains(&bucket) && key != ">";
            is_of_job.then(|| format!("read {bucket} at its leader"))
        }
        ["berth", "v1", "event", ..] => Some("event".to_owned()),
        ["berth", "v1", "agent", _, "controller", _, verb, ..] => {
            Some(format!("request controller.{verb}"))
        }
        ["berth", "v1", "agent", _, verb, ..] => Some(format!("request agent.{verb}")),
        // A lease, a report, a comparison of mounts with claims, and a sweep of the collector.
        ["berth", "v1", "node", "hold" | "report", ..]
        | ["berth", "v1", "claim", "status", ..]
        | ["berth", "v1", .., "service", "gc"] => None,
        ["berth", "v1", service, verb, ..] => Some(format!("request {service}.{verb}")),
        _ => None,
    }
}

/// The least number of each kind in any round.
fn fewest(rounds: &[Counts]) -> Counts {
    let mut fewest = rounds[0].clone();
    for round in rounds {
        for (kind, count) in &mut fewest {
            *count = (*count).min(round.get(kind).copied().unwrap_or(0));
        }
    }
    fewest.retain(|_, count| *count > 0);
    fewest
}
