//! How far one page of a list of claims reads; pure.
//!
//! **Promises** that a page with few matches does not read all claims: it ends after a bounded
//! number of them, and the next page begins there.

use std::cell::Cell;

use berth_contract::message::claim::ListClaims;
use berth_domain::{AllocId, VolumeKey};

/// Claims that one page reads, of a list whose reader goes through all pages.
const READ_MAX: usize = 10_000;

/// A claim, by its volume and alloc.
pub type ClaimRef<'a> = (&'a VolumeKey, &'a AllocId);

/// How far the page has come.
pub struct Reach<'a> {
    left: Cell<usize>,
    last: Cell<Option<ClaimRef<'a>>>,
    is_cut: Cell<bool>,
}

impl<'a> Reach<'a> {
    /// The bound of this list. Only claims that are to end are found by reading others: what other
    /// lists mean is found in an index, or asked for by people.
    pub fn of_list(query: &ListClaims) -> Self {
        Self::new(if query.leaving { READ_MAX } else { usize::MAX })
    }

    pub(super) fn new(left: usize) -> Self {
        Self { left: Cell::new(left), last: Cell::new(None), is_cut: Cell::new(false) }
    }

    /// Whether the page reads this claim, too.
    pub fn covers(&self, claim: ClaimRef<'a>) -> bool {
        let Some(left) = self.left.get().checked_sub(1) else {
            self.is_cut.set(true);
            return false;
        };
        self.left.set(left);
        self.last.set(Some(claim));
        true
    }

    /// The last claim that was read, if there are more.
    pub fn end(&self) -> Option<ClaimRef<'a>> {
        self.last.get().filter(|_| self.is_cut.get())
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::{Namespace, VolumeId};

    use super::*;

    #[test]
    fn a_page_ends_after_a_bounded_number_of_claims_and_says_where() {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("v").unwrap());
        let allocs = ["a", "b", "c"].map(|id| AllocId::new(id).unwrap());
        for (bound, read, end) in [(2, 2, Some("b")), (3, 3, None), (9, 3, None)] {
            let reach = Reach::new(bound);
            let covered = allocs.iter().take_while(|alloc| reach.covers((&volume, alloc)));
            assert_eq!(covered.count(), read);
            assert_eq!(reach.end().map(|(_, alloc)| alloc.as_str()), end);
        }
    }
}
