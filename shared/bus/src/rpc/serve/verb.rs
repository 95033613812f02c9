//! Endpoints of verbs: a handler that does not match its verb's row does not compile.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;

use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::verb::{Address as _, Effect, Row, Verb};
use berth_domain::NodeId;

use super::request::Request;
use super::spec::{EndpointSpec, ServeError};
use super::{Endpoint, Service};

/// Fewest senders that together can take every place of an endpoint.
const SENDERS_MIN: u32 = 4;

/// Where a service listens for a verb.
#[derive(Debug, Clone, Copy)]
pub enum Listen<'a, To> {
    /// At the subjects of all ids.
    All,
    /// At the subject of these ids.
    At(&'a To),
    /// At the subjects of this node, with all other ids.
    OfNode(&'a NodeId),
}

/// A request of a verb.
#[derive(Debug, Clone)]
pub struct VerbRequest<V> {
    request: Request,
    verb: PhantomData<fn() -> V>,
}

impl<V: Verb> VerbRequest<V> {
    /// The ids in its subject.
    pub fn to(&self) -> Result<V::To, Problem> {
        V::read(&self.request.subject).ok_or_else(|| {
            let message = format!(
                "the subject {:?} lacks the ids that the request is for",
                self.request.subject
            );
            Problem::new(Code::BadInput, message).at_step(V::STEP)
        })
    }

    /// The body, or a problem that names every fault.
    pub fn message(&self) -> Result<V::Request, Problem> {
        self.request.decode(V::STEP)
    }

    /// Refuses a sender that acts for another node than this one.
    pub fn check_node(&self, node: &NodeId) -> Result<(), Problem> {
        match &self.request.actor {
            Some(actor) if actor.node().is_some_and(|own| own != node) => {
                let message = format!("the {actor} may not act for node {node}");
                Err(Problem::new(Code::NotAllowed, message).at_step(V::STEP))
            }
            _ => Ok(()),
        }
    }

    /// Refuses an agent whose request is not limited to its own node. `wanted` is the node that the
    /// request names.
    pub fn check_reads_own_node(&self, wanted: Option<&NodeId>) -> Result<(), Problem> {
        match &self.request.actor {
            Some(actor @ Actor::Node(own)) if wanted != Some(own) => {
                let message = format!("the {actor} may read what is on its own node only");
                Err(Problem::new(Code::NotAllowed, message).at_step(V::STEP))
            }
            _ => Ok(()),
        }
    }

    /// The node that the sender acts for, if it acts for one.
    pub fn own_node(&self) -> Option<NodeId> {
        self.request.actor.as_ref().and_then(Actor::node).cloned()
    }

    /// The request without its verb.
    pub fn into_inner(self) -> Request {
        self.request
    }
}

impl<V> Deref for VerbRequest<V> {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.request
    }
}

impl EndpointSpec {
    /// The endpoint of a verb, at a subject of its own.
    pub fn for_verb(row: &Row, subject: String, max_in_flight: u32) -> Self {
        Self {
            metadata: row.metadata(),
            name: row.endpoint.to_owned(),
            subject,
            description: row.description.to_owned(),
            unknown: row.unknown(),
            any_clock: row.effect == Effect::Report,
            max_in_flight,
            max_per_sender: Some(max_in_flight.div_ceil(SENDERS_MIN)),
            queue_group: None,
        }
    }
}

impl Service {
    /// Handles the requests of a verb from now on, until the endpoint or the service is stopped.
    pub async fn on<V: Verb, F>(
        &self,
        listen: Listen<'_, V::To>,
        max_in_flight: u32,
        handler: impl Fn(VerbRequest<V>) -> F + Send + Sync + 'static,
    ) -> Result<Endpoint, ServeError>
    where
        F: Future<Output = Result<V::Reply, Problem>> + Send + 'static,
    {
        let (subject, queue_group) = match listen {
            Listen::All => (V::wildcard_subject(), None),
            Listen::At(to) => (V::subject(to), to.queue_group()),
            Listen::OfNode(node) => (V::subject_of_node(node), None),
        };
        let spec =
            EndpointSpec { queue_group, ..EndpointSpec::for_verb(&V::ROW, subject, max_in_flight) };
        let handler = move |request| {
            let handling = handler(VerbRequest { request, verb: PhantomData });
            async move { handling.await.map_err(at_step_of::<V>) }
        };
        self.endpoint(spec, handler).await
    }
}

/// The handler's problem with the verb's step. Logs an error that the verb's row does not list.
fn at_step_of<V: Verb>(problem: Problem) -> Problem {
    if !V::ROW.may_fail_with(problem.code) {
        let (verb, code) = (V::STEP, problem.code);
        tracing::error!(verb, %code, "the table of verbs does not list this error of the verb");
    }
    problem.at_step(V::STEP)
}
