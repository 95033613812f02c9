//! The service's endpoints: one per verb, for all namespaces.

use std::future::Future;
use std::sync::Arc;

use berth_bus::{Listen, Service, VerbRequest, serve::ServeError};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Effect, Verb};
use berth_domain::Namespace;
use berth_service::process::Process;
use berth_service::refusals::RequestSubject;

use crate::alloc;
use crate::alloc::forget;
use crate::caller::Caller;
use crate::claim::observe;
use crate::claim::recover;
use crate::claim::release;
use crate::claim::take;
use crate::read;
use crate::refusal_event::tell_refusal;
use crate::storage;
use crate::store::raise_level;
use crate::store::secrets;
use crate::store::state::State;
use crate::volume;
use crate::volume::deregister;
use crate::volume::detach;
use crate::volume::register;
use crate::work;

/// Requests of one verb that are handled at once. Takes may wait for minutes, which costs little.
const MAX_IN_FLIGHT: u32 = 1024;
/// Pages of events that are read at once. Each may read a large part of the stream.
const EVENT_PAGES_MAX: u32 = 32;

/// Answers each verb with the handler behind its arrow.
macro_rules! answer {
    ($on:ident, $($verb:ident => $handler:path),* $(,)?) => {$(
        $on.verb::<verb::$verb, _>(|s, n, r| async move {
            $handler(&s, &n, r.message()?, &caller(&r)).await
        })
        .await?;
    )*};
}

pub async fn serve(state: &State, process: &Process) -> Result<Service, ServeError> {
    let service = process.announce().await?;
    let on = Endpoints { service: &service, state };

    on.verb::<verb::VolumeRegister, _>(|s, n, r| async move {
        let request = register::decode_document(&s, &n, &r)?;
        register::register(&s, &n, request, &caller(&r)).await
    })
    .await?;
    on.verb::<verb::VolumeRegisterMany, _>(|s, n, r| async move {
        let request = register::decode_documents(&s, &n, &r)?;
        volume::register_many(&s, &n, request, &caller(&r)).await
    })
    .await?;
    on.verb::<verb::ClaimTake, _>(|s, n, r| async move {
        let request = r.message()?;
        r.check_node(&request.node)?;
        take::take(&s, &n, request, &caller(&r)).await
    })
    .await?;
    on.verb::<verb::ClaimRecover, _>(|s, n, r| async move {
        let request = r.message()?;
        r.check_node(&request.node)?;
        recover::recover(&s, &n, request, &caller(&r)).await
    })
    .await?;
    on.verb::<verb::ClaimStatus, _>(|s, n, r| async move {
        let request = r.message()?;
        r.check_reads_own_node(request.node.as_ref())?;
        read::list_claims(&s, &n, request, &caller(&r)).await
    })
    .await?;
    on.verb::<verb::AllocRegister, _>(|s, n, r| async move {
        let request = r.message()?;
        r.check_node(&request.node)?;
        alloc::register(&s, &n, request, &caller(&r)).await
    })
    .await?;
    on.verb::<verb::AllocList, _>(|s, n, r| async move {
        let request = r.message()?;
        r.check_reads_own_node(request.node.as_ref())?;
        read::list_allocs(&s, &n, request, &caller(&r)).await
    })
    .await?;
    on.verb::<verb::ClassList, _>(|s, n, r| async move {
        storage::list_classes(&s, &n, r.message()?).await
    })
    .await?;
    answer!(on,
        VolumeDeregister => deregister::deregister,
        VolumeDeregisterMany => volume::deregister_many,
        VolumeDetach => detach::detach,
        VolumeStatus => read::volume_status,
        VolumeList => read::list_volumes,
        VolumePlacement => read::list_placements,
        VolumePlaceMany => read::place_many,
        VolumeCreate => storage::create,
        VolumeDelete => storage::delete,
        VolumeExpand => storage::expand,
        VolumeModify => storage::modify,
        VolumeExternal => storage::list_externals,
        VolumeCheckpoint => work::volume_checkpoint,
        ClaimRelease => release::release,
        ClaimCheckpoint => work::claim_checkpoint,
        ClaimObserve => observe::observe,
        WorkCheckpoint => work::work_checkpoint,
        AllocStop => alloc::stop,
        AllocStatus => read::alloc_status,
        AllocWait => read::wait_for_alloc,
        AllocForget => forget::forget,
        AllocRegisterMany => alloc::register_many,
        AllocStopMany => alloc::stop_many,
        AllocStopOwned => alloc::stop_owned,
        AllocAdopt => alloc::adopt,
        OwnerHold => alloc::hold,
        OwnerYield => alloc::give_up,
        OwnerList => alloc::list_owners,
        SnapshotCreate => storage::create_snapshots,
        SnapshotDelete => storage::delete_snapshots,
        SnapshotAdopt => storage::adopt_snapshot,
        SnapshotList => storage::list_snapshots,
    );
    serve_fleet(&service, state).await?;
    serve_history(&service, state).await?;
    serve_secrets(&service, state).await?;
    Ok(service)
}

/// Who sent the request.
fn caller<V>(request: &VerbRequest<V>) -> Caller {
    let (trace, deadline) = (request.trace, request.deadline);
    Caller { actor: request.actor.clone(), trace, deadline }
}

/// Requests about no namespace: classes, and the capacity of plugins.
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
        async move { raise_level::hold(&state, request.message()?, &caller(&request)).await }
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
            read::list_events(&state, namespace, query, request.deadline).await
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
    /// Answers a verb about objects of a namespace. A refused change is published as an event.
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
                let (caller, body) = (caller(&request), request.body.clone());
                let namespace = request.to()?;
                let answer = handler(state.clone(), namespace.clone(), request).await;
                answer.map_err(|problem| {
                    let problem = problem.at_step(V::STEP).trace(caller.trace.trace_id());
                    if has_refusal_event {
                        let about = RequestSubject::read(V::STEP, &body);
                        tell_refusal(&state, &namespace, &caller, about, &problem);
                    }
                    problem
                })
            }
        };
        self.service.on(Listen::All, MAX_IN_FLIGHT, answer).await.map(drop)
    }
}
