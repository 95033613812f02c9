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

use berth_domain::volume::storage::{NextStorageCall, Snapshot, Work};
use berth_domain::volume::{Claim, State, Volume};
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
    /// Whose controller call may still act, and until when.
    controller: Option<(CallingOwner<'a>, Timestamp)>,
    /// By node: whose node call may still act, and until when.
    nodes: HashMap<&'a NodeId, (CallingOwner<'a>, Timestamp)>,
}

/// Whose call may still act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallingOwner<'a> {
    Claim(&'a AllocId),
    /// The volume's operation, or a snapshot.
    Storage,
}

impl<'a> VolumeLook<'a> {
    /// None when there is no such volume to look at.
    pub fn new(volume: &'a Volume, now: Timestamp) -> Option<Self> {
        let of_snapshot = || volume.snapshots.values().next().map(|one| one.plugin.clone());
        // The registration of a volume with claims may be lost.
        let of_claim = || volume.claims.values().find_map(|claim| claim.plugin.clone());
        let of_spec = volume.spec.as_ref().map(|spec| spec.plugin.clone());
        let plugin = of_spec.or_else(of_claim).or_else(of_snapshot)?;
        let mut look = Self { volume, plugin, now, controller: None, nodes: HashMap::new() };
        let attempts = volume.claims.calling().filter_map(|(alloc, claim)| {
            let attempt = claim.attempt.as_ref()?;
            Some((alloc, claim, attempt))
        });
        // The latest deadline comes first: what comes after one that has passed has passed too.
        let live = attempts.take_while(|(_, _, attempt)| attempt.ends() >= now);
        for (alloc, claim, attempt) in live {
            if attempt.call.is_controller() {
                look.controller.get_or_insert((CallingOwner::Claim(alloc), attempt.ends()));
            } else {
                let calling = (CallingOwner::Claim(alloc), attempt.ends());
                look.nodes.entry(&claim.node).or_insert(calling);
            }
        }
        look.add_storage_calls();
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
                Executor::Controller(_) => {
                    self.controller = Some((CallingOwner::Claim(alloc), self.now));
                }
                Executor::Node(..) => {
                    self.nodes.insert(&claim.node, (CallingOwner::Claim(alloc), self.now));
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
                let last = claim.last_sign(self.now).after(limits::CLOCK_MARGIN);
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
                let own = CallingOwner::Claim(alloc);
                let busy = all.filter(|(whose, _)| calls_needed || *whose == own);
                self.unless(busy, claim, known, || self.controller())
            }
        }
    }

    /// Adds the calls of the volume's operation and of snapshots.
    fn add_storage_calls(&mut self) {
        let operation = self.volume.spec.as_ref().and_then(|spec| spec.operation());
        let of_operation = operation.and_then(|operation| {
            let node = match &operation.work {
                Work::Expand(expansion) => expansion.node.as_ref(),
                _ => None,
            };
            Some((operation.progress.attempt.as_ref()?, node))
        });
        let snapshots = self.volume.snapshots.values();
        let of_snapshots =
            snapshots.filter_map(|snapshot| Some((snapshot.progress.attempt.as_ref()?, None)));
        for (attempt, node) in of_operation.into_iter().chain(of_snapshots) {
            let until = attempt.ends();
            if until < self.now {
                continue;
            }
            let known = match node.filter(|_| !attempt.call.is_controller()) {
                Some(node) => self.nodes.entry(node).or_insert((CallingOwner::Storage, until)),
                None => self.controller.get_or_insert((CallingOwner::Storage, until)),
            };
            known.1 = known.1.max(until);
        }
    }

    /// What is due for the volume's operation. `wanted` says whether the run that the volume was
    /// created for goes on.
    pub fn due_operation(&self, wanted: bool, early: bool) -> Due {
        if self.volume.is_run_over(wanted) {
            return Due::Now(self.controller());
        }
        let operation = self.volume.spec.as_ref().and_then(|spec| spec.operation());
        let Some(operation) = operation else { return Due::Rest };
        let next_try = operation.progress.next_try.filter(|_| !early);
        match self.volume.next_storage_call(operation) {
            NextStorageCall::Await => Due::Rest,
            NextStorageCall::Finish => Due::Now(self.controller()),
            NextStorageCall::Controller => self.when_free(self.any_call(), next_try),
            NextStorageCall::Node(node) => {
                let here = self.nodes.get(&node).copied();
                let until = self.controller.into_iter().chain(here).map(|(_, until)| until).max();
                match until.into_iter().chain(next_try).max() {
                    Some(until) if until >= self.now => Due::At(until),
                    _ => Due::Now(Executor::Node(self.plugin.clone(), node)),
                }
            }
        }
    }

    /// What is due for a snapshot.
    pub fn due_snapshot(&self, snapshot: &Snapshot, early: bool) -> Due {
        if snapshot.call().is_none() {
            return Due::Rest;
        }
        let next_try = snapshot.progress.next_try.filter(|_| !early);
        self.when_free(self.any_call(), next_try)
    }

    /// Until when any call of the volume may act.
    fn any_call(&self) -> Option<Timestamp> {
        let calls = self.controller.into_iter().chain(self.nodes.values().copied());
        calls.map(|(_, until)| until).max()
    }

    fn when_free(&self, busy: Option<Timestamp>, next_try: Option<Timestamp>) -> Due {
        match busy.into_iter().chain(next_try).max() {
            Some(until) if until >= self.now => Due::At(until),
            _ => Due::Now(self.controller()),
        }
    }

    /// Now, unless one of these calls may still act, or the claim's next try is ahead.
    fn unless<'b>(
        &self,
        busy: impl Iterator<Item = (CallingOwner<'b>, Timestamp)>,
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
