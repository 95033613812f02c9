//! What the service answers: one endpoint per verb, for all namespaces.

use std::future::Future;

use berth_bus::{EndpointSpec, Request, Service, serve::ServeError};
use berth_contract::code::Code;
use berth_contract::endpoint::{Endpoint, VerbKind};
use berth_contract::message::{claim, secret};
use berth_contract::problem::Problem;
use berth_contract::subject::{self, Global, Namespaced};
use berth_domain::Namespace;
use berth_service::process::Process;
use berth_service::refusals::RequestSubject;
use serde::Serialize;

use crate::state::State;
use crate::{checkpoint, deregister, detach, forget, look, observe, register, secrets, take};

/// Requests of one kind under way at once. Takes may wait for minutes, and cost little meanwhile.
const MAX_IN_FLIGHT: u32 = 1024;

/// Starts answering.
pub async fn serve(state: &State, process: &Process) -> Result<Service, ServeError> {
    let service = process.announce().await?;
    let on = Endpoints { service: &service, state };

    on.verb(Namespaced::VolumeRegister, |s, n, r| async move {
        let request = register::read(&s, &n, &r)?;
        register::register(&s, n, request, r.trace, r.deadline).await
    })
    .await?;
    on.verb(Namespaced::VolumeDeregister, |s, n, r| async move {
        deregister::deregister(&s, n, r.decode("volume.deregister")?, r.trace, r.deadline).await
    })
    .await?;
    on.verb(Namespaced::VolumeDetach, |s, n, r| async move {
        detach::detach(&s, n, r.decode("volume.detach")?, r.trace, r.deadline).await
    })
    .await?;
    on.verb(Namespaced::VolumeStatus, |s, n, r| async move {
        look::volume(&s, n, r.decode("volume.status")?, r.deadline).await
    })
    .await?;
    on.verb(Namespaced::VolumeList, |s, n, r| async move {
        look::volumes(&s, n, r.decode("volume.list")?, r.deadline).await
    })
    .await?;
    on.verb(Namespaced::VolumePlacement, |s, n, r| async move {
        look::placement(&s, n, r.decode("volume.placement")?, r.deadline).await
    })
    .await?;

    on.verb(Namespaced::ClaimTake, |s, n, r| async move {
        let request: claim::Take = r.decode("claim.take")?;
        take::take(&s, n, request, r.trace, r.deadline).await
    })
    .await?;
    on.verb(Namespaced::ClaimRelease, |s, n, r| async move {
        checkpoint::release(&s, n, r.decode("claim.release")?, r.trace, r.deadline).await
    })
    .await?;
    on.verb(Namespaced::ClaimCheckpoint, |s, n, r| async move {
        checkpoint::checkpoint(&s, n, r.decode("claim.checkpoint")?, r.trace, r.deadline).await
    })
    .await?;
    on.verb(Namespaced::ClaimObserve, |s, n, r| async move {
        observe::observe(&s, n, r.decode("claim.observe")?, r.trace, r.deadline).await
    })
    .await?;
    on.verb(Namespaced::ClaimStatus, |s, n, r| async move {
        look::claims(&s, n, r.decode("claim.status")?, r.deadline).await
    })
    .await?;

    on.verb(Namespaced::AllocRegister, |s, n, r| async move {
        crate::alloc::register(&s, n, r.decode("alloc.register")?, r.trace, r.deadline).await
    })
    .await?;
    on.verb(Namespaced::AllocStop, |s, n, r| async move {
        crate::alloc::stop(&s, n, r.decode("alloc.stop")?, r.trace, r.deadline).await
    })
    .await?;
    on.verb(Namespaced::AllocStatus, |s, n, r| async move {
        look::alloc(&s, n, r.decode("alloc.status")?, r.deadline).await
    })
    .await?;
    on.verb(Namespaced::AllocList, |s, n, r| async move {
        look::allocs(&s, n, r.decode("alloc.list")?, r.deadline).await
    })
    .await?;
    on.verb(Namespaced::AllocForget, |s, n, r| async move {
        forget::forget(&s, n, r.decode("alloc.forget")?, r.trace, r.deadline).await
    })
    .await?;
    serve_secrets(&service, state).await?;
    Ok(service)
}

async fn serve_secrets(service: &Service, state: &State) -> Result<(), ServeError> {
    let shared = state.clone();
    let key = Global::SecretKey;
    service
        .endpoint(EndpointSpec::of(key, key.subject(), MAX_IN_FLIGHT), move |request| {
            let state = shared.clone();
            async move {
                let _: secret::Key = request.decode(&Global::SecretKey.step())?;
                state.vault.public_key().map_err(|problem| problem.at(Global::SecretKey.step()))
            }
        })
        .await?;
    let shared = state.clone();
    let all = subject::SECRET_OPEN_ALL.to_owned();
    let open = EndpointSpec::of(Endpoint::secret_open(), all, MAX_IN_FLIGHT);
    service
        .endpoint(open, move |request| {
            let state = shared.clone();
            async move {
                const STEP: &str = subject::SECRET_OPEN_STEP;
                let Some(node) = subject::secret_open_node(&request.subject) else {
                    let said = format!("{:?} names no node", request.subject);
                    return Err(Problem::new(Code::BadInput, said).at(STEP));
                };
                let asked: secret::Open = request.decode(STEP)?;
                secrets::open(&state, &node, asked).await.map_err(|problem| problem.at(STEP))
            }
        })
        .await
        .map(drop)
}

struct Endpoints<'a> {
    service: &'a Service,
    state: &'a State,
}

impl Endpoints<'_> {
    async fn verb<R, F>(
        &self,
        verb: Namespaced,
        handler: impl Fn(State, Namespace, Request) -> F + Send + Sync + 'static,
    ) -> Result<(), ServeError>
    where
        R: Serialize + Send + 'static,
        F: Future<Output = Result<R, Problem>> + Send + 'static,
    {
        let state = self.state.clone();
        let handler = std::sync::Arc::new(handler);
        // What only reads changes nothing for anybody, and refusals between our own processes are
        // part of the protocol.
        let is_told = Endpoint::from(verb).kind == VerbKind::Change;
        self.service
            .endpoint(EndpointSpec::of(verb, verb.all(), MAX_IN_FLIGHT), move |request| {
                let (state, handler) = (state.clone(), std::sync::Arc::clone(&handler));
                async move {
                    let trace = request.trace;
                    let Some(namespace) = verb.namespace(&request.subject) else {
                        let said = format!("{:?} names no namespace", request.subject);
                        return Err(Problem::new(Code::BadInput, said).at(verb.step()));
                    };
                    let (body, named) = (request.body.clone(), namespace.clone());
                    let answer = handler(state.clone(), namespace, request).await;
                    answer.map_err(|problem| {
                        let problem = problem.at(verb.step()).trace(trace.trace_id());
                        if is_told {
                            let about = RequestSubject {
                                namespace: Some(named),
                                ..RequestSubject::read(&verb.step(), &body)
                            };
                            state.refusals.tell(about, &problem, trace);
                        }
                        problem
                    })
                }
            })
            .await?;
        Ok(())
    }
}
