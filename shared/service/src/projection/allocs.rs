//! The allocs bucket, as allocs.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use berth_bus::Fold;
use berth_contract::key;
use berth_contract::record::{self, UnreadableRecord};
use berth_domain::alloc::Alloc;
use berth_domain::{AllocId, Namespace};

use super::alloc_index::{AllocIndex, AllocKey};
use super::change_log::ChangeLog;

/// All allocs, sorted, each with its revision.
#[derive(Debug, Default)]
pub struct Allocs {
    known: BTreeMap<AllocKey, (u64, Arc<Alloc>)>,
    index: AllocIndex,
    /// Allocs whose record this version cannot read.
    unreadable: HashMap<AllocKey, UnreadableRecord>,
    changes: ChangeLog<AllocChange>,
}

/// An alloc that changed.
#[derive(Debug)]
pub struct AllocChange {
    /// Its namespace.
    pub namespace: Namespace,
    /// The alloc.
    pub id: AllocId,
    /// The alloc before the change; none if it did not exist, or could not be read.
    pub before: Option<Arc<Alloc>>,
    /// The alloc after the change; none if it is gone, or cannot be read.
    pub after: Option<Arc<Alloc>>,
}

impl Allocs {
    /// An alloc and its revision; `None` also if its record cannot be read, because the content of
    /// an earlier record may be outdated.
    pub fn get(&self, namespace: &Namespace, alloc: &AllocId) -> Option<(u64, &Alloc)> {
        let entry = self.known.get(&(namespace.clone(), alloc.clone()));
        entry.map(|(revision, alloc)| (*revision, alloc.as_ref()))
    }

    /// Whether the alloc exists and has not ended, so that it wants its claims. An alloc that
    /// cannot be read may be running.
    pub fn is_live(&self, namespace: &Namespace, alloc: &AllocId) -> bool {
        self.unreadable_of(namespace, alloc).is_some()
            || self.get(namespace, alloc).is_some_and(|(_, alloc)| !alloc.state.is_terminal())
    }

    /// Allocs whose record this version cannot read. They may be running.
    pub fn unreadable(&self) -> impl Iterator<Item = (&Namespace, &AllocId, &UnreadableRecord)> {
        self.unreadable.iter().map(|((namespace, id), record)| (namespace, id, record))
    }

    /// The alloc's record, if this version cannot read it.
    pub fn unreadable_of(
        &self,
        namespace: &Namespace,
        alloc: &AllocId,
    ) -> Option<&UnreadableRecord> {
        self.unreadable.get(&(namespace.clone(), alloc.clone()))
    }

    /// All allocs, by namespace and id.
    pub fn iter(&self) -> impl Iterator<Item = (&Namespace, &AllocId, &Alloc)> {
        self.known.iter().map(|((namespace, id), (_, alloc))| (namespace, id, alloc.as_ref()))
    }

    /// The allocs of a namespace, of all for `*`, after this one, in order. Others are not read.
    pub fn iter_listed<'a>(
        &'a self,
        namespace: &'a Namespace,
        after: Option<&AllocKey>,
    ) -> impl Iterator<Item = &'a AllocKey> {
        let is_one = !namespace.is_wildcard();
        // No id is less than a space.
        let first = AllocId::new(" ").ok().filter(|_| is_one).map(|id| (namespace.clone(), id));
        let start = match after.cloned() {
            Some(after) if first.as_ref().is_none_or(|first| *first <= after) => {
                Bound::Excluded(after)
            }
            _ => first.map_or(Bound::Unbounded, Bound::Included),
        };
        let keys = self.known.range((start, Bound::Unbounded)).map(|(key, _)| key);
        keys.take_while(move |(of, _)| namespace.covers(of))
    }

    /// The allocs by what a reader looks for.
    pub fn index(&self) -> &AllocIndex {
        &self.index
    }

    /// The last changes.
    pub fn changes(&self) -> &ChangeLog<AllocChange> {
        &self.changes
    }

    /// The alloc's key as it is stored, so that its text is there once.
    fn stored_key(&self, key: AllocKey) -> AllocKey {
        self.known.get_key_value(&key).map_or(key, |(stored, _)| stored.clone())
    }

    fn record_change(
        &mut self,
        revision: u64,
        id: AllocKey,
        before: Option<(u64, Arc<Alloc>)>,
        after: Option<Arc<Alloc>>,
    ) {
        let before = before.map(|(_, alloc)| alloc);
        self.index.record_change(&id, before.as_deref(), after.as_deref());
        let (namespace, id) = id;
        self.changes.record(revision, AllocChange { namespace, id, before, after });
    }
}

