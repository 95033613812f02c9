//! What a decision needs besides the record.

use std::time::Duration;

use super::handle_use::HandleUse;
use super::mounted::MountDoubt;
use crate::retry::Schedule;
use crate::{AttemptId, Timestamp, limits};

/// What a decision needs besides the record. It is passed in, so that decisions are pure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The present time.
    pub now: Timestamp,
    /// The id of the attempt that this step may start.
    pub attempt: AttemptId,
    /// A random number, for jitter.
    pub jitter: u32,
    /// Timeouts and retries.
    pub policy: Policy,
    /// Other registrations of the handle that the volume has, or is being registered with.
    pub handle: HandleUse,
    /// Volumes that are being created as copies of the volume or snapshot, named as the caller may
    /// know them.
    pub copies: Vec<String>,
    /// Where the volume may be mounted although no claim says so. Looked up only for steps that
    /// destroy or forget the volume, or need it out of use.
    pub mounts: Vec<MountDoubt>,
}

/// Timeouts and retries; the same for all replicas of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// From an attempt's write to its deadline.
    pub call_timeout: Duration,
    /// Added to a call's deadline before the opposite call may be made (safety rule 8).
    pub clock_margin: Duration,
    /// A reservation is undone if its caller does not send the request again for this long.
    pub abandoned_after: Duration,
    /// A waiting claim is deleted if its caller does not send the request again for this long
    /// (B11).
    pub place_kept: Duration,
    /// Backoff of failed calls.
    pub retry: Schedule,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            call_timeout: limits::CALL_TIMEOUT,
            clock_margin: limits::CLOCK_MARGIN,
            abandoned_after: limits::ABANDONED_AFTER,
            place_kept: limits::PLACE_KEPT,
            retry: Schedule::default(),
        }
    }
}
