//! `agent.guard`: a scheduler names what runs its alloc.
//!
//! **Promises** that a guard lives when it is accepted, and that the owner of the alloc named it.

use std::sync::Arc;

use berth_contract::code::Code;
use berth_contract::message::agent::{Guarded, SetGuard};
use berth_contract::problem::Problem;
use berth_contract::verb::NodeAndNamespace;
use berth_service::runs::{GuardSet, ObservedRun, RunGuard, Runs};

use super::claims::ClaimService;
use crate::caller::{Caller, check_namespace};
use crate::mounts::runs::on_host;

/// Answers `agent.guard`: records what runs an alloc.
pub struct Guards {
    pub claims: ClaimService,
    pub runs: Runs,
    pub boot_id: String,
}

impl Guards {
    /// Records what runs the alloc.
    pub async fn set_guard(
        self: Arc<Self>,
        to: NodeAndNamespace,
        request: SetGuard,
        caller: Caller,
    ) -> Result<Guarded, Problem> {
        check_namespace(&to.namespace, &request.namespace)?;
        let SetGuard { namespace, alloc: id, owner, guard } = request;
        let node = &self.claims.node;
        let alloc = self.claims.live_alloc(&namespace, &id, caller.context).await?;
        let is_owner = alloc.owner == owner && (owner.is_none() || alloc.by == caller.by);
        if !is_owner {
            let message = match &alloc.owner {
                Some(owner) => format!("alloc {id} belongs to owner {owner}"),
                None => format!("alloc {id} has no owner"),
            };
            return Err(Problem::new(Code::AllocOwned, message).node(node));
        }
        let words = guard.to_string();
        let wanted = RunGuard { guard, boot_id: self.boot_id.clone(), file: None };
        let for_whom = format!("{namespace}/{id}");
        let set = {
            let (namespace, id) = (namespace.clone(), id.clone());
            let work = move |runs: &Runs| runs.set_guard(&namespace, &id, wanted);
            on_host(&self.runs, &for_whom, work).await
        };
        // What cannot be looked at may be seen soon: the agent makes its files again.
        let set = set.map_err(|problem| {
            let next = format!("see `berth node status {node}`, which says what cannot be seen");
            Problem { code: Code::GuardRefused, ..problem }.node(node).next(next)
        })?;
        let message = match set {
            GuardSet::Done => {
                tracing::info!(%namespace, alloc = %id, guard = words, "guarded");
                return Ok(Guarded {});
            }
            GuardSet::Absent => format!("{words} does not live on node {node}"),
            GuardSet::Taken(known) => format!("alloc {id} is run by {} already", runner(&known)),
        };
        Err(Problem::new(Code::GuardRefused, message).node(node))
    }
}

/// What runs an alloc, in words.
pub(super) fn runner(run: &ObservedRun) -> String {
    match &run.run.guard {
        Some(RunGuard { guard, .. }) => guard.to_string(),
        None => format!("`berth run`, pid {}", run.run.pid),
    }
}
