//! The service's endpoints, one per verb.

use std::future::Future;

use berth_bus::serve::ServeError;
use berth_bus::{Listen, Service, VerbRequest};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb};
use berth_service::clock;
use berth_service::process::Process;

use crate::caller::Caller;
use crate::node::{gone, hold, host, leave, report, tell};
use crate::store::state::State;
use crate::{plugin, read};

/// Requests of one verb that are handled at once.
const MAX_IN_FLIGHT: u32 = 256;

/// Answers each verb with the handler behind its arrow. `by` names the field of the request with
/// the node that its sender must be, if the sender is bound to one.
macro_rules! answer {
    ($on:ident, $($verb:ident $(by $($node:ident).+)? => $handler:path),* $(,)?) => {$(
        $on.verb::<verb::$verb, _>(|state, request, caller| async move {
            let message = request.message()?;
            $(request.check_node(&message.$($node).+)?;)?
            $handler(&state, message, &caller).await
        })
        .await?;
    )*};
}

pub async fn serve(state: &State, process: &Process) -> Result<Service, ServeError> {
    let service = process.announce().await?;
    let on = Endpoints { service: &service, state };
    // The subject names the controller; the body is empty.
    on.verb::<verb::NodeHost, _>(|state, request, caller| async move {
        let controller = request.to()?;
        request.check_node(&controller.node)?;
        request.message()?;
        host::host(&state, controller, &caller).await
    })
    .await?;
    answer!(on,
        NodeReport by node => report::report,
        NodeHold by holder.node => hold::hold,
        NodeYield by node => hold::give_up,
        NodeTell => tell::queue_events,
        NodeLeave => leave::leave,
        NodeGone => gone::gone,
        NodeStatus => read::list_nodes,
        PluginExpect => plugin::expect,
        PluginDelete => plugin::delete,
        PluginStatus => read::list_plugins,
    );
    Ok(service)
}

struct Endpoints<'a> {
    service: &'a Service,
    state: &'a State,
}

impl Endpoints<'_> {
    async fn verb<V: Verb, F>(
        &self,
        handler: impl Fn(State, VerbRequest<V>, Caller) -> F + Send + Sync + 'static,
    ) -> Result<(), ServeError>
    where
        F: Future<Output = Result<V::Reply, Problem>> + Send + 'static,
    {
        let state = self.state.clone();
        let answer = move |request: VerbRequest<V>| {
            let caller = Caller {
                node: request.own_node(),
                at: clock::now(),
                is_late: request.is_late,
                trace: request.trace,
                deadline: request.deadline,
            };
            handler(state.clone(), request, caller)
        };
        self.service.on(Listen::All, MAX_IN_FLIGHT, answer).await.map(drop)
    }
}
