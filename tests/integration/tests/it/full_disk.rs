//! The disk of nats-server is full, and has room again.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, Part, RECOVERY, System};
use serde_json::{Value, json};

use crate::why::{YOU, tells};

/// Holds the 256 MiB that the event stream reserves.
const DISK_BYTES: u64 = 1 << 30;

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
    // A release that has begun and cannot end: there will be a next write.
    system.plant(0, &json!([{"rpc": "NodeUnpublishVolume", "code": "UNAVAILABLE"}]));
    let release = verb::ClaimRelease::subject(&Namespace::default());
    let body = json!({"alloc": "a", "volume": "data"});
    system.persist::<Value>(&release, &body).await.unwrap();
    wait::until("the release has begun", RECOVERY, || async {
        let claim = system.claims("data").await.claims.into_iter().next().ok_or("no claim")?;
        if claim.tries > 0 { Ok(()) } else { Err("no try yet") }
    })
    .await;

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
                Ok(_) => Err("the write was stored"),
            }
        }
    })
    .await;
    // nats-server does not answer such a write, so it may be stored.
    assert_eq!(refused.code, Code::NoAnswer, "{refused}");
    assert!(refused.retryable && refused.message.contains("not acknowledged"), "{refused}");
    assert!(refused.next.contains("disk of nats-server"), "{refused}");
    assert_eq!(refused.step.as_deref(), Some("alloc.register"), "{refused}");

    // Each bucket has a file of its own, and that of the volumes may have room for a few writes.
    let create = verb::VolumeRegister::subject(&Namespace::default());
    let mut number = 0;
    wait::until("the file of the volumes is full", RECOVERY, || {
        number += 1;
        let volume = json!({"id": format!("more{number}"), "plugin": PLUGIN,
            "capability": [{"access": "single-node-writer"}]});
        let (system, create) = (&system, &create);
        async move {
            match system.ask::<Value>(create, &volume).await {
                Err(_) => Ok(()),
                Ok(_) => Err("the write was stored"),
            }
        }
    })
    .await;
    system.plant(0, &json!([]));
    wait::until("the claim's status names the store", RECOVERY, || async {
        let claim = system.claims("data").await.claims.into_iter().next().ok_or("no claim")?;
        let waits_for = claim.waits_for.unwrap_or_default();
        let names_store = waits_for.contains("the server to store the next write to bucket");
        if names_store { Ok(()) } else { Err(waits_for) }
    })
    .await;
    tells(&system, "data", "store-fault", YOU, "nats-server stores no writes: …").await;
    let log = system.daemon(Part::Claim).log();
    assert!(log.contains("the server stores no writes"), "the log lacks the fault");

    disk.free();
    server.daemon().kill9();
    server.daemon().restart();
    server.ready().await;
    system.persist::<Value>(&stop, &json!({"id": "a"})).await.unwrap();
    system.settle("data").await;
    wait::until("the log says that writes are stored again", Duration::from_secs(30), || async {
        let log = system.daemon(Part::Claim).log();
        if log.contains("the server stores writes again") { Ok(()) } else { Err("no such line") }
    })
    .await;
}
