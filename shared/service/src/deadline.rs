//! Checks before a write that the caller has not given up.
//!
//! A caller without an answer by its deadline sends another request, and that one is answered. A
//! late write for the first request must not replace the result of the second. The process may have
//! been paused at any point, or have waited for the bus.
//!
//! **Promises** that no write for an expired request replaces a newer answer, if the check is
//! *between* reading the guard's revision and the write. A newer answer was given after the
//! deadline, so its write came after the read, and the guard fails.

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use tokio::time::Instant;

/// Refuses a request whose deadline has passed.
pub fn check(deadline: Instant) -> Result<(), Problem> {
    if Instant::now() < deadline {
        return Ok(());
    }
    Err(Problem::new(Code::Late, "the caller's deadline passed while the request was handled")
        .retryable())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Rule 1: a request whose caller has given up is not decided.
    #[test]
    fn what_is_asked_past_its_deadline_is_refused() {
        let now = Instant::now();
        assert!(check(now + Duration::from_secs(60)).is_ok());
        let refused = check(now).unwrap_err();
        assert!(refused.code == Code::Late && refused.retryable, "{refused}");
    }
}
