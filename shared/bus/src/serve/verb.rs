//! Endpoints of verbs: a handler that does not match its verb's row does not compile.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::verb::{Address as _, Effect, Row, Verb};

use super::{Endpoint, EndpointSpec, Request, ServeError, Service};

/// Where a service listens for a verb.
#[derive(Debug, Clone, Copy)]
pub enum Listen<'a, To> {
    /// At the subjects of all ids.
    All,
    /// At the subject of these ids.
    At(&'a To),
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
            queue_group: None,
        }
    }
}

impl Service {
    /// Answers a verb from now on, until the endpoint or the service is stopped.
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
        };
        let spec =
            EndpointSpec { queue_group, ..EndpointSpec::for_verb(&V::ROW, subject, max_in_flight) };
        let handler = move |request| {
            let handling = handler(VerbRequest { request, verb: PhantomData });
            async move { handling.await.map_err(refused::<V>) }
        };
        self.endpoint(spec, handler).await
    }
}

fn refused<V: Verb>(problem: Problem) -> Problem {
    if !V::ROW.may_fail_with(problem.code) {
        let (verb, code) = (V::STEP, problem.code);
        tracing::error!(verb, %code, "the table of verbs does not list this error of the verb");
    }
    problem.at_step(V::STEP)
}
