//! Guarded writes, and the reasons why a write is not stored.

use std::time::Duration;

use berth_contract::trace::TraceContext;
use berth_contract::{code::Code, problem::Problem};
use bytes::Bytes;
use thiserror::Error;

use crate::cause::{Cause, chain};
use crate::incarnation::loss::BucketLoss;

/// The effect of a write on its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The key has this value.
    Put(Bytes),
    /// The key is deleted. A marker stays, and the history if the bucket keeps one. The bucket's
    /// writer purges both later: [`Bucket::purge_deleted`](crate::Bucket::purge_deleted).
    Delete,
}

/// The condition that must hold when the write arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard<'a> {
    /// The key that is written, or a filter that covers it, such as `default.v1.>`.
    pub filter: &'a str,
    /// The newest revision below the filter, markers included; 0 when nothing is there.
    /// See [`Bucket::head`](crate::Bucket::head).
    pub revision: u64,
}

/// One write of one key.
#[derive(Debug, Clone)]
pub struct Write<'a> {
    /// The key.
    pub key: &'a str,
    /// What happens to it.
    pub change: Change,
    /// The condition under which the write is stored.
    pub guard: Guard<'a>,
    /// The id of the request or attempt that made this write, for people who read the record.
    pub operation: &'a str,
    /// The trace that this write belongs to.
    pub trace: TraceContext,
}

/// Why a write was not stored, or is not known to be stored.
#[derive(Debug, Error)]
pub enum CommitError {
    /// Not stored: something below the filter was written since.
    #[error("{key}: {filter} is no longer at revision {revision}")]
    Conflict {
        /// The key that was to be written.
        key: String,
        /// The guard's filter.
        filter: String,
        /// The guard's revision.
        revision: u64,
    },
    /// Not stored, and a retry would not be either.
    #[error("{key}: the write is refused")]
    Refused {
        /// The key that was to be written.
        key: String,
        /// Why.
        #[source]
        source: Cause,
    },
    /// Surely not stored: the bus cannot be reached, or has no leader.
    #[error("{key}: the bus cannot store now; nothing was written")]
    Unavailable {
        /// The key that was to be written.
        key: String,
        /// What the last try ended with.
        #[source]
        source: Cause,
    },
    /// Not stored: the bucket was deleted or replaced, so what the write rests on may be wrong.
    #[error("{key}: nothing was written")]
    Lost {
        /// The key that was to be written.
        key: String,
        /// What happened to the bucket.
        #[source]
        loss: BucketLoss,
    },
    /// Perhaps stored.
    #[error("{key}: the write is not acknowledged within {within:.1?} and may still be stored")]
    Unknown {
        /// The key that was to be written.
        key: String,
        /// How long it was retried.
        within: Duration,
        /// What the last try ended with.
        #[source]
        source: Cause,
    },
}

impl CommitError {
    /// The reason in one word.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "conflict",
            Self::Refused { .. } => "refused",
            Self::Unavailable { .. } => "unavailable",
            Self::Lost { .. } => "lost",
            Self::Unknown { .. } => "unknown",
        }
    }
}

/// The problem to answer the service's caller with, when the service itself does not retry.
impl From<CommitError> for Problem {
    fn from(error: CommitError) -> Self {
        let (code, retryable) = match &error {
            CommitError::Conflict { .. } => (Code::Busy, true),
            CommitError::Refused { .. } => (Code::Internal, false),
            CommitError::Unavailable { .. } => (Code::BusUnavailable, true),
            CommitError::Lost { loss, .. } => return loss.problem(),
            CommitError::Unknown { .. } => (Code::NoAnswer, true),
        };
        let mut problem = Self::new(code, chain(&error));
        if matches!(error, CommitError::Unavailable { .. } | CommitError::Unknown { .. }) {
            problem = problem.next(CHECK_STORE);
        }
        if retryable { problem.retryable() } else { problem }
    }
}

const CHECK_STORE: &str = "ask again; if it happens again, see the log and the disk of \
                           nats-server, and restart a nats-server whose disk was full";
