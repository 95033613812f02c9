//! One cheap question to the leader for all who ask at the same time: how far is the bucket?
//!
//! **Owns** the question. It is a write that cannot pass: it expects a last sequence that no stream
//! has, and the refusal names the stream's. On a cluster each server takes part in a read by
//! `$JS.API`, and only the leader in a write.
//!
//! **Promises** that the answer covers every write that was acknowledged before the call. A refusal
//! that names no sequence, or one below what this process has seen, is followed by a read.
//!
//! **Never** waits for longer than the caller's deadline allows.

use async_nats::HeaderMap;
use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use crate::cause::{Cause, chain};
use crate::connection::headers;
use crate::rpc::caller;
use crate::store::bucket::Bucket;
use crate::store::question::AnsweredRevision;
use crate::store::read::ReadError;
use crate::stream::ack::{last_sequence, read_ack};

/// Nothing is stored at this key.
const KEY: &str = "newest";
/// A sequence that no stream reaches.
const NO_SEQUENCE: i64 = i64::MAX;

/// How the leader is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// By a write that is refused: for a process that may write the bucket. Nobody else has the
    /// right, and a denial is an alarm.
    ByWrite,
    /// By reads.
    ByRead,
}

impl Bucket {
    /// A revision that covers every write that was acknowledged before the call, to any process.
    /// Writes in progress may count. Callers at the same time share a question, and one that finds
    /// it under way is content with how it is asked.
    pub async fn newest_together(&self, ask: Ask) -> Result<u64, ReadError> {
        let question = &self.shape.newest_question;
        let told = question.enter(|| tokio::spawn(self.clone().ask_for_all(ask)));
        // The question under way, and the next one.
        let within = self.bus.config().request_timeout * 2;
        let deadline = caller::earlier_deadline(Instant::now() + within);
        let cause = match timeout_at(deadline, told).await {
            Ok(Ok(Ok(revision))) => return Ok(revision),
            Ok(Ok(Err(cause))) => cause,
            Ok(Err(_)) | Err(_) => Cause::new("the stream's leader does not answer"),
        };
        if let Some(loss) = self.bus.losses().find_loss(self.name()) {
            return Err(loss.into());
        }
        caller::set_blocker(|| format!("bucket {} cannot be read now: {cause}", self.name()));
        Err(ReadError::Unavailable { bucket: self.name().to_owned(), source: cause })
    }

    async fn ask_for_all(self, ask: Ask) {
        while let Some(waiting) = self.shape.newest_question.take_waiting() {
            let answer = match ask {
                Ask::ByWrite => self.ask_by_write().await,
                Ask::ByRead => self.newest().await,
            };
            let answer = answer.map_err(|error| chain(&error));
            for caller in waiting {
                // The caller may have given up.
                let _: Result<(), AnsweredRevision> =
                    caller.send(answer.clone().map_err(Cause::new));
            }
        }
    }

    async fn ask_by_write(&self) -> Result<u64, ReadError> {
        let seen = self.shape.standing.footing().highest;
        let refused = async { Ok(self.refused_write().await) };
        match self.on_footing(refused).await?.filter(|newest| *newest >= seen) {
            Some(newest) => Ok(newest),
            None => self.newest().await,
        }
    }

    /// The stream's last sequence, as the refusal of a write names it.
    async fn refused_write(&self) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers::set(&mut headers, headers::EXPECTED_LAST, NO_SEQUENCE);
        let within = self.bus.config().request_timeout;
        let answer = self.bus.exchange(self.subject(KEY), headers, Bytes::new(), within).await;
        last_sequence(&read_ack(&answer.ok()?).ok()?.error?)
    }
}
