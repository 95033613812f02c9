//! From what changed to the claims that may go on.

use std::sync::Arc;
use std::time::Duration;

use berth_service::clock;
use berth_service::reconcile::{Waker, sleep_until};
use tokio::time::Instant;

use crate::view::WatchView;
use crate::watch::{Changes, ClaimKey, WatchedChange};

/// Wakes claims for as long as it is polled.
pub async fn listen(view: Arc<WatchView>, changes: Changes, waker: Waker<ClaimKey>) {
    loop {
        let early = view.early.next();
        tokio::select! {
            all = changes.woken() => for change in all {
                hear(&view, change, &waker);
            },
            () = sleep_until(early) => for claim in view.early.begin(Instant::now()) {
                waker.wake(claim);
            }
        }
    }
}

fn hear(view: &WatchView, change: WatchedChange, waker: &Waker<ClaimKey>) {
    match change {
        WatchedChange::Claim(claim) => waker.wake(claim),
        WatchedChange::Volume(volume) => {
            for claim in view.may_go_on(&volume) {
                waker.wake(claim);
            }
        }
        WatchedChange::Beside(claim) => want(view, view.held_up_beside(&claim)),
        WatchedChange::Controller(_) | WatchedChange::Plugin(..) | WatchedChange::Node(_) => {
            if let WatchedChange::Node(node) = &change {
                for claim in view.left_behind(node) {
                    waker.wake(claim);
                }
            }
            want(view, view.held_up(&change));
        }
    }
}

/// The claims are to be tried early, each at a moment of its own.
fn want(view: &WatchView, claims: Vec<ClaimKey>) {
    let now = Instant::now();
    for claim in claims {
        view.early.want(claim, now, rand::random());
    }
}

/// Looks through everything now and then: a wake-up that was lost costs this long, and no more.
pub async fn rescan(view: Arc<WatchView>, waker: Waker<ClaimKey>, every: Duration) {
    loop {
        for claim in view.all_due() {
            waker.wake(claim);
        }
        // Several watchers do not look at the same moment.
        tokio::time::sleep(clock::jittered(every)).await;
    }
}
