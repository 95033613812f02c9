//! What is due for a claim, decided from the mirrors; pure.
//!
//! **Owns** the decision whether to ask the claim service about a claim, and which executor would
//! carry out the next call.
//!
//! **Promises** that a claim is never at rest here while the claim service would begin a call for
//! it, by the same record. The opposite may happen: the claim service may refuse a call that seems
//! due here.
//!
//! **Never** decides that a call begins: that is the claim service's decision.

use std::collections::HashMap;

use berth_domain::volume::{Attempt, Claim, State, Volume};
use berth_domain::{AllocId, NodeId, PluginId, Timestamp, limits};

/// Who executes a call, and so what calls wait for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Executor {
    /// The controller of a plugin, wherever it is.
    Controller(PluginId),
    /// A plugin on a node, by the node's agent.
    Node(PluginId, NodeId),
}

/// What is due for a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// A call of this executor may begin, or the claim may go.
    Now(Executor),
    /// Nothing before then, unless something changes.
    At(Timestamp),
    /// Nothing, unless something changes.
    Rest,
}

/// What is known of a claim besides its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimFacts {
    /// Its alloc has not ended.
    pub wanted: bool,
    /// Its node is gone: a proof says that nothing there can write any more (rule 12).
    pub gone: bool,
    /// Something changed that the claim's last failed call may have waited for.
    pub early: bool,
}

/// One look at one volume.
pub struct VolumeLook<'a> {
    volume: &'a Volume,
    plugin: PluginId,
    now: Timestamp,
    /// The alloc whose controller call may still act, and until when.
    controller: Option<(&'a AllocId, Timestamp)>,
    /// By node: the alloc whose node call may still act, and until when.
    nodes: HashMap<&'a NodeId, (&'a AllocId, Timestamp)>,
}

impl<'a> VolumeLook<'a> {
    /// None when there is no such volume to look at.
    pub fn new(volume: &'a Volume, now: Timestamp) -> Option<Self> {
        let plugin = volume.spec.as_ref()?.plugin.clone();
        let mut look = Self { volume, plugin, now, controller: None, nodes: HashMap::new() };
        let attempts = volume.claims.calling().filter_map(|(alloc, claim)| {
            let attempt = claim.attempt.as_ref()?;
            Some((alloc, claim, attempt))
        });
        // The latest deadline comes first: what comes after one that has passed has passed too.
        let live = attempts.take_while(|(_, _, attempt)| attempt.ends() >= now);
        for (alloc, claim, attempt) in live {
            if attempt.call.is_controller() {
                look.controller.get_or_insert((alloc, attempt.ends()));
            } else {
                look.nodes.entry(&claim.node).or_insert((alloc, attempt.ends()));
            }
        }
        Some(look)
    }

    /// The claims being released that may go on now, side by side: at most one for each executor
    /// that rule 3 keeps apart. So when one of thousands of claims that leave one volume has moved,
    /// the others do not all ask. The oldest claim comes first: if allocs come and go all the time,
    /// none is overtaken for ever.
    pub fn may_go_on(mut self, known: impl Fn(&AllocId, &Claim) -> ClaimFacts) -> Vec<&'a AllocId> {
        let mut found = Vec::new();
        // A granted or waiting claim goes on when its alloc changes.
        for (alloc, claim) in self.volume.claims.moving() {
            let Due::Now(executor) = self.due(alloc, claim, known(alloc, claim)) else { continue };
            match executor {
                Executor::Controller(_) => self.controller = Some((alloc, self.now)),
                Executor::Node(..) => {
                    self.nodes.insert(&claim.node, (alloc, self.now));
                }
            }
            found.push(alloc);
        }
        found
    }

    /// What is due for one claim.
    pub fn due(&self, alloc: &AllocId, claim: &Claim, known: ClaimFacts) -> Due {
        let wanted = known.wanted && !known.gone;
        match claim.state {
            State::Taken if wanted => Due::Rest,
            State::Waiting if wanted => {
                let kept = claim.since.after(limits::PLACE_KEPT);
                self.from(claim.place_until.unwrap_or(kept), || self.controller())
            }
            // Undone if its caller does not return; the claim service decides when.
            State::Publishing if wanted => {
                let deadline = claim.attempt.as_ref().map(Attempt::ends);
                let signs = [deadline, claim.next_try].into_iter().flatten();
                let last = signs.fold(claim.since, Ord::max).after(limits::CLOCK_MARGIN);
                self.from(last, || self.controller())
            }
            State::Waiting | State::Publishing => Due::Now(self.controller()),
            // A node that is gone is not asked.
            State::Taken | State::Unpublishing if known.gone => Due::Now(self.controller()),
            // Also while rule 3 forbids the call: the record should show that it is being released.
            State::Taken => Due::Now(self.node(claim)),
            State::Unpublishing => {
                let busy = self.controller.into_iter().chain(self.nodes.get(&claim.node).copied());
                self.unless(busy, claim, known, || self.node(claim))
            }
            State::NodeDetached => {
                let calls_needed = claim.controller && !self.others_will_unpublish(alloc, claim);
                let all = self.controller.into_iter().chain(self.nodes.values().copied());
                let busy = all.filter(|(whose, _)| calls_needed || *whose == alloc);
                self.unless(busy, claim, known, || self.controller())
            }
        }
    }

    /// Now, unless one of these calls may still act, or the claim's next try is ahead.
    fn unless<'b>(
        &self,
        busy: impl Iterator<Item = (&'b AllocId, Timestamp)>,
        claim: &Claim,
        known: ClaimFacts,
        executor: impl FnOnce() -> Executor,
    ) -> Due {
        let next_try = claim.next_try.filter(|_| !known.early);
        match busy.map(|(_, until)| until).chain(next_try).max() {
            Some(until) if until >= self.now => Due::At(until),
            _ => Due::Now(executor()),
        }
    }

    fn from(&self, at: Timestamp, executor: impl FnOnce() -> Executor) -> Due {
        if self.now > at { Due::Now(executor()) } else { Due::At(at) }
    }

    fn controller(&self) -> Executor {
        Executor::Controller(self.plugin.clone())
    }

    fn node(&self, claim: &Claim) -> Executor {
        Executor::Node(self.plugin.clone(), claim.node.clone())
    }

    /// Rule 9: the claim goes without a call of its own.
    fn others_will_unpublish(&self, alloc: &AllocId, claim: &Claim) -> bool {
        self.volume.claims.others_will_unpublish(alloc, claim)
    }
}

#[cfg(test)]
mod tests;
