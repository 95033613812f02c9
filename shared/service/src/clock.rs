//! The clock and random numbers. They are read here and passed to the code that decides.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use berth_contract::trace::TraceContext;
use berth_domain::{AttemptId, SecretsId, Timestamp};

/// Now, by this host's clock.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// An id for a new attempt: the time first, so that ids sort by time; then a random number.
pub fn new_attempt() -> AttemptId {
    let id = format!("{:012x}-{:016x}", now().unix_ms(), rand::random::<u64>());
    // An id consists of hex digits and a dash.
    AttemptId::new(id).unwrap_or_else(|_| unreachable!("a made id is an id"))
}

/// An id for new secrets: random, so that it reveals nothing about them.
pub fn new_secrets_id() -> SecretsId {
    let id = format!("{:032x}", rand::random::<u128>());
    // An id consists of hex digits.
    SecretsId::new(id).unwrap_or_else(|_| unreachable!("a made id is an id"))
}

/// A random number for jitter.
pub fn jitter() -> u32 {
    rand::random()
}

/// The time plus or minus up to a quarter, so that replicas do not all act at once.
pub fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(0.75 + 0.5 * f64::from(jitter()) / f64::from(u32::MAX))
}

/// A new trace.
pub fn begin_trace() -> TraceContext {
    TraceContext::begin(&mut rand::rng())
}

/// A new trace of work that is repeated for ever: see [`TraceContext::begin_unrecorded`].
pub fn begin_unrecorded_trace() -> TraceContext {
    TraceContext::begin_unrecorded(&mut rand::rng())
}
