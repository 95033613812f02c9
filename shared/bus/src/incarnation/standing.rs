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
/// How long a stream is missing before it counts as deleted. A cluster that restarts may report it
/// as missing for a moment.
const ABSENCE_MAX: Duration = Duration::from_secs(3);
/// How long a stream may end below the highest revision that was seen: a new leader may not have
/// applied all of its messages yet.
pub(crate) const BEHIND_MAX: Duration = Duration::from_secs(3);
/// How many of the newest messages are remembered to recognize a stream. An overwritten message
/// cannot be compared.
const MARKS_MAX: usize = 8;
/// Interval at which a process that uses a bucket reads its entry on the record of buckets.
const RECORD_READ_INTERVAL: Duration = Duration::from_secs(20);
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
    /// No stream was known, or every remembered message was overwritten.
    Unsure,
    /// Another incarnation, which is known from now on.
    Next,
    /// It ends below what was seen. It may be the known stream, whose leader is not ready.
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
    /// The messages above that end are there again: the stream's leader was only late.
    Refuted,
    /// It is on the record of buckets ([`fall`](crate::store::fall)).
    Told(String),
}

/// The end of a stream that fell for good.
const FOR_GOOD: u64 = u64::MAX;

/// The state that a write was decided on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footing {
    /// How many incarnations the process has seen.
    generation: u64,
    /// The highest revision seen: a write that is stored now gets a higher one, if the stream is
    /// the known one.
    pub(crate) highest: u64,
}

/// A stream as its leader describes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundStream<'a> {
    pub(crate) config: &'a Map<String, Value>,
    pub(crate) created: &'a str,
    pub(crate) last: u64,
    /// Whether its leader heard from a majority a moment ago.
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
    /// When the entry on the record of buckets was read.
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
        let mut standings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(standings.entry(bucket.to_owned()).or_default())
    }

    pub(crate) fn list(&self) -> Vec<(String, Arc<BucketStanding>)> {
        let standings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        standings.iter().map(|(bucket, standing)| (bucket.clone(), Arc::clone(standing))).collect()
    }

    /// The incarnation and the highest revision of each bucket, for `$SRV.STATS`: `berth bus`
    /// continues above the revisions that processes have seen.
    pub(crate) fn describe(&self) -> Value {
        let standings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = standings.iter().map(|(bucket, standing)| {
            let stream = standing.lock();
            let number = stream.incarnation.unwrap_or_default().number;
            (bucket.clone(), json!({ "incarnation": number, "highest": stream.highest }))
        });
        Value::Object(entries.collect::<Map<_, _>>())
    }
}

impl BucketStanding {
    fn lock(&self) -> MutexGuard<'_, KnownStream> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The known incarnation; none before the stream was described once.
    pub(crate) fn incarnation(&self) -> Option<Incarnation> {
        self.lock().incarnation
    }

