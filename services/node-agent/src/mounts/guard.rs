//! `agent.guard`: a scheduler names what runs its alloc.
//!
//! **Promises** that a guard lives when it is accepted, and that the owner of the alloc named it.

use berth_bus::Call;
use berth_client::Client;
use berth_contract::code::Code;
use berth_contract::message::agent::{Guarded, SetGuard};
use berth_contract::message::alloc::{AllocQuery, AllocStatus};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, NodeAndNamespace};
use berth_domain::{AllocId, Namespace};
use berth_service::runs::{GuardSet, ObservedRun, RunGuard};

use super::grant::{not_placed, time_left};
use super::mounter::Mounter;
use crate::caller::check_namespace;
use crate::caller::{Caller, RequestContext};
use crate::mounts::runs::on_host;

impl Mounter {
    /// Records what runs the alloc.
    pub async fn guard(
        self,
        to: NodeAndNamespace,
        request: SetGuard,
        caller: Caller,
    ) -> Result<Guarded, Problem> {
        check_namespace(&to.namespace, &request.namespace)?;
        let SetGuard { namespace, alloc: id, owner, guard } = request;
        let node = &self.shared.host.node;
        let alloc = self.live_alloc(&namespace, &id, caller.context).await?;
        let is_owner = alloc.owner == owner && (owner.is_none() || alloc.by == caller.by);
        if !is_owner {
            let message = match &alloc.owner {
                Some(owner) => format!("alloc {id} belongs to owner {owner}"),
                None => format!("alloc {id} has no owner"),
            };
            return Err(Problem::new(Code::AllocOwned, message).node(node));
        }
        let words = guard.to_string();
        let wanted = RunGuard { guard, boot_id: self.shared.host.boot_id.clone(), file: None };
        let for_whom = format!("{namespace}/{id}");
        let set = {
            let (namespace, id) = (namespace.clone(), id.clone());
            let work =
                move |runs: &berth_service::runs::Runs| runs.set_guard(&namespace, &id, wanted);
            on_host(&self.shared.runs, &for_whom, work).await
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

    /// An alloc that may run on this node.
    pub(super) async fn live_alloc(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        RequestContext { deadline, trace }: RequestContext,
    ) -> Result<AllocStatus, Problem> {
        let (client, node) = (Client::new(self.shared.bus.clone()), &self.shared.host.node);
        let call = Call::within(trace, time_left(deadline));
        let status = AllocQuery::current(id.clone());
        let asked = client.once::<verb::AllocStatus>(namespace, &status, &call).await;
        let alloc = asked.map_err(|problem| match problem.code {
            // An agent knows of what is on its own node alone. A claim service of the last release
            // says so in another way.
            Code::NoSuchAlloc | Code::NotAllowed => not_placed(problem, id, node),
            _ => problem.node(node),
        })?;
        if alloc.state.is_terminal() {
            let message = format!("alloc {id} is {} since {}", alloc.state, alloc.since);
            return Err(Problem::new(Code::AllocTerminal, message).node(node));
        }
        Ok(alloc)
    }
}

/// What runs an alloc, in words.
pub(super) fn runner(run: &ObservedRun) -> String {
    match &run.run.guard {
        Some(RunGuard { guard, .. }) => guard.to_string(),
        None => format!("`berth run`, pid {}", run.run.pid),
    }
}
