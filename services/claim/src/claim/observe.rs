//! `claim.observe`: stores the node's report of the mount with a granted claim. Every status of the
//! claim shows the report.

use berth_contract::message::claim::{Observe, Observed};
use berth_contract::problem::Problem;
use berth_domain::volume::{Command, Refusal};
use berth_domain::{Namespace, VolumeKey};

use crate::caller::Caller;
use crate::store::state::State;
use crate::store::transact::TransactError;

pub async fn observe(
    state: &State,
    namespace: &Namespace,
    request: Observe,
    caller: &Caller,
) -> Result<Observed, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let sender = caller.own_node();
    let volume = VolumeKey::new(namespace.clone(), request.volume);
    let Observe { alloc, epoch, mount, .. } = request;
    let command = Command::Observe { alloc, epoch, mount, node: sender };
    match state.transact_until(&volume, trace, deadline, |_| Ok(command.clone())).await {
        Ok(_) => Ok(Observed { recorded: true }),
        Err(TransactError::Refused(Refusal::NoSuchClaim(_))) => Ok(Observed { recorded: false }),
        Err(error) => Err(state.problem(error, &volume)),
    }
}
