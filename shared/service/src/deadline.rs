//! That nothing is written for a caller who has given up.
//!
//! Whoever was not answered by a request's deadline asks again, or for something else, and is
//! answered; what the first request was for must not be written over that. A process may have been
//! paused meanwhile at any point, or have waited for the bus.
//!
//! **Promises**, when it is asked *between* reading what a write is guarded by and the write, that
//! the write is refused if anybody was answered otherwise after the deadline: that was stored after
//! the reading, so the guard no longer holds.

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use tokio::time::Instant;

/// Refuses once the deadline has passed.
pub fn check(deadline: Instant) -> Result<(), Problem> {
    if Instant::now() < deadline {
        return Ok(());
    }
    Err(Problem::new(Code::Late, "its caller gave up while it was worked in").retryable())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Rule 1: what nobody waits for any more is not decided.
    #[test]
    fn what_is_asked_past_its_deadline_is_refused() {
        let now = Instant::now();
        assert!(check(now + Duration::from_secs(60)).is_ok());
        let refused = check(now).unwrap_err();
        assert!(refused.code == Code::Late && refused.retryable, "{refused}");
    }
}
