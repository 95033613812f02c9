//! A long line for one volume, at two replicas of the claim service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_bus::{Bucket, Call, Fold, Mirror, MirrorOptions};
use berth_contract::bucket;
use berth_contract::code::Code;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_harness::proxy::{Passed, Point, Side};
use berth_harness::wait;
use berth_integration::{Options, Part, RECOVERY, System};
use berth_service::clock;
use futures_util::future::{Either, join_all, select};
use serde_json::{Value, json};

/// How long a waiter waits for the answer to one request, as agents do.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Requests that each waiter repeats on average while nothing moves.
const REPEATED: usize = 3;
/// Changes of a volume for one hand-over, besides places in line: the next claim, the step in which
/// the last one is released, and its end. One more for a step that is retried on a slow machine.
const CHANGES_PER_HAND_OVER: usize = 4;

/// A system without controllers: a hand-over is then three changes of the volume.
fn options() -> Options {
    Options { attach: false, replicas: 2, cables: true, ..Options::default() }
}

/// Counts the changes of claims that move the line.
struct Moves(Arc<AtomicUsize>);

impl Fold for Moves {
    fn put(&mut self, _key: &str, _revision: u64, value: &[u8]) {
        let claim: Value = serde_json::from_slice(value).unwrap_or_default();
        let is_move = claim["state"] != "waiting";
        self.0.fetch_add(usize::from(is_move), Ordering::SeqCst);
    }

