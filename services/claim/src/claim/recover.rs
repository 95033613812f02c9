//! `claim.recover`: records a lost claim again, in release; it is then released like any other.
//! Either an agent is about to unmount, for an operator, a mount that no claim covers, or the node
//! with such a mount counts as gone.
//!
//! **Never** records a claim only because a node reports it: that would keep every other node from
//! the volume. Either the alloc's record names both, or the mount is on the node's record.

use berth_contract::code::Code;
use berth_contract::message::claim::{Recover, Recovered};
use berth_contract::problem::Problem;
use berth_domain::access::Capability;
use berth_domain::plugin::UnaccountedMount;
use berth_domain::volume::{Command, Handle, LostClaim, State as ClaimState};
use berth_domain::{AllocId, Namespace, NodeId, VolumeKey};

use crate::caller::Caller;
use crate::store::state::State;

pub async fn recover(
    state: &State,
    namespace: &Namespace,
    request: Recover,
    caller: &Caller,
) -> Result<Recovered, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let volume = VolumeKey::new(namespace.clone(), request.volume);
    let Recover { alloc, node, plugin, external_id, mode, access, attachment, .. } = request;
    check_shown(state, &volume, &alloc, &node).await?;
    let lost = |_: &_| {
        let route = state.attachment(&plugin, &node);
        let handle = Handle { plugin: plugin.clone(), external_id: external_id.clone() };
        let capability = Capability { access, attachment };
        let (alloc, node) = (alloc.clone(), node.clone());
        Ok(Command::Recover(LostClaim { alloc, node, mode, capability, handle, route }))
    };
    let stored = state.transact_until(&volume, trace, deadline, lost).await;
    stored.map_err(|error| state.problem(error, &volume).node(&node))?;
    let recorded = state.volumes.mirror.read(|volumes| {
        let claim = volumes.get(&volume)?.volume.claims.get(&alloc)?;
        Some(claim.state)
    });
    Ok(Recovered { state: recorded.unwrap_or(ClaimState::Unpublishing) })
}

/// Refuses a claim that the node cannot have had.
async fn check_shown(
    state: &State,
    volume: &VolumeKey,
    alloc: &AllocId,
    node: &NodeId,
) -> Result<(), Problem> {
    let (_, alloc_record) = state.read_alloc(&volume.namespace, alloc).await?;
    if alloc_record.is_some_and(|alloc_record| alloc_record.may_use(&volume.volume, node)) {
        return Ok(());
    }
    let is_it = |mount: &UnaccountedMount| mount.is_of(volume, alloc);
    let record = state.read_node(node).await?;
    if record.is_some_and(|record| record.unaccounted.iter().any(is_it)) {
        return Ok(());
    }
    let message = format!("alloc {alloc} of node {node} has no claim to recover");
    Err(Problem::new(Code::NotAllowed, message).volume(volume).node(node))
}
