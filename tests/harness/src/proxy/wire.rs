//! A tripwire across cables: it goes off at the n-th message of a kind, from any sender.
//!
//! Owns: which messages count, and which one is next. Promises: each message counts once, in the
//! order in which the cables carry them. The cable that trips it stops before the message or right
//! behind it, before any of the answer has passed. Never: counts a message without a reply subject,
//! which is neither a write nor a call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::frame::{Publish, covers};

/// How long the message that tripped it may take to be answered.
const HANDLED: Duration = Duration::from_secs(10);

/// On which side of the message everything stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It is not sent.
    Before,
    /// It was sent and handled, and its sender does not know.
    After,
}

/// Where the wire lies.
#[derive(Debug, Clone)]
pub struct Point {
    /// Patterns of subjects, as NATS has them. A message on one of them counts.
    pub subjects: Vec<String>,
    /// Which of those messages trips it, from 0.
    pub at: usize,
    /// On which side of it.
    pub side: Side,
}

/// A message that went by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// The label of the cable it came by.
    pub cable: String,
    /// Its subject.
    pub subject: String,
}

/// One wire, shared by the cables it lies across.
#[derive(Debug, Clone)]
pub struct Wire {
    laid: Arc<Mutex<Laid>>,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
struct Laid {
    point: Option<Point>,
    passed: Vec<Passed>,
    /// The answer that tells that the message was handled.
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
        Self { laid: Arc::default(), progress: watch::Sender::new(Progress::default()) }
    }
}

impl Wire {
    /// Lays it at a point; what was counted before is forgotten.
    pub fn arm(&self, point: Point) {
        let mut laid = self.laid();
        *laid = Laid { point: Some(point), ..Laid::default() };
        self.progress.send_replace(Progress::default());
    }

    /// Takes it away, and says what went by since it was laid.
    pub fn disarm(&self) -> Vec<Passed> {
        std::mem::take(&mut *self.laid()).passed
    }

    /// Whether it was tripped: then a cable is stopped.
    pub fn is_tripped(&self) -> bool {
        self.progress.borrow().tripped.is_some()
    }

    /// Waits until it is tripped; behind a message also until that was surely handled: its answer
    /// has come as far as the cable.
    ///
    /// # Panics
    /// When the message that tripped it is not answered.
    pub async fn tripped(&self) -> Passed {
        let mut progress = self.progress.subscribe();
        let tripped = progress.wait_for(|progress| progress.tripped.is_some()).await;
        let tripped = tripped.expect("the wire is here").tripped.clone();
        let tripped = tripped.expect("it was waited for");
        let handled = timeout(HANDLED, progress.wait_for(|progress| progress.handled)).await;
        assert!(handled.is_ok(), "{tripped:?} was not answered within {HANDLED:?}");
        tripped
    }

    /// A message comes by. Before anybody learns that it tripped the wire, the cable is silenced.
    pub(super) fn pass(&self, cable: &str, publish: &Publish, silence: impl FnOnce()) -> Verdict {
        let Some(reply) = &publish.reply else { return Verdict::Pass };
        let mut laid = self.laid();
        let Some(Point { subjects, at, side }) = laid.point.clone() else { return Verdict::Pass };
        let counts = subjects.iter().any(|pattern| covers(pattern, &publish.subject));
        if !counts || laid.passed.len() > at {
            return Verdict::Pass;
        }
        let passed = Passed { cable: cable.to_owned(), subject: publish.subject.clone() };
        laid.passed.push(passed.clone());
        if laid.passed.len() <= at {
            return Verdict::Pass;
        }
        silence();
        let handled = side == Side::Before;
        laid.awaited = (!handled).then(|| reply.clone().into_bytes());
        self.progress.send_replace(Progress { tripped: Some(passed), handled });
        if handled { Verdict::StopBefore } else { Verdict::StopBehind }
    }

    /// Bytes came back and are held.
    pub(super) fn hear(&self, held: &[u8]) {
        let mut laid = self.laid();
        let answered = laid.awaited.as_ref().is_some_and(|awaited| {
            held.windows(awaited.len()).any(|bytes| bytes == awaited.as_slice())
        });
        if answered {
            laid.awaited = None;
            self.progress.send_modify(|progress| progress.handled = true);
        }
    }

    fn laid(&self) -> MutexGuard<'_, Laid> {
        self.laid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
