//! A node that is gone by a proof (rule 12): its claims leave it, whether or not their allocs have
//! ended.

use std::time::Duration;

use berth_domain::Timestamp;
use berth_domain::proof::{Proof, ProofKind};
use berth_domain::volume::{CallKind, State};
use berth_service::clock;

use crate::executor::Answer;
use crate::site::Site;

#[tokio::test(flavor = "multi_thread")]
async fn claims_leave_a_node_that_is_gone_without_asking_it() {
    let site = Site::start(&[]).await;
    site.plugin("p", true).await;
    site.executor.tell("p", CallKind::NodeDetach, Answer::Error);
    site.taken("wanted", "p").await;
    site.taken("ended", "p").await;
    site.stop("ended").await;
    site.failed("ended", State::Unpublishing, 2).await;
    assert_eq!(site.executor.seen("p", CallKind::ControllerUnpublish).len(), 0, "no proof yet");
    let proof = Proof {
        kind: ProofKind::PoweredOff,
        by: "somebody".to_owned(),
        at: clock::now(),
        note: String::new(),
    };
    site.node(Some(proof)).await;
    site.freed("wanted").await;
    site.freed("ended").await;
    assert_eq!(site.executor.seen("p", CallKind::ControllerUnpublish).len(), 2);
    let detach_calls = site.executor.seen("p", CallKind::NodeDetach);
    let of_ended = detach_calls.iter().filter(|seen| seen.call.volume.as_str() == "ended").count();
    assert!(of_ended >= 2 && of_ended == detach_calls.len(), "{detach_calls:?}");
}

/// A repeated grant writes nothing, so no guard stops it. A release with the proof of the earlier
/// absence would then take the volume from under the new mount.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_before_the_node_was_gone_is_not_granted_again() {
    const WITHIN: Duration = Duration::from_secs(5);
    let site = Site::start(&[]).await;
    site.plugin("p", true).await;
    site.taken("data", "p").await;
    assert!(site.try_take("data", WITHIN).await, "who asks again is granted what stands");
    site.back(Timestamp::from_unix_ms(1)).await;
    assert!(site.try_take("data", WITHIN).await, "it was made after the node was back");
    site.back(clock::now()).await;
    assert!(!site.try_take("data", WITHIN).await, "it was made before");
    site.volume("new", "p").await;
    assert!(site.try_take("new", WITHIN).await, "nothing keeps a new one");
}
