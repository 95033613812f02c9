//! A tripwire across cables: the n-th message of any sender on some subjects trips it.
//!
//! Owns: which messages count, and how many have passed. Promises: each message counts once, in the
//! order in which the cables carry them. The cable that trips it stops before the message or right
//! behind it, before any byte of the answer has passed. Never: counts a message without a reply
//! subject, which is neither a write nor a call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::frame::{Publish, covers};

/// How long the answer to the message that tripped the wire may take.
const HANDLED: Duration = Duration::from_secs(10);

/// On which side of the message everything stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The message is not sent.
    Before,
    /// The message was sent and handled, and its sender does not learn that.
    After,
}

/// The message that trips the wire.
#[derive(Debug, Clone)]
pub struct Point {
    /// NATS patterns of subjects. A message on one of them counts.
    pub subjects: Vec<String>,
    /// Which of those messages trips it, from 0.
    pub at: usize,
    /// On which side of it.
    pub side: Side,
}

/// A message that passed the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// The label of its cable.
    pub cable: String,
    /// Its subject.
    pub subject: String,
}

/// One wire, shared by the cables it lies across.
#[derive(Debug, Clone)]
pub struct Wire {
    state: Arc<Mutex<WireState>>,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
struct WireState {
    point: Option<Point>,
    passed: Vec<Passed>,
    /// The reply subject whose message shows that the tripping message was handled.
    awaited: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Default)]
struct Progress {
    tripped: Option<Passed>,
    handled: bool,
}

/// What a cable does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    StopBefore,
    StopBehind,
}

impl Default for Wire {
    fn default() -> Self {
        Self { state: Arc::default(), progress: watch::Sender::new(Progress::default()) }
    }
}

impl Wire {
    /// Sets the point, and restarts the count.
    pub fn arm(&self, point: Point) {
        let mut state = self.state();
        *state = WireState { point: Some(point), ..WireState::default() };
        self.progress.send_replace(Progress::default());
    }

    /// Removes the point; returns the messages that passed since it was set.
    pub fn disarm(&self) -> Vec<Passed> {
        std::mem::take(&mut *self.state()).passed
    }

    /// Whether it was tripped: then a cable is stopped.
    pub fn is_tripped(&self) -> bool {
        self.progress.borrow().tripped.is_some()
    }

    /// Waits until it is tripped. With [`Side::After`], waits also until the answer has come to the
    /// cable: then the message was handled.
    ///
    /// # Panics
    /// When the message that tripped it is not answered.
    pub async fn tripped(&self) -> Passed {
        let mut progress = self.progress.subscribe();
        let tripped = progress.wait_for(|progress| progress.tripped.is_some()).await;
        let tripped = tripped.expect("the wire keeps the sender").tripped.clone();
        let tripped = tripped.expect("the wait ends with a message");
        let handled = timeout(HANDLED, progress.wait_for(|progress| progress.handled)).await;
        assert!(handled.is_ok(), "{tripped:?} was not answered within {HANDLED:?}");
        tripped
    }

    /// Counts a message. If it trips the wire, silences the cable before the test learns that.
    pub(super) fn pass(&self, cable: &str, publish: &Publish, silence: impl FnOnce()) -> Verdict {
        let Some(reply) = &publish.reply else { return Verdict::Pass };
        let mut state = self.state();
        let Some(Point { subjects, at, side }) = state.point.clone() else { return Verdict::Pass };
        let counts = subjects.iter().any(|pattern| covers(pattern, &publish.subject));
        if !counts || state.passed.len() > at {
            return Verdict::Pass;
        }
        let passed = Passed { cable: cable.to_owned(), subject: publish.subject.clone() };
        state.passed.push(passed.clone());
        if state.passed.len() <= at {
            return Verdict::Pass;
        }
        silence();
        let handled = side == Side::Before;
        state.awaited = (!handled).then(|| reply.clone().into_bytes());
        self.progress.send_replace(Progress { tripped: Some(passed), handled });
        if handled { Verdict::StopBefore } else { Verdict::StopBehind }
    }

    /// Searches the bytes that the server sent, and that are held back, for the awaited answer.
    pub(super) fn hear(&self, held: &[u8]) {
        let mut state = self.state();
        let answered = state.awaited.as_ref().is_some_and(|awaited| {
            held.windows(awaited.len()).any(|bytes| bytes == awaited.as_slice())
        });
        if answered {
            state.awaited = None;
            self.progress.send_modify(|progress| progress.handled = true);
        }
    }

    fn state(&self) -> MutexGuard<'_, WireState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
