//! What the service answers: one endpoint per verb.

use std::future::Future;
use std::sync::Arc;

use berth_bus::serve::ServeError;
use berth_bus::{EndpointSpec, Request, Service};
use berth_contract::code::Code;
use berth_contract::message::registry::{Nodes, Plugins, Status};
use berth_contract::problem::Problem;
use berth_contract::subject::Global;
use berth_domain::{NodeId, PluginId, Timestamp};
use berth_service::clock;
use berth_service::process::Process;
use serde::Serialize;

use crate::state::State;
use crate::{leave, report, status};

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
    on.verb(Global::NodeStatus, |state, request, _| async move { nodes(&state, &request).await })
        .await?;
    on.verb(
        Global::PluginStatus,
        |state, request, _| async move { plugins(&state, &request).await },
    )
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

async fn plugins(state: &State, request: &Request) -> Result<Plugins, Problem> {
    const STEP: &str = "plugin.status";
    let Status::<PluginId> { id } = request.decode(STEP)?;
    state.catch_up(STEP, request.deadline).await?;
    let plugins = state.plugin_mirror.read(|plugins| {
        state.node_mirror.read(|nodes| {
            let wanted =
                plugins.iter().filter(|(plugin, _)| id.as_ref().is_none_or(|id| id == *plugin));
            wanted.map(|(id, plugin)| status::plugin(id, plugin, nodes)).collect::<Vec<_>>()
        })
    });
    match id {
        Some(id) if plugins.is_empty() => {
            Err(Problem::new(Code::NoSuchPlugin, format!("no agent has reported plugin {id}"))
                .plugin(id))
        }
        _ => Ok(Plugins { plugins }),
    }
}

async fn nodes(state: &State, request: &Request) -> Result<Nodes, Problem> {
    const STEP: &str = "node.status";
    let Status::<NodeId> { id } = request.decode(STEP)?;
    state.catch_up(STEP, request.deadline).await?;
    let nodes = state.plugin_mirror.read(|plugins| {
        state.node_mirror.read(|nodes| {
            let wanted = nodes.iter().filter(|(node, _)| id.as_ref().is_none_or(|id| id == *node));
            wanted.map(|(id, node)| status::node(id, node, plugins)).collect::<Vec<_>>()
        })
    });
    match id {
        Some(id) if nodes.is_empty() => {
            Err(Problem::new(Code::NoSuchNode, format!("no node {id} has reported")).node(id))
        }
        _ => Ok(Nodes { nodes }),
    }
}
