//! The fold with the revision of each key, and who was seen in the reading under way.
//!
//! **Promises** that a key's revision never goes back, except when the stream itself was replaced.

use std::collections::HashMap;

use super::Fold;

pub(super) struct Table<F> {
    fold: F,
    keys: HashMap<Box<str>, Known>,
    /// The reading under way, or the last one.
    reading: u32,
    /// Deletes applied ahead of the watch: older news of these keys must not bring them back.
    ahead: Vec<(u64, Box<str>)>,
    /// The newest revision in the fold, and up to which nothing is missing in it.
    newest: u64,
    whole: u64,
}

struct Known {
    revision: u64,
    /// The last reading in which the key was seen.
    reading: u32,
    live: bool,
}

impl<F: Fold> Table<F> {
    pub(super) fn new(fold: F) -> Self {
        Self { fold, keys: HashMap::new(), reading: 0, ahead: Vec::new(), newest: 0, whole: 0 }
    }

    pub(super) fn fold(&self) -> &F {
        &self.fold
    }

    /// What the fold shows: the revision of which it is a picture; else the one that it must have
    /// come to before it is one again, since some of what is older is not in it yet.
    pub(super) fn shows(&self) -> Result<u64, u64> {
        if self.newest <= self.whole { Ok(self.whole) } else { Err(self.newest) }
    }

    /// Applies what is newer than what is known of the key; says whether the fold changed.
    pub(super) fn apply(&mut self, key: &str, revision: u64, value: Option<&[u8]>) -> bool {
        let now = Known { revision, reading: self.reading, live: value.is_some() };
        self.newest = self.newest.max(revision);
        let was_live = match self.keys.get_mut(key) {
            Some(known) if known.revision >= revision => {
                known.reading = self.reading;
                return false;
            }
            Some(known) => std::mem::replace(known, now).live,
            None => {
                self.keys.insert(key.into(), now);
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

    /// The watch has brought everything up to `revision`: deletes before it need no memory.
    pub(super) fn reached(&mut self, revision: u64) {
        self.whole = self.whole.max(revision);
        let keys = &mut self.keys;
        self.ahead.retain(|(deleted, key)| {
            let past = *deleted <= revision;
            if past && keys.get(key).is_some_and(|known| !known.live && known.revision == *deleted)
            {
                keys.remove(key);
            }
            !past
        });
    }

    /// A reading of all keys begins. If the stream is another one than before, what is known of
    /// revisions says nothing any more.
    pub(super) fn begin(&mut self, another_stream: bool) {
        self.reading = self.reading.wrapping_add(1);
        if another_stream {
            (self.newest, self.whole) = (0, 0);
            self.keys.values_mut().for_each(|known| known.revision = 0);
        }
    }

    /// The reading is complete up to `revision`: what was not seen in it is gone. Answers how many
    /// keys that were.
    pub(super) fn complete(&mut self, revision: u64) -> usize {
        let reading = self.reading;
        let gone: Vec<Box<str>> = self
            .keys
            .iter()
            .filter(|(_, known)| known.reading != reading && known.revision <= revision)
            .map(|(key, _)| key.clone())
            .collect();
        for key in &gone {
            if self.keys.remove(key).is_some_and(|known| known.live) {
                self.fold.delete(key, revision);
            }
        }
        gone.len()
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

    #[test]
    fn older_news_of_a_key_changes_nothing() {
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
        table.reached(5);
        assert!(!table.apply("a", 6, Some(b"6")));
        table.reached(6);
        assert!(!table.apply("a", 7, None));
        assert_eq!(keys(&table), []);
        table.reached(7);
        assert!(table.keys.is_empty() && table.ahead.is_empty());
        table.apply("a", 8, Some(b"8"));
        assert_eq!(keys(&table), [("a", 8)]);
    }

    #[test]
    fn what_was_applied_ahead_is_no_picture_until_the_rest_has_come() {
        let mut table = Table::new(Keys::default());
        table.apply("a", 5, Some(b"5"));
        table.reached(5);
        assert_eq!(table.shows(), Ok(5));
        table.apply("b", 7, Some(b"7"));
        assert_eq!(table.shows(), Err(7));
        table.apply("a", 6, Some(b"6"));
        table.reached(6);
        assert_eq!(table.shows(), Err(7));
        table.apply("b", 7, Some(b"7"));
        table.reached(7);
        assert_eq!(table.shows(), Ok(7));
        table.begin(true);
        assert_eq!(table.shows(), Ok(0));
    }

    #[test]
    fn a_key_put_again_after_a_delete_stays() {
        let mut table = Table::new(Keys::default());
        assert!(!table.apply("a", 7, None), "nothing was there");
        table.apply("a", 8, Some(b"8"));
        table.reached(8);
        assert_eq!(keys(&table), [("a", 8)]);
        assert!(!table.apply("a", 8, None));
    }

    #[test]
    fn a_reading_removes_what_it_did_not_see() {
        let mut table = Table::new(Keys::default());
        table.apply("a", 1, Some(b""));
        table.apply("b", 2, Some(b""));
        table.begin(false);
        table.apply("a", 1, Some(b""));
        // Committed by ourselves while the reading runs: newer than it.
        table.apply("c", 9, Some(b""));
        assert_eq!(table.complete(3), 1);
        assert_eq!(keys(&table), [("a", 1), ("c", 9)]);
    }

    #[test]
    fn another_stream_begins_its_count_anew() {
        let mut table = Table::new(Keys::default());
        table.apply("a", 50, Some(b""));
        table.apply("b", 60, Some(b""));
        table.begin(true);
        assert!(table.apply("a", 1, Some(b"")));
        assert_eq!(table.complete(1), 1);
        assert_eq!(keys(&table), [("a", 1)]);
    }
}
