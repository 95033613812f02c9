//! Which claims of this node's allocs are in use by a request right now.
//!
//! **Owns** a count for each volume and alloc. A claim may be requested by several requests at
//! once: the claim service answers each of them with the same claim.
//!
//! **Promises** that a claim is given up only while no other request uses it, and that a request
//! that comes meanwhile waits until the claim is given up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_service::locks::{KeyGuard, KeyedLocks};
use tokio::time::timeout;

use crate::journal::UseKey;

/// The claims in use. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct ClaimUsers {
    counts: Arc<Mutex<HashMap<UseKey, usize>>>,
    /// Held for a moment by a request that begins, and for as long as a claim is being given up.
    locks: KeyedLocks<UseKey>,
}

/// A request uses the claim until this is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct ClaimUse {
    key: UseKey,
    users: ClaimUsers,
}

impl ClaimUsers {
    /// Counts a request that uses the claim, whether it exists yet or not.
    pub(super) async fn enter(&self, key: UseKey, within: Duration) -> Result<ClaimUse, Problem> {
        let Ok(_turn) = timeout(within, self.locks.lock(&key)).await else {
            let message = format!("the claim of alloc {} is being given up", key.1);
            return Err(Problem::new(Code::Busy, message));
        };
        *self
            .counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(key.clone())
            .or_default() += 1;
        Ok(ClaimUse { key, users: self.clone() })
    }

    /// The claims in use, each with the number of its requests.
    pub(super) fn list(&self) -> Vec<(UseKey, usize)> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(key, count)| (key.clone(), *count)).collect()
    }

    /// Keeps requests from using the claim while it is given up. `None` if a request uses it.
    pub(super) async fn lock_unused(&self, key: &UseKey) -> Option<KeyGuard<UseKey>> {
        let turn = self.locks.lock(key).await;
        let is_used = self.counts.lock().unwrap_or_else(PoisonError::into_inner).contains_key(key);
        (!is_used).then_some(turn)
    }
}

impl Drop for ClaimUse {
    fn drop(&mut self) {
        let mut counts = self.users.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::{AllocId, Namespace, VolumeId, VolumeKey};

    use super::*;

    const SOON: Duration = Duration::from_millis(50);

    fn key(alloc: &str) -> UseKey {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("v").unwrap());
        (volume, AllocId::new(alloc).unwrap())
    }

    #[tokio::test]
    async fn a_claim_is_given_up_only_while_no_request_uses_it() {
        let users = ClaimUsers::default();
        let first = users.enter(key("a"), SOON).await.unwrap();
        let second = users.enter(key("a"), SOON).await.unwrap();
        assert!(users.lock_unused(&key("a")).await.is_none());
        assert!(users.lock_unused(&key("b")).await.is_some());
        drop(first);
        assert!(users.lock_unused(&key("a")).await.is_none());
        drop(second);
        let given_up = users.lock_unused(&key("a")).await.unwrap();
        assert_eq!(users.enter(key("a"), SOON).await.unwrap_err().code, Code::Busy);
        drop(given_up);
        drop(users.enter(key("a"), SOON).await.unwrap());
        assert!(users.counts.lock().unwrap().is_empty());
    }
}
