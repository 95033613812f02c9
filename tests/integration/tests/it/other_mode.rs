//! An alloc claims again in another mode (B12, rule 25): where nothing of its claim is mounted, it
//! gets the other mode by the rules of any claim. Where the volume is mounted, it is refused.

use std::fs;

use berth_contract::code::Code;
use berth_contract::message::claim::Grant;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_domain::access::Mode;
use berth_domain::volume::State;
use berth_harness::root::or_skip;
use berth_integration::{Options, Part, System};
use serde_json::json;

/// Asks until it is granted or refused for good.
async fn take(system: &System, alloc: &str, mode: &str) -> Result<Grant, Problem> {
    let take = json!({"alloc": alloc, "volume": "data", "node": "n1", "mode": mode});
    system.persist(&verb::ClaimTake::subject(&Namespace::default()), &take).await
}

fn count(system: &System, rpc: &str) -> usize {
    let calls = system.calls();
    calls.iter().filter(|call| call["entry"] == "begin" && call["rpc"] == rpc).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_not_mounted_is_taken_anew_in_the_other_mode() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.alloc("a", 0, "data", false).await;
    let read = take(&system, "a", "read").await.unwrap();
    assert_eq!(read.mode, Mode::Read);
    assert_eq!(take(&system, "a", "read").await.unwrap().epoch, read.epoch, "the same claim");
    assert_eq!(count(&system, "ControllerUnpublishVolume"), 0);

    let write = take(&system, "a", "write").await.unwrap();
    assert_eq!(write.mode, Mode::Write);
    assert!(write.epoch > read.epoch, "a claim of its own: {write:?}");
    assert_eq!(count(&system, "ControllerPublishVolume"), 2);
    assert_eq!(count(&system, "ControllerUnpublishVolume"), 1, "it was attached read-only");

    // Its own request for a mount asks to write, which is what it has now.
    let path = system.run("a", 0, "data").await.path;
    fs::write(format!("{path}/f"), "written").unwrap();
    let unpublished = count(&system, "NodeUnpublishVolume");
    let refused = take(&system, "a", "read").await.unwrap_err();
    assert_eq!((refused.code, refused.retryable), (Code::ClaimDiffers, false), "{refused}");
    assert!(refused.next.contains("stop the alloc"), "{refused}");
    fs::write(format!("{path}/f"), "still").unwrap();
    let after = count(&system, "NodeUnpublishVolume");
    assert_eq!(after, unpublished, "nothing is taken from a live alloc");
    system.stop("a").await;
    system.settle("data").await;
}

/// The mount is what asks in the other mode, and finds an agent that has nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_mount_gets_the_mode_that_its_alloc_asks_for() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.alloc("a", 0, "data", false).await;
    take(&system, "a", "read").await.unwrap();
    let path = system.run("a", 0, "data").await.path;
    fs::write(format!("{path}/f"), "written").unwrap();
    system.stop("a").await;
    system.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_never_a_second_writer_and_the_claim_stays_where_that_is_refused() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["multi-node-single-writer"]).await;
    system.run("writer", 1, "data").await;
    system.alloc("a", 0, "data", false).await;
    let read = take(&system, "a", "read").await.unwrap();
    let refused = take(&system, "a", "write").await.unwrap_err();
    assert_eq!(refused.code, Code::Held, "{refused}");
    assert!(refused.message.contains("writer"), "{refused}");
    let claims = system.claims("data").await.claims;
    let own = claims.iter().find(|claim| claim.alloc.as_str() == "a").unwrap();
    assert_eq!((own.state, own.mode, own.epoch), (State::Taken, Mode::Read, read.epoch));

    // An agent that does not answer may have it mounted.
    system.stop("writer").await;
    let freed = || async {
        let claims = system.claims("data").await.claims;
        if claims.len() == 1 { Ok(()) } else { Err(format!("{claims:?}")) }
    };
    let soon = std::time::Duration::from_secs(20);
    berth_harness::wait::until("the writer has left", soon, freed).await;
    system.daemon(Part::Agent(0)).pause();
    let refused = take(&system, "a", "write").await.unwrap_err();
    assert_eq!(refused.code, Code::ClaimDiffers, "{refused}");
    system.daemon(Part::Agent(0)).resume();
    assert_eq!(take(&system, "a", "write").await.unwrap().mode, Mode::Write);
    system.stop("a").await;
    system.settle("data").await;
}
