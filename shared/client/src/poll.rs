//! A state that is read until it is what the caller waits for.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Reads until `read` breaks with its result, or until the deadline leaves no time for another
/// read. Then it returns the last read's reason to continue.
pub async fn poll<Found, Unfinished>(
    until: Instant,
    pause: Duration,
    mut read: impl AsyncFnMut() -> ControlFlow<Found, Unfinished>,
) -> ControlFlow<Found, Unfinished> {
    loop {
        let last = read().await;
        if last.is_break() || Instant::now() + pause >= until {
            return last;
        }
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn reads_within(seconds: u64, found_at: u32) -> ControlFlow<u32, u32> {
        let mut reads = 0;
        poll(Instant::now() + Duration::from_secs(seconds), Duration::from_secs(1), async || {
            reads += 1;
            if reads == found_at { ControlFlow::Break(reads) } else { ControlFlow::Continue(reads) }
        })
        .await
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_with_what_it_found_or_with_the_last_read_before_the_deadline() {
        assert_eq!(reads_within(60, 3).await, ControlFlow::Break(3));
        assert_eq!(reads_within(10, u32::MAX).await, ControlFlow::Continue(10));
        assert_eq!(reads_within(0, u32::MAX).await, ControlFlow::Continue(1), "always one read");
    }
}