    fn delete(&mut self, _key: &str, _revision: u64) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// What waiters were told.
#[derive(Default)]
struct Answers {
    refused: AtomicUsize,
    codes: Mutex<BTreeMap<Code, usize>>,
    /// The allocs with a turn, in order.
    served: Mutex<Vec<String>>,
}

impl Answers {
    fn forget_refusals(&self) {
        self.refused.store(0, Ordering::SeqCst);
        self.codes.lock().unwrap().clear();
    }
}

fn alloc(number: usize) -> String {
    format!("a{number}")
}

/// Repeats the request of a waiter until it has the volume.
async fn take(system: &System, number: usize, answers: &Answers) {
    let node = format!("n{}", number % system.options.nodes + 1);
    let take = json!({"alloc": alloc(number), "volume": "data", "node": node, "wait": true});
    let subject = verb::ClaimTake::subject(&Namespace::default());
    loop {
        let call = Call::within(clock::begin_trace(), REQUEST_TIMEOUT);
        match system.bus.request::<Value>(&subject, &take, &call).await {
            Ok(_) => return answers.served.lock().unwrap().push(alloc(number)),
            Err(error) => {
                let code = error.into_problem("test").code;
                *answers.codes.lock().unwrap().entry(code).or_default() += 1;
                answers.refused.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

/// A volume that is held, with allocs for so many waiters.
async fn held(system: &System, waiters: usize) {
    system.volume("data", &["single-node-writer"]).await;
    system.alloc("holder", 0, "data", false).await;
    let take = json!({"alloc": "holder", "volume": "data", "node": "n1"});
    let subject = verb::ClaimTake::subject(&Namespace::default());
    let _: Value = system.persist(&subject, &take).await.unwrap();
    join_all((0..waiters).map(async |number| {
        let node = number % system.options.nodes;
        system.alloc(&alloc(number), node, "data", false).await;
    }))
    .await;
}

async fn records(system: &System) -> Bucket {
    system.bus.bucket(&bucket::VOLUMES, 1).await.unwrap()
}

/// A claim in line, and its newest write.
struct InLine {
    alloc: String,
    revision: u64,
    operation: String,
}

/// The claims in line, by epoch.
async fn in_line(records: &Bucket) -> BTreeMap<u64, InLine> {
    let list = records.list("default.data.claim.>").await.unwrap();
    let waits = list.entries.into_iter().filter_map(|entry| {
        let claim: Value = serde_json::from_slice(&entry.value?).ok()?;
        let alloc = entry.key.strip_prefix("default.data.claim.")?.to_owned();
        let operation = entry.operation.unwrap_or_default();
        // A claim that was written once does not say its epoch.
        let epoch = claim["epoch"].as_u64().unwrap_or(entry.revision);
        let in_line = InLine { alloc, revision: entry.revision, operation };
        (claim["state"] == "waiting").then_some((epoch, in_line))
    });
    waits.collect()
}

async fn all_in_line(records: &Bucket, waiters: usize) -> BTreeMap<u64, InLine> {
    wait::until("all are in line", RECOVERY, async || {
        let claims = in_line(records).await;
        if claims.len() == waiters { Ok(claims) } else { Err(claims.len()) }
    })
    .await
}

/// Found: a waiter behind hundreds of others took the volume's lock and asked the leader with each
/// request. The releases stood behind that: of 500 in line, five had a turn in a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_line_moves_by_one_release_after_another() {
    const WAITERS: usize = 120;
    let system = &System::start(options()).await;
    held(system, WAITERS).await;
    let (records, answers) = (&records(system).await, &Answers::default());
    let waiters = join_all((0..WAITERS).map(async |number| {
        take(system, number, answers).await;
        system.stop(&alloc(number)).await;
    }));
    let go = async {
        let claims = all_in_line(records, WAITERS).await;
        answers.forget_refusals();
        let subjects = ["STREAM.MSG.GET", "DIRECT.GET"];
        let subjects = subjects.map(|get| format!("$JS.API.{get}.KV_berth-volumes.>"));
        let mut subjects = subjects.to_vec();
        subjects.push("$JS.API.STREAM.MSG.GET.KV_berth-volumes".to_owned());
        system.wire.arm(Point { subjects, at: usize::MAX, side: Side::Before });
        wait::until("the waiters have repeated their requests", RECOVERY, async || {
            let refused = answers.refused.load(Ordering::SeqCst);
            if refused >= REPEATED * WAITERS { Ok(()) } else { Err(refused) }
        })
        .await;
        let told = std::mem::take(&mut *answers.codes.lock().unwrap());
        assert!(told.keys().all(|code| *code == Code::Waiting), "{told:?}");
        let asked = system.wire.disarm();
        let asked = asked.iter().filter(|Passed { cable, .. }| cable.starts_with("claim")).count();
        println!("the leader was asked {asked} times while nothing moved");
        assert!((1..WAITERS / 2).contains(&asked), "only the first in line asks the leader");
        let moves = Arc::new(AtomicUsize::new(0));
        let (filter, fold) = ("default.data.claim.>", Moves(Arc::clone(&moves)));
        let options = MirrorOptions::default();
        let mirror = Mirror::start(records, filter, fold, options).await.unwrap();
        moves.store(0, Ordering::SeqCst);
        system.stop("holder").await;
        (claims, moves, mirror)
    };
    let (_, (claims, moves, _mirror)) = tokio::join!(waiters, go);
    system.freed("data").await;
    let moves = moves.load(Ordering::SeqCst);
    println!("{moves} changes for {WAITERS} hand-overs");
    assert!(moves <= CHANGES_PER_HAND_OVER * (WAITERS + 1), "{moves} changes");
    let order: Vec<String> = claims.into_values().map(|claim| claim.alloc).collect();
    assert_eq!(*answers.served.lock().unwrap(), order, "first come, first served");
    // A turn that comes at the end of a request may be granted to the next one.
    let codes = answers.codes.lock().unwrap();
    let pushed_away = [Code::Overloaded, Code::Late].iter().any(|code| codes.contains_key(code));
    assert!(!pushed_away, "{codes:?}");
}

/// A place costs no write of its own. It is kept at whichever replica the waiter's next request
/// arrives, and lost by who does not repeat it.
#[tokio::test(flavor = "multi_thread")]
async fn places_in_line_are_kept_together_and_outlive_a_replica() {
    const WAITERS: usize = 40;
    let system = &System::start(Options { place_kept_ms: 8_000, ..options() }).await;
    held(system, WAITERS).await;
    let (records, answers) = (&records(system).await, &Answers::default());
    let patient = join_all((1..WAITERS).map(|number| take(system, number, answers)));
    let gives_up = Box::pin(take(system, 0, answers));
    let go = async {
        let in_line_at_first = async {
            let claims = all_in_line(records, WAITERS).await;
            system.kill9(Part::SecondClaim);
            claims
        };
        let Either::Right((first, gives_up)) = select(gives_up, Box::pin(in_line_at_first)).await
        else {
            panic!("the volume is held");
        };
        drop(gives_up);
        let joined = records.newest().await.unwrap();
        let operations = Mutex::new(BTreeSet::new());
        let written =
            wait::until("each place is kept twice, and one is lost", RECOVERY, async || {
                let claims = in_line(records).await;
                let kept = claims.values().filter(|claim| claim.revision > joined);
                operations.lock().unwrap().extend(kept.map(|claim| claim.operation.clone()));
                let written = usize::try_from(records.newest().await.unwrap() - joined).unwrap();
                if claims.len() == WAITERS - 1 && written >= 2 * WAITERS {
                    return Ok(written);
                }
                Err(format!("{} in line, {written} writes", claims.len()))
            })
            .await;
        let batches = operations.lock().unwrap().len();
        println!("{written} places were kept by {batches} writes");
        assert!(4 * batches <= written, "{written} places were kept by {batches} writes");
        system.stop("holder").await;
        first
    };
    let serve = join_all((1..WAITERS).map(async |number| {
        wait::until("its turn has come", RECOVERY, async || {
            let served = answers.served.lock().unwrap().contains(&alloc(number));
            if served { Ok(()) } else { Err("it is in line") }
        })
        .await;
        system.stop(&alloc(number)).await;
    }));
    let (_, _, first) = tokio::join!(patient, serve, go);
    let order = first.into_values().map(|claim| claim.alloc).filter(|waiter| *waiter != alloc(0));
    assert_eq!(*answers.served.lock().unwrap(), order.collect::<Vec<_>>());
    system.stop(&alloc(0)).await;
    system.freed("data").await;
}
