//! Whether a bucket's stream is still the one that this process knows.
//!
//! **Owns** what the process knows of each bucket beside its records: the incarnation, when the
//! stream was made, the highest revision that was seen, and when the newest messages were stored.
//! All handles and mirrors of one connection share it.
//!
//! **Promises**
//! - A stream that fell is never served from memory, and nothing that was decided from memory is
//!   written to it: neither a bucket that was restored or set back by another tool, nor one that
//!   was away. It is served again when a person has accepted it, which begins a new
//!   [incarnation](crate::incarnation).
//! - A new incarnation is served when every mirror of the process has read all of it. A write that
//!   was decided on the incarnation before fails.
//! - A write rests on a comparison that is younger than [`CHECKED_FOR`], by a clock that also
//!   counts while the process is stopped or the host suspended. So a busy process asks once in that
//!   time, and not for each write.
//! - Each comparison is one description of the stream, and at most [`MARKS_MAX`] messages of it
//!   ([`compare`](crate::store::compare)).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_host::BootTime;
use serde_json::{Map, Value, json};
use tokio::sync::{MutexGuard as Turn, watch};
use tokio::time::Instant;

use crate::incarnation::{Incarnation, unfinished_above};

/// How long one comparison is good for. `berth bus restore` keeps a stream away for longer.
pub(crate) const CHECKED_FOR: Duration = Duration::from_secs(5);
/// A stream that is missing for so long was deleted. A cluster that restarts may say so for a
/// moment.
const ABSENT_FOR: Duration = Duration::from_secs(3);
/// For so long a stream may end below what was seen: a new leader may not have applied everything
/// yet that it has.
pub(crate) const BEHIND_FOR: Duration = Duration::from_secs(3);
/// How many of the newest messages tell whether a stream is the known one. One that is overwritten
/// tells nothing.
const MARKS_MAX: usize = 8;
/// Interval at which a process that uses a bucket looks at its entry on the record of buckets.
const LOOK_EVERY: Duration = Duration::from_secs(20);
const RESTORING: &str = "is being restored or accepted; if that was interrupted, repeat the \
                         command (`berth bus restore` or `berth bus accept`)";

/// A message that was seen in the stream. While it is there, the stream is the known one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) sequence: u64,
    pub(crate) unix_nanos: u64,
}

/// How a stream relates to the one that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The known stream, with everything that was seen still in it.
    Same,
    /// No stream was known, or every message that would tell was overwritten.
    Unsure,
    /// Another incarnation, which is known from now on.
    Next,
    /// It ends below what was seen. It may be the known one, whose leader is not ready.
    Behind,
    /// Not to be served, and why.
    Lost(String),
}

/// What is known of a fall of the stream, in this incarnation.
#[derive(Debug, Clone, Default)]
pub(crate) enum Fall {
    #[default]
    None,
    /// This process saw that the stream ended at `end`, or that it fell for good.
    Seen { why: String, end: u64 },
    /// What is above that end is there again: the stream's leader was only late.
    Refuted,
    /// It is on the record of buckets ([`fall`](crate::store::fall)).
    Told(String),
}

/// The end of a stream that fell for good.
const FOR_GOOD: u64 = u64::MAX;

/// What a write was decided on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footing {
    /// How many incarnations the process has seen.
    generation: u64,
    /// A write that is stored now gets a higher revision, if the stream is the known one.
    pub(crate) highest: u64,
}

/// A stream as its leader describes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundStream<'a> {
    pub(crate) config: &'a Map<String, Value>,
    pub(crate) created: &'a str,
    pub(crate) last: u64,
    /// Whether its leader has heard from a majority a moment ago.
    pub(crate) has_majority: bool,
}

#[derive(Debug, Default)]
struct KnownStream {
    incarnation: Option<Incarnation>,
    created: String,
    highest: u64,
    /// The newest last.
    marks: VecDeque<Mark>,
    checked_until: Option<BootTime>,
    absent_since: Option<Instant>,
    was_absent: bool,
    behind_since: Option<Instant>,
    fall: Fall,
    /// When the record of buckets was looked at.
    looked: Option<Instant>,
    /// The mirrors, and whether each has read this incarnation.
    mirrors: BTreeMap<u64, bool>,
    next_mirror: u64,
}

/// What is known of one bucket's stream.
#[derive(Debug)]
pub(crate) struct BucketStanding {
    known: Mutex<KnownStream>,
    generation: watch::Sender<u64>,
    /// One comparison at a time; others wait for its result.
    checking: tokio::sync::Mutex<()>,
}

impl Default for BucketStanding {
    fn default() -> Self {
        let (known, checking) = Default::default();
        Self { known, generation: watch::Sender::new(0), checking }
    }
}

