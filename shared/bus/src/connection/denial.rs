//! Passes refusals of the server's permissions on to the exchanges that wait for them.
//!
//! The server sends no answer to a request that may not be sent. It sends an error that names the
//! subject, to the connection. So each exchange is entered here by its subject before it is sent.
//!
//! **Owns** the exchanges that wait, by subject, and whether this connection may read its inboxes.
//!
//! **Promises** that an exchange ends as soon as its refusal arrives. The server refuses in the
//! order of the requests, so each refusal ends the oldest exchange of its subject.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A refusal, as the server words it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Denial {
    /// Nothing may be published to this subject.
    Publish(String),
    /// This subject may not be subscribed to.
    Subscribe(String),
}

impl Denial {
    /// Reads `Permissions Violation for Publish to "subject"`.
    pub(crate) fn read(error: &str) -> Option<Self> {
        let (before, after_kind) = error.split_once('"')?;
        let (subject, _) = after_kind.split_once('"')?;
        let subject = subject.to_owned();
        match before.to_ascii_lowercase() {
            before if before.contains("publish") => Some(Self::Publish(subject)),
            before if before.contains("subscription") => Some(Self::Subscribe(subject)),
            _ => None,
        }
    }

    /// The kind, for the metric.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Publish(_) => "publish",
            Self::Subscribe(_) => "subscribe",
        }
    }
}

/// The exchanges that a refusal would end, by subject.
#[derive(Debug, Default)]
pub(crate) struct Denials {
    waiting: Mutex<HashMap<String, Waiting>>,
    inbox_prefix: String,
    inbox_is_denied: AtomicBool,
}

#[derive(Debug)]
struct Waiting {
    count: usize,
    denied: Arc<Notify>,
}

impl Denials {
    pub(crate) fn with_inbox(prefix: &str) -> Self {
        Self { inbox_prefix: format!("{prefix}."), ..Self::default() }
    }

    /// Enters an exchange, before it is sent.
    pub(crate) fn expect<'a>(&'a self, subject: &'a str) -> WatchedExchange<'a> {
        let mut waiting = self.lock();
        let entry = waiting.entry(subject.to_owned());
        let entry = entry.or_insert_with(|| Waiting { count: 0, denied: Arc::default() });
        entry.count += 1;
        WatchedExchange { denials: self, subject, denied: Arc::clone(&entry.denied) }
    }

    pub(crate) fn record(&self, denial: &Denial) {
        match denial {
            Denial::Publish(subject) => {
                if let Some(waiting) = self.lock().get(subject) {
                    waiting.denied.notify_one();
                }
            }
            // Without its inbox no exchange of this connection gets an answer. A request may have
            // been received.
            Denial::Subscribe(subject) if subject.starts_with(&self.inbox_prefix) => {
                self.inbox_is_denied.store(true, Ordering::Relaxed);
                for waiting in self.lock().values() {
                    waiting.denied.notify_waiters();
                }
            }
            Denial::Subscribe(_) => {}
        }
    }

    /// Whether the server refused to deliver answers to this connection.
    pub(crate) fn inbox_is_denied(&self) -> bool {
        self.inbox_is_denied.load(Ordering::Relaxed)
    }

    /// Forgets the refusal: a new connection subscribes to its inboxes again.
    pub(crate) fn forget_inbox(&self) {
        self.inbox_is_denied.store(false, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An exchange that a refusal would end. Dropping it removes the entry.
pub(crate) struct WatchedExchange<'a> {
    denials: &'a Denials,
    subject: &'a str,
    denied: Arc<Notify>,
}

impl WatchedExchange<'_> {
    /// Notified when the exchange is refused.
    pub(crate) fn denied(&self) -> Arc<Notify> {
        Arc::clone(&self.denied)
    }
}

impl Drop for WatchedExchange<'_> {
    fn drop(&mut self) {
        let mut waiting = self.denials.lock();
        if let Some(entry) = waiting.get_mut(self.subject) {
            entry.count -= 1;
            if entry.count == 0 {
                waiting.remove(self.subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_read_as_the_server_words_them() {
        let cases = [
            (r#"Permissions Violation for Publish to "a.b""#, Some(Denial::Publish("a.b".into()))),
            (
                r#"Permissions Violation for Subscription to "_INBOX.x.*""#,
                Some(Denial::Subscribe("_INBOX.x.*".into())),
            ),
            (
                r#"permissions violation for subscription to "a.>" using queue "q""#,
                Some(Denial::Subscribe("a.>".into())),
            ),
            ("Permissions Violation", None),
        ];
        for (error, expected) in cases {
            assert_eq!(Denial::read(error), expected, "{error}");
        }
    }

    #[test]
    fn only_the_connections_own_inbox_counts() {
        let denials = Denials::with_inbox("_INBOX_a");
        denials.record(&Denial::Subscribe("_INBOX_ab.x".into()));
        assert!(!denials.inbox_is_denied());
        denials.record(&Denial::Subscribe("_INBOX_a.x.*".into()));
        assert!(denials.inbox_is_denied());
        denials.forget_inbox();
        assert!(!denials.inbox_is_denied());
    }

    #[tokio::test]
    async fn a_refusal_ends_the_exchanges_of_its_subject_and_leaves_nothing() {
        let denials = Denials::default();
        let (first, other) = (denials.expect("a"), denials.expect("b"));
        let (first_refusal, other_refusal) = (first.denied(), other.denied());
        let (first_refusal, other_refusal) = (first_refusal.notified(), other_refusal.notified());
        tokio::pin!(first_refusal, other_refusal);
        first_refusal.as_mut().enable();
        other_refusal.as_mut().enable();
        denials.record(&Denial::Publish("a".into()));
        first_refusal.await;
        let still = std::time::Duration::from_millis(1);
        assert!(tokio::time::timeout(still, other_refusal).await.is_err());
        drop((first, other));
        assert!(denials.lock().is_empty());
    }
}
