//! The claims of one volume.
//!
//! **Owns** the claims by alloc, and their [`Summary`]. A decision reads the summary instead of all
//! claims, so that the ten-thousandth claim costs as much as the first.
//!
//! **Promises** that the summary equals a fresh count. Claims change only by
//! [`insert`](Claims::insert) and [`remove`](Claims::remove), which update it.

mod change;
mod external_nodes;
mod summary;

pub(in crate::volume) use summary::Newcomer;

use std::collections::{BTreeMap, btree_map};
use std::fmt;

use super::claim::{Claim, State};
use crate::access::{Capability, Mode};
use crate::{AllocId, NodeId, Timestamp};
use change::Change;
use external_nodes::ExternalUse;
use summary::{OnNode, Summary};

/// The claims of one volume, by alloc. Most volumes have none: then it is a null pointer.
#[derive(Clone, Default)]
pub struct Claims(Option<Box<Kept>>);

/// Claims are boxed, because a node of the tree has room for eleven, and most claimed volumes have
/// one claim.
#[derive(Clone, Default)]
struct Kept {
    claims: BTreeMap<AllocId, Box<Claim>>,
    summary: Summary,
}

impl Claims {
    /// Stores the alloc's claim, and returns the previous one.
    pub fn insert(&mut self, mut alloc: AllocId, mut claim: Claim) -> Option<Claim> {
        let Kept { claims, summary } = self.0.get_or_insert_default().as_mut();
        if let Some((known, old)) = claims.get_key_value(&alloc) {
            summary.count_claim(known, old, Change::Goes);
            // The text of an id is stored once, however often it is used.
            alloc = known.clone();
        }
        if let Some((known, _)) = summary.nodes.get_key_value(&claim.node) {
            claim.node = known.clone();
        }
        summary.count_claim(&alloc, &claim, Change::Comes);
        claims.insert(alloc, Box::new(claim)).map(|old| *old)
    }

    /// Removes the alloc's claim, and returns it.
    pub fn remove(&mut self, alloc: &AllocId) -> Option<Claim> {
        let kept = self.0.as_mut()?;
        let old = kept.claims.remove(alloc)?;
        kept.summary.count_claim(alloc, &old, Change::Goes);
        if kept.claims.is_empty() {
            self.0 = None;
        }
        Some(*old)
    }

    /// An alloc's claim.
    pub fn get(&self, alloc: &AllocId) -> Option<&Claim> {
        self.0.as_ref()?.claims.get(alloc).map(Box::as_ref)
    }

    /// As [`get`](Self::get), with the stored id.
    pub fn get_key_value(&self, alloc: &AllocId) -> Option<(&AllocId, &Claim)> {
        self.0.as_ref()?.claims.get_key_value(alloc).map(|(alloc, claim)| (alloc, claim.as_ref()))
    }

    /// Whether the alloc has a claim.
    pub fn contains_key(&self, alloc: &AllocId) -> bool {
        self.get(alloc).is_some()
    }

