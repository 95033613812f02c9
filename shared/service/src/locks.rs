//! One lock per key.
//!
//! **Promises** that two holders of one key never overlap in this process, and that a key without
//! holders and waiters takes no memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// Locks by key. Cheap to clone.
#[derive(Debug)]
pub struct KeyedLocks<K> {
    locks: Arc<Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>>,
}

/// A held lock. It may be moved into another task.
#[derive(Debug)]
pub struct KeyGuard<K: Eq + Hash> {
    key: K,
    // Dropped before the map is checked, because it counts as a use of the lock.
    guard: Option<OwnedMutexGuard<()>>,
    locks: KeyedLocks<K>,
}

impl<K> Default for KeyedLocks<K> {
    fn default() -> Self {
        Self { locks: Arc::default() }
    }
}

impl<K> Clone for KeyedLocks<K> {
    fn clone(&self) -> Self {
        Self { locks: Arc::clone(&self.locks) }
    }
}

impl<K: Clone + Eq + Hash> KeyedLocks<K> {
    /// Waits for the key. The caller should bound the wait: a holder may hold the key for minutes.
    pub async fn lock(&self, key: &K) -> KeyGuard<K> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(locks.entry(key.clone()).or_default())
        };
        // Made before the wait, so that a cancelled wait is cleaned up as well.
        let mut key_guard = KeyGuard { key: key.clone(), guard: None, locks: self.clone() };
        key_guard.guard = Some(lock.lock_owned().await);
        key_guard
    }

    /// Takes the key if it is free.
    pub fn try_lock(&self, key: &K) -> Option<KeyGuard<K>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = Arc::clone(locks.entry(key.clone()).or_default());
        let guard = lock.try_lock_owned().ok()?;
        Some(KeyGuard { key: key.clone(), guard: Some(guard), locks: self.clone() })
    }
}

impl<K: Eq + Hash> Drop for KeyGuard<K> {
    fn drop(&mut self) {
        let mut locks = self.locks.locks.lock().unwrap_or_else(PoisonError::into_inner);
        self.guard = None;
        // While the map is locked, no task can begin to wait for the key. A count of one means that
        // no task needs the lock.
        if locks.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn holders_of_one_key_take_turns_and_leave_nothing() {
        let locks = KeyedLocks::default();
        let inside = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..64_u32 {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            tasks.spawn(async move {
                let _guard = locks.lock(&(number % 2)).await;
                assert!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 2);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        assert!(locks.locks.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_wait_leaves_nothing() {
        let locks = KeyedLocks::default();
        let held = locks.lock(&1).await;
        let mut waiting = Box::pin(locks.lock(&1));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(held);
        drop(waiting);
        assert!(locks.locks.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_held_key_is_not_taken_and_another_is() {
        let locks = KeyedLocks::default();
        let held = locks.lock(&1).await;
        assert!(locks.try_lock(&1).is_none());
        assert!(locks.try_lock(&2).is_some());
        drop(held);
        assert!(locks.try_lock(&1).is_some());
    }
}
