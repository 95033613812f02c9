//! Waiting for a condition.
//!
//! Owns: the one loop that tests wait in. Promises: it polls the present state, so no event can be
//! missed; at the deadline it reports the last state. Never: pauses longer than [`LONGEST_PAUSE`]
//! between two polls.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// The longest pause between two polls.
pub const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Calls `look` until it returns `Ok`, and returns its value.
///
/// `Err` carries the present status, which a failed test prints. A hanging `look` is dropped at the
/// deadline.
///
/// # Panics
/// When `deadline` (counted from now) passes, naming `what` and the last status.
pub async fn until<T, S: Display, L: Future<Output = Result<T, S>>>(
    what: &str,
    deadline: Duration,
    mut look: impl FnMut() -> L,
) -> T {
    let end = Instant::now() + deadline;
    let mut status = String::from("nothing seen yet");
    let mut pause = FIRST_PAUSE;
    loop {
        let Ok(result) = timeout_at(end, look()).await else {
            panic!("not within {deadline:?}: {what}\n  a look hung; before: {status}");
        };
        match result {
            Ok(value) => return value,
            Err(present) => status = present.to_string(),
        }
        let is_late = Instant::now() + pause >= end;
        assert!(!is_late, "not within {deadline:?}: {what}\n  last seen: {status}");
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