    /// The number of claims.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |kept| kept.claims.len())
    }

    /// Whether there is no claim.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// All claims, by alloc.
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.0.as_ref().map(|kept| kept.claims.iter()))
    }

    /// The allocs with a claim, in order.
    pub fn keys(&self) -> impl Iterator<Item = &AllocId> {
        self.iter().map(|(alloc, _)| alloc)
    }

    /// All claims, in the order of their allocs.
    pub fn values(&self) -> impl Iterator<Item = &Claim> {
        self.iter().map(|(_, claim)| claim)
    }

    /// The number of claims in a state.
    pub fn count(&self, state: State) -> usize {
        [Mode::Read, Mode::Write].into_iter().map(|mode| self.count_of(state, mode)).sum()
    }

    /// The number of claims of a mode in a state.
    pub fn count_of(&self, state: State, mode: Mode) -> usize {
        self.summary().map_or(0, |summary| summary.counts.number(state, mode) as usize)
    }

    /// Waiting claims, in the order of the line.
    pub fn in_line(&self) -> impl Iterator<Item = (&AllocId, &Claim)> {
        self.named(|summary| summary.line.iter().map(|(_, alloc)| alloc))
    }

    /// Whether the alloc is in line behind another one. The first in line has its turn next.
    pub fn is_behind_in_line(&self, alloc: &AllocId) -> bool {
        let waits = self.get(alloc).is_some_and(|claim| claim.state == State::Waiting);
        waits && self.in_line().next().is_some_and(|(first, _)| first != alloc)
    }

    /// Claims that are being published or released, the oldest claim first.
    pub fn moving(&self) -> impl Iterator<Item = (&AllocId, &Claim)> {
        self.named(|summary| summary.moving.iter().map(|(_, alloc)| alloc))
    }

    /// Claims with an attempt, the latest deadline first.
    pub fn calling(&self) -> impl Iterator<Item = (&AllocId, &Claim)> {
        self.named(|summary| summary.calls.iter().rev().map(|(_, alloc)| alloc))
    }

    /// Claims that the plugin had no room for (A7).
    pub fn exhausted(&self) -> impl Iterator<Item = (&AllocId, &Claim)> {
        self.named(|summary| summary.exhausted.iter())
    }

    /// What the plugin calls abnormal of the volume, where it is mounted (A6).
    pub fn condition(&self) -> Option<&str> {
        let mut unwell = self.named(|summary| summary.unwell.iter());
        unwell.next()?.1.condition()
    }

    /// The nodes with a claim that holds the volume, or may.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeId> {
        let nodes = self.summary().into_iter().flat_map(|summary| &summary.nodes);
        nodes.filter(|(_, on)| on.is_held()).map(|(node, _)| node)
    }

    /// Whether a claim on the node holds the volume, or may.
    pub fn held_on(&self, node: &NodeId) -> bool {
        self.on(node).is_some_and(OnNode::is_held)
    }

    /// The capability of the claims that hold the volume.
    pub(in crate::volume) fn in_use(&self) -> Option<Capability> {
        self.summary()?.held_as.keys().next().copied()
    }

    /// Whether a newcomer conflicts with no claim that holds the volume, and with none ahead of it
    /// in line (rules 7 and 13). `own` is its waiting claim, if it has one.
    pub(in crate::volume) fn admit(&self, newcomer: &Newcomer<'_>, own: Option<&Claim>) -> bool {
        let Some(summary) = self.summary() else { return true };
        summary.holders_admit(newcomer)
            && (summary.line_admits(newcomer, own)
                // A waiting claim conflicts. That matters only if it is ahead of the newcomer in
                // line. The first claim in line conflicts with most, so few are checked.
                || own.is_some_and(|own| {
                    let ahead = self.in_line().take_while(|(_, other)| other.epoch < own.epoch);
                    ahead.into_iter().all(|(_, other)| newcomer.joins(other))
                }))
    }

    /// Rule 9: whether another alloc's claim is sure to make the same controller call: an unpublish
    /// from the same plugin's id of the node.
    pub fn others_will_unpublish(&self, alloc: &AllocId, claim: &Claim) -> bool {
        let is_sure = |other: &Claim| {
            let alike = match (&claim.external_node, &other.external_node) {
                (Some(one), Some(other)) => one == other,
                (None, None) => claim.node == other.node,
                _ => false,
            };
            alike && other.will_unpublish()
        };
        let all = match &claim.external_node {
            Some(external) => self.under(external).iter().map(|one| one.will_unpublish).sum(),
            None => self.on(&claim.node).map_or(0, |on| on.will_unpublish),
        };
        let others = all > u32::from(self.get(alloc).is_some_and(is_sure));
        debug_assert_eq!(
            others,
            self.iter().any(|(other, claim)| other != alloc && is_sure(claim))
        );
        others
    }

    /// Rule 9: whether another alloc's claim may use the attachment that this claim's controller
    /// call would end: a claim on the same node, or under the same plugin's id of a node.
    pub(in crate::volume) fn others_use_attachment(&self, alloc: &AllocId, claim: &Claim) -> bool {
        let uses = |other: &Claim| other.is_in_use() && other.shares_attachment(claim);
        let others = self.users(claim) > u32::from(self.get(alloc).is_some_and(uses));
        debug_assert_eq!(others, self.iter().any(|(other, claim)| other != alloc && uses(claim)));
        others
    }

    /// The first claim that blocks the controller call of a claim that has left its node.
    pub fn attachment_user(&self, claim: &Claim) -> Option<(&AllocId, &Claim)> {
        let uses = |other: &Claim| other.is_in_use() && other.shares_attachment(claim);
        (self.users(claim) > 0).then(|| self.iter().find(|(_, other)| uses(other)))?
    }

    /// How many claims may use the attachment of this claim.
    fn users(&self, claim: &Claim) -> u32 {
        let node = &claim.node;
        let here = self.on(node).map_or(0, OnNode::in_use);
        let elsewhere: u32 = match &claim.external_node {
            Some(external) => {
                let others = self.under(external).iter().filter(|one| one.node != *node);
                others.map(|one| one.in_use).sum()
            }
            None => 0,
        };
        here + elsewhere
    }

    /// A claim that holds the volume on another node under the same plugin's id, or on the same
    /// node under another id. Only if the controller attaches the volume for that claim or for the
    /// newcomer (rule 8).
    pub(in crate::volume) fn attached_unlike(
        &self,
        node: &NodeId,
        external: &str,
        attaches: bool,
    ) -> Option<(&AllocId, &Claim)> {
        let mut here = 0;
        let mut elsewhere = false;
        for one in self.under(external) {
            if one.node == *node {
                here = one.held;
            } else {
                elsewhere |= attaches || one.attached > 0;
            }
        }
        let as_other =
            self.on(node).is_some_and(|on| on.held() > here && (attaches || on.attached > 0));
        let is_unlike = |claim: &Claim| {
            let held_as = claim.external_node.as_deref().filter(|_| claim.is_held());
            (attaches || claim.controller)
                && held_as.is_some_and(|held_as| (held_as == external) != (claim.node == *node))
                && (claim.node == *node || claim.external_node.as_deref() == Some(external))
        };
        if elsewhere || as_other {
            return self.iter().find(|(_, claim)| is_unlike(claim));
        }
        debug_assert!(!self.values().any(is_unlike));
        None
    }

    /// Claims that hold the volume under a plugin's id of a node, by node.
    fn under(&self, external: &str) -> &[ExternalUse] {
        self.summary().map_or(&[], |summary| summary.external.under(external))
    }

    /// The counts of a node's claims. None if it has no claim.
    pub(in crate::volume) fn on(&self, node: &NodeId) -> Option<&OnNode> {
        self.summary()?.nodes.get(node).map(Box::as_ref)
    }

    /// The taken claims of a node.
    pub(in crate::volume) fn taken_on(&self, node: &NodeId) -> impl Iterator<Item = &Claim> {
        let taken = self.on(node).into_iter().flat_map(|on| &on.taken);
        taken.filter_map(|alloc| self.get(alloc))
    }

    /// The alloc whose attempt has the latest deadline among these calls.
    pub(in crate::volume) fn last_call(&self, of: Calls<'_>) -> Option<&AllocId> {
        let summary = self.summary()?;
        let last = match of {
            Calls::All => summary.calls.last(),
            Calls::Controller => summary.controller_calls.last(),
            Calls::Node(node) => self.on(node)?.calls.last(),
        };
        last.map(|(_, alloc): &(Timestamp, AllocId)| alloc)
    }

    /// Whether the summary equals a fresh count of the claims.
    pub(in crate::volume) fn is_summed(&self) -> bool {
        let mut fresh = Summary::default();
        self.iter().for_each(|(alloc, claim)| fresh.count_claim(alloc, claim, Change::Comes));
        self.summary().is_none_or(|summary| *summary == fresh)
    }

    fn summary(&self) -> Option<&Summary> {
        self.0.as_ref().map(|kept| &kept.summary)
    }

    /// The claims of the allocs that the summary lists.
    fn named<'a, I: Iterator<Item = &'a AllocId>>(
        &'a self,
        names: impl FnOnce(&'a Summary) -> I,
    ) -> impl Iterator<Item = (&'a AllocId, &'a Claim)> {
        let names = self.summary().map(names).into_iter().flatten();
        names.filter_map(|alloc| self.get_key_value(alloc))
    }
}

