//! `agent.detach`: takes an alloc's use of a volume down (rules 10 and 11).

use std::sync::Arc;

use berth_contract::code::Code;
use berth_contract::message::call::{Called, ClaimCall};
use berth_contract::problem::Problem;
use berth_domain::volume::CallKind;
use berth_domain::{NodeId, PluginId};
use tokio::time::Instant;

use super::unmounting::{DepartingUse, Unmounting};
use crate::caller::{Caller, RequestContext};
use crate::fleet::events::ExecutedCall;
use crate::mounts::beside::ToldClaims;

impl DepartingUse {
    fn from_call(call: &ClaimCall) -> Self {
        Self {
            volume: call.volume_key(),
            alloc: call.details.alloc.clone(),
            epoch: call.details.epoch,
            plugin: call.plugin.clone(),
            external_id: call.external_id.clone(),
            beside: ToldClaims::from_call(call),
            unstaged_by: call.details.unstaged_by.clone(),
            is_journalled: false,
        }
    }
}

impl Unmounting {
    /// Takes the alloc's use of the volume down. Success if nothing is here.
    pub async fn detach(
        self: Arc<Self>,
        _: NodeId,
        call: ClaimCall,
        caller: Caller,
    ) -> Result<Called, Problem> {
        let (attempts, attempt) = (self.executor.attempts.clone(), call.attempt.clone());
        attempts.once(&attempt, Box::pin(self.make_detach(call, caller.context))).await
    }

    async fn make_detach(
        self: Arc<Self>,
        call: ClaimCall,
        context: RequestContext,
    ) -> Result<Called, Problem> {
        let (volume, trace) = (call.volume_key(), context.trace);
        let locate = |problem: Problem, plugin: &PluginId| {
            let problem = self.local.locate_problem(problem, &volume);
            problem.plugin(plugin)
        };
        self.check_addressee(&call).map_err(|problem| locate(problem, &call.plugin))?;
        let (began, mut leaving) = (Instant::now(), DepartingUse::from_call(&call));
        // The call may name another volume: the registration was lost, and the name given again.
        let known = self.local.journal.volume(&volume).uses;
        if let Some(entry) =
            known.get(&call.details.alloc).filter(|entry| entry.epoch == call.details.epoch)
        {
            leaving.plugin = entry.plugin.clone();
            leaving.external_id.clone_from(&entry.external_id);
        }
        let plugin = leaving.plugin.clone();
        let context = RequestContext { deadline: call.deadline.min(context.deadline), trace };
        let order = Some((volume.clone(), call.revision));
        let (done, calls) = self.run_take_down(leaving, order, context).await;
        self.events.learn(&call.namespace, &call.details.alloc, call.details.by.as_ref());
        let executed = ExecutedCall::of_claim(&call, began.elapsed(), calls);
        self.events.publish_call(executed, done.as_ref().err(), trace);
        done.map(|()| Called::default()).map_err(|problem| locate(problem, &plugin))
    }

    /// Refuses a call that is for another node or of another kind.
    fn check_addressee(&self, call: &ClaimCall) -> Result<(), Problem> {
        if call.call != CallKind::NodeDetach {
            let message = format!("a call of {} came to an agent", call.call);
            return Err(Problem::new(Code::BadInput, message));
        }
        if call.details.node != self.local.node {
            let message =
                format!("a call for node {} came to {}", call.details.node, self.local.node);
            return Err(Problem::new(Code::BadInput, message));
        }
        Ok(())
    }
}
