//! What a claim waits for; pure. `berth-explain` has the words, and the advice for operators.

use std::collections::BTreeMap;

use berth_domain::access::AccessMode;
use berth_domain::plugin::{Node, NodeState};
use berth_domain::volume::{CallKind, Claim, NodeMount, NodeMountState, State, Volume};
use berth_domain::{AllocId, NodeId, Timestamp};
use berth_explain::WaitReason;

/// Claims ahead that are named, at most.
const NAMED_MAX: usize = 5;

/// The holders of a volume, and the claims in line for it. Built once for all claims of a reply.
pub struct VolumeQueue<'a> {
    volume: &'a Volume,
    /// The first claims that hold the volume, or may hold it.
    named_holders: Vec<(&'a AllocId, &'a Claim)>,
    /// How many claims hold the volume, or may hold it.
    holder_count: usize,
    /// In line, first come first.
    waiting: Vec<(&'a AllocId, &'a Claim)>,
}

impl<'a> VolumeQueue<'a> {
    /// The holders and the line of a volume.
    pub fn new(volume: &'a Volume) -> Self {
        let waiting: Vec<_> = volume.claims.in_line().collect();
        let holder_count = volume.claims.len() - waiting.len();
        let named_holders = volume.holders().take(NAMED_MAX).collect();
        Self { volume, named_holders, holder_count, waiting }
    }

    /// One holder of each state and mode: one whose release needs a node that is not ready;
    /// otherwise one that has failed; otherwise the oldest. Claims in line are told of no others.
    pub fn first_holders(&self, is_ready: impl Fn(&NodeId) -> bool) -> Vec<&'a AllocId> {
        let mut first = BTreeMap::new();
        for (alloc, claim) in self.volume.holders() {
            let needs_node = matches!(claim.state, State::Taken | State::Unpublishing);
            let goes_on = !needs_node || is_ready(&claim.node);
            let rank = (goes_on, claim.progress.tries == 0, claim.since);
            let best = first.entry((claim.state, claim.mode)).or_insert((rank, alloc));
            *best = (*best).min((rank, alloc));
        }
        first.into_values().map(|(_, alloc)| alloc).collect()
    }

    /// The claim whose turn is next.
    pub fn first_in_line(&self) -> Option<&'a AllocId> {
        self.waiting.first().map(|(alloc, _)| *alloc)
    }

    /// How the holders share the volume.
    pub fn access(&self) -> Option<AccessMode> {
        self.named_holders.first().map(|(_, claim)| claim.access)
    }

    /// How many claims in line are before this one.
    fn position(&self, claim: &Claim) -> usize {
        self.waiting.partition_point(|(_, other)| other.epoch < claim.epoch)
    }

    /// The first claims before this one: the volume's holders, then those in line.
    fn ahead(&self, claim: &Claim) -> impl Iterator<Item = &(&'a AllocId, &'a Claim)> {
        let before = &self.waiting[..self.position(claim)];
        self.named_holders.iter().chain(before).take(NAMED_MAX)
    }
}

/// A claim, with everything that decides what it waits for.
pub struct ClaimContext<'a> {
    pub now: Timestamp,
    pub claim: &'a Claim,
    pub line: &'a VolumeQueue<'a>,
    /// Whether the alloc has not ended.
    pub wanted: bool,
}

impl ClaimContext<'_> {
    /// For a claim in line: how many in line are before it, and the first claims before it.
    pub fn ahead(&self) -> Option<(usize, Vec<AllocId>)> {
        (self.claim.state == State::Waiting).then(|| {
            let ahead = self.line.ahead(self.claim).map(|(alloc, _)| (*alloc).clone());
            (self.line.position(self.claim), ahead.collect())
        })
    }

    /// The present or next call.
    pub fn step(&self) -> Option<CallKind> {
        if let Some(attempt) = &self.claim.progress.attempt {
            return Some(attempt.call);
        }
        match self.claim.state {
            State::Waiting => None,
            State::Publishing => Some(CallKind::ControllerPublish),
            State::Taken if self.wanted => None,
            State::Taken | State::Unpublishing => Some(CallKind::NodeDetach),
            State::NodeDetached => self.claim.controller.then_some(CallKind::ControllerUnpublish),
        }
    }

    /// What the claim waits for by its own record; none for a claim at rest.
    pub fn waits_for(&self) -> Option<WaitReason<'_>> {
        let Self { now, claim, .. } = self;
        if let Some(attempt) = &claim.progress.attempt {
            let is_over = *now > attempt.ends();
            let reason = if is_over { WaitReason::Unanswered } else { WaitReason::Call };
            return Some(reason(attempt));
        }
        let next = claim.progress.next_try.filter(|next| next > now);
        let step = |call: CallKind| match next {
            Some(next) => WaitReason::NextTry(call, next),
            None => WaitReason::Watcher(call),
        };
        Some(match claim.state {
            // The alloc has ended: no caller asks for the claim any more.
            State::Waiting | State::Publishing | State::Taken if !self.wanted => {
                WaitReason::Release
            }
            State::Taken => return None,
            State::Waiting => self.turn(),
            State::Publishing => match next {
                Some(next) => WaitReason::NextTry(CallKind::ControllerPublish, next),
                None => WaitReason::Caller,
            },
            State::Unpublishing => step(CallKind::NodeDetach),
            State::NodeDetached => {
                let user = self.line.volume.claims.attachment_user(claim);
                match user.filter(|_| next.is_none()) {
                    Some((alloc, user)) => {
                        let external_node = claim.external_node.as_deref().unwrap_or_default();
                        WaitReason::Attachment(alloc, &user.node, external_node)
                    }
                    None => step(CallKind::ControllerUnpublish),
                }
            }
        })
    }

    /// The claims whose end a claim in line waits for.
    pub fn turn(&self) -> WaitReason<'_> {
        let ahead = self.line.ahead(self.claim);
        let named: Vec<_> =
            ahead.map(|(alloc, claim)| (*alloc, &claim.node, claim.state)).collect();
        let ahead_count = self.line.holder_count + self.line.position(self.claim);
        let more = ahead_count.saturating_sub(named.len());
        WaitReason::Turn(named, more)
    }
}

/// What a granted claim waits for on its node; none for a mounted claim, or before its ready node
/// has reported on it.
pub fn waits_on_node<'a>(claim: &'a Claim, node: Option<&Node>) -> Option<WaitReason<'a>> {
    let mount = claim.mount.as_ref();
    if let Some(Node { state: NodeState::Down, since, .. }) = node {
        return Some(WaitReason::Node(&claim.node, *since, mount));
    }
    let is_at_rest = |mount: &&NodeMount| {
        matches!(mount.state, NodeMountState::Mounted | NodeMountState::Unknown)
    };
    let mount = mount.filter(|mount| !is_at_rest(mount))?;
    Some(WaitReason::Mount(&claim.node, mount))
}

#[cfg(test)]
mod tests;
