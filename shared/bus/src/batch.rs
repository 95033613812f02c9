//! Batched direct reads: many messages for one question, answered by whichever replica.
//!
//! **Promises** that an answer which does not come to its end in time is an error, and no shorter
//! answer. A replica may be behind: who must know more asks the leader afterwards.

use async_nats::Message;
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::bucket::Bucket;
use crate::cause::Cause;
use crate::headers;
use crate::read::Entry;

/// How a batched read ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchedRead {
    /// All of it came. Whoever answered had everything up to this revision; 0 where that is not
    /// said, such as when there is nothing.
    Whole { known: u64 },
    /// There is more than the server gives in one answer; nothing came.
    TooMany,
}

impl Bucket {
    /// Asks, and hands over each message of the answer.
    pub(crate) async fn batch(
        &self,
        question: Value,
        mut found: impl FnMut(Entry),
    ) -> Result<BatchedRead, Cause> {
        let deadline = Instant::now() + self.bus.config().request_timeout;
        if !self.bus.connected() {
            return Err(Cause::new("the bus is not connected"));
        }
        let silent = |_| Cause::new("the batched read has no answer in time");
        let client = self.bus.client();
        let inbox = client.new_inbox();
        let asked = async {
            let answers = client.subscribe(inbox.clone()).await.map_err(Cause::new)?;
            let subject = format!("$JS.API.DIRECT.GET.{}", self.shape.stream);
            let body = question.to_string().into();
            client.publish_with_reply(subject, inbox, body).await.map_err(Cause::new)?;
            Ok::<_, Cause>(answers)
        };
        let mut answers = timeout_at(deadline, asked).await.map_err(silent)??;
        let mut is_empty = true;
        loop {
            let answer = timeout_at(deadline, answers.next()).await.map_err(silent)?;
            let answer = answer.ok_or_else(|| Cause::new("the connection ended"))?;
            match answer.status.map(|status| status.as_u16()) {
                None | Some(200) => {
                    is_empty = false;
                    if let Some(entry) = self.direct(&answer) {
                        found(entry);
                    }
                }
                Some(204) => {
                    let all = answer.headers.as_ref();
                    let known = all.and_then(|all| headers::number(all, headers::UP_TO));
                    return Ok(BatchedRead::Whole { known: known.unwrap_or(0) });
                }
                // After a message it means that another one cannot be loaded.
                Some(404) if is_empty => return Ok(BatchedRead::Whole { known: 0 }),
                Some(413) => return Ok(BatchedRead::TooMany),
                Some(_) => {
                    let said = answer.description.unwrap_or_default();
                    return Err(Cause::new(format!("the server answers {said:?}")));
                }
            }
        }
    }

    /// An entry of the answer, whose facts are in its headers.
    fn direct(&self, answer: &Message) -> Option<Entry> {
        let all = answer.headers.as_ref()?;
        let subject = headers::get(all, headers::SUBJECT)?;
        let revision = headers::number(all, headers::SEQUENCE)?;
        let created = headers::get(all, headers::TIME).map(str::to_owned);
        let created = created.and_then(|time| time.try_into().ok()).unwrap_or_default();
        self.entry_of(subject, revision, created, all, &answer.payload)
    }
}
