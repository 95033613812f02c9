//! What the server answers to a write.
//!
//! A lost race has two error codes, 10071 and 10164. A client that knows only the first reports the
//! second as a failure ([nats.java 1463](https://github.com/nats-io/nats.java/pull/1463)).

use serde::Deserialize;
use serde_json::Value;

use crate::cause::Cause;
use crate::connection::exchange::{ApiError, ExchangeError, refusal};

/// How one send of the write ended.
pub(crate) enum SendOutcome {
    Stored(u64),
    /// This copy was not stored, and a retry would not be either.
    Refused(Cause),
    /// This copy was not stored.
    NotStored(Cause),
    /// A leader, perhaps a deposed one, says that the guard did not hold, or refuses the batch.
    Contradicted(Cause),
    /// This copy may be stored, now or later.
    Lost(Cause),
}

impl From<ExchangeError> for SendOutcome {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Disconnected | ExchangeError::NoResponder => {
                Self::NotStored(Cause::new(error))
            }
            ExchangeError::TooLarge | ExchangeError::Subject | ExchangeError::Denied(_) => {
                Self::Refused(Cause::new(error))
            }
            ExchangeError::TimedOut(_) | ExchangeError::Broken(_) => Self::Lost(Cause::new(error)),
        }
    }
}

/// An acknowledgement, or the server's refusal.
#[derive(Deserialize)]
pub(crate) struct Ack {
    /// The revision; of a batch the last one.
    pub(crate) seq: Option<u64>,
    /// For a batch, the number of its messages.
    pub(crate) count: Option<u64>,
    #[serde(default, deserialize_with = "decode_error")]
    pub(crate) error: Option<ApiError>,
}

pub(crate) fn read_ack(answer: &async_nats::Message) -> Result<Ack, serde_json::Error> {
    serde_json::from_slice(&answer.payload)
}

fn decode_error<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<ApiError>, D::Error> {
    Ok(Option::<Value>::deserialize(from)?.as_ref().map(refusal))
}

/// The guard did not hold where the write arrived.
const WRONG_LAST_SEQUENCE: u64 = 10071;
/// The same, from the leader of a cluster while another write below the filter is in progress. A
/// single writer with the right revision also gets it, about once in 200 000 writes.
const WRONG_LAST_SEQUENCE_CONSTANT: u64 = 10164;
/// The server lacks messages of the batch: the connection or the leader changed meanwhile.
const INCOMPLETE_BATCH: u64 = 10176;
/// The stream already has the most batches in progress that the server allows.
const TOO_MANY_BATCHES: u64 = 10210;

/// The stream's last sequence, if a write was refused because it expected another one. Only the
/// server's description has it.
pub(crate) fn last_sequence(refusal: &ApiError) -> Option<u64> {
    match refusal {
        ApiError::Refused { code: WRONG_LAST_SEQUENCE, description, .. } => {
            description.strip_prefix("wrong last sequence: ")?.parse().ok()
        }
        _ => None,
    }
}

pub(crate) fn judge(refusal: ApiError) -> SendOutcome {
    match refusal {
        // The answer may be a deposed leader's: only a read at the stream's leader decides.
        ApiError::Refused { code: WRONG_LAST_SEQUENCE | WRONG_LAST_SEQUENCE_CONSTANT, .. }
        | ApiError::Refused { code: INCOMPLETE_BATCH | TOO_MANY_BATCHES, .. } => {
            SendOutcome::Contradicted(refusal.into())
        }
        ApiError::Refused { status: 400..500, .. } => SendOutcome::Refused(refusal.into()),
        // Followers may have stored what the leader could not.
        _ => SendOutcome::Lost(refusal.into()),
    }
}
