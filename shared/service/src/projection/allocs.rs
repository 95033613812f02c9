//! The allocs bucket, as allocs.

use std::collections::HashMap;

use berth_bus::Fold;
use berth_contract::{key, record};
use berth_domain::alloc::Alloc;
use berth_domain::{AllocId, Namespace};

/// All allocs, each with its revision.
#[derive(Debug, Default)]
pub struct Allocs {
    allocs: HashMap<(Namespace, AllocId), (u64, Alloc)>,
}

impl Allocs {
    /// An alloc and its revision.
    pub fn get(&self, namespace: &Namespace, alloc: &AllocId) -> Option<(u64, &Alloc)> {
        let found = self.allocs.get(&(namespace.clone(), alloc.clone()));
        found.map(|(revision, alloc)| (*revision, alloc))
    }

    /// Whether the alloc is there and has not ended: whether it wants its claims.
    pub fn is_live(&self, namespace: &Namespace, alloc: &AllocId) -> bool {
        self.get(namespace, alloc).is_some_and(|(_, alloc)| !alloc.state.is_terminal())
    }

    /// All allocs, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Namespace, &AllocId, &Alloc)> {
        self.allocs.iter().map(|((namespace, id), (_, alloc))| (namespace, id, alloc))
    }
}

impl Fold for Allocs {
    fn put(&mut self, key: &str, revision: u64, value: &[u8]) {
        let Some(id) = key::parse_alloc(key) else {
            tracing::warn!(key, "a key that is none of ours is in the allocs bucket");
            return;
        };
        match record::read::<Alloc>(value) {
            Ok(record) => {
                self.allocs.insert(id, (revision, record.body));
            }
            // What was known stays: to forget an alloc would be to say that it ended.
            Err(error) => tracing::error!(key, error = crate::process::chain(&error), "not read"),
        }
    }

    fn delete(&mut self, key: &str, _revision: u64) {
        if let Some(id) = key::parse_alloc(key) {
            self.allocs.remove(&id);
        }
    }
}
