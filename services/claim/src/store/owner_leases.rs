//! The owners whose lease is held, as far as this replica knows.

use std::collections::HashMap;

use berth_bus::Fold;
use berth_contract::key;
use berth_contract::lease::OwnerHolder;
use berth_domain::{Namespace, OwnerId};

/// The owners whose lease is held, and who holds it.
#[derive(Debug, Default)]
pub struct OwnerLeases {
    held: HashMap<(Namespace, OwnerId), OwnerHolder>,
    ends: u64,
}

impl OwnerLeases {
    /// The leases of owners. The bucket also has those of nodes and leaders.
    pub const FILTER: &str = "owner.>";

    /// Who holds the lease.
    pub fn holder(&self, namespace: &Namespace, owner: &OwnerId) -> Option<&OwnerHolder> {
        self.held.get(&(namespace.clone(), owner.clone()))
    }

    /// How many times a lease ended or changed hands.
    pub const fn ends(&self) -> u64 {
        self.ends
    }

    /// All holders, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Namespace, &OwnerHolder)> {
        self.held.iter().map(|((namespace, _), holder)| (namespace, holder))
    }
}

impl Fold for OwnerLeases {
    fn put(&mut self, key: &str, _revision: u64, value: &[u8]) {
        let Some((namespace, owner)) = key::parse_owner_lease(key) else { return };
        let Some(holder) = read_holder(&owner, value) else {
            tracing::warn!(key, "the value was not written by berth-claim");
            return self.delete(key, 0);
        };
        let by = holder.by.clone();
        let before = self.held.insert((namespace, owner), holder);
        self.ends += u64::from(before.is_some_and(|before| before.by != by));
    }

    fn delete(&mut self, key: &str, _revision: u64) {
        let Some(id) = key::parse_owner_lease(key) else { return };
        self.ends += u64::from(self.held.remove(&id).is_some());
    }
}

/// The holder of an owner's lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseHolder {
    /// It is not held.
    None,
    /// This identity, if the holder named one.
    By(Option<String>),
}

impl LeaseHolder {
    /// Whether the identity holds it.
    pub fn is_held_by(&self, by: Option<&str>) -> bool {
        matches!(self, Self::By(holder) if holder.as_deref() == by)
    }
}

/// The holder, if the value was written by this service for this owner.
pub fn read_holder(owner: &OwnerId, value: &[u8]) -> Option<OwnerHolder> {
    let holder = serde_json::from_slice::<OwnerHolder>(value).ok();
    holder.filter(|holder| holder.owner == *owner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(by: &str) -> Vec<u8> {
        json!({ "owner": "a", "by": by, "holder": "h", "since": "2026-01-01T00:00:00.000Z" })
            .to_string()
            .into_bytes()
    }

    #[test]
    fn an_end_and_a_change_of_hands_count_and_a_renewal_does_not() {
        let (namespace, owner) = (Namespace::default(), OwnerId::new("a").unwrap());
        let mut leases = OwnerLeases::default();
        leases.put("owner.default.a", 1, &lease("user.anna"));
        leases.put("owner.default.a", 2, &lease("user.anna"));
        assert_eq!(leases.ends(), 0);
        leases.put("owner.default.a", 3, &lease("user.bob"));
        assert_eq!(leases.ends(), 1);
        let by = leases.holder(&namespace, &owner).unwrap().by.clone();
        assert_eq!(by.as_deref(), Some("user.bob"));
        leases.put("owner.default.a", 4, b"by hand");
        assert!(leases.holder(&namespace, &owner).is_none());
        leases.delete("owner.default.a", 5);
        assert_eq!(leases.ends(), 2);
    }
}
