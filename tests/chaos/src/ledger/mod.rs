//! The record of what callers were told, and when. The system is judged by it.
//!
//! Owns: every acknowledgement with the moments before and after it, the counts, the log of what
//! happened, and the violations found so far. Promises: the moment before a request is taken before
//! the request is sent, and the moment after an answer is taken after the answer has come. What
//! lies between two such moments therefore lies between them for every process. Never: asks the
//! system.

mod storage;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

pub use storage::{CreatedVolume, CreationRequest, CutSnapshot};

/// Microseconds since 1970, the unit of the drivers' logs.
pub type Micros = u64;

/// The present moment.
pub fn now_us() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Micros::try_from(since.as_micros()).unwrap_or(Micros::MAX)
}

/// A mount that was acknowledged to a caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hold {
    /// The alloc that the volume is mounted for.
    pub alloc: String,
    /// The number of the volume; see [`kind_of`](crate::plan::kind_of).
    pub volume: usize,
    /// The number of the node, counted from 0.
    pub node: usize,
    /// The epoch of the claim.
    pub epoch: u64,
    /// The path at which the volume is mounted on the node.
    pub path: String,
    /// Whether the alloc may write to the volume.
    pub writes: bool,
    /// The moment after the answer came.
    pub acknowledged: Micros,
    /// The moment before the first request was sent that may end the mount; `None` before that.
    pub let_go: Option<Micros>,
    /// The moment at which the stream's leader no longer had the claim; `None` before that.
    pub gone: Option<Micros>,
}

/// Something that must never happen, and did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The kind of violation, by which violations are counted.
    pub kind: &'static str,
    /// The sentence that describes it.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.what)
    }
}

/// The book that all tasks of a run write to.
#[derive(Default)]
pub struct Ledger {
    book: Mutex<Book>,
}

/// Everything that was written down.
#[derive(Default, Clone)]
pub struct Book {
    /// The mounts that were acknowledged.
    pub holds: Vec<Hold>,
    /// The volumes whose creation was acknowledged.
    pub created: Vec<CreatedVolume>,
    /// The snapshots that were acknowledged as ready.
    pub cut: Vec<CutSnapshot>,
    /// The violations, in the order in which they were found.
    pub violations: Vec<Violation>,
    /// The allocs that were registered, each with whether its end was acknowledged.
    pub allocs: BTreeMap<String, bool>,
    /// How often each node was declared gone or came back. The number is odd while the node is
    /// gone.
    pub node_changes: BTreeMap<usize, u64>,
    /// How many operations of each kind came to each end.
    pub operations: BTreeMap<(&'static str, String), u64>,
    /// How many faults of each kind struck.
    pub faults: BTreeMap<&'static str, u64>,
    /// The log lines, each with its moment.
    pub log: Vec<(Micros, String)>,
}

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Book> {
        // A task that panicked leaves the book whole: each entry is one push.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of everything written so far.
    pub fn read(&self) -> Book {
        self.book().clone()
    }

    /// Adds a line to the log.
    pub fn note(&self, line: impl fmt::Display) {
        self.book().log.push((now_us(), line.to_string()));
    }

    /// Records a violation and logs it.
    pub fn violated(&self, kind: &'static str, what: impl fmt::Display) {
        let violation = Violation { kind, what: what.to_string() };
        let mut book = self.book();
        book.log.push((now_us(), format!("VIOLATION {violation}")));
        book.violations.push(violation);
    }

    /// Counts an operation by its kind and its end.
    pub fn ended(&self, kind: &'static str, end: impl fmt::Display) {
        *self.book().operations.entry((kind, end.to_string())).or_default() += 1;
    }

    /// Counts a fault by its kind.
    pub fn struck(&self, kind: &'static str) {
        *self.book().faults.entry(kind).or_default() += 1;
    }

    /// Records that the alloc may exist from now on.
    pub fn placed(&self, alloc: &str) {
        self.book().allocs.entry(alloc.to_owned()).or_insert(false);
    }

    /// Records that the end of the alloc was acknowledged.
    pub fn stopped(&self, alloc: &str) {
        self.book().allocs.insert(alloc.to_owned(), true);
    }

    /// The allocs whose end was not acknowledged.
    pub fn unstopped(&self) -> Vec<String> {
        let book = self.book();
        let live = book.allocs.iter().filter(|(_, ended)| !**ended);
        live.map(|(alloc, _)| alloc.clone()).collect()
    }

    /// Records that the node was declared gone, or that it is back. The claims of a node that
    /// was declared gone may be freed from now on.
    pub fn node_changes(&self, node: usize, gone: bool) {
        let now = now_us();
        let mut book = self.book();
        let changes = book.node_changes.entry(node).or_default();
        if (*changes % 2 == 1) != gone {
            *changes += 1;
        }
        let node_holds = book.holds.iter_mut().filter(|hold| gone && hold.node == node);
        node_holds.for_each(|hold| hold.let_go = hold.let_go.or(Some(now)));
    }

    /// A number that changes whenever the node is declared gone or comes back; `None` while it
    /// is gone. While the number stays the same, only its own caller ends an alloc on the node.
    pub fn calm(&self, node: usize) -> Option<u64> {
        let changes = self.book().node_changes.get(&node).copied().unwrap_or_default();
        changes.is_multiple_of(2).then_some(changes)
    }

    /// Records an acknowledged mount. A second acknowledgement of the same mount changes
    /// nothing.
    pub fn held(&self, mut hold: Hold) {
        let mut book = self.book();
        // The node may have been declared gone while the answer was on its way.
        if book.node_changes.get(&hold.node).is_some_and(|changes| changes % 2 == 1) {
            hold.let_go = Some(hold.acknowledged);
        }
        let known = book.holds.iter().any(|known| {
            (&known.alloc, known.volume, known.epoch) == (&hold.alloc, hold.volume, hold.epoch)
        });
        if !known {
            book.holds.push(hold);
        }
    }

    /// Records that a request is about to be sent that may end the alloc's claim.
    pub fn lets_go(&self, alloc: &str) {
        let now = now_us();
        let mut book = self.book();
        let alloc_holds = book.holds.iter_mut().filter(|hold| hold.alloc == alloc);
        alloc_holds.for_each(|hold| hold.let_go = hold.let_go.or(Some(now)));
    }

    /// Records that the alloc's claim was seen to be gone.
    pub fn is_gone(&self, alloc: &str) {
        let now = now_us();
        let mut book = self.book();
        let alloc_holds = book.holds.iter_mut().filter(|hold| hold.alloc == alloc);
        alloc_holds.for_each(|hold| hold.gone = hold.gone.or(Some(now)));
    }
}
