//! A node that is gone by a proof (rule 12): its claims leave it, wanted or not.

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
    let asked = site.executor.seen("p", CallKind::NodeDetach);
    assert!(asked.iter().all(|seen| seen.call.volume.as_str() == "ended"), "{asked:?}");
}
