//! The fold, the revision of each key, and which keys the current reading has shown.
//!
//! **Promises** that a key's revision never goes back, except when the stream itself was replaced.

use std::collections::HashMap;

use super::fold::Fold;
use crate::store::filter;
use crate::store::list::List;
use crate::store::read::Entry;

pub(super) struct Table<F> {
    fold: F,
    keys: HashMap<Box<str>, KeyState>,
    /// The current reading of all keys, or the last one.
    reading: u32,
    /// Deletes that the watch has not reached. Older messages of these keys must not restore them.
    ahead: Vec<(u64, Box<str>)>,
    /// The newest revision in the fold, and the revision that the watch has reached.
    newest: u64,
    came: u64,
    /// Whether all keys are being read, and not only compared.
    reads_all: bool,
    /// Whether the fold has keys of two streams.
    mixed: bool,
    missed: Option<MissedValue>,
}

/// Before `at` a value did not come, because the bucket no longer held it. The value that replaced
/// it is newer, perhaps newer than everything that has come.
#[derive(Debug)]
struct MissedValue {
    at: u64,
    /// The replacing value has come once the watch has reached this revision; `None` while that is
    /// unknown.
    until: Option<u64>,
}

/// Why the fold does not show the bucket as of one revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPicture {
    /// The watch must reach this revision first.
    Before(u64),
    /// A value that was replaced before this revision did not come, and the newer value may be
    /// missing. The leader's head tells how far the watch must come.
    Torn(u64),
}

/// What the table knows of a message that a comparison shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ComparedMessage {
    /// It was applied, or a newer one of its key.
    Known,
    /// It was not, or its key was deleted since.
    Unknown,
}

struct KeyState {
    revision: u64,
    /// The last reading in which the key was seen.
    reading: u32,
    live: bool,
}

impl<F: Fold> Table<F> {
    pub(super) fn new(fold: F) -> Self {
        let (keys, ahead) = (HashMap::new(), Vec::new());
        Self {
            fold,
            keys,
            reading: 0,
            ahead,
            newest: 0,
            came: 0,
            reads_all: false,
            mixed: false,
            missed: None,
        }
    }

    pub(super) fn fold(&self) -> &F {
        &self.fold
    }

    pub(super) fn fold_mut(&mut self) -> &mut F {
        &mut self.fold
    }

    /// The revision that the fold shows.
    pub(super) fn shows(&self) -> Result<u64, NoPicture> {
        if self.newest > self.came || self.mixed {
            return Err(NoPicture::Before(self.newest.max(self.came + 1)));
        }
        match self.missed {
            None => Ok(self.came),
            Some(MissedValue { until: Some(until), .. }) => Err(NoPicture::Before(until)),
            Some(MissedValue { at, until: None }) => Err(NoPicture::Torn(at)),
        }
    }

    /// Records the leader's head, which was read after the fold was found torn at `torn_at`.
    pub(super) fn mend(&mut self, torn_at: u64, head: u64) {
        let came = self.came;
        // A value that was missed later needs a later head.
        self.missed.take_if(|missed| missed.at == torn_at && came >= head);
        if let Some(missed) = self.missed.as_mut().filter(|missed| missed.at == torn_at) {
            missed.until = Some(head);
        }
    }

    /// Applies a message that is newer than the key's known revision. Returns whether the fold
    /// changed.
    pub(super) fn apply(&mut self, key: &str, revision: u64, value: Option<&[u8]>) -> bool {
        let new_state = KeyState { revision, reading: self.reading, live: value.is_some() };
        self.newest = self.newest.max(revision);
        let was_live = match self.keys.get_mut(key) {
            Some(key_state) if key_state.revision >= revision => {
                key_state.reading = self.reading;
                return false;
            }
            Some(key_state) => std::mem::replace(key_state, new_state).live,
            None => {
                self.keys.insert(key.into(), new_state);
                false
            }
        };
        if let Some(value) = value {
            self.fold.put(key, revision, value);
            return true;
        }
        self.ahead.push((revision, key.into()));
        if was_live {
            self.fold.delete(key, revision);
        }
        was_live
    }

    /// As [`apply`](Self::apply), for a change that did not come by the watch: this process's own
    /// commit, whose answer may be late, or a read at the leader. The watch may have passed it, and
    /// may have passed a later delete of the key.
    pub(super) fn apply_beside(&mut self, key: &str, revision: u64, value: Option<&[u8]>) -> bool {
        let past = revision <= self.came && !self.keys.contains_key(key);
        !past && self.apply(key, revision, value)
    }

