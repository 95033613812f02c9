//! A slow or dead plugin delays no other.

use std::time::Duration;

use berth_domain::volume::{CallKind, State};
use berth_harness::wait;

use crate::executor::Answer;
use crate::site::{PATIENCE, Site, all};

const MANY: usize = 1_000;
/// The default of `watcher.per_plugin`.
const PER_PLUGIN: usize = 128;

/// A thousand releases hang at one plugin throughout the test. Releases of another plugin on the
/// same node end meanwhile, and releases that wait for the first plugin have no attempt whose time
/// would run.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_releases_behind_a_hung_plugin_delay_no_other() {
    let site = Site::start(&[("BERTH__POLICY__CALL_TIMEOUT_MS", "600000")]).await;
    site.executor.tell("hung", CallKind::NodeDetach, Answer::Never);
    site.plugin("hung", false).await;
    site.plugin("well", false).await;
    let hung = |at: usize| format!("hung-{at}");
    let well = |at: usize| format!("well-{at}");
    all(MANY, async |at| site.taken(&hung(at), "hung").await).await;
    all(100, async |at| site.taken(&well(at), "well").await).await;
    all(MANY, async |at| site.stop(&hung(at)).await).await;
    wait::until("the hung plugin has all the calls it may have", PATIENCE, async || {
        let calls = site.executor.seen("hung", CallKind::NodeDetach).len();
        if calls >= PER_PLUGIN { Ok(()) } else { Err(calls) }
    })
    .await;

    all(100, async |at| site.stop(&well(at)).await).await;
    all(100, async |at| site.freed(&well(at)).await).await;

    let calls = site.executor.seen("hung", CallKind::NodeDetach);
    assert_eq!(calls.len(), PER_PLUGIN, "no more at once than configured");
    assert!(calls.iter().all(|call| !call.answered));
    let mut begun = 0;
    for at in 0..MANY {
        let claim = site.claims(&hung(at)).await.pop().expect("it hangs");
        begun += usize::from(claim.attempt.is_some());
        assert!(claim.attempt.is_none() || claim.state == State::Unpublishing, "{claim:?}");
    }
    assert_eq!(begun, PER_PLUGIN, "who waits for room has no attempt on the record");
}

/// Volumes that hang, rather than their plugin: claims with a failed call wait for each other only.
#[tokio::test(flavor = "multi_thread")]
async fn volumes_that_hang_again_and_again_leave_room_for_others_of_their_plugin() {
    let site = Site::start(&[
        ("BERTH__POLICY__CALL_TIMEOUT_MS", "2000"),
        ("BERTH__POLICY__CLOCK_MARGIN_MS", "100"),
        ("BERTH__POLICY__RETRY_FIRST_MS", "100"),
        ("BERTH__POLICY__RETRY_MAX_MS", "200"),
        ("BERTH__WATCHER__PER_PLUGIN", "4"),
    ])
    .await;
    site.plugin("p", false).await;
    site.executor.tell("p", CallKind::NodeDetach, Answer::Never);
    let hung = |at: usize| format!("hung-{at}");
    all(8, async |at| site.taken(&hung(at), "p").await).await;
    all(8, async |at| site.stop(&hung(at)).await).await;
    for at in 0..8 {
        site.failed(&hung(at), State::Unpublishing, 1).await;
    }
    wait::until("those that failed have the room they may have", PATIENCE, async || {
        let now = berth_service::clock::now();
        let calls = site.executor.seen("p", CallKind::NodeDetach);
        let live = calls.iter().filter(|seen| seen.call.deadline > now).count();
        if live == 4 { Ok(()) } else { Err(live) }
    })
    .await;
    site.executor.tell("well", CallKind::NodeDetach, Answer::After(Duration::ZERO));
    site.taken("well", "p").await;
    site.stop("well").await;
    site.freed("well").await;
    let calls = site.executor.seen("p", CallKind::NodeDetach);
    let well = calls.iter().find(|seen| seen.call.volume.as_str() == "well").unwrap();
    // Its call may have come between two rounds of the other calls, which are a margin and a retry
    // apart.
    let between = Duration::from_millis(500);
    let live = |seen: &&crate::executor::Seen| {
        seen.began < well.began && well.began < seen.call.deadline.after(between) && !seen.answered
    };
    assert!(calls.iter().filter(live).count() >= 3, "the others hung meanwhile: {calls:?}");
}

/// Releases run side by side: as many as the default allows, and no more.
#[tokio::test(flavor = "multi_thread")]
async fn releases_of_one_plugin_run_side_by_side() {
    let site = Site::start(&[]).await;
    site.executor.tell("p", CallKind::NodeDetach, Answer::After(Duration::from_millis(300)));
    site.plugin("p", false).await;
    let volume = |at: usize| format!("v-{at}");
    all(300, async |at| site.taken(&volume(at), "p").await).await;
    all(300, async |at| site.stop(&volume(at)).await).await;
    all(300, async |at| site.freed(&volume(at)).await).await;
    let calls = site.executor.seen("p", CallKind::NodeDetach);
    assert_eq!(calls.len(), 300, "one call each");
    let at_once = |call: &crate::executor::Seen| {
        let during = |other: &&crate::executor::Seen| {
            other.began <= call.began && call.began < other.began.after(Duration::from_millis(300))
        };
        calls.iter().filter(during).count()
    };
    let most_at_once = calls.iter().map(at_once).max().unwrap_or_default();
    assert!((40..=PER_PLUGIN).contains(&most_at_once), "{most_at_once} at once");
}