/// The standings of a connection's buckets, by name.
#[derive(Debug, Default)]
pub(crate) struct Standings(Mutex<BTreeMap<String, Arc<BucketStanding>>>);

impl Standings {
    pub(crate) fn of_bucket(&self, bucket: &str) -> Arc<BucketStanding> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(bucket.to_owned()).or_default())
    }

    pub(crate) fn list(&self) -> Vec<(String, Arc<BucketStanding>)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(bucket, standing)| (bucket.clone(), Arc::clone(standing))).collect()
    }

    /// The incarnation and the highest revision of each bucket, for `$SRV.STATS`: `berth bus`
    /// continues above the revisions that processes have seen.
    pub(crate) fn describe(&self) -> Value {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let each = all.iter().map(|(bucket, standing)| {
            let known = standing.lock();
            let number = known.incarnation.unwrap_or_default().number;
            (bucket.clone(), json!({ "incarnation": number, "highest": known.highest }))
        });
        Value::Object(each.collect::<Map<_, _>>())
    }
}

impl BucketStanding {
    fn lock(&self) -> MutexGuard<'_, KnownStream> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The incarnation that is known; none before the stream was described once.
    pub(crate) fn incarnation(&self) -> Option<Incarnation> {
        self.lock().incarnation
    }

    pub(crate) fn generations(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    pub(crate) fn add_mirror(&self) -> u64 {
        let mut known = self.lock();
        known.next_mirror += 1;
        let id = known.next_mirror;
        known.mirrors.insert(id, false);
        id
    }

    pub(crate) fn remove_mirror(&self, id: u64) {
        self.lock().mirrors.remove(&id);
    }

    /// Records that a mirror has read all of a generation. Returns whether every mirror has.
    pub(crate) fn mark_read(&self, id: u64, generation: u64) -> bool {
        let mut known = self.lock();
        if generation == *self.generation.borrow() {
            known.mirrors.insert(id, true);
        }
        known.is_read()
    }

    /// Records a message of the stream.
    pub(crate) fn record_message(&self, mark: Mark) {
        let mut known = self.lock();
        known.highest = known.highest.max(mark.sequence);
        if known.marks.back().is_some_and(|last| last.sequence >= mark.sequence) {
            return;
        }
        known.marks.push_back(mark);
        if known.marks.len() > MARKS_MAX {
            known.marks.pop_front();
        }
    }

    /// Records a revision that the server acknowledged.
    pub(crate) fn record_revision(&self, revision: u64) {
        let mut known = self.lock();
        known.highest = known.highest.max(revision);
    }

    /// What a write rests on that is decided now.
    pub(crate) fn footing(&self) -> Footing {
        let highest = self.lock().highest;
        Footing { generation: *self.generation.borrow(), highest }
    }

    pub(crate) fn is_on(&self, footing: Footing) -> bool {
        *self.generation.borrow() == footing.generation
    }

    /// Whether the last comparison is good for another moment.
    pub(crate) fn is_checked(&self) -> bool {
        self.lock().checked_until.is_some_and(|until| !until.left().is_zero())
    }

    /// What the description alone says; none if only messages can tell.
    pub(crate) fn judge_description(&self, stream: FoundStream<'_>) -> Option<Verdict> {
        let found = Incarnation::read(stream.config);
        let mut known = self.lock();
        known.absent_since = None;
        if unfinished_above(stream.config).is_some() {
            return Some(Verdict::Lost(RESTORING.to_owned()));
        }
        let Some(before) = known.incarnation else {
            known.begin(found, stream.created);
            return Some(Verdict::Unsure);
        };
        if found.number > before.number {
            known.begin(found, stream.created);
            self.generation.send_modify(|generation| *generation += 1);
            return Some(Verdict::Next);
        }
        let last = stream.last;
        let is_behind = last < known.highest;
        let mut end = FOR_GOOD;
        // Without a majority, a leader cannot know what was stored since.
        let counts = is_behind && stream.has_majority;
        let since = counts.then(|| known.behind_since.unwrap_or_else(Instant::now));
        known.behind_since = since;
        let why = if found.number < before.number {
            "an older one was put in its place".to_owned()
        } else if known.was_absent {
            "it was away meanwhile".to_owned()
        } else if stream.created != known.created {
            "another one was made in its place".to_owned()
        } else if is_behind && since.is_none_or(|since| since.elapsed() < BEHIND_FOR) {
            return Some(Verdict::Behind);
        } else if is_behind {
            end = last;
            format!("it ends at revision {last}, and {} was seen", known.highest)
        } else if known.marks.is_empty() {
            return Some(known.conclude(Verdict::Same, None));
        } else {
            return None;
        };
        Some(known.fall(why, end))
    }

    /// Records that the stream fell for good.
    pub(crate) fn record_fall(&self, why: String) -> Verdict {
        self.lock().fall(why, FOR_GOOD)
    }

    /// Takes a fall back: the stream ends where it ended, and none of its messages can tell more.
    pub(crate) fn refute(&self) {
        let mut known = self.lock();
        if matches!(known.fall, Fall::Seen { end, .. } if end != FOR_GOOD) {
            known.fall = Fall::Refuted;
        }
    }

    /// What a comparison says that found nothing wrong: it saw this message, if any.
    pub(crate) fn conclude(&self, verdict: Verdict, seen: Option<Mark>) -> Verdict {
        self.lock().conclude(verdict, seen)
    }

    /// The incarnation, the highest revision and the fall that are known.
    pub(crate) fn find_fall(&self) -> Option<(u64, u64, Fall)> {
        let known = self.lock();
        Some((known.incarnation?.number, known.highest, known.fall.clone()))
    }

    /// Records what the record of buckets says of a fall, unless this process knows better.
    pub(crate) fn hear(&self, number: u64, told: Option<String>) {
        let mut known = self.lock();
        let is_current = known.incarnation.is_some_and(|one| one.number == number);
        if is_current && !matches!(known.fall, Fall::Seen { .. }) {
            known.fall = told.map_or(Fall::None, Fall::Told);
        }
    }

    /// Whether it is time to look at the record of buckets.
    pub(crate) fn is_look_due(&self) -> bool {
        let mut known = self.lock();
        let is_due = known.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY);
        if is_due {
            known.looked = Some(Instant::now());
        }
        is_due
    }