impl Fold for Allocs {
    fn put(&mut self, key: &str, revision: u64, value: &[u8]) {
        let Some(id) = key::parse_alloc(key) else {
            tracing::warn!(key, "the allocs bucket has a key that is not Berth's");
            return;
        };
        match record::read::<Alloc>(value) {
            Ok(record) => {
                self.unreadable.remove(&id);
                let alloc = Arc::new(record.body);
                let id = self.stored_key(id);
                let before = self.known.insert(id.clone(), (revision, Arc::clone(&alloc)));
                self.record_change(revision, id, before, Some(alloc));
            }
            // Removing the alloc would mean that it has ended.
            Err(error) => {
                let unreadable = error.unreadable_at(key);
                tracing::error!(key, error = unreadable.error, "the record cannot be read");
                let before = self.known.remove(&id);
                self.unreadable.insert(id.clone(), unreadable);
                self.record_change(revision, id, before, None);
            }
        }
    }

    fn delete(&mut self, key: &str, revision: u64) {
        if let Some(id) = key::parse_alloc(key) {
            self.unreadable.remove(&id);
            let before = self.known.remove(&id);
            self.record_change(revision, id, before, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alloc_that_cannot_be_read_is_not_one_that_ended() {
        let (namespace, alloc) = (Namespace::default(), AllocId::new("a").unwrap());
        let mut allocs = Allocs::default();
        assert!(!allocs.is_live(&namespace, &alloc));
        allocs.put("default.a", 1, br#"{"schema":3}"#);
        assert!(allocs.is_live(&namespace, &alloc));
        let ended =
            br#"{"state":"complete","node":"n1","since":"2026-01-01T00:00:00Z","schema":1}"#;
        allocs.put("default.a", 2, ended);
        assert!(!allocs.is_live(&namespace, &alloc));
        allocs.put("default.a", 3, b"no record at all");
        assert!(allocs.is_live(&namespace, &alloc));
        allocs.delete("default.a", 4);
        assert!(!allocs.is_live(&namespace, &alloc));
    }
    /// What the index has, and the allocs in order, are those of a fresh fold of the same records.
    #[test]
    fn the_index_is_what_a_fresh_fold_of_the_same_records_has_after_any_change() {
        let (mut allocs, mut seed) = (Allocs::default(), 42_u64);
        let mut choose = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % bound
        };
        let mut records: BTreeMap<String, String> = BTreeMap::new();
        for revision in 1..3_000 {
            let key = format!("ns{}.a{}", choose(2), choose(4));
            let owner = match choose(4) {
                0 => String::new(),
                1 => r#""owner":{"name":"o1"},"#.to_owned(),
                2 => r#""owner":{"name":"o1","leased":true},"#.to_owned(),
                _ => format!(
                    r#""owner":{{"name":"o{}","leased":true,
                        "unowned_since":"2026-01-01T00:00:00Z"}},"by":"user.x","#,
                    choose(2)
                ),
            };
            let state = match choose(4) {
                0 => "complete",
                1 => "stopped",
                _ => "live",
            };
            let record = format!(
                r#"{{{owner}"state":"{state}","node":"n{}","since":"2026-01-0{}T00:00:00Z",
                    "schema":{}}}"#,
                choose(2),
                choose(3) + 1,
                if choose(9) == 0 { 99 } else { 1 }
            );
            if choose(3) == 0 {
                records.remove(&key);
                allocs.delete(&key, revision);
            } else {
                allocs.put(&key, revision, record.as_bytes());
                records.insert(key, record);
            }
            let mut fresh = Allocs::default();
            for (key, record) in records.iter().rev() {
                fresh.put(key, 1, record.as_bytes());
            }
            assert_eq!(allocs.index, fresh.index);
            assert!(allocs.known.keys().eq(fresh.known.keys()));
            let all = Namespace::wildcard();
            assert!(allocs.iter_listed(&all, None).eq(allocs.known.keys()));
            for after in allocs.known.keys() {
                let namespace = Namespace::new("ns1").unwrap();
                let expected = allocs.known.keys().filter(|key| key.0 == namespace && *key > after);
                assert!(allocs.iter_listed(&namespace, Some(after)).eq(expected));
            }
        }
        for key in records.into_keys() {
            allocs.delete(&key, 3_000);
        }
        assert_eq!(allocs.index, AllocIndex::default());
    }
}
