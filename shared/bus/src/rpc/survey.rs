//! One request with many answers.
//!
//! **Owns** the rule for the end: the number of answers is not known, so the survey ends when no
//! more come for a moment.
//!
//! **Promises** an end by the deadline, at once if nothing subscribes to the subject or the server
//! refuses the request, and a bounded number of answers.

use std::time::Duration;

use async_nats::StatusCode;
use futures_util::StreamExt as _;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout, timeout_at};

use crate::cause::Cause;
use crate::connection::handle::Bus;
use crate::rpc::request::RequestError;

/// How long after an answer the next one may come.
const QUIET_MAX: Duration = Duration::from_millis(400);
/// The most answers that are kept.
const ANSWERS_MAX: usize = 20_000;

impl Bus {
    /// Asks every subscriber of a subject, such as `$SRV.STATS.berth-claim`, and collects the
    /// answers of this time. An answer that cannot be read is left out.
    pub async fn survey<T: DeserializeOwned>(
        &self,
        subject: &str,
        within: Duration,
    ) -> Result<Vec<T>, RequestError> {
        if !self.connected() {
            return Err(RequestError::Unavailable { subject: subject.to_owned() });
        }
        let until = Instant::now() + within;
        let failed =
            |source: Cause| RequestError::Unsendable { subject: subject.to_owned(), source };
        let late = || RequestError::NoAnswer { subject: subject.to_owned(), within, source: None };
        let expected = self.link().denials().expect(subject);
        let denied = expected.denied();
        let denied = denied.notified();
        tokio::pin!(denied);
        denied.as_mut().enable();
        let inbox = self.client().new_inbox();
        let sent = async {
            let answers = self.client().subscribe(inbox.clone()).await.map_err(Cause::new)?;
            let body = bytes::Bytes::new();
            let published = self.client().publish_with_reply(subject.to_owned(), inbox, body);
            published.await.map_err(Cause::new)?;
            Ok(answers)
        };
        let mut answers = timeout(within, sent).await.map_err(|_| late())?.map_err(failed)?;
        let mut found = Vec::new();
        let mut next_by = until;
        while found.len() < ANSWERS_MAX {
            let answer = tokio::select! {
                answer = timeout_at(next_by, answers.next()) => answer,
                () = &mut denied, if found.is_empty() => {
                    return Err(RequestError::NotAllowed { subject: subject.to_owned() });
                }
            };
            let Ok(Some(answer)) = answer else { break };
            if answer.status == Some(StatusCode::NO_RESPONDERS) {
                return Ok(Vec::new());
            }
            found.extend(serde_json::from_slice(&answer.payload).ok());
            next_by = until.min(Instant::now() + QUIET_MAX);
        }
        // A subscriber exists, but has not answered.
        if found.is_empty() { Err(late()) } else { Ok(found) }
    }
}
