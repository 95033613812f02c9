//! The service's endpoints: one per verb, for all namespaces.

use std::future::Future;
use std::sync::Arc;

use berth_bus::{Listen, Service, VerbRequest, serve::ServeError};
use berth_contract::actor::Actor;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Effect, Verb};
use berth_domain::Namespace;
use berth_domain::alloc::Alloc;
use berth_service::process::Process;
use berth_service::projection::Allocs;
use berth_service::refusals::RequestSubject;

use crate::state::State;
use crate::{
    alloc, deregister, detach, forget, observe, query, raise_level, recover, register, release,
    secrets, storage, take, work,
};

/// Requests of one verb under way at once. Takes may wait for minutes, and cost little meanwhile.
const MAX_IN_FLIGHT: u32 = 1024;
/// Pages of events that are read at once. Each may read much of the stream.
const EVENT_PAGES_MAX: u32 = 32;

pub async fn serve(state: &State, process: &Process) -> Result<Service, ServeError> {
    let service = process.announce().await?;
    let on = Endpoints { service: &service, state };

    on.verb::<verb::VolumeRegister, _>(|s, n, r| async move {
        let request = register::decode_document(&s, &n, &r)?;
        register::register(&s, n, request, r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::VolumeDeregister, _>(|s, n, r| async move {
        deregister::deregister(&s, n, r.message()?, r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::VolumeDetach, _>(|s, n, r| async move {
        detach::detach(&s, n, r.message()?, r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::VolumeStatus, _>(|s, n, r| async move {
        query::volume_status(&s, n, r.message()?, r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::VolumeList, _>(|s, n, r| async move {
        query::list_volumes(&s, n, r.message()?, r.deadline).await
    })
    .await?;
    on.verb::<verb::VolumePlacement, _>(|s, n, r| async move {
        query::list_placements(&s, n, r.message()?, r.deadline).await
    })
    .await?;

    on.verb::<verb::ClaimTake, _>(|s, n, r| async move {
        let request = r.message()?;
        r.check_node(&request.node)?;
        take::take(&s, n, request, r.own_node(), r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::ClaimRecover, _>(|s, n, r| async move {
        let request = r.message()?;
        r.check_node(&request.node)?;
        recover::recover(&s, n, request, r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::ClaimRelease, _>(|s, n, r| async move {
        release::release(&s, n, r.message()?, r.own_node(), r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::ClaimCheckpoint, _>(|s, n, r| async move {
        work::claim_checkpoint(&s, n, r.message()?, r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::WorkCheckpoint, _>(|s, n, r| async move {
        work::work_checkpoint(&s, n, r.message()?, r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::ClaimObserve, _>(|s, n, r| async move {
        observe::observe(&s, n, r.message()?, r.own_node(), r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::ClaimStatus, _>(|s, n, r| async move {
        let request = r.message()?;
        r.check_reads_own_node(request.node.as_ref())?;
        query::list_claims(&s, n, request, r.deadline).await
    })
    .await?;

    on.verb::<verb::AllocRegister, _>(|s, n, r| async move {
        let request = r.message()?;
        r.check_node(&request.node)?;
        alloc::register(&s, &n, request, &origin(&r)).await
    })
    .await?;
    on.verb::<verb::AllocStop, _>(|s, n, r| async move {
        alloc::stop(&s, &n, r.message()?, &origin(&r)).await
    })
    .await?;
    on.verb::<verb::AllocStatus, _>(|s, n, r| async move {
        query::alloc_status(&s, n, r.message()?, r.own_node(), r.deadline).await
    })
    .await?;
    on.verb::<verb::AllocList, _>(|s, n, r| async move {
        let request = r.message()?;
        r.check_reads_own_node(request.node.as_ref())?;
        query::list_allocs(&s, n, request, r.deadline).await
    })
    .await?;
    on.verb::<verb::AllocForget, _>(|s, n, r| async move {
        forget::forget(&s, n, r.message()?, r.trace, r.deadline).await
    })
    .await?;
    serve_owners(&on).await?;
    serve_storage(&on).await?;
    serve_fleet(&service, state).await?;
    serve_history(&service, state).await?;
    serve_secrets(&service, state).await?;
    Ok(service)
}

/// Whether a refused request of the sender was for whom the alloc was registered by: an agent asks
/// for the allocs of its node, and Berth's own services for all. Who else names an alloc is told as
/// what it is.
fn is_sent_for(alloc: &Alloc, sender: Option<&Actor>) -> bool {
    match sender {
        Some(Actor::Node(node)) => alloc.node == *node,
        Some(Actor::Service(_)) => true,
        Some(Actor::Docker(_) | Actor::User(_)) | None => false,
    }
}

/// Who sent the request.
fn origin<V>(request: &VerbRequest<V>) -> alloc::Origin {
    let (trace, deadline) = (request.trace, request.deadline);
    alloc::Origin { actor: request.actor.clone(), trace, deadline }
}

/// Owners of allocs, and requests about many allocs.
async fn serve_owners(on: &Endpoints<'_>) -> Result<(), ServeError> {
    on.verb::<verb::AllocRegisterMany, _>(|s, n, r| async move {
        alloc::register_many(&s, &n, r.message()?, &origin(&r)).await
    })
    .await?;
    on.verb::<verb::AllocStopMany, _>(|s, n, r| async move {
        alloc::stop_many(&s, &n, r.message()?, &origin(&r)).await
    })
    .await?;
    on.verb::<verb::AllocStopOwned, _>(|s, n, r| async move {
        alloc::stop_owned(&s, &n, r.message()?, &origin(&r)).await
    })
    .await?;
    on.verb::<verb::AllocAdopt, _>(|s, n, r| async move {
        alloc::adopt(&s, &n, r.message()?, &origin(&r)).await
    })
    .await?;
    on.verb::<verb::AllocWait, _>(|s, n, r| async move {
        query::wait_for_alloc(&s, n, r.message()?, r.deadline).await
    })
    .await?;
    on.verb::<verb::OwnerHold, _>(|s, n, r| async move {
        alloc::hold(&s, &n, r.message()?, &origin(&r)).await
    })
    .await?;
    on.verb::<verb::OwnerYield, _>(|s, n, r| async move {
        alloc::give_up(&s, &n, r.message()?, &origin(&r)).await
    })
    .await?;
    on.verb::<verb::OwnerList, _>(|s, n, r| async move {
        alloc::list_owners(&s, &n, r.message()?, r.deadline).await
    })
    .await?;
    on.verb::<verb::VolumePlaceMany, _>(|s, n, r| async move {
        query::place_many(&s, &n, r.message()?, r.deadline).await
    })
    .await
}

/// Volumes at their storage, snapshots and classes.
async fn serve_storage(on: &Endpoints<'_>) -> Result<(), ServeError> {
    on.verb::<verb::VolumeCreate, _>(|s, n, r| async move {
        storage::create(&s, n, r.message()?, &origin(&r)).await
    })
    .await?;
    on.verb::<verb::VolumeDelete, _>(|s, n, r| async move {
        storage::delete(&s, n, r.message()?, &origin(&r)).await
    })
    .await?;
    on.verb::<verb::VolumeExpand, _>(|s, n, r| async move {
        storage::expand(&s, n, r.message()?, r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::VolumeModify, _>(|s, n, r| async move {
        storage::modify(&s, n, r.message()?, r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::VolumeExternal, _>(|s, n, r| async move {
        storage::list_externals(&s, n, r.message()?, r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::VolumeCheckpoint, _>(|s, n, r| async move {
        work::volume_checkpoint(&s, n, r.message()?, r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::SnapshotCreate, _>(|s, n, r| async move {
        storage::create_snapshots(&s, n, r.message()?, r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::SnapshotDelete, _>(|s, n, r| async move {
        storage::delete_snapshots(&s, n, r.message()?, r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::SnapshotAdopt, _>(|s, n, r| async move {
        storage::adopt_snapshot(&s, n, r.message()?, r.trace, r.deadline).await
    })
    .await?;
    on.verb::<verb::SnapshotList, _>(|s, n, r| async move {
        storage::list_snapshots(&s, n, r.message()?, r.deadline).await
    })
    .await?;
    on.verb::<verb::ClassList, _>(|s, n, r| async move {
        storage::list_classes(&s, n, r.message()?).await
    })
    .await
}

/// Requests about no namespace: classes, and what plugins have room for.
async fn serve_fleet(service: &Service, state: &State) -> Result<(), ServeError> {
    let shared = state.clone();
    let put = move |request: VerbRequest<verb::ClassPut>| {
        let state = shared.clone();
        async move {
            let (class, trace) = (request.message()?, request.trace);
            storage::put_class(&state, class, trace, request.deadline).await
        }
    };
    service.on(Listen::All, MAX_IN_FLIGHT, put).await?;
    let shared = state.clone();
    let delete = move |request: VerbRequest<verb::ClassDelete>| {
        let state = shared.clone();
        async move {
            let (class, trace) = (request.message()?, request.trace);
            storage::delete_class(&state, class, trace, request.deadline).await
        }
    };
    service.on(Listen::All, MAX_IN_FLIGHT, delete).await?;
    let shared = state.clone();
    let hold = move |request: VerbRequest<verb::LevelHold>| {
        let state = shared.clone();
        async move { raise_level::hold(&state, request.message()?, &origin(&request)).await }
    };
    service.on(Listen::All, MAX_IN_FLIGHT, hold).await?;
    let shared = state.clone();
    let capacity = move |request: VerbRequest<verb::PluginCapacity>| {
        let state = shared.clone();
        async move {
            let (query, trace) = (request.message()?, request.trace);
            storage::list_capacities(&state, query, trace, request.deadline).await
        }
    };
    service.on(Listen::All, MAX_IN_FLIGHT, capacity).await.map(drop)
}

async fn serve_history(service: &Service, state: &State) -> Result<(), ServeError> {
    let shared = state.clone();
    let list = move |request: VerbRequest<verb::HistoryList>| {
        let state = shared.clone();
        async move {
            let (namespace, query) = (request.to()?, request.message()?);
            query::list_events(&state, namespace, query, request.deadline).await
        }
    };
    service.on(Listen::All, EVENT_PAGES_MAX, list).await.map(drop)
}

async fn serve_secrets(service: &Service, state: &State) -> Result<(), ServeError> {
    let shared = state.clone();
    let key = move |request: VerbRequest<verb::SecretKey>| {
        let state = shared.clone();
        async move {
            request.message()?;
            state.vault.public_key()
        }
    };
    service.on(Listen::All, MAX_IN_FLIGHT, key).await?;
    let shared = state.clone();
    let open = move |request: VerbRequest<verb::SecretOpen>| {
        let state = shared.clone();
        async move {
            let node = request.to()?;
            request.check_node(&node)?;
            secrets::open(&state, &node, request.message()?).await
        }
    };
    service.on(Listen::All, MAX_IN_FLIGHT, open).await.map(drop)
}

struct Endpoints<'a> {
    service: &'a Service,
    state: &'a State,
}

impl Endpoints<'_> {
    /// Answers a verb about objects of a namespace. A refused change becomes an event.
    async fn verb<V: Verb<To = Namespace>, F>(
        &self,
        handler: impl Fn(State, Namespace, VerbRequest<V>) -> F + Send + Sync + 'static,
    ) -> Result<(), ServeError>
    where
        F: Future<Output = Result<V::Reply, Problem>> + Send + 'static,
    {
        let (state, handler) = (self.state.clone(), Arc::new(handler));
        // A refused read changes nothing for a user, and refusals between Berth's own processes are
        // part of the protocol.
        let has_refusal_event = V::ROW.effect != Effect::Read && V::ROW.is_for_clients();
        let answer = move |request: VerbRequest<V>| {
            let (state, handler) = (state.clone(), Arc::clone(&handler));
            async move {
                let (trace, body) = (request.trace, request.body.clone());
                let sender = request.actor.clone();
                let namespace = request.to()?;
                let answer = handler(state.clone(), namespace.clone(), request).await;
                answer.map_err(|problem| {
                    let problem = problem.at_step(V::STEP).trace(trace.trace_id());
                    if has_refusal_event {
                        let about = RequestSubject::read(V::STEP, &body);
                        let by = about.alloc.as_ref().and_then(|alloc| {
                            let find = |allocs: &Allocs| {
                                let (_, alloc) = allocs.get(&namespace, alloc)?;
                                alloc.by.clone().filter(|_| is_sent_for(alloc, sender.as_ref()))
                            };
                            state.allocs.mirror.read(find)
                        });
                        let sender = sender.as_ref().map(Actor::tokens);
                        let (namespace, by) = (Some(namespace), by.or_else(|| sender.clone()));
                        let about = RequestSubject { namespace, by, sender, ..about };
                        state.refusals.tell_refusal(about, &problem, trace);
                    }
                    problem
                })
            }
        };
        self.service.on(Listen::All, MAX_IN_FLIGHT, answer).await.map(drop)
    }
}
