//! One cheap question to the leader for all who ask at the same time: how far is the bucket?
//!
//! **Owns** the question. It is a write that cannot pass: it expects a last sequence that no stream
//! has, and the refusal names the stream's. On a cluster each server takes part in a read by
//! `$JS.API`, and only the leader in a write: three servers spend 280 µs on the one and 60 µs on
//! the other.
//!
//! **Promises** each caller the answer to a question that was sent after its call: the answer to an
//! earlier one may lack a write that was acknowledged in between. A refusal that does not name a
//! sequence is followed by a read.
//!
//! **Never** has two questions of one bucket under way.

use std::sync::{Mutex, PoisonError};

use async_nats::HeaderMap;
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::connection::headers;
use crate::store::bucket::Bucket;
use crate::store::read::ReadError;
use crate::stream::ack::{last_sequence, read_ack};

/// A key that no record has. Nothing is stored there.
const KEY: &str = "newest";
/// A sequence that no stream reaches.
const NO_SEQUENCE: i64 = i64::MAX;

type Answer = Result<u64, ReadError>;

/// The callers who wait for the next question.
#[derive(Default)]
pub(crate) struct NewestQuestion(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    is_asked: bool,
    callers: Vec<oneshot::Sender<Answer>>,
}

impl Bucket {
    /// A revision that covers every write that was acknowledged before the call, to any process.
    /// Writes in progress may count. Callers at the same time share a question.
    pub async fn newest_together(&self) -> Result<u64, ReadError> {
        let (tell, told) = oneshot::channel();
        if self.shape.newest_question.enter(tell) {
            tokio::spawn(self.clone().ask_for_all());
        }
        match told.await {
            Ok(answer) => answer,
            // The process ends.
            Err(_) => Box::pin(self.newest()).await,
        }
    }

    async fn ask_for_all(self) {
        while let Some(callers) = self.shape.newest_question.take_callers() {
            let answer = self.ask_newest().await;
            for caller in callers {
                // The caller may have given up.
                let _: Result<(), Answer> = caller.send(answer.clone());
            }
        }
    }

    async fn ask_newest(&self) -> Answer {
        let refused = async { Ok(self.refused_write().await) };
        match self.on_footing(refused).await? {
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

impl NewestQuestion {
    /// Whether the caller has to begin asking.
    fn enter(&self, caller: oneshot::Sender<Answer>) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.callers.push(caller);
        !std::mem::replace(&mut waiting.is_asked, true)
    }

    /// Those who get the answer to the next question; none if nobody waits.
    fn take_callers(&self) -> Option<Vec<oneshot::Sender<Answer>>> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.is_asked = !waiting.callers.is_empty();
        waiting.is_asked.then(|| std::mem::take(&mut waiting.callers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_while_a_question_is_under_way_gets_the_next_one() {
        let question = NewestQuestion::default();
        let caller = || oneshot::channel().0;
        assert!(question.enter(caller()));
        assert_eq!(question.take_callers().map(|callers| callers.len()), Some(1));
        // Under way from here on.
        assert!(!question.enter(caller()));
        assert!(!question.enter(caller()));
        assert_eq!(question.take_callers().map(|callers| callers.len()), Some(2));
        assert!(question.take_callers().is_none());
        assert!(question.enter(caller()));
    }
}
