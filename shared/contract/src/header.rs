//! Message headers: their names, and the version of the contract (see [`crate::trace`] for the form
//! of the trace context).

/// W3C trace context; every message carries it.
pub const TRACEPARENT: &str = "traceparent";
/// When the caller stops waiting, in Unix milliseconds: a handler does nothing past it.
pub const DEADLINE: &str = "Berth-Deadline";
/// The [version](CONTRACT_VERSION) of the contract that a request was written for.
pub const CONTRACT: &str = "Berth-Contract";
/// The version of the contract that this code speaks. It is raised with each field that a request
/// gets, so that an older service can say that it is older when it refuses the field.
pub const CONTRACT_VERSION: u32 = 3;
/// The operation that made a write, so that a lost acknowledgement is resolved by one leader read.
pub const OPERATION: &str = "Berth-Operation";
/// One call of one writer: its copies share it, so that it knows its own write among others of the
/// same operation.
pub const WRITE: &str = "Berth-Write";
