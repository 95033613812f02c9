//! Buckets and mirrors that can report a fault.
//!
//! **Owns** the list of the buckets and mirrors of one connection, without keeping any open.
//!
//! **Promises** that a dropped bucket or mirror is not reported.

use std::sync::{PoisonError, RwLock, Weak};

/// A bucket or a mirror.
pub(crate) trait FaultSource: Send + Sync {
    /// Its present fault, in words.
    fn fault(&self) -> Option<String>;

    /// Why the server stores no write of this process, in words; none while it stores them.
    fn store_fault(&self) -> Option<String> {
        None
    }
}

/// The open buckets and mirrors of a connection.
#[derive(Default)]
pub(crate) struct FaultSources(RwLock<Vec<Weak<dyn FaultSource>>>);

impl FaultSources {
    /// Adds a bucket or mirror, and forgets those that were dropped.
    pub(crate) fn add(&self, source: Weak<dyn FaultSource>) {
        let mut sources = self.0.write().unwrap_or_else(PoisonError::into_inner);
        sources.retain(|source| source.strong_count() > 0);
        sources.push(source);
    }

    /// The faults of the buckets whose writes are not stored now.
    pub(crate) fn list_store_faults(&self) -> Vec<String> {
        let sources = self.0.read().unwrap_or_else(PoisonError::into_inner);
        sources.iter().filter_map(|source| source.upgrade()?.store_fault()).collect()
    }

    /// The present faults.
    pub(crate) fn list_faults(&self) -> Vec<String> {
        let sources = self.0.read().unwrap_or_else(PoisonError::into_inner);
        sources.iter().filter_map(|source| source.upgrade()?.fault()).collect()
    }
}
