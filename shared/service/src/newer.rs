//! Reads that wait until there is something newer, so that readers need not poll.
//!
//! **Promises** that the change itself wakes a waiting reader. Every reader is answered by the end
//! of its wait, early enough for the answer to arrive. The number of waiting readers is bounded,
//! which leaves room for all other requests.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::query::Newer;
use berth_contract::problem::Problem;
use berth_domain::limits;
use tokio::sync::Semaphore;
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
    pub fn for_request(newer: Newer, deadline: Instant) -> Self {
        let now = Instant::now();
        let left = deadline.saturating_duration_since(now);
        let kept = ANSWER_BEFORE.min(left / 2);
        let most = left.saturating_sub(kept);
        let asked = newer.wait_ms.map_or(limits::WAIT_MAX, Duration::from_millis);
        // Half of the reserved time is for the response.
        let answer = now + left.saturating_sub(kept / 2);
        Self { wait: now + asked.min(most), answer }
    }
}

/// The waiting readers of one process.
#[derive(Debug, Clone)]
pub struct Readers(Arc<Semaphore>);

impl Default for Readers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(limits::WAITING_READERS_MAX)))
    }
}

impl Readers {
    /// Waits until `arrival` brings something newer than the reader knows, or the time is over.
    /// Does not wait if `is_newer` says that there is something newer already.
    pub async fn wait<A: Future>(
        &self,
        newer: Newer,
        until: Until,
        is_newer: impl FnOnce(u64) -> bool,
        arrival: impl FnOnce(u64) -> A,
    ) -> Result<(), Problem> {
        let Some(than) = newer.than else { return Ok(()) };
        if is_newer(than) {
            return Ok(());
        }
        let Ok(_place) = self.0.try_acquire() else {
            let most = limits::WAITING_READERS_MAX;
            let said = format!("{most} readers wait for something newer, the most that may");
            return Err(Problem::new(Code::Overloaded, said).retryable());
        };
        // Whether it came or not, the answer is the current state.
        let _: Result<A::Output, _> = timeout_at(until.wait, arrival(than)).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const LONG: Newer = Newer { than: Some(5), wait_ms: None };

    fn until(newer: Newer) -> Until {
        Until::for_request(newer, Instant::now() + Duration::from_secs(10))
    }

    async fn waits(readers: &Readers, newer: Newer, index: u64) -> Result<Duration, Problem> {
        let began = Instant::now();
        let waited =
            readers.wait(newer, until(newer), |than| index > than, |_| pending::<()>()).await;
        waited.map(|()| began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_waits_only_for_what_is_newer_and_no_longer_than_its_request_lives() {
        let readers = Readers::default();
        assert_eq!(waits(&readers, Newer::default(), 5).await, Ok(Duration::ZERO));
        assert_eq!(waits(&readers, LONG, 6).await, Ok(Duration::ZERO));
        let short = Newer { wait_ms: Some(300), ..LONG };
        assert_eq!(waits(&readers, short, 5).await, Ok(Duration::from_millis(300)));
        assert_eq!(waits(&readers, LONG, 5).await, Ok(Duration::from_millis(9500)));
        // A hasty one has half of its time left for the answer.
        let hasty = Until::for_request(LONG, Instant::now() + Duration::from_millis(100));
        assert_eq!(hasty.wait, Instant::now() + Duration::from_millis(50));
        assert_eq!(hasty.answer, Instant::now() + Duration::from_millis(75));
    }

    #[tokio::test(start_paused = true)]
    async fn what_arrives_ends_the_wait() {
        let (readers, began) = (Readers::default(), Instant::now());
        let arrival = |than| async move {
            assert_eq!(than, 5);
            tokio::time::sleep(Duration::from_millis(70)).await;
        };
        readers.wait(LONG, until(LONG), |_| false, arrival).await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_millis(70));
    }

    #[tokio::test(start_paused = true)]
    async fn one_more_than_may_wait_is_told_so_and_a_place_is_given_back() {
        let readers = Readers::default();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..limits::WAITING_READERS_MAX {
            let readers = readers.clone();
            waiting.spawn(async move { waits(&readers, LONG, 5).await.unwrap() });
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(waits(&readers, LONG, 5).await.unwrap_err().code, Code::Overloaded);
        assert_eq!(waits(&readers, LONG, 6).await, Ok(Duration::ZERO));
        while waiting.join_next().await.is_some() {}
        assert!(waits(&readers, LONG, 5).await.is_ok());
    }
}
