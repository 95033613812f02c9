//! Answers the requests to this node about volumes.

use std::future::Future;

use berth_bus::serve::ServeError;
use berth_bus::{Bus, Listen, Service, ServiceSpec, VerbRequest};
use berth_contract::actor::Actor;
use berth_contract::problem::Problem;
use berth_contract::service::NODE_AGENT;
use berth_contract::verb::{self, Effect, Verb};
use berth_service::clock;

use super::mounter::Mounter;
use crate::caller::RequestContext;

/// Largest number of requests of one kind under way at once. A mount may wait for minutes, and
/// costs little meanwhile.
const MAX_IN_FLIGHT: u32 = 512;

/// Starts answering for this node.
pub async fn serve(mounter: &Mounter, bus: &Bus) -> Result<Service, ServeError> {
    let node = &mounter.shared.host.node;
    let service = bus
        .service(ServiceSpec::describe(
            NODE_AGENT,
            berth_version::current(),
            &[("node", node.as_str())],
        ))
        .await?;
    let on = NodeEndpoints { service: &service, mounter };
    on.verb::<verb::AgentMount, _, _>(|mounter, to, request, context| {
        mounter.mount(to.namespace, request, context)
    })
    .await?;
    on.verb_from::<verb::AgentMountAll, _, _>(|mounter, to, request, (context, sender)| {
        mounter.mount_all(to.namespace, request, sender, context)
    })
    .await?;
    on.verb_from::<verb::AgentGuard, _, _>(|mounter, to, request, (context, sender)| {
        mounter.guard(to.namespace, request, sender, context)
    })
    .await?;
    on.verb::<verb::AgentDetach, _, _>(|m, _, call, context| m.detach(call, context)).await?;
    on.verb::<verb::AgentExpand, _, _>(|m, _, call, context| m.expand(call, context)).await?;
    on.verb::<verb::AgentRepublish, _, _>(|m, _, request, context| m.republish(request, context))
        .await?;
    on.verb::<verb::AgentUnmount, _, _>(|mounter, _, request, context| {
        mounter.unmount_unclaimed(request, context)
    })
    .await?;
    on.verb::<verb::AgentStatus, _, _>(|mounter, to, _, _| async move {
        mounter.status(&to.namespace).await
    })
    .await?;
    Ok(service)
}

struct NodeEndpoints<'a> {
    service: &'a Service,
    mounter: &'a Mounter,
}

impl NodeEndpoints<'_> {
    /// Answers a verb at this node's subject.
    async fn verb<V: Verb, F, H>(&self, handler: H) -> Result<(), ServeError>
    where
        H: Fn(Mounter, V::To, V::Request, RequestContext) -> F + Copy + Send + Sync + 'static,
        F: Future<Output = Result<V::Reply, Problem>> + Send + 'static,
    {
        let handler =
            move |mounter, to, request, (context, _)| handler(mounter, to, request, context);
        self.verb_from::<V, F, _>(handler).await
    }

    /// Answers a verb whose handler needs to know who sent it. A refused change becomes an event.
    async fn verb_from<V: Verb, F, H>(&self, handler: H) -> Result<(), ServeError>
    where
        H: Fn(Mounter, V::To, V::Request, (RequestContext, Option<String>)) -> F
            + Copy
            + Send
            + Sync
            + 'static,
        F: Future<Output = Result<V::Reply, Problem>> + Send + 'static,
    {
        let mounter = self.mounter.clone();
        let has_event = V::ROW.effect != Effect::Read && V::ROW.is_for_clients();
        let answer = move |request: VerbRequest<V>| {
            let mounter = mounter.clone();
            async move {
                let (trace, body) = (request.trace, request.body.clone());
                let by = request.actor.as_ref().map(Actor::tokens);
                // By the clock that crosses hosts.
                let deadline = clock::now().after(request.remaining());
                let to = request.to()?;
                let context = RequestContext { deadline, trace };
                let sender = by.clone();
                let done = async {
                    handler(mounter.clone(), to, request.message()?, (context, sender)).await
                };
                done.await.map_err(|problem| {
                    let problem = problem.at_step(V::STEP);
                    if has_event {
                        let events = &mounter.shared.events;
                        events.publish_refusal(V::STEP, (&body, by), &problem, trace);
                    }
                    problem
                })
            }
        };
        let listen = Listen::OfNode(&self.mounter.shared.host.node);
        self.service.on(listen, MAX_IN_FLIGHT, answer).await.map(drop)
    }
}
