//! Buckets and mirrors that can tell a fault of theirs.
//!
//! **Owns** the list of those of one connection, without keeping any open.
//!
//! **Promises** that one that was dropped is not reported.

use std::sync::{PoisonError, RwLock, Weak};

/// A bucket or a mirror.
pub(crate) trait FaultSource: Send + Sync {
    /// Its fault now, in words.
    fn fault(&self) -> Option<String>;

    /// That the server does not store what this process writes, in words.
    fn store_fault(&self) -> Option<String> {
        None
    }
}

/// The open buckets and mirrors of a connection.
#[derive(Default)]
pub(crate) struct FaultSources(RwLock<Vec<Weak<dyn FaultSource>>>);

impl FaultSources {
    /// Adds one, and forgets those that were dropped.
    pub(crate) fn add(&self, source: Weak<dyn FaultSource>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        all.push(source);
    }

    /// The buckets whose writes are not stored now.
    pub(crate) fn list_store_faults(&self) -> Vec<String> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(|source| source.upgrade()?.store_fault()).collect()
    }

    /// The faults now.
    pub(crate) fn list_faults(&self) -> Vec<String> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(|source| source.upgrade()?.fault()).collect()
    }
}
