//! The disk below the bus is full, and has room again.

use std::time::Duration;

use berth_bus::Call;
use berth_contract::code::Code;
use berth_contract::message::claim::ClaimWait;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, Part, RECOVERY, System};
use berth_service::clock;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::why::{YOU, tells};

/// Room for the 256 MiB that the event stream reserves.
const DISK_BYTES: u64 = 1 << 30;
/// An answer that takes longer waits for a write that is not acknowledged.
const UNANSWERED: Duration = Duration::from_secs(2);

/// A write has most of its caller's time. Two lost acknowledgements of it are enough: a claim that is
/// at rest names the store while the write is still tried.
async fn told_before_the_write_is_given_up(system: &System) {
    let mut number = 0;
    let write = loop {
        number += 1;
        let id = format!("late{number}");
        system.provision(&id);
        let document = json!({"id": id, "plugin": PLUGIN, "external_id": id,
            "capability": [{"access": "single-node-writer", "attachment": "file-system"}]});
        let bus = system.bus.clone();
        let mut write = tokio::spawn(async move {
            let register = verb::VolumeRegister::subject(&Namespace::default());
            let call = Call::within(clock::begin_trace(), RECOVERY);
            bus.request::<Value>(&register, &document, &call).await.map_err(|it| it.to_string())
        });
        // There may be room for some more.
        if timeout(UNANSWERED, &mut write).await.is_err() {
            break write;
        }
    };
    wait::until("a claim at rest names the store", RECOVERY, || async {
        let claim = system.claims("data").await.claims.into_iter().next().ok_or("it is gone")?;
        let is_named = claim.wait == Some(ClaimWait::Store);
        if is_named { Ok(()) } else { Err(format!("{:?}", claim.waits_for)) }
    })
    .await;
    assert!(!write.is_finished(), "only once it was given up: {:?}", write.await);
}

/// nats-server keeps its error after space is freed. Until then requests get the reason within
/// their deadlines.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_is_told_to_callers_and_in_the_status() {
    if !or_skip("a disk of its own") {
        return;
    }
    let system =
        System::start(Options { disk_bytes: Some(DISK_BYTES), ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    let server = &system.servers()[0];
    let disk = server.disk().unwrap();
    disk.fill();
    let register = verb::AllocRegister::subject(&Namespace::default());
    let stop = verb::AllocStop::subject(&Namespace::default());
    let mut number = 0;
    let refused: Problem = wait::until("the store is full", RECOVERY, || {
        number += 1;
        let alloc = json!({"id": format!("full{number}"), "node": "n1"});
        let (system, register) = (&system, &register);
        async move {
            match system.ask::<Value>(register, &alloc).await {
                Err(problem) => Ok(problem),
                Ok(_) => Err("it stores"),
            }
        }
    })
    .await;
    // The server does not answer such a write: the write may be stored.
    assert_eq!(refused.code, Code::NoAnswer, "{refused}");
    assert!(refused.retryable && refused.message.contains("not acknowledged"), "{refused}");
    assert!(refused.next.contains("disk of nats-server"), "{refused}");
    assert_eq!(refused.step.as_deref(), Some("alloc.register"), "{refused}");

    told_before_the_write_is_given_up(&system).await;

    // The claim's release begins, if there is room for its write, and then waits.
    let release = verb::ClaimRelease::subject(&Namespace::default());
    let body = json!({"alloc": "a", "volume": "data"});
    let _: Result<Value, Problem> = system.ask(&release, &body).await;
    wait::until("the claim's status names the store", RECOVERY, || async {
        let claim = system.claims("data").await.claims.into_iter().next().ok_or("it is gone")?;
        let waits_for = claim.waits_for.unwrap_or_default();
        let named = waits_for.contains("the server to store the next write to bucket");
        if named { Ok(()) } else { Err(waits_for) }
    })
    .await;
    tells(&system, "data", "store-fault", YOU, "nats-server stores no writes: …").await;
    let log = system.daemon(Part::Claim).log();
    assert!(log.contains("the server stores no writes"), "it is not in the log");

    disk.free();
    server.daemon().kill9();
    server.daemon().restart();
    server.ready().await;
    system.persist::<Value>(&stop, &json!({"id": "a"})).await.unwrap();
    system.settle("data").await;
    wait::until("it is told that it stores again", Duration::from_secs(30), || async {
        let log = system.daemon(Part::Claim).log();
        if log.contains("the server stores writes again") { Ok(()) } else { Err("it is not") }
    })
    .await;
}
