//! Wakes the work that a change concerns.
//!
//! **Owns** the lookup from a change in a mirror to the claims that may go on, and the periodic
//! scan.
//!
//! **Promises** that a lost wake-up delays work by one pass of scans at most. One scan is a pass,
//! unless allocs use more volumes than one scan looks at.
//!
//! **Never** works on a claim.

use std::sync::Arc;
use std::time::Duration;

use berth_service::clock;
use berth_service::reconcile::{Waker, sleep_until};
use tokio::time::Instant;

use crate::view::WatchView;
use crate::watch::{Changes, WatchedChange, WorkKey};
use berth_domain::volume::CallOwner;

/// Wakes claims as changes come. Never returns.
pub async fn listen(view: Arc<WatchView>, changes: Changes, waker: Waker<WorkKey>) {
    loop {
        let early = view.early.next();
        tokio::select! {
            all = changes.woken() => for change in all {
                handle_change(&view, change, &waker);
            },
            () = sleep_until(early) => for claim in view.early.begin(Instant::now()) {
                waker.wake(claim);
            }
        }
    }
}

fn handle_change(view: &WatchView, change: WatchedChange, waker: &Waker<WorkKey>) {
    match change {
        WatchedChange::Claim((volume, alloc)) => waker.wake((volume, CallOwner::Claim(alloc))),
        WatchedChange::Run(volume) => waker.wake((volume, CallOwner::Volume)),
        WatchedChange::Volume(volume) => {
            for claim in view.may_go_on(&volume) {
                waker.wake(claim);
            }
        }
        WatchedChange::ClaimMoved(claim) => try_early(view, view.held_up_beside(&claim)),
        WatchedChange::Controller(_) | WatchedChange::Plugin(..) | WatchedChange::Node(_) => {
            if let WatchedChange::Node(node) = &change {
                for claim in view.left_behind(node) {
                    waker.wake(claim);
                }
            }
            try_early(view, view.held_up_by(&change));
        }
    }
}

/// Schedules early tries of the claims, each at a random moment.
fn try_early(view: &WatchView, claims: Vec<WorkKey>) {
    let now = Instant::now();
    for claim in claims {
        view.early.schedule(claim, now, rand::random());
    }
}

/// Wakes what is due: all of it at first, and a part in each interval. Never returns.
pub async fn rescan(view: Arc<WatchView>, waker: Waker<WorkKey>, interval: Duration) {
    let (mut first, mut is_first_pass) = (None, true);
    loop {
        let (due_work, next) = view.due_from(first.as_ref());
        for work in due_work {
            waker.wake(work);
        }
        is_first_pass &= next.is_some();
        first = next;
        if is_first_pass {
            tokio::task::yield_now().await;
        } else {
            // With jitter, so that several watchers do not scan at the same moment.
            tokio::time::sleep(clock::jittered(interval)).await;
        }
    }
}
