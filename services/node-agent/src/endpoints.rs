//! The agent's endpoints: one per verb, at the subjects of its node.

use std::future::Future;
use std::sync::Arc;

use berth_bus::serve::ServeError;
use berth_bus::{Bus, Listen, Service, ServiceSpec, VerbRequest};
use berth_contract::actor::Actor;
use berth_contract::problem::Problem;
use berth_contract::service::NODE_AGENT;
use berth_contract::verb::{self, Effect, Verb};
use berth_domain::NodeId;
use berth_service::clock;
use tokio::time::Instant;

use crate::caller::{Caller, RequestContext};
use crate::fleet::events::EventPublisher;
use crate::mounts::{Expanding, Guards, MountHandlers, Mounting, NodeStatus, Unmounting};
use crate::roster::PluginOrders;

/// Largest number of requests of one kind under way at once. A mount may wait for minutes, and
/// costs little meanwhile.
const MAX_IN_FLIGHT: u32 = 512;
/// As [`MAX_IN_FLIGHT`], for requests about plugins.
const PLUGIN_REQUESTS_MAX: u32 = 16;

/// Who answers the requests to this node.
pub struct Handlers {
    pub requests: Arc<MountHandlers>,
    pub mounting: Arc<Mounting>,
    pub unmounting: Arc<Unmounting>,
    pub expanding: Arc<Expanding>,
    pub guards: Arc<Guards>,
    pub status: Arc<NodeStatus>,
    pub plugins: PluginOrders,
}

/// `Verb => part.handler`: answers the verb with the method `handler` of the field `part` of
/// [`Handlers`].
macro_rules! answer {
    ($on:ident.$kind:ident: $($verb:ident => $part:ident.$handler:ident),* $(,)?) => {$({
        let part = $on.handlers.$part.clone();
        let handler = move |to, request, caller| {
            let part = part.clone();
            async move { part.$handler(to, request, caller).await }
        };
        $on.$kind::<verb::$verb, _>(handler).await?;
    })*};
}

/// Starts answering for this node.
pub async fn serve(
    handlers: &Handlers,
    bus: &Bus,
    node: &NodeId,
    events: &EventPublisher,
) -> Result<Service, ServeError> {
    let facts = [("node", node.as_str())];
    let spec = ServiceSpec::describe(NODE_AGENT, berth_version::current(), &facts);
    let service = bus.service(spec).await?;
    let on = Endpoints { service: &service, handlers, node, events };
    answer!(on.volumes:
        AgentMount => requests.mount,
        AgentMountAll => requests.mount_all,
        AgentGuard => guards.set_guard,
        AgentDetach => unmounting.detach,
        AgentExpand => expanding.expand,
        AgentRepublish => mounting.republish,
        AgentUnmount => unmounting.unmount_unclaimed,
        AgentStatus => status.status,
    );
    answer!(on.plugins:
        AgentPlugins => plugins.list,
        AgentPluginStop => plugins.stop,
        AgentPluginStart => plugins.start,
    );
    Ok(service)
}

struct Endpoints<'a> {
    service: &'a Service,
    handlers: &'a Handlers,
    node: &'a NodeId,
    events: &'a EventPublisher,
}

impl Endpoints<'_> {
    /// Answers a verb about volumes. A refused change becomes an event.
    async fn volumes<V: Verb, F>(
        &self,
        handler: impl Fn(V::To, V::Request, Caller) -> F + Clone + Send + Sync + 'static,
    ) -> Result<(), ServeError>
    where
        F: Future<Output = Result<V::Reply, Problem>> + Send + 'static,
    {
        let events = self.events.clone();
        let has_event = V::ROW.effect != Effect::Read && V::ROW.is_for_clients();
        let answer = move |request: VerbRequest<V>| {
            let (events, handler) = (events.clone(), handler.clone());
            async move {
                let (trace, body) = (request.trace, request.body.clone());
                let by = request.actor.as_ref().map(Actor::tokens);
                // By the clock that crosses hosts.
                let deadline = clock::now().after(request.remaining());
                let to = request.to()?;
                let context = RequestContext { deadline, trace };
                let caller = Caller { by: by.clone(), context };
                let done = async { handler(to, request.message()?, caller).await };
                done.await.map_err(|problem| {
                    let problem = problem.at_step(V::STEP);
                    if has_event {
                        events.publish_refusal(V::STEP, (&body, by), &problem, trace);
                    }
                    problem
                })
            }
        };
        let listen = Listen::OfNode(self.node);
        self.service.on(listen, MAX_IN_FLIGHT, answer).await.map(drop)
    }

    /// Answers a verb about the plugins of this node, until the deadline.
    async fn plugins<V: Verb<To = NodeId>, F>(
        &self,
        handler: impl Fn(V::To, V::Request, Instant) -> F + Clone + Send + Sync + 'static,
    ) -> Result<(), ServeError>
    where
        F: Future<Output = Result<V::Reply, Problem>> + Send + 'static,
    {
        let answer = move |request: VerbRequest<V>| {
            let handler = handler.clone();
            async move { handler(request.to()?, request.message()?, request.deadline).await }
        };
        self.service.on(Listen::At(self.node), PLUGIN_REQUESTS_MAX, answer).await.map(drop)
    }
}
