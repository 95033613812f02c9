//! From what changed to the claims that may go on.

use std::sync::Arc;
use std::time::Duration;

use berth_service::clock;
use berth_service::reconcile::{Waker, sleep_until};
use tokio::time::Instant;

use crate::view::View;
use crate::watch::{Change, Changes, ClaimKey};

/// Wakes claims for as long as it is polled.
pub async fn listen(view: Arc<View>, changes: Changes, waker: Waker<ClaimKey>) {
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

fn hear(view: &View, change: Change, waker: &Waker<ClaimKey>) {
    match change {
        Change::Claim(claim) => waker.wake(claim),
        Change::Volume(volume) => {
            for claim in view.may_go_on(&volume) {
                waker.wake(claim);
            }
        }
        Change::Beside(claim) => want(view, view.held_up_beside(&claim)),
        Change::Controller(_) | Change::Plugin(..) | Change::Node(_) => {
            if let Change::Node(node) = &change {
                for claim in view.left_behind(node) {
                    waker.wake(claim);
                }
            }
            want(view, view.held_up(&change));
        }
    }
}

/// The claims are to be tried early, each at a moment of its own.
fn want(view: &View, claims: Vec<ClaimKey>) {
    let now = Instant::now();
    for claim in claims {
        view.early.want(claim, now, rand::random());
    }
}

/// Looks through everything now and then: a wake-up that was lost costs this long, and no more.
pub async fn rescan(view: Arc<View>, waker: Waker<ClaimKey>, every: Duration) {
    loop {
        for claim in view.all_due() {
            waker.wake(claim);
        }
        // Several watchers do not look at the same moment.
        tokio::time::sleep(clock::jittered(every)).await;
    }
}
