//! What the agent of a node answers.

use std::future::Future;
use std::sync::Arc;

use berth_bus::serve::ServeError;
use berth_bus::{Bus, Listen, Request, Service, ServiceSpec, VerbRequest};
use berth_contract::problem::Problem;
use berth_contract::service::NODE_AGENT;
use berth_contract::verb::{self, Effect, Sender, Verb};
use berth_domain::{NodeId, Timestamp};
use berth_service::clock;

use super::Mounter;

/// Requests of one kind under way at once. A mount may wait for minutes, and costs little
/// meanwhile.
const MAX_IN_FLIGHT: u32 = 512;

/// Starts answering for this node.
pub async fn serve(mounter: &Mounter, bus: &Bus) -> Result<Service, ServeError> {
    let node = &mounter.parts.host.node;
    let service = bus
        .service(ServiceSpec::of(NODE_AGENT, env!("CARGO_PKG_VERSION"), &[("node", node.as_str())]))
        .await?;
    let on = NodeEndpoints { service: &service, mounter };
    on.verb::<verb::AgentMount, _>(|mounter, request| async move {
        mounter.mount(request.message()?, request_deadline(&request), request.trace).await
    })
    .await?;
    on.verb::<verb::AgentDetach, _>(|mounter, request| async move {
        mounter.detach(request.message()?, request_deadline(&request), request.trace).await
    })
    .await?;
    on.verb::<verb::AgentRepublish, _>(|mounter, request| async move {
        mounter.republish(request.message()?, request_deadline(&request), request.trace).await
    })
    .await?;
    on.verb::<verb::AgentUnmount, _>(|mounter, request| async move {
        mounter
            .unmount_unclaimed(request.message()?, request_deadline(&request), request.trace)
            .await
    })
    .await?;
    on.verb::<verb::AgentStatus, _>(|mounter, request| async move {
        request.message()?;
        mounter.status().await
    })
    .await?;
    Ok(service)
}

struct NodeEndpoints<'a> {
    service: &'a Service,
    mounter: &'a Mounter,
}

impl NodeEndpoints<'_> {
    /// Answers a verb at this node's subject. A refused change is told as an event.
    async fn verb<V: Verb<To = NodeId>, F>(
        &self,
        handler: impl Fn(Mounter, VerbRequest<V>) -> F + Send + Sync + 'static,
    ) -> Result<(), ServeError>
    where
        F: Future<Output = Result<V::Reply, Problem>> + Send + 'static,
    {
        let (mounter, handler) = (self.mounter.clone(), Arc::new(handler));
        let is_told = V::ROW.effect != Effect::Read && V::ROW.sender == Sender::Client;
        let answer = move |request: VerbRequest<V>| {
            let (mounter, handler) = (mounter.clone(), Arc::clone(&handler));
            async move {
                let (trace, body) = (request.trace, request.body.clone());
                handler(mounter.clone(), request).await.map_err(|problem| {
                    let problem = problem.at(V::STEP);
                    if is_told {
                        mounter.parts.tell.refused(V::STEP, &body, &problem, trace);
                    }
                    problem
                })
            }
        };
        let listen = Listen::At(&self.mounter.parts.host.node);
        self.service.on(listen, MAX_IN_FLIGHT, answer).await.map(drop)
    }
}

/// When the caller stops waiting, by the clock that crosses hosts.
fn request_deadline(request: &Request) -> Timestamp {
    clock::now().after(request.remaining())
}
