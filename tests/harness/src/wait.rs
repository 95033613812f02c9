//! Waiting for a condition.
//!
//! Owns: the one loop that tests wait in. Promises: it looks at the present state again and again,
//! so no event can be missed; and when the deadline comes it says what it saw last. Never: sleeps
//! longer than [`LONGEST_PAUSE`] between two looks.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// The longest time between two looks.
pub const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Calls `look` until it answers `Ok`, and returns that.
///
/// `Err` carries the status that a failed test prints: what is so instead. A look that hangs is cut
/// off at the deadline.
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
        let Ok(seen) = timeout_at(end, look()).await else {
            panic!("not within {deadline:?}: {what}\n  a look hung; before: {status}");
        };
        match seen {
            Ok(value) => return value,
            Err(instead) => status = instead.to_string(),
        }
        let late = Instant::now() + pause >= end;
        assert!(!late, "not within {deadline:?}: {what}\n  last seen: {status}");
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
