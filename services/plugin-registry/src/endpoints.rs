//! The service's endpoints, one per verb.

use std::future::Future;

use berth_bus::serve::ServeError;
use berth_bus::{Listen, Service, VerbRequest};
use berth_contract::message::node::LeaseAnswer;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb};
use berth_domain::Timestamp;
use berth_service::clock;
use berth_service::process::Process;

use crate::hold::Arrival;
use crate::state::State;
use crate::{delete, gone, hold, host, jobs, leave, query, report, tell};

/// Requests of one verb under way at once.
const MAX_IN_FLIGHT: u32 = 256;

pub async fn serve(state: &State, process: &Process) -> Result<Service, ServeError> {
    let service = process.announce().await?;
    let on = Endpoints { service: &service, state };
    on.verb::<verb::NodeReport, _>(|state, request, at| async move {
        let report = request.message()?;
        request.check_node(&report.node)?;
        report::report(&state, report, at, request.trace, request.deadline).await
    })
    .await?;
    on.verb::<verb::NodeHost, _>(|state, request, at| async move {
        let to = request.to()?;
        request.check_node(&to.node)?;
        request.message()?;
        host::host(&state, to, at, (request.trace, request.deadline)).await
    })
    .await?;
    on.verb::<verb::NodeHold, _>(|state, request, _| async move {
        let hold = request.message()?;
        request.check_node(&hold.holder.node)?;
        let arrival = Arrival { is_late: request.is_late, deadline: request.deadline };
        let answer = hold::hold(&state.leases, hold, arrival, request.trace).await?;
        Ok(LeaseAnswer { volumes: state.volumes.number(), ..answer })
    })
    .await?;
    on.verb::<verb::NodeYield, _>(|state, request, _| async move {
        let lease = request.message()?;
        request.check_node(&lease.node)?;
        hold::give_up(&state.leases, lease, request.trace).await
    })
    .await?;
    on.verb::<verb::NodeTell, _>(|state, request, _| async move {
        let told = request.message()?;
        let node = request.sending_node()?;
        tell::queue_events(&state, &node, told).await
    })
    .await?;
    on.verb::<verb::NodeLeave, _>(|state, request, at| async move {
        leave::leave(&state, request.message()?, at, request.trace, request.deadline).await
    })
    .await?;
    on.verb::<verb::NodeGone, _>(|state, request, at| async move {
        gone::gone(&state, request.message()?, at, request.trace, request.deadline).await
    })
    .await?;
    on.verb::<verb::NodeStatus, _>(|state, request, _| async move {
        query::list_nodes(&state, request.message()?, request.deadline).await
    })
    .await?;
    on.verb::<verb::PluginExpect, _>(|state, request, at| async move {
        jobs::expect(&state, request.message()?, at, request.trace, request.deadline).await
    })
    .await?;
    on.verb::<verb::PluginDelete, _>(|state, request, at| async move {
        delete::delete(&state, request.message()?, at, request.trace, request.deadline).await
    })
    .await?;
    on.verb::<verb::PluginStatus, _>(|state, request, _| async move {
        query::list_plugins(&state, request.message()?, request.deadline).await
    })
    .await?;
    Ok(service)
}

struct Endpoints<'a> {
    service: &'a Service,
    state: &'a State,
}

impl Endpoints<'_> {
    /// The handler gets the time at which the request came: a node's clock is measured by it.
    async fn verb<V: Verb, F>(
        &self,
        handler: impl Fn(State, VerbRequest<V>, Timestamp) -> F + Send + Sync + 'static,
    ) -> Result<(), ServeError>
    where
        F: Future<Output = Result<V::Reply, Problem>> + Send + 'static,
    {
        let state = self.state.clone();
        let answer = move |request| handler(state.clone(), request, clock::now());
        self.service.on(Listen::All, MAX_IN_FLIGHT, answer).await.map(drop)
    }
}
