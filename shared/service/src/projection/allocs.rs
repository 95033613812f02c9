//! The allocs bucket, as allocs.

use std::collections::HashMap;
use std::sync::Arc;

use berth_bus::Fold;
use berth_contract::key;
use berth_contract::record::{self, UnreadableRecord};
use berth_domain::alloc::Alloc;
use berth_domain::{AllocId, Namespace};

use super::change_log::ChangeLog;

/// All allocs, each with its revision.
#[derive(Debug, Default)]
pub struct Allocs {
    known: HashMap<(Namespace, AllocId), (u64, Arc<Alloc>)>,
    /// Allocs whose record this version cannot read.
    unreadable: HashMap<(Namespace, AllocId), UnreadableRecord>,
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

    /// All allocs, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Namespace, &AllocId, &Alloc)> {
        self.known.iter().map(|((namespace, id), (_, alloc))| (namespace, id, alloc.as_ref()))
    }

    /// The last changes.
    pub fn changes(&self) -> &ChangeLog<AllocChange> {
        &self.changes
    }

    fn record_change(
        &mut self,
        revision: u64,
        id: (Namespace, AllocId),
        before: Option<(u64, Arc<Alloc>)>,
        after: Option<Arc<Alloc>>,
    ) {
        let before = before.map(|(_, alloc)| alloc);
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
}
