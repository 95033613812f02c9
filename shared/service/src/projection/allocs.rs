//! The allocs bucket, as allocs.

use std::collections::HashMap;

use berth_bus::Fold;
use berth_contract::key;
use berth_contract::record::{self, UnreadableRecord};
use berth_domain::alloc::Alloc;
use berth_domain::{AllocId, Namespace};

/// All allocs, each with its revision.
#[derive(Debug, Default)]
pub struct Allocs {
    allocs: HashMap<(Namespace, AllocId), (u64, Alloc)>,
    /// Allocs whose record this version cannot read.
    unreadable: HashMap<(Namespace, AllocId), UnreadableRecord>,
}

impl Allocs {
    /// An alloc and its revision; `None` also if its record cannot be read: its earlier content may
    /// be outdated.
    pub fn get(&self, namespace: &Namespace, alloc: &AllocId) -> Option<(u64, &Alloc)> {
        let found = self.allocs.get(&(namespace.clone(), alloc.clone()));
        found.map(|(revision, alloc)| (*revision, alloc))
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

    /// All allocs, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Namespace, &AllocId, &Alloc)> {
        self.allocs.iter().map(|((namespace, id), (_, alloc))| (namespace, id, alloc))
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
                self.allocs.insert(id, (revision, record.body));
            }
            // Removing the alloc would mean that it ended.
            Err(error) => {
                let unreadable = error.unreadable_at(key);
                tracing::error!(key, error = unreadable.error, "the record cannot be read");
                self.allocs.remove(&id);
                self.unreadable.insert(id, unreadable);
            }
        }
    }

    fn delete(&mut self, key: &str, _revision: u64) {
        if let Some(id) = key::parse_alloc(key) {
            self.unreadable.remove(&id);
            self.allocs.remove(&id);
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
        allocs.put("default.a", 1, br#"{"schema":2}"#);
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
}
