//! Which call of an operation comes next, and at which node.

use std::collections::BTreeSet;

use crate::NodeId;
use crate::volume::storage::{Expansion, Operation, Work};
use crate::volume::{Claim, Context, State, Volume};

/// What comes next of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStorageCall {
    /// A call of the controller.
    Controller,
    /// A call of this node.
    Node(NodeId),
    /// Nothing before a claim comes or goes: the next staging expands the volume, or the plugin
    /// expands and deletes no volume that is in use.
    Await,
    /// Nothing is left to do.
    Finish,
}

impl Volume {
    /// What comes next of the volume's operation.
    pub fn next_storage_call(&self, operation: &Operation) -> NextStorageCall {
        match &operation.work {
            Work::Expand(expansion) if expansion.is_at_nodes() => next_node(self, expansion),
            _ if operation.needs_unmounted() && self.holders().next().is_some() => {
                NextStorageCall::Await
            }
            _ => NextStorageCall::Controller,
        }
    }

    /// The expansion that only the next mount goes on with: its part at the controller is done, and
    /// no call of it may act. It holds up no other change.
    pub(in crate::volume) fn expansion_at_next_mount(
        &self,
        context: &Context,
    ) -> Option<&Expansion> {
        let operation = self.spec.as_ref()?.operation()?;
        let Work::Expand(expansion) = &operation.work else { return None };
        // A call without an answer that was the last node's.
        let is_busy = self.busy_operation(context.now, &context.policy).is_some();
        let is_at_rest = expansion.is_at_nodes() && !is_busy;
        (is_at_rest && self.next_storage_call(operation) == NextStorageCall::Await)
            .then_some(expansion)
    }

    /// The operation, if the storage still has to do something for it.
    pub(in crate::volume) fn operation_at_storage(&self, context: &Context) -> Option<&Operation> {
        let operation = self.spec.as_ref()?.operation()?;
        self.expansion_at_next_mount(context).is_none().then_some(operation)
    }

    /// The expansion that is before this claim in line, or before a new one: it has to be made
    /// while no claim holds the volume. Claims go on beside its tries once the plugin was asked,
    /// and beside a mount that it waits for.
    pub fn expansion_ahead(&self, in_line: Option<&Claim>) -> Option<&Operation> {
        let operation = self.spec.as_ref()?.operation()?;
        let waits = matches!(operation.work, Work::Expand(_))
            && operation.needs_unmounted()
            && operation.mounted.is_none()
            && !operation.progress.calls.is_unsettled();
        let is_ahead = in_line.is_none_or(|claim| claim.since >= operation.since);
        (waits && is_ahead).then_some(operation)
    }
}

/// The next node that has to expand the volume. Each node where it is granted does so once. They
/// take turns: one that does not answer holds up none of the others.
pub(super) fn next_node(volume: &Volume, expansion: &Expansion) -> NextStorageCall {
    let taken = volume.taken_nodes();
    let left: BTreeSet<&NodeId> =
        taken.filter(|node| !expansion.expanded.contains(*node)).collect();
    let is_due = |node: &&&NodeId| {
        let refused = expansion.refused.get(**node);
        refused.is_none_or(|refused| newest_epoch(volume, node) > *refused)
    };
    let last = expansion.node.as_ref();
    let after = left.iter().filter(|node| last.is_none_or(|last| **node > last));
    if let Some(node) = after.chain(&left).find(is_due) {
        NextStorageCall::Node((*node).clone())
    } else if !left.is_empty() || expansion.expanded.is_empty() {
        NextStorageCall::Await
    } else {
        NextStorageCall::Finish
    }
}

/// The newest epoch of the claims that are granted on this node.
pub(super) fn newest_epoch(volume: &Volume, node: &NodeId) -> u64 {
    volume.claims.taken_on(node).map(|claim| claim.epoch).max().unwrap_or_default()
}

impl Volume {
    /// The nodes where a claim is granted.
    pub(super) fn taken_nodes(&self) -> impl Iterator<Item = &NodeId> {
        let taken = self.claims.values().filter(|claim| claim.state == State::Taken);
        taken.map(|claim| &claim.node)
    }
}