    pub(crate) fn generations(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    pub(crate) fn add_mirror(&self) -> u64 {
        let mut stream = self.lock();
        stream.next_mirror += 1;
        let id = stream.next_mirror;
        stream.mirrors.insert(id, false);
        id
    }

    pub(crate) fn remove_mirror(&self, id: u64) {
        self.lock().mirrors.remove(&id);
    }

    /// Records that a mirror has read all of a generation. Returns whether every mirror has.
    pub(crate) fn mark_read(&self, id: u64, generation: u64) -> bool {
        let mut stream = self.lock();
        if generation == *self.generation.borrow() {
            stream.mirrors.insert(id, true);
        }
        stream.is_read()
    }

    /// Records a message of the stream.
    pub(crate) fn record_message(&self, mark: Mark) {
        let mut stream = self.lock();
        stream.highest = stream.highest.max(mark.sequence);
        if stream.marks.back().is_some_and(|last| last.sequence >= mark.sequence) {
            return;
        }
        stream.marks.push_back(mark);
        if stream.marks.len() > MARKS_MAX {
            stream.marks.pop_front();
        }
    }

    /// Records a revision that the server acknowledged.
    pub(crate) fn record_revision(&self, revision: u64) {
        let mut stream = self.lock();
        stream.highest = stream.highest.max(revision);
    }

    /// The state on which a write is decided now.
    pub(crate) fn footing(&self) -> Footing {
        let highest = self.lock().highest;
        Footing { generation: *self.generation.borrow(), highest }
    }

    pub(crate) fn is_on(&self, footing: Footing) -> bool {
        *self.generation.borrow() == footing.generation
    }

    /// Whether the last comparison is still valid.
    pub(crate) fn is_checked(&self) -> bool {
        self.lock().checked_until.is_some_and(|until| !until.left().is_zero())
    }

    /// Judges the stream by its description alone; none if only its messages can tell.
    pub(crate) fn judge_description(&self, stream: FoundStream<'_>) -> Option<Verdict> {
        let found = Incarnation::read(stream.config);
        let mut known_stream = self.lock();
        known_stream.absent_since = None;
        if unfinished_above(stream.config).is_some() {
            return Some(Verdict::Lost(RESTORING.to_owned()));
        }
        let Some(before) = known_stream.incarnation else {
            known_stream.begin(found, stream.created);
            return Some(Verdict::Unsure);
        };
        if found.number > before.number {
            known_stream.begin(found, stream.created);
            self.generation.send_modify(|generation| *generation += 1);
            return Some(Verdict::Next);
        }
        let last = stream.last;
        let is_behind = last < known_stream.highest;
        let mut end = FOR_GOOD;
        // A leader without a majority cannot know what was stored since.
        let counts = is_behind && stream.has_majority;
        let since = counts.then(|| known_stream.behind_since.unwrap_or_else(Instant::now));
        known_stream.behind_since = since;
        let why = if found.number < before.number {
            "an older one was put in its place".to_owned()
        } else if known_stream.was_absent {
            "it was away meanwhile".to_owned()
        } else if stream.created != known_stream.created {
            "another one was made in its place".to_owned()
        } else if is_behind && since.is_none_or(|since| since.elapsed() < BEHIND_MAX) {
            return Some(Verdict::Behind);
        } else if is_behind {
            end = last;
            format!("it ends at revision {last}, and {} was seen", known_stream.highest)
        } else if known_stream.marks.is_empty() {
            return Some(known_stream.conclude(Verdict::Same, None));
        } else {
            return None;
        };
        Some(known_stream.fall(why, end))
    }

    pub(crate) fn record_fall(&self, why: String) -> Verdict {
        self.lock().fall(why, FOR_GOOD)
    }

    /// Takes a fall back: the stream still ends where it ended, and none of its messages can be
    /// compared.
    pub(crate) fn refute(&self) {
        let mut stream = self.lock();
        if matches!(stream.fall, Fall::Seen { end, .. } if end != FOR_GOOD) {
            stream.fall = Fall::Refuted;
        }
    }

    /// Concludes a comparison that found no difference; `seen` is the message that it compared, if
    /// any.
    pub(crate) fn conclude(&self, verdict: Verdict, seen: Option<Mark>) -> Verdict {
        self.lock().conclude(verdict, seen)
    }

    /// The incarnation's number, its highest revision and its fall.
    pub(crate) fn find_fall(&self) -> Option<(u64, u64, Fall)> {
        let stream = self.lock();
        Some((stream.incarnation?.number, stream.highest, stream.fall.clone()))
    }

    /// Takes over what the record of buckets says of a fall, unless this process saw the stream
    /// fall itself.
    pub(crate) fn hear(&self, number: u64, recorded_fall: Option<String>) {
        let mut stream = self.lock();
        let is_current = stream.incarnation.is_some_and(|incarnation| incarnation.number == number);
        if is_current && !matches!(stream.fall, Fall::Seen { .. }) {
            stream.fall = recorded_fall.map_or(Fall::None, Fall::Told);
        }
    }

    /// Whether the entry on the record of buckets is due to be read; records that it is read now.
    pub(crate) fn is_look_due(&self) -> bool {
        let mut stream = self.lock();
        let is_due = stream.looked.is_none_or(|looked| looked.elapsed() >= RECORD_READ_INTERVAL);
        if is_due {
            stream.looked = Some(Instant::now());
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
        let mut stream = self.lock();
        stream.checked_until = Some(sent.after(CHECKED_FOR));
        stream.highest = stream.highest.max(last);
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
        let mut stream = self.lock();
        stream.checked_until = None;
        let since = *stream.absent_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= ABSENCE_MAX && stream.incarnation.is_some() {
            stream.was_absent = true;
            stream.fall("it was away".to_owned(), FOR_GOOD);
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

/// The reason of a loss that only an operator can end.
pub(crate) fn went_back(why: &str) -> String {
    format!("was restored or set back by another tool ({why}), and nobody has accepted it")
}
