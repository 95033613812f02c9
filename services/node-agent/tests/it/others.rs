//! The claim service and the registry, as far as an agent sees them, played by the test: grants,
//! allocs and reports. What they say of claims and secrets is in [`claims`](crate::claims).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_bus::lease::{LeaseStore as _, LeaseTerms};
use berth_bus::{Bus, EndpointSpec, Entry, LeaseError, Listen, Service, ServiceSpec, VerbRequest};
use berth_contract::code::Code;
use berth_contract::message::alloc::{self, AllocStatus, StopAlloc};
use berth_contract::message::claim::{Grant, Take};
use berth_contract::message::node::{
    FoundLease, Hold, LeaseAnswer, StoredEvents, TellEvents, ToldEvent, Yield, Yielded,
};
use berth_contract::message::registry::{NodeReport, Reported};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_contract::{bucket, key, stream};
use berth_domain::AllocId;
use berth_domain::alloc::AllocState;
use berth_service::clock;
use serde_json::{Value, json};

use crate::world::{PATIENCE, node};

/// What the test answers `claim.take` with, by alloc.
pub type Grants = Arc<Mutex<BTreeMap<AllocId, Result<Grant, Problem>>>>;

/// The allocs that the agent said have ended.
#[derive(Default)]
pub struct Stopped {
    pub all: Vec<StopAlloc>,
    /// Whether the claim service cannot note any more of them.
    pub refuses: bool,
}

/// Answers until the service is dropped.
pub async fn serve(
    bus: &Bus,
    grants: &Grants,
    reports: &Arc<Mutex<Vec<NodeReport>>>,
    answer: &Arc<Mutex<Reported>>,
    stopped: &Arc<Mutex<Stopped>>,
) -> Service {
    let spec = ServiceSpec {
        name: "berth-test".to_owned(),
        version: "0.0.1".to_owned(),
        ..ServiceSpec::default()
    };
    let service = bus.service(spec).await.unwrap();
    let endpoint = |name: &str, subject: String| EndpointSpec {
        name: name.to_owned(),
        subject,
        max_in_flight: 64,
        ..EndpointSpec::default()
    };
    let grants = Arc::clone(grants);
    let take = endpoint("take", verb::ClaimTake::wildcard_subject());
    service
        .endpoint(take, move |request| {
            let grants = Arc::clone(&grants);
            async move {
                let take: Take = request.decode("claim.take")?;
                assert_eq!(take.node, node());
                let granted = grants.lock().unwrap().get(&take.alloc).cloned();
                granted.unwrap_or_else(|| Err(Problem::new(Code::NoSuchAlloc, "no such alloc")))
            }
        })
        .await
        .unwrap();
    let ended = Arc::clone(stopped);
    service
        .endpoint(endpoint("alloc-list", verb::AllocList::wildcard_subject()), move |request| {
            let ended = Arc::clone(&ended);
            async move {
                let asked: alloc::ListAllocs = request.decode("alloc.list")?;
                assert_eq!((asked.node, asked.state), (Some(node()), Some(AllocState::Live)));
                let ended = ended.lock().unwrap();
                let is_live = |id: &&str| ended.all.iter().all(|stop| stop.id.as_str() != *id);
                let allocs: Vec<_> = ["a", "b"].into_iter().filter(is_live).map(stub).collect();
                Ok(json!({"index": 0, "allocs": allocs}))
            }
        })
        .await
        .unwrap();
    let stopped = Arc::clone(stopped);
    service
        .endpoint(endpoint("alloc-stop", verb::AllocStop::wildcard_subject()), move |request| {
            let stopped = Arc::clone(&stopped);
            async move {
                let stop: StopAlloc = request.decode("alloc.stop")?;
                let mut stopped = stopped.lock().unwrap();
                if stopped.refuses {
                    return Err(Problem::new(Code::BusUnavailable, "no quorum").retryable());
                }
                let answer = AllocStatus { state: stop.state, ..live(&stop.id) };
                stopped.all.push(stop);
                Ok(answer)
            }
        })
        .await
        .unwrap();
    serve_writes(bus, &service).await;
    let (reports, answer) = (Arc::clone(reports), Arc::clone(answer));
    let report = endpoint("report", verb::NodeReport::subject(&()));
    service
        .endpoint(report, move |request| {
            let (reports, answer) = (Arc::clone(&reports), Arc::clone(&answer));
            async move {
                reports.lock().unwrap().push(request.decode("node.report")?);
                Ok(answer.lock().unwrap().clone())
            }
        })
        .await
        .unwrap();
    service
}

/// Leases and events, written as the registry writes them.
async fn serve_writes(bus: &Bus, service: &Service) {
    let leases = bus.bucket(&bucket::LEASES, 1).await.unwrap();
    let own = leases.clone();
    let holds = move |request: VerbRequest<verb::NodeHold>| {
        let leases = own.clone();
        async move {
            let Hold { holder, ttl_s, over, .. } = request.message()?;
            let terms = LeaseTerms {
                key: key::node_lease(&holder.node),
                value: json!(holder).to_string().into(),
                ttl: Duration::from_secs(ttl_s),
                trace: request.trace,
            };
            match leases.hold(&terms, over, PATIENCE).await {
                Ok(revision) => {
                    Ok(LeaseAnswer { revision: Some(revision), ..LeaseAnswer::default() })
                }
                Err(LeaseError::Held { holder, .. }) => {
                    let Entry { revision, value, has_ttl, .. } = *holder;
                    let value = String::from_utf8(value.unwrap().into()).unwrap();
                    let found = Some(FoundLease { revision, value, has_ttl });
                    Ok(LeaseAnswer { found, ..LeaseAnswer::default() })
                }
                Err(LeaseError::Lost { .. }) => Ok(LeaseAnswer::default()),
                Err(error) => Err(error.into()),
            }
        }
    };
    service.on(Listen::All, 64, holds).await.unwrap();
    let yields = move |request: VerbRequest<verb::NodeYield>| {
        let leases = leases.clone();
        async move {
            let Yield { node, revision } = request.message()?;
            let (key, value) = (key::node_lease(&node), Vec::new().into());
            let terms = LeaseTerms { key, value, ttl: PATIENCE, trace: request.trace };
            leases.release(&terms, revision).await.unwrap();
            Ok(Yielded {})
        }
    };
    service.on(Listen::All, 64, yields).await.unwrap();
    let events = bus.events(&stream::EVENTS, 1).await.unwrap();
    let tells = move |request: VerbRequest<verb::NodeTell>| {
        let events = events.clone();
        async move {
            let TellEvents { events: told } = request.message()?;
            for ToldEvent { event, traceparent } in &told {
                events.publish(&event.subject(), event, *traceparent);
            }
            Ok(StoredEvents { stored: told.len() })
        }
    };
    service.on(Listen::All, 64, tells).await.unwrap();
}

/// An alloc of this node that was not reported ended, as it is listed.
fn stub(id: &str) -> Value {
    let since = clock::now();
    json!({"id": id, "namespace": "default", "state": "live", "node": node(), "since": since})
}

/// And as it is shown.
fn live(id: &AllocId) -> AllocStatus {
    serde_json::from_value(stub(id.as_str())).unwrap()
}
