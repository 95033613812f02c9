//! What the callers were told, and when: the record that the system is held against.
//!
//! Owns: every acknowledgement with the moments around it, what was counted, the log of what
//! happened, and the violations seen so far. Promises: a moment before a request is taken before it
//! is sent, and one after its answer when it has come, so that what lies between two moments here
//! lies so for everybody. Never: asks the system.

mod storage;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

pub use storage::{Created, CreationRequest, Cut};

/// Microseconds since 1970, as the drivers' logs have them.
pub type Micros = u64;

/// Now.
pub fn now_us() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Micros::try_from(since.as_micros()).unwrap_or(Micros::MAX)
}

/// A mount that was acknowledged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hold {
    /// For whom.
    pub alloc: String,
    /// Which of the plan's volumes.
    pub volume: usize,
    /// Where.
    pub node: usize,
    /// Which claim.
    pub epoch: u64,
    /// Where it is mounted.
    pub path: String,
    /// Whether it may write.
    pub writes: bool,
    /// When the answer had come.
    pub acknowledged: Micros,
    /// Before the first request was sent that may end it; none while there is none.
    pub let_go: Option<Micros>,
    /// When the claim was seen to be gone, by a read of the stream's leader.
    pub gone: Option<Micros>,
}

/// Something that must not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// What kind, for counting.
    pub kind: &'static str,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.what)
    }
}

/// All that is written down.
#[derive(Default)]
pub struct Ledger {
    book: Mutex<Book>,
}

/// The entries.
#[derive(Default, Clone)]
pub struct Book {
    /// Every mount that was acknowledged.
    pub holds: Vec<Hold>,
    /// Every volume whose creation was acknowledged.
    pub created: Vec<Created>,
    /// Every snapshot that was acknowledged as ready.
    pub cut: Vec<Cut>,
    /// Violations, in the order in which they were seen.
    pub violations: Vec<Violation>,
    /// Allocs that were registered, and whether they are known to have ended.
    pub allocs: BTreeMap<String, bool>,
    /// How often each node was declared gone or came back: an odd number while it is gone.
    pub node_changes: BTreeMap<usize, u64>,
    /// How often each kind of operation came to which end.
    pub operations: BTreeMap<(&'static str, String), u64>,
    /// How often each kind of fault struck.
    pub faults: BTreeMap<&'static str, u64>,
    /// What happened, line by line.
    pub log: Vec<(Micros, String)>,
}

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Book> {
        // A task that panicked leaves the book as good as it was.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything so far.
    pub fn read(&self) -> Book {
        self.book().clone()
    }

    /// Notes a line.
    pub fn note(&self, line: impl fmt::Display) {
        self.book().log.push((now_us(), line.to_string()));
    }

    /// Notes what must not be.
    pub fn violated(&self, kind: &'static str, what: impl fmt::Display) {
        let violation = Violation { kind, what: what.to_string() };
        let mut book = self.book();
        book.log.push((now_us(), format!("VIOLATION {violation}")));
        book.violations.push(violation);
    }

    /// Counts an operation by its end.
    pub fn ended(&self, kind: &'static str, end: impl fmt::Display) {
        *self.book().operations.entry((kind, end.to_string())).or_default() += 1;
    }

    /// Counts a fault.
    pub fn struck(&self, kind: &'static str) {
        *self.book().faults.entry(kind).or_default() += 1;
    }

    /// An alloc may exist from now on.
    pub fn placed(&self, alloc: &str) {
        self.book().allocs.entry(alloc.to_owned()).or_insert(false);
    }

    /// It is acknowledged that the alloc has ended.
    pub fn stopped(&self, alloc: &str) {
        self.book().allocs.insert(alloc.to_owned(), true);
    }

    /// Allocs that are not known to have ended.
    pub fn unstopped(&self) -> Vec<String> {
        let book = self.book();
        let live = book.allocs.iter().filter(|(_, ended)| !**ended);
        live.map(|(alloc, _)| alloc.clone()).collect()
    }

    /// A person declares a node gone, or it is back. Its claims may be freed from now on.
    pub fn node_changes(&self, node: usize, gone: bool) {
        let now = now_us();
        let mut book = self.book();
        let changes = book.node_changes.entry(node).or_default();
        if (*changes % 2 == 1) != gone {
            *changes += 1;
        }
        let there = book.holds.iter_mut().filter(|hold| gone && hold.node == node);
        there.for_each(|hold| hold.let_go = hold.let_go.or(Some(now)));
    }

    /// A number that changes whenever the node is declared gone or comes back; `None` while it is
    /// gone. While the number is the same, an alloc on the node is ended only by its own caller.
    pub fn calm(&self, node: usize) -> Option<u64> {
        let changes = self.book().node_changes.get(&node).copied().unwrap_or_default();
        changes.is_multiple_of(2).then_some(changes)
    }

    /// A mount was acknowledged. Another acknowledgement of the same is nothing new.
    pub fn held(&self, mut hold: Hold) {
        let mut book = self.book();
        // The answer may have been on its way when the node was declared gone.
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

    /// A request that may end the alloc's claim is about to be sent.
    pub fn lets_go(&self, alloc: &str) {
        let now = now_us();
        let mut book = self.book();
        let own = book.holds.iter_mut().filter(|hold| hold.alloc == alloc);
        own.for_each(|hold| hold.let_go = hold.let_go.or(Some(now)));
    }

    /// The alloc's claim was seen to be gone.
    pub fn is_gone(&self, alloc: &str) {
        let now = now_us();
        let mut book = self.book();
        let own = book.holds.iter_mut().filter(|hold| hold.alloc == alloc);
        own.for_each(|hold| hold.gone = hold.gone.or(Some(now)));
    }
}
