//! A call that was not answered and is not wanted any more is undone, not forgotten.

use std::time::Duration;

use berth_domain::volume::CallKind;
use berth_harness::wait;

use crate::executor::Answer;
use crate::site::{PATIENCE, Site};

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_without_an_answer_is_undone_when_it_can_no_longer_act() {
    let margin = Duration::from_millis(500);
    let site = Site::start(&[
        ("BERTH__POLICY__CALL_TIMEOUT_MS", "1000"),
        ("BERTH__POLICY__CLOCK_MARGIN_MS", "500"),
    ])
    .await;
    site.plugin("p", true).await;
    site.executor.tell("p", CallKind::ControllerPublish, Answer::Never);
    site.volume("v", "p").await;
    let (asked, ()) = tokio::join!(site.try_take("v", Duration::from_secs(1)), async {
        wait::until("the publish is under way", PATIENCE, async || {
            site.executor.seen("p", CallKind::ControllerPublish).pop().ok_or("not yet")
        })
        .await;
        site.stop("v").await;
    });
    assert!(!asked, "nobody was granted it");
    site.freed("v").await;
    let publish = site.executor.seen("p", CallKind::ControllerPublish);
    let unpublish = site.executor.seen("p", CallKind::ControllerUnpublish);
    assert_eq!((publish.len(), unpublish.len()), (1, 1), "{publish:?} {unpublish:?}");
    let may_act_until = publish[0].call.deadline.after(margin);
    assert!(unpublish[0].began >= may_act_until, "{unpublish:?}");
    assert!(unpublish[0].call.revision > publish[0].call.revision);
    assert!(site.executor.seen("p", CallKind::NodeDetach).is_empty(), "it was never granted");
}
