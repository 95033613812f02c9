//! What the service answers: one endpoint per verb.

use std::future::Future;
use std::sync::Arc;

use berth_bus::serve::ServeError;
use berth_bus::{EndpointSpec, Request, Service};
use berth_contract::problem::Problem;
use berth_contract::subject::Global;
use berth_domain::Timestamp;
use berth_service::clock;
use berth_service::process::Process;
use serde::Serialize;

use crate::state::State;
use crate::{delete, gone, jobs, leave, look, report};

/// Requests of one kind under way at once.
const MAX_IN_FLIGHT: u32 = 256;

/// Starts answering.
pub async fn serve(state: &State, process: &Process) -> Result<Service, ServeError> {
    let service = process.announce().await?;
    let on = Endpoints { service: &service, state };
    on.verb(Global::NodeReport, |state, request, at| async move {
        let told = request.decode("node.report")?;
        report::report(&state, told, at, request.trace, request.deadline).await
    })
    .await?;
    on.verb(Global::NodeLeave, |state, request, at| async move {
        let told = request.decode("node.leave")?;
        leave::leave(&state, told, at, request.trace, request.deadline).await
    })
    .await?;
    on.verb(Global::NodeGone, |state, request, at| async move {
        let told = request.decode("node.gone")?;
        gone::gone(&state, told, at, request.trace, request.deadline).await
    })
    .await?;
    on.verb(Global::NodeStatus, |state, request, _| async move {
        look::nodes(&state, request.decode("node.status")?, request.deadline).await
    })
    .await?;
    on.verb(Global::PluginExpect, |state, request, at| async move {
        let told = request.decode("plugin.expect")?;
        jobs::expect(&state, told, at, request.trace, request.deadline).await
    })
    .await?;
    on.verb(Global::PluginDelete, |state, request, at| async move {
        let told = request.decode("plugin.delete")?;
        delete::delete(&state, told, at, request.trace, request.deadline).await
    })
    .await?;
    on.verb(Global::PluginStatus, |state, request, _| async move {
        look::plugins(&state, request.decode("plugin.status")?, request.deadline).await
    })
    .await?;
    Ok(service)
}

struct Endpoints<'a> {
    service: &'a Service,
    state: &'a State,
}

impl Endpoints<'_> {
    /// The handler is given the time at which the request came: what a clock is measured by.
    async fn verb<R, F>(
        &self,
        verb: Global,
        handler: impl Fn(State, Request, Timestamp) -> F + Send + Sync + 'static,
    ) -> Result<(), ServeError>
    where
        R: Serialize + Send + 'static,
        F: Future<Output = Result<R, Problem>> + Send + 'static,
    {
        let (state, handler) = (self.state.clone(), Arc::new(handler));
        let spec = EndpointSpec {
            // A node whose clock is wrong must be heard, or nobody would learn that it is.
            any_clock: verb == Global::NodeReport,
            ..EndpointSpec::of(verb, verb.subject(), MAX_IN_FLIGHT)
        };
        self.service
            .endpoint(spec, move |request| {
                let at = clock::now();
                let (state, handler) = (state.clone(), Arc::clone(&handler));
                async move { handler(state, request, at).await.map_err(|p| p.at(verb.step())) }
            })
            .await?;
        Ok(())
    }
}
