//! Allocs that wait for each other's volumes.
//!
//! Each volume is a transaction of its own, so no guard sees that one alloc holds `a` and waits for
//! `b`, while another holds `b` and waits for `a`. Allocs that take their volumes in one order
//! ([`take_order`]) never do that. An alloc that takes them one by one may: [`Deadlock::find`]
//! looks for the circle.
//!
//! **Promises** that of the allocs in a circle, one is to give up: the one that got in line last.
//! Every search of the same claims names the same alloc.
//!
//! **Never** gives a claim up. The alloc's scheduler decides what becomes of it.

use std::collections::BTreeSet;
use std::fmt;

use super::Volume;
use crate::access::admit;
use crate::{AllocId, VolumeId};

/// Allocs that are looked at in one search. A circle that is longer is not found.
const SEARCHED_MAX: usize = 1000;

/// The order in which an alloc takes its volumes: by id, the same for all allocs.
pub fn take_order(mut volumes: Vec<VolumeId>) -> Vec<VolumeId> {
    volumes.sort();
    volumes.dedup();
    volumes
}

/// An alloc in line for a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InLine {
    /// The volume.
    pub volume: VolumeId,
    /// The epoch of its claim: its ticket.
    pub ticket: u64,
    /// The allocs whose claims have to go first.
    pub behind: Vec<AllocId>,
}

impl Volume {
    /// How an alloc waits in line; none if it does not.
    pub fn in_line(&self, id: &VolumeId, alloc: &AllocId) -> Option<InLine> {
        let own = self.claims.get(alloc).filter(|claim| !claim.is_held())?;
        let is_ahead = |other: &super::Claim| other.is_held() || other.epoch < own.epoch;
        // An expansion before it waits for all holders.
        let behind_all = self.expansion_ahead(Some(own)).is_some();
        let behind = self.claims.iter().filter(|(other, claim)| {
            let capability = own.capability();
            let alone = [(&claim.node, claim.mode)];
            *other != alloc
                && is_ahead(claim)
                && ((behind_all && claim.is_held())
                    || claim.capability() != capability
                    || admit(capability.access, own.mode, &&own.node, alone).is_err())
        });
        let behind = behind.map(|(other, _)| other.clone()).collect();
        Some(InLine { volume: id.clone(), ticket: own.epoch, behind })
    }
}

/// Allocs that wait for each other in a circle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlock {
    /// Each alloc, and the volume for which it waits behind the next one.
    pub circle: Vec<(AllocId, VolumeId)>,
}

impl Deadlock {
    /// The circle in which this alloc waits, if it is the one to give up. `lines` says where an
    /// alloc that lives waits in line.
    pub fn find(alloc: &AllocId, lines: impl Fn(&AllocId) -> Vec<InLine>) -> Option<Self> {
        let mut search = Search { start: alloc, lines: &lines, seen: BTreeSet::new() };
        for line in lines(alloc) {
            // Only allocs with an earlier ticket are searched: in a circle with a later one, that
            // one is to give up.
            if let Some(circle) = search.back_to_start(alloc, &line, line.ticket) {
                return Some(Self { circle });
            }
        }
        None
    }
}

struct Search<'a, L> {
    start: &'a AllocId,
    lines: &'a L,
    seen: BTreeSet<AllocId>,
}

impl<L: Fn(&AllocId) -> Vec<InLine>> Search<'_, L> {
    fn back_to_start(
        &mut self,
        alloc: &AllocId,
        line: &InLine,
        youngest: u64,
    ) -> Option<Vec<(AllocId, VolumeId)>> {
        let step = (alloc.clone(), line.volume.clone());
        if alloc != self.start && !self.seen.insert(alloc.clone()) {
            return None;
        }
        for next in &line.behind {
            if next == self.start {
                return Some(vec![step]);
            }
            if self.seen.contains(next) || self.seen.len() >= SEARCHED_MAX {
                continue;
            }
            for further in (self.lines)(next) {
                if further.ticket > youngest {
                    continue;
                }
                if let Some(rest) = self.back_to_start(next, &further, youngest) {
                    return Some(std::iter::once(step).chain(rest).collect());
                }
            }
        }
        None
    }
}

/// For people: `a waits for volume x behind b, b for volume y behind a`.
impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (alloc, volume)) in self.circle.iter().enumerate() {
            let next = &self.circle[(at + 1) % self.circle.len()].0;
            let word = if at == 0 { " waits" } else { "" };
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{alloc}{word} for volume {volume} behind {next}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn alloc(id: &str) -> AllocId {
        AllocId::new(id).unwrap()
    }

    /// `alloc ticket volume behind…`
    fn lines(told: &[&str]) -> BTreeMap<AllocId, Vec<InLine>> {
        let mut all: BTreeMap<AllocId, Vec<InLine>> = BTreeMap::new();
        for line in told {
            let mut words = line.split(' ');
            let (who, ticket) = (alloc(words.next().unwrap()), words.next().unwrap());
            let volume = VolumeId::new(words.next().unwrap()).unwrap();
            let line = InLine {
                volume,
                ticket: ticket.parse().unwrap(),
                behind: words.map(alloc).collect(),
            };
            all.entry(who).or_default().push(line);
        }
        all
    }

    fn who_gives_up(told: &[&str]) -> Vec<String> {
        let lines = lines(told);
        let find = |who: &AllocId| {
            let found = Deadlock::find(who, |who| lines.get(who).cloned().unwrap_or_default());
            found.map(|found| found.to_string())
        };
        lines.keys().filter_map(find).collect()
    }

    #[test]
    fn the_last_in_line_of_a_circle_gives_up_and_no_other() {
        let none: [&str; 0] = [];
        assert_eq!(who_gives_up(&["a 1 x b"]), none);
        assert_eq!(who_gives_up(&["a 1 x b", "b 2 y c"]), none);
        let two = ["b waits for volume y behind a, a for volume x behind b"];
        assert_eq!(who_gives_up(&["a 1 x b", "b 2 y a"]), two);
        let three =
            ["c waits for volume z behind a, a for volume x behind b, b for volume y behind c"];
        assert_eq!(who_gives_up(&["a 1 x b", "b 2 y c", "c 3 z a"]), three);
        // It waits behind a circle, and is not part of it.
        assert_eq!(who_gives_up(&["a 1 x b", "b 2 y a", "d 9 x a b"]), two);
        // An alloc may wait in several lines.
        assert_eq!(who_gives_up(&["a 1 x c", "a 3 w b", "b 2 y a"]).len(), 1);
    }

    #[test]
    fn one_order_for_all() {
        let id = |id: &str| VolumeId::new(id).unwrap();
        assert_eq!(take_order(vec![id("b"), id("a"), id("b")]), [id("a"), id("b")]);
    }
}
