//! One request, one reply, by a deadline.
//!
//! **Owns** the rules of each exchange:
//! - It fails at once while the bus is disconnected.
//! - It ends by the deadline even if the client's own queue is full.
//! - It ends at once if the server's permissions refuse it.
//! - Its error tells "no responder" from "no reply".

use std::time::Duration;

use async_nats::{HeaderMap, Message, RequestErrorKind};
use berth_domain::retry::Schedule;
use bytes::Bytes;
use rand::RngExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;
use tokio::time::{sleep, timeout};

use crate::cause::Cause;
use crate::connection::handle::Bus;

/// Why there is no answer.
#[derive(Debug, Error)]
pub(crate) enum ExchangeError {
    /// Not sent.
    #[error("the bus is not connected")]
    Disconnected,
    /// Not received: the server's permissions do not allow it.
    #[error("the server's permissions do not allow {0}")]
    Denied(String),
    /// Sent, but nothing subscribes to the subject: not received.
    #[error("no service listens on the subject")]
    NoResponder,
    /// Sent, perhaps received.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// Not sent: larger than the server carries.
    #[error("the message is larger than the server carries")]
    TooLarge,
    /// Not sent: a subject with a space, a line break or nothing in it.
    #[error("the subject is not valid")]
    Subject,
    /// Sent, perhaps received; then the connection broke.
    #[error("the connection broke")]
    Broken(#[source] Cause),
}

/// Why the JetStream API (`$JS.API`) did not do what was requested.
#[derive(Debug, Error)]
pub(crate) enum ApiError {
    /// The server refused.
    #[error("{description} ({code})")]
    Refused {
        /// The status, as in HTTP.
        status: u64,
        /// The server's error code.
        code: u64,
        /// The server's description.
        description: String,
    },
    /// No answer.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The answer is not valid.
    #[error("the server's answer cannot be read")]
    Answer(#[source] serde_json::Error),
}

impl From<ApiError> for Cause {
    fn from(error: ApiError) -> Self {
        Self::new(error)
    }
}

impl ApiError {
    /// Whether a retry may help: elections end, clusters form.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::Refused { status, .. } => *status == 503,
            Self::Exchange(error) => !matches!(
                error,
                ExchangeError::TooLarge | ExchangeError::Subject | ExchangeError::Denied(_)
            ),
            Self::Answer(_) => false,
        }
    }
}

impl Bus {
    pub(crate) async fn exchange(
        &self,
        subject: String,
        headers: HeaderMap,
        body: Bytes,
        within: Duration,
    ) -> Result<Message, ExchangeError> {
        if !self.connected() {
            return Err(ExchangeError::Disconnected);
        }
        if self.link().denials().inbox_is_denied() {
            return Err(ExchangeError::Denied("its answer".to_owned()));
        }
        let mut request = async_nats::Request::new().payload(body).timeout(None);
        if !headers.is_empty() {
            request = request.headers(headers);
        }
        let expected = self.link().denials().expect(&subject);
        let denied = expected.denied();
        let denied = denied.notified();
        tokio::pin!(denied);
        denied.as_mut().enable();
        // The client's own timeout starts only once its queue took the request. This timeout covers
        // both.
        let answer = timeout(within, async {
            tokio::select! {
                answer = self.client().send_request(subject.clone(), request) => Ok(answer),
                () = denied => Err(self.denied(&subject)),
            }
        });
        let answer = answer.await.unwrap_or_else(|_| {
            self.link().record_unanswered();
            Err(ExchangeError::TimedOut(within))
        });
        answer?.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => ExchangeError::NoResponder,
            RequestErrorKind::TimedOut => ExchangeError::TimedOut(within),
            RequestErrorKind::MaxPayloadExceeded => ExchangeError::TooLarge,
            RequestErrorKind::InvalidSubject => ExchangeError::Subject,
            RequestErrorKind::Other => ExchangeError::Broken(Cause::new(error)),
        })
    }

    /// What a refusal means for this exchange.
    fn denied(&self, subject: &str) -> ExchangeError {
        if self.link().denials().inbox_is_denied() {
            return ExchangeError::Broken(Cause::new("the permissions keep its answer away"));
        }
        ExchangeError::Denied(subject.to_owned())
    }

    /// Waits until the server has processed everything sent so far, subscriptions included. A
    /// request that is sent after that reaches the endpoint. False if it takes longer than
    /// `within`.
    pub async fn flush(&self, within: Duration) -> bool {
        // Nothing subscribes to the bare prefix of the inboxes. The server's *no responders* shows
        // that it has processed everything before, and so does a refusal. The inboxes themselves
        // cannot be used: an identity may not publish to them.
        let inbox = self.client().new_inbox();
        let nowhere = inbox.rsplit_once('.').map_or(inbox.as_str(), |(prefix, _)| prefix);
        let nowhere = nowhere.to_owned();
        let answer = self.exchange(nowhere, HeaderMap::new(), Bytes::new(), within).await;
        matches!(answer, Err(ExchangeError::NoResponder | ExchangeError::Denied(_)))
    }

    /// Sends a request to the JetStream API.
    pub(crate) async fn api<T: DeserializeOwned>(
        &self,
        subject: String,
        body: &Value,
    ) -> Result<T, ApiError> {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let within = self.config().request_timeout;
        let answer = self.exchange(subject, HeaderMap::new(), body, within).await?;
        let answer: Value = serde_json::from_slice(&answer.payload).map_err(ApiError::Answer)?;
        if let Some(error) = answer.get("error") {
            return Err(refusal(error));
        }
        serde_json::from_value(answer).map_err(ApiError::Answer)
    }
}

/// Reads an `{"code":…,"err_code":…,"description":…}`.
pub(crate) fn refusal(error: &Value) -> ApiError {
    let number = |name: &str| error.get(name).and_then(Value::as_u64).unwrap_or(0);
    let description = error.get("description").and_then(Value::as_str).unwrap_or("no reason given");
    ApiError::Refused {
        status: number("code"),
        code: number("err_code"),
        description: description.to_owned(),
    }
}

/// The pauses between tries of one operation.
const PAUSES: Schedule =
    Schedule { first: Duration::from_millis(20), max: Duration::from_millis(500) };

/// Waits after a number of tries.
pub(crate) async fn pause(tries: u32) {
    let wait = PAUSES.wait(tries.saturating_add(1), rand::rng().random());
    sleep(wait).await;
}
