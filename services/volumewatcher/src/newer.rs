//! Work that the claim service refuses, because a record is newer than that service.
//!
//! **Owns** the pauses before the claim service is asked about such work again.
//!
//! **Promises** one line in the log when such refusals begin, and one when they end. Each refusal
//! is counted in `berth.checkpoints.newer`.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use berth_bus::RequestError;
use berth_contract::code::Code;
use berth_domain::retry::Schedule;
use berth_service::clock;
use berth_telemetry::metric::CHECKPOINTS_NEWER;
use tokio::time::Instant;

use crate::watch::WorkKey;

/// The pauses are bounded, because another replica of the claim service may be able to read the
/// record.
const PAUSES: Schedule = Schedule { first: Duration::from_secs(1), max: Duration::from_secs(30) };
/// Work without a refusal for this long is gone, or is not refused any more.
const REMEMBERED_FOR: Duration = Duration::from_secs(300);

/// The refused work of one watcher.
#[derive(Debug, Default)]
pub struct NewerRecords(Mutex<RefusedWork>);

#[derive(Debug, Default)]
struct RefusedWork {
    all: HashMap<WorkKey, Refusals>,
    /// When all work is searched for old refusals: not at each refusal, since there may be very
    /// many.
    forget_at: Option<Instant>,
}

#[derive(Debug)]
struct Refusals {
    count: u32,
    last: Instant,
}

/// Whether the claim service is older than the record.
pub fn is_newer(error: &RequestError) -> bool {
    matches!(error, RequestError::Problem(problem) if problem.code == Code::NewerRecord)
}

impl NewerRecords {
    /// Records that the claim service refused the work. Returns the pause before it is asked again.
    pub fn record_refused(&self, work: &WorkKey, error: &RequestError) -> Duration {
        CHECKPOINTS_NEWER.add(1, []);
        let now = Instant::now();
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let RefusedWork { all, forget_at } = &mut *refused;
        if now >= *forget_at.get_or_insert(now) {
            all.retain(|_, refusals| now < refusals.last + REMEMBERED_FOR);
            *forget_at = Some(now + REMEMBERED_FOR);
        }
        if all.is_empty() {
            tracing::warn!(
                volume = %work.0,
                of = %work.1,
                error = berth_service::process::chain(error),
                next = "upgrade berth-claim on every host",
                "the claim service is older than a record: what is due about it waits"
            );
        }
        let refusals = all.entry(work.clone()).or_insert(Refusals { count: 0, last: now });
        (refusals.count, refusals.last) = (refusals.count.saturating_add(1), now);
        PAUSES.wait(refusals.count, clock::jitter())
    }

    /// Records that the claim service answered.
    pub fn record_answered(&self, work: &WorkKey) {
        let all = &mut self.0.lock().unwrap_or_else(PoisonError::into_inner).all;
        if all.remove(work).is_some() && all.is_empty() {
            tracing::info!("the claim service reads every record that is due");
        }
    }
}
