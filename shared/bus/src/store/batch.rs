//! Batched direct reads: many messages for one request, answered by any replica.
//!
//! **Promises** that an incomplete answer is an error, never a shorter answer. The replica may lag:
//! a caller that needs the newest state asks the leader afterwards.

use async_nats::Message;
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::cause::Cause;
use crate::connection::headers;
use crate::store::bucket::Bucket;
use crate::store::read::Entry;

/// How a batched read ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchedRead {
    /// The answer is complete. `known` is the newest revision that the replica had; 0 if the
    /// replica does not say, such as when nothing matches.
    Whole { known: u64 },
    /// More messages match than the server sends in one answer. No message was returned.
    TooMany,
}

impl Bucket {
    /// Sends the request, and passes on each message of the answer.
    pub(crate) async fn batch(
        &self,
        question: Value,
        mut take_entry: impl FnMut(Entry),
    ) -> Result<BatchedRead, Cause> {
        let deadline = Instant::now() + self.bus.config().request_timeout;
        if !self.bus.connected() {
            return Err(Cause::new("the bus is not connected"));
        }
        let silent = |_| Cause::new("the batched read has no answer in time");
        let client = self.bus.client();
        let inbox = client.new_inbox();
        let reading = async {
            let answers = client.subscribe(inbox.clone()).await.map_err(Cause::new)?;
            let subject = format!("$JS.API.DIRECT.GET.{}", self.shape.stream);
            let body = question.to_string().into();
            client.publish_with_reply(subject, inbox, body).await.map_err(Cause::new)?;
            Ok::<_, Cause>(answers)
        };
        let mut answers = timeout_at(deadline, reading).await.map_err(silent)??;
        let mut is_empty = true;
        loop {
            let answer = timeout_at(deadline, answers.next()).await.map_err(silent)?;
            let answer = answer.ok_or_else(|| Cause::new("the connection ended"))?;
            match answer.status.map(|status| status.as_u16()) {
                None | Some(200) => {
                    is_empty = false;
                    if let Some(entry) = self.direct(&answer) {
                        take_entry(entry);
                    }
                }
                Some(204) => {
                    let headers = answer.headers.as_ref();
                    let newest =
                        headers.and_then(|headers| headers::number(headers, headers::UP_TO));
                    return Ok(BatchedRead::Whole { known: newest.unwrap_or(0) });
                }
                // After a message, this status means that the next message cannot be loaded.
                Some(404) if is_empty => return Ok(BatchedRead::Whole { known: 0 }),
                Some(413) => return Ok(BatchedRead::TooMany),
                Some(_) => {
                    let reason = answer.description.unwrap_or_default();
                    return Err(Cause::new(format!("the server answers {reason:?}")));
                }
            }
        }
    }

    /// An entry from a message that carries its key, revision and time in headers.
    fn direct(&self, answer: &Message) -> Option<Entry> {
        let headers = answer.headers.as_ref()?;
        let subject = headers::get(headers, headers::SUBJECT)?;
        let revision = headers::number(headers, headers::SEQUENCE)?;
        let created = headers::get(headers, headers::TIME).map(str::to_owned);
        let created = created.and_then(|time| time.try_into().ok()).unwrap_or_default();
        self.entry_of(subject, revision, created, headers, &answer.payload)
    }
}