    /// Records the description with which the process opened the bucket.
    pub(crate) fn record_opening(&self, asked: BootTime, stream: FoundStream<'_>) {
        let is_new = self.incarnation().is_none();
        let verdict = self.judge_description(stream);
        if is_new && verdict == Some(Verdict::Unsure) {
            self.record_comparison(asked, stream.last);
        }
    }

    /// The newest messages that were seen, the newest first.
    pub(crate) fn marks(&self) -> Vec<Mark> {
        self.lock().marks.iter().rev().copied().collect()
    }

    /// Records that a comparison found the known stream.
    pub(crate) fn record_comparison(&self, sent: BootTime, last: u64) {
        let mut known = self.lock();
        known.checked_until = Some(sent.after(CHECKED_FOR));
        known.highest = known.highest.max(last);
    }

    /// Whether every mirror has read the incarnation.
    pub(crate) fn is_read(&self) -> bool {
        self.lock().is_read()
    }

    /// Waits until no other comparison is under way.
    pub(crate) async fn begin_comparison(&self) -> Turn<'_, ()> {
        self.checking.lock().await
    }

    /// Records that the stream does not exist.
    pub(crate) fn record_absence(&self) {
        let mut known = self.lock();
        known.checked_until = None;
        let since = *known.absent_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= ABSENT_FOR && known.incarnation.is_some() {
            known.was_absent = true;
            known.fall("it was away".to_owned(), FOR_GOOD);
        }
    }
}

impl KnownStream {
    fn begin(&mut self, incarnation: Incarnation, created: &str) {
        self.incarnation = Some(incarnation);
        created.clone_into(&mut self.created);
        (self.highest, self.was_absent) = (0, false);
        (self.checked_until, self.behind_since) = (None, None);
        (self.fall, self.looked) = (Fall::None, Some(Instant::now()));
        self.marks.clear();
        self.mirrors.values_mut().for_each(|has_read| *has_read = false);
    }

    fn fall(&mut self, why: String, end: u64) -> Verdict {
        let end = match self.fall {
            Fall::Seen { end: before, .. } => end.max(before),
            _ => end,
        };
        let verdict = Verdict::Lost(went_back(&why));
        self.fall = Fall::Seen { why, end };
        verdict
    }

    fn conclude(&mut self, verdict: Verdict, seen: Option<Mark>) -> Verdict {
        match &self.fall {
            Fall::Seen { end, .. } if seen.is_some_and(|mark| mark.sequence > *end) => {
                self.fall = Fall::Refuted;
                verdict
            }
            Fall::Seen { why, .. } | Fall::Told(why) => Verdict::Lost(went_back(why)),
            Fall::None | Fall::Refuted => verdict,
        }
    }

    fn is_read(&self) -> bool {
        self.mirrors.values().all(|has_read| *has_read)
    }
}

/// The reason of a loss that only a person ends.
pub(crate) fn went_back(why: &str) -> String {
    format!("was restored or set back by another tool ({why}), and nobody has accepted it")
}