    /// Records that the watch has reached `revision`: deletes before it need not be remembered.
    /// `torn` says that a value may have been replaced before it came.
    pub(super) fn reached(&mut self, revision: u64, torn: bool) {
        self.came = self.came.max(revision);
        let came = self.came;
        self.missed.take_if(|missed| missed.until.is_some_and(|until| came >= until));
        if torn {
            self.missed = Some(MissedValue { at: came, until: None });
        }
        let keys = &mut self.keys;
        self.ahead.retain(|(deleted, key)| {
            let past = *deleted <= revision;
            if past
                && keys
                    .get(key)
                    .is_some_and(|key_state| !key_state.live && key_state.revision == *deleted)
            {
                keys.remove(key);
            }
            !past
        });
    }

    /// Begins a reading of all keys. It ends a comparison. If the stream is another one than
    /// before, the known revisions mean nothing.
    pub(super) fn begin(&mut self, another_stream: bool) {
        self.reads_all = true;
        self.reading = self.reading.wrapping_add(1);
        if another_stream {
            (self.newest, self.came, self.mixed) = (0, 0, true);
            self.keys.values_mut().for_each(|key_state| key_state.revision = 0);
        }
    }

    /// Begins a reading that compares only; none while all keys are being read.
    pub(super) fn begin_comparison(&mut self) -> Option<u32> {
        if self.reads_all {
            return None;
        }
        self.reading = self.reading.wrapping_add(1);
        Some(self.reading)
    }

    /// Records that a comparison shows a message. None if the comparison is over.
    pub(super) fn see(
        &mut self,
        reading: u32,
        key: &str,
        revision: u64,
    ) -> Option<ComparedMessage> {
        if !self.is_last_reading(reading) {
            return None;
        }
        let known = self.keys.get_mut(key).filter(|key_state| key_state.revision >= revision);
        Some(match known {
            Some(key_state) => {
                key_state.reading = reading;
                ComparedMessage::Known
            }
            None => ComparedMessage::Unknown,
        })
    }

    /// The revision of a key that the fold has.
    pub(super) fn live_revision(&self, key: &str) -> Option<u64> {
        self.keys.get(key).filter(|key_state| key_state.live).map(|key_state| key_state.revision)
    }

    /// The keys up to `revision` that the reading did not show, with their known revisions. They
    /// are gone, or were written again after the reading began.
    pub(super) fn unseen(&self, revision: u64) -> Vec<(Box<str>, u64)> {
        let unseen = |key_state: &KeyState| {
            key_state.live && key_state.reading != self.reading && key_state.revision <= revision
        };
        let unseen = self.keys.iter().filter(|(_, known)| unseen(known));
        unseen.map(|(key, key_state)| (key.clone(), key_state.revision)).collect()
    }

    /// The same of a comparison; none if it is over.
    pub(super) fn unseen_by(&self, reading: u32, revision: u64) -> Option<Vec<(Box<str>, u64)>> {
        self.is_last_reading(reading).then(|| self.unseen(revision))
    }

    /// Whether no other reading began since. What a comparison found is mended by a later reading
    /// of all keys.
    pub(super) fn is_last_reading(&self, reading: u32) -> bool {
        reading == self.reading
    }

    /// The live keys below a filter with a revision up to this one that are not among `entries`.
    pub(super) fn others(&self, filter: &str, revision: u64, entries: &[Entry]) -> Vec<Box<str>> {
        let covered = |key: &str| filter::covers(filter, key);
        let listed = |key: &str| entries.iter().any(|entry| entry.key == key);
        let others = self.keys.iter().filter(|(key, key_state)| {
            key_state.live && key_state.revision <= revision && covered(key) && !listed(key)
        });
        others.map(|(key, _)| key.clone()).collect()
    }

    /// Whether the keys below a filter are the listed ones, each at the listed revision.
    pub(super) fn holds_exactly(&self, filter: &str, list: &List) -> bool {
        let mut listed: HashMap<&str, u64> =
            list.entries.iter().map(|entry| (entry.key.as_str(), entry.revision)).collect();
        let below = self.keys.iter().filter(|(key, _)| filter::covers(filter, key));
        let is_same = below.fold(true, |is_same, (key, key_state)| {
            let revision = listed.remove(&**key);
            let agrees = if key_state.live {
                revision == Some(key_state.revision)
            } else {
                revision.is_none() && key_state.revision <= list.head
            };
            is_same && agrees
        });
        is_same && listed.is_empty()
    }

    /// Removes a key that does not exist up to `revision`. Returns whether the fold changed.
    pub(super) fn gone(&mut self, key: &str, revision: u64) -> bool {
        let Some(key_state) = self.keys.get_mut(key) else { return false };
        if !key_state.live || key_state.revision > revision {
            return false;
        }
        (key_state.revision, key_state.live) = (revision, false);
        self.ahead.push((revision, key.into()));
        // From now on the fold cannot show an earlier revision.
        self.newest = self.newest.max(revision);
        self.fold.delete(key, revision);
        true
    }

