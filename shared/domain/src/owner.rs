//! Owners of allocs: who may change an alloc, and when it has lost its owner.
//!
//! An owner is one instance of a scheduler. Its name and the identity that gave it belong together:
//! another identity with the same name is another owner. So two instances of a scheduler, and two
//! schedulers, cannot stop each other's allocs by mistake.
//!
//! **Promises** that an alloc with an owner is changed only by this owner, by a request that names
//! the revision of the record that its sender saw, or by the agent of its node.
//!
//! **Never** ends an alloc because its owner is gone: the end of a lease is no proof of anything
//! about the workload.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::alloc::Alloc;
use crate::{OwnerId, Timestamp};

/// Whom an alloc belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocOwner {
    /// The name that the owner gave itself.
    pub name: OwnerId,
    /// Whether the owner held its lease when it took the alloc. Without a lease, an owner keeps its
    /// allocs until it gives them up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leased: bool,
    /// Since when the owner's lease is not held any more: the alloc may be adopted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unowned_since: Option<Timestamp>,
}

impl AllocOwner {
    /// An owner that has its alloc.
    pub const fn new(name: OwnerId, leased: bool) -> Self {
        Self { name, leased, unowned_since: None }
    }
}

/// What a request for a change says of itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChangeGuard<'a> {
    /// The sender's identity, as in [`Alloc::by`].
    pub by: Option<&'a str>,
    /// As which owner it is sent.
    pub owner: Option<&'a OwnerId>,
    /// The revision of the alloc's record that the sender saw.
    pub revision: Option<u64>,
}

/// Why an alloc is not changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GuardRefusal {
    /// The record has changed since the sender saw it.
    #[error("its record is at revision {now}, not {seen}")]
    Changed {
        /// The revision that the request names.
        seen: u64,
        /// The revision of the record.
        now: u64,
    },
    /// It belongs to another owner.
    #[error("it belongs to owner {owner}{}", .by.as_ref().map(|by| format!(" ({by})")).unwrap_or_default())]
    Owned {
        /// The owner's name.
        owner: OwnerId,
        /// The owner's identity.
        by: Option<String>,
    },
    /// It has no owner, and the sender says that it is its owner.
    #[error("it has no owner, so it is not {0}'s")]
    NotOwned(OwnerId),
}

impl Alloc {
    /// Whether it is live and its owner's lease has ended.
    pub fn is_unowned(&self) -> bool {
        let owner = self.owner.as_ref();
        !self.state.is_terminal() && owner.is_some_and(|owner| owner.unowned_since.is_some())
    }

    /// Whether a sender that calls itself so is its owner.
    pub fn is_owned_by(&self, name: &OwnerId, by: Option<&str>) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.name == *name) && self.by.as_deref() == by
    }

    /// Refuses a change, unless the sender is the owner or has seen this revision of the record.
    pub fn check_change(&self, revision: u64, guard: ChangeGuard<'_>) -> Result<(), GuardRefusal> {
        if let Some(seen) = guard.revision {
            let is_seen = seen == revision;
            return is_seen.then_some(()).ok_or(GuardRefusal::Changed { seen, now: revision });
        }
        match (&self.owner, guard.owner) {
            (None, None) => Ok(()),
            (None, Some(name)) => Err(GuardRefusal::NotOwned(name.clone())),
            (Some(_), Some(name)) if self.is_owned_by(name, guard.by) => Ok(()),
            (Some(owner), _) => {
                Err(GuardRefusal::Owned { owner: owner.name.clone(), by: self.by.clone() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::NodeId;
    use crate::alloc::AllocState;

    fn alloc(owner: Option<&str>) -> Alloc {
        Alloc {
            state: AllocState::Live,
            node: NodeId::new("n1").unwrap(),
            index: None,
            volumes: Vec::new(),
            since: Timestamp::from_unix_ms(0),
            note: None,
            by: Some("user.anna".to_owned()),
            owner: owner.map(|name| AllocOwner::new(OwnerId::new(name).unwrap(), true)),
            meta: BTreeMap::new(),
        }
    }

    #[test]
    fn only_the_owner_or_who_saw_the_record_changes_an_alloc() {
        let (a, b) = (OwnerId::new("a").unwrap(), OwnerId::new("b").unwrap());
        let ask = |owner, by, revision| ChangeGuard { by, owner, revision };
        let (owned, free) = (alloc(Some("a")), alloc(None));
        let of_a = GuardRefusal::Owned { owner: a.clone(), by: owned.by.clone() };
        let anna = Some("user.anna");
        let table = [
            (&owned, ask(Some(&a), anna, None), Ok(())),
            (&owned, ask(Some(&b), anna, None), Err(of_a.clone())),
            (&owned, ask(Some(&a), Some("user.bob"), None), Err(of_a.clone())),
            (&owned, ask(Some(&a), None, None), Err(of_a.clone())),
            (&owned, ask(None, anna, None), Err(of_a)),
            (&owned, ask(None, Some("user.bob"), Some(7)), Ok(())),
            (&owned, ask(Some(&a), anna, Some(6)), Err(GuardRefusal::Changed { seen: 6, now: 7 })),
            (&free, ask(None, Some("user.bob"), None), Ok(())),
            (&free, ask(None, None, Some(7)), Ok(())),
            (&free, ask(None, None, Some(8)), Err(GuardRefusal::Changed { seen: 8, now: 7 })),
            (&free, ask(Some(&a), anna, None), Err(GuardRefusal::NotOwned(a.clone()))),
        ];
        for (alloc, guard, expected) in table {
            assert_eq!(alloc.check_change(7, guard), expected, "{guard:?}");
        }
    }

    #[test]
    fn an_ended_alloc_is_nobodys_concern() {
        let mut lost = alloc(Some("a"));
        assert!(!lost.is_unowned());
        lost.owner.as_mut().unwrap().unowned_since = Some(Timestamp::from_unix_ms(1));
        assert!(lost.is_unowned());
        lost.state = AllocState::Complete;
        assert!(!lost.is_unowned());
    }
}
