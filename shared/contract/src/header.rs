//! Message headers: names, and nothing else that a header carries (see [`crate::trace`] for one).

/// W3C trace context; every message carries it.
pub const TRACEPARENT: &str = "traceparent";
/// When the caller stops waiting, in Unix milliseconds: a handler does nothing past it.
pub const DEADLINE: &str = "Berth-Deadline";
/// The operation that made a write, so that a lost acknowledgement is resolved by one leader read.
pub const OPERATION: &str = "Berth-Operation";
/// One call of one writer: its copies share it, so that it knows its own write among others of the
/// same operation.
pub const WRITE: &str = "Berth-Write";