    /// Ends the reading: all keys of the stream were read.
    pub(super) fn complete(&mut self) {
        (self.mixed, self.reads_all) = (false, false);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Default)]
    struct Keys(BTreeMap<String, u64>);

    impl Fold for Keys {
        fn put(&mut self, key: &str, revision: u64, _value: &[u8]) {
            self.0.insert(key.to_owned(), revision);
        }
        fn delete(&mut self, key: &str, _revision: u64) {
            self.0.remove(key);
        }
    }

    fn keys(table: &Table<Keys>) -> Vec<(&str, u64)> {
        table.fold.0.iter().map(|(key, revision)| (key.as_str(), *revision)).collect()
    }

    /// A volume at rest has two keys here, in each replica that follows all volumes. The
    /// projection of volumes holds the rest of its budget (0102).
    #[test]
    fn a_key_keeps_to_its_budget_of_memory() {
        assert!(size_of::<(Box<str>, KeyState)>() <= 32);
    }

    #[test]
    fn an_older_message_of_a_key_changes_nothing() {
        let mut table = Table::new(Keys::default());
        assert!(table.apply("a", 5, Some(b"5")));
        assert!(!table.apply("a", 4, Some(b"4")));
        assert!(!table.apply("a", 5, Some(b"5")));
        assert!(!table.apply("a", 3, None));
        assert_eq!(keys(&table), [("a", 5)]);
    }

    #[test]
    fn a_delete_applied_ahead_is_not_undone_by_the_watch() {
        let mut table = Table::new(Keys::default());
        table.apply("a", 5, Some(b"5"));
        assert!(table.apply("a", 7, None));
        table.reached(5, false);
        assert!(!table.apply("a", 6, Some(b"6")));
        table.reached(6, false);
        assert!(!table.apply("a", 7, None));
        assert_eq!(keys(&table), []);
        table.reached(7, false);
        assert!(table.keys.is_empty() && table.ahead.is_empty());
        table.apply("a", 8, Some(b"8"));
        assert_eq!(keys(&table), [("a", 8)]);
    }

    /// Seen: a process was paused while it wrote, and another process deleted the key. The first
    /// process read the answer to its write after the watch had brought both. The key was there
    /// again.
    #[test]
    fn an_own_commit_that_is_answered_late_does_not_undo_a_delete() {
        let mut table = Table::new(Keys::default());
        table.apply("a", 5, Some(b"5"));
        table.apply("a", 6, None);
        assert!(!table.apply_beside("a", 5, Some(b"5")), "before the watch says how far it is");
        table.reached(6, false);
        assert!(!table.apply_beside("a", 5, Some(b"5")));
        assert_eq!(keys(&table), []);
        assert!(table.apply_beside("a", 7, Some(b"7")), "it is written anew");
        assert!(table.apply_beside("a", 8, None) && !table.apply_beside("a", 7, Some(b"7")));
    }

    #[test]
    fn an_own_commit_that_is_answered_late_does_not_undo_that_the_key_was_found_gone() {
        let mut table = Table::new(Keys::default());
        table.apply("a", 2, Some(b"2"));
        assert!(table.gone("a", 6));
        assert!(!table.apply_beside("a", 5, Some(b"5")), "the watch is not there yet");
        table.reached(6, false);
        assert!(!table.apply_beside("a", 5, Some(b"5")));
        assert_eq!((keys(&table), table.keys.len()), (vec![], 0), "nothing is kept of it");
    }

    #[test]
    fn a_commit_ahead_of_the_watch_prevents_snapshots() {
        let mut table = Table::new(Keys::default());
        table.apply("a", 5, Some(b"5"));
        table.reached(5, false);
        assert_eq!(table.shows(), Ok(5));
        table.apply("b", 7, Some(b"7"));
        assert_eq!(table.shows(), Err(NoPicture::Before(7)));
        table.apply("a", 6, Some(b"6"));
        table.reached(6, false);
        assert_eq!(table.shows(), Err(NoPicture::Before(7)));
        table.apply("b", 7, Some(b"7"));
        table.reached(7, false);
        assert_eq!(table.shows(), Ok(7));
        // The stream was replaced: the fold shows no revision before all of the new one was read.
        table.begin(true);
        assert_eq!(table.shows(), Err(NoPicture::Before(1)));
        table.apply("a", 3, Some(b"3"));
        assert_eq!(table.shows(), Err(NoPicture::Before(3)));
        table.reached(4, false);
        assert_eq!(table.shows(), Err(NoPicture::Before(5)));
        table.complete();
        assert_eq!(table.shows(), Ok(4));
    }

    #[test]
    fn a_missed_value_prevents_snapshots_until_the_newer_one_has_come() {
        let mut table = Table::new(Keys::default());
        // For "a", revision 3 was replaced by 6 before the watch reached it.
        table.apply("b", 4, Some(b"4"));
        table.reached(4, true);
        assert_eq!(table.shows(), Err(NoPicture::Torn(4)));
        table.mend(4, 6);
        assert_eq!(table.shows(), Err(NoPicture::Before(6)));
        // For "c", revision 5 was replaced. The head that was read before does not cover it.
        table.apply("a", 6, Some(b"6"));
        table.reached(6, true);
        assert_eq!(table.shows(), Err(NoPicture::Torn(6)));
        table.mend(4, 6);
        assert_eq!(table.shows(), Err(NoPicture::Torn(6)));
        table.mend(6, 7);
        table.apply("c", 7, Some(b"7"));
        table.reached(7, false);
        assert_eq!(table.shows(), Ok(7));
        table.reached(8, true);
        table.mend(8, 8);
        assert_eq!(table.shows(), Ok(8));
    }

    #[test]
    fn a_key_put_again_after_a_delete_stays() {
        let mut table = Table::new(Keys::default());
        assert!(!table.apply("a", 7, None), "nothing was there");
        table.apply("a", 8, Some(b"8"));
        table.reached(8, false);
        assert_eq!(keys(&table), [("a", 8)]);
        assert!(!table.apply("a", 8, None));
    }

    #[test]
    fn a_reading_names_the_keys_that_it_did_not_see() {
        let mut table = Table::new(Keys::default());
        for key in ["a", "b", "c"] {
            table.apply(key, 2, Some(b""));
        }
        table.begin(false);
        table.apply("a", 2, Some(b""));
        // Committed by this process while the reading runs: newer than the reading.
        table.apply("c", 9, Some(b""));
        assert_eq!(table.unseen(3), [("b".into(), 2)]);
        assert!(table.gone("b", 3) && !table.gone("b", 3));
        assert!(!table.gone("c", 3), "it was written again");
        assert_eq!(keys(&table), [("a", 2), ("c", 9)]);
    }

    #[test]
    fn a_comparison_names_what_it_did_not_see_and_ends_when_all_keys_are_read() {
        let mut table = Table::new(Keys::default());
        table.begin(false);
        assert_eq!(table.begin_comparison(), None, "all keys are being read");
        for (key, revision) in [("a", 1), ("b", 2), ("c", 3)] {
            table.apply(key, revision, Some(b""));
        }
        table.complete();
        let reading = table.begin_comparison().unwrap();
        assert_eq!(table.see(reading, "a", 1), Some(ComparedMessage::Known));
        assert_eq!(
            table.see(reading, "b", 9),
            Some(ComparedMessage::Unknown),
            "newer than what is held"
        );
        assert_eq!(table.see(reading, "d", 4), Some(ComparedMessage::Unknown));
        // Written while the comparison runs.
        table.apply("c", 10, Some(b""));
        assert_eq!(table.unseen_by(reading, 9), Some(vec![("b".into(), 2)]));
        assert_eq!((table.live_revision("b"), table.live_revision("d")), (Some(2), None));
        assert!(table.is_last_reading(reading), "what it found has to be mended");
        table.begin(false);
        assert!(!table.is_last_reading(reading), "all keys are read again already");
        assert_eq!((table.see(reading, "a", 1), table.unseen_by(reading, 9)), (None, None));
    }

    #[test]
    fn a_key_that_is_found_gone_prevents_snapshots_of_earlier_revisions() {
        let mut table = Table::new(Keys::default());
        table.apply("a", 2, Some(b""));
        table.reached(2, false);
        table.begin(false);
        assert_eq!(table.shows(), Ok(2));
        assert!(table.gone("a", 3));
        assert_eq!(table.shows(), Err(NoPicture::Before(3)));
        table.reached(3, false);
        assert_eq!(table.shows(), Ok(3));
    }

    #[test]
    fn a_replaced_stream_starts_its_revisions_again() {
        let mut table = Table::new(Keys::default());
        table.apply("a", 50, Some(b""));
        table.apply("b", 60, Some(b""));
        table.begin(true);
        assert!(table.apply("a", 1, Some(b"")));
        assert_eq!(table.unseen(1), [("b".into(), 0)], "nothing is known of it in this stream");
        assert!(table.gone("b", 1));
        assert_eq!(keys(&table), [("a", 1)]);
    }
}