/// A selection of the attempts on the record.
#[derive(Debug, Clone, Copy)]
pub(in crate::volume) enum Calls<'a> {
    /// All calls.
    All,
    /// Controller calls.
    Controller,
    /// Calls of one node.
    Node(&'a NodeId),
}

/// Claims by alloc.
#[derive(Debug, Clone)]
pub struct Iter<'a>(Option<btree_map::Iter<'a, AllocId, Box<Claim>>>);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a AllocId, &'a Claim);
    fn next(&mut self) -> Option<Self::Item> {
        self.0.as_mut()?.next().map(|(alloc, claim)| (alloc, claim.as_ref()))
    }
}

impl<'a> IntoIterator for &'a Claims {
    type Item = (&'a AllocId, &'a Claim);
    type IntoIter = Iter<'a>;
    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl Extend<(AllocId, Claim)> for Claims {
    fn extend<I: IntoIterator<Item = (AllocId, Claim)>>(&mut self, claims: I) {
        for (alloc, claim) in claims {
            self.insert(alloc, claim);
        }
    }
}

impl FromIterator<(AllocId, Claim)> for Claims {
    fn from_iter<I: IntoIterator<Item = (AllocId, Claim)>>(claims: I) -> Self {
        let mut all = Self::default();
        all.extend(claims);
        all
    }
}

impl<const N: usize> From<[(AllocId, Claim); N]> for Claims {
    fn from(claims: [(AllocId, Claim); N]) -> Self {
        claims.into_iter().collect()
    }
}

/// The summary is not compared: it follows from the claims.
impl PartialEq for Claims {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Claims {}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_summary_that_is_not_what_its_claims_come_to_is_seen() {
        let claim = json!({
            "state": "taken", "node": "n1", "mode": "write", "since": "2026-01-31T12:00:00.000Z",
            "access": "single-node-writer", "attachment": "file-system", "controller": true,
        });
        let claim: Claim = serde_json::from_value(claim).unwrap();
        let mut claims = Claims::from([("a".parse().unwrap(), claim)]);
        assert!(claims.is_summed());
        claims.0.as_mut().unwrap().summary = Summary::default();
        assert!(!claims.is_summed());
    }

    #[test]
    fn a_condition_is_the_volumes_while_one_mount_has_it() {
        let claim = |state: &str, error: Option<&str>| -> Claim {
            let since = "2026-01-31T12:00:00.000Z";
            let claim = json!({
                "state": "taken", "node": "n1", "mode": "read", "since": since,
                "access": "multi-node-reader-only", "attachment": "file-system",
                "controller": false, "mount": {"state": state, "since": since, "error": error},
            });
            serde_json::from_value(claim).unwrap()
        };
        let (a, b) = ("a".parse::<AllocId>().unwrap(), "b".parse().unwrap());
        let mut claims = Claims::from([(a, claim("mounted", None))]);
        assert_eq!(claims.condition(), None);
        // A mount that fails says what the call said, and nothing of the volume.
        claims.insert(b, claim("failing", Some("INTERNAL")));
        assert_eq!(claims.condition(), None);
        claims.insert("b".parse().unwrap(), claim("mounted", Some("a disk is dying")));
        assert_eq!(claims.condition(), Some("a disk is dying"));
        claims.remove(&"b".parse().unwrap());
        assert_eq!(claims.condition(), None);
        assert!(claims.is_summed());
    }
}
