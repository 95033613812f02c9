//! Reads that wait until something newer is stored, so that readers need not poll.
//!
//! **Promises** that the change itself wakes a waiting reader. Every reader is answered by the end
//! of its wait, early enough for the answer to arrive. A wait is bounded, because the bus does not
//! report that a reader has gone; a reader that needs longer sends its request again.

use std::future::Future;
use std::time::Duration;

use berth_bus::caller::wait_aside;
use berth_contract::message::query::LongPoll;
use berth_contract::problem::Problem;
use berth_domain::limits;
use tokio::time::{Instant, timeout_at};

/// How long before a caller's deadline a wait ends, to leave time for the last read and the
/// response.
const ANSWER_BEFORE: Duration = Duration::from_millis(500);

/// The times of a request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Until {
    /// When the wait ends.
    pub wait: Instant,
    /// When the answer must be ready.
    pub answer: Instant,
}

impl Until {
    /// The times of a request with this deadline.
    pub fn for_request(newer: LongPoll, deadline: Instant) -> Self {
        let now = Instant::now();
        let remaining = deadline.saturating_duration_since(now);
        let reserved = ANSWER_BEFORE.min(remaining / 2);
        let longest = remaining.saturating_sub(reserved);
        let requested = newer.wait_ms.map_or(limits::HELD_MAX, Duration::from_millis);
        let requested = requested.min(limits::HELD_MAX);
        // Half of the reserved time is for the response.
        let answer = now + remaining.saturating_sub(reserved / 2);
        Self { wait: now + requested.min(longest), answer }
    }
}

/// Waits until `arrival` brings something newer than the reader has, or until the wait ends. Does
/// not wait if `is_newer` returns true.
pub async fn await_newer<A: Future>(
    newer: LongPoll,
    until: Until,
    is_newer: impl FnOnce(u64) -> bool,
    arrival: impl FnOnce(u64) -> A,
) -> Result<(), Problem> {
    let Some(than) = newer.than.filter(|than| !is_newer(*than)) else { return Ok(()) };
    // The answer is the current state, whether or not something newer has come.
    wait_aside(timeout_at(until.wait, arrival(than))).await.map(drop)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const LONG: LongPoll = LongPoll { than: Some(5), wait_ms: None };

    fn until(newer: LongPoll) -> Until {
        Until::for_request(newer, Instant::now() + Duration::from_secs(10))
    }

    async fn waits(newer: LongPoll, index: u64) -> Result<Duration, Problem> {
        let began = Instant::now();
        let until = until(newer);
        let waited = await_newer(newer, until, |than| index > than, |_| pending::<()>()).await;
        waited.map(|()| began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_waits_only_for_what_is_newer_and_no_longer_than_its_request_lives() {
        assert_eq!(waits(LongPoll::default(), 5).await, Ok(Duration::ZERO));
        assert_eq!(waits(LONG, 6).await, Ok(Duration::ZERO));
        let short = LongPoll { wait_ms: Some(300), ..LONG };
        assert_eq!(waits(short, 5).await, Ok(Duration::from_millis(300)));
        assert_eq!(waits(LONG, 5).await, Ok(Duration::from_millis(9500)));
        // A reader with little time has half of it left for the answer.
        let hasty = Until::for_request(LONG, Instant::now() + Duration::from_millis(100));
        assert_eq!(hasty.wait, Instant::now() + Duration::from_millis(50));
        assert_eq!(hasty.answer, Instant::now() + Duration::from_millis(75));
    }

    #[tokio::test(start_paused = true)]
    async fn what_arrives_ends_the_wait() {
        let began = Instant::now();
        let arrival = |than| async move {
            assert_eq!(than, 5);
            tokio::time::sleep(Duration::from_millis(70)).await;
        };
        await_newer(LONG, until(LONG), |_| false, arrival).await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_millis(70));
    }

    /// The bus does not report that a reader has gone.
    #[tokio::test(start_paused = true)]
    async fn no_wait_is_longer_than_one_may_be_held_whatever_the_deadline() {
        let far = Instant::now() + Duration::from_secs(86_400);
        for wait_ms in [None, Some(86_400_000)] {
            let until = Until::for_request(LongPoll { wait_ms, ..LONG }, far);
            assert_eq!(until.wait, Instant::now() + limits::HELD_MAX);
        }
    }
}
