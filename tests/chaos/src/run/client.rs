//! Sends requests as callers do, and writes down what they were told.

use std::time::{Duration, Instant};

use berth_bus::{Bucket, Call, RequestError};
use berth_contract::code::Code;
use berth_contract::message::agent::{Mount, Mounted};
use berth_contract::message::alloc;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb};
use berth_contract::{key, record};
use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_domain::volume::Claim;
use berth_domain::{AllocId, Namespace, NodeId, VolumeId, VolumeKey};
use berth_harness::nats::raw;
use berth_service::clock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::Run;
use crate::ledger::{Hold, now_us};
use crate::plan::{SCRATCH, Sending, Workload, kind_of};

/// The timeout of one request.
const REQUEST: Duration = Duration::from_secs(5);
/// The longest pause before a request is repeated.
const PAUSE_MAX: Duration = Duration::from_millis(800);

pub(super) fn volume_id(volume: usize) -> VolumeId {
    VolumeId::new(kind_of(volume).id).expect("the plan's volumes have ids")
}

/// The volume of an alloc. A volume that is created for the alloc has its own name.
pub(super) fn volume_for(alloc: &str, volume: usize) -> VolumeId {
    match volume {
        SCRATCH => VolumeId::new(format!("scratch-{alloc}")).expect("the plan's allocs have ids"),
        _ => volume_id(volume),
    }
}

pub(super) fn alloc_id(alloc: &str) -> AllocId {
    AllocId::new(alloc).expect("the plan's allocs have ids")
}

pub(super) fn node_id(node: usize) -> NodeId {
    NodeId::new(format!("n{}", node + 1)).expect("the plan's nodes have ids")
}

/// Whether a retry may help a caller that does not wait in the queue.
fn may_pass(problem: &Problem) -> bool {
    problem.retryable && !matches!(problem.code, Code::Held | Code::AccessInUse | Code::Waiting)
}

impl Run {
    /// Sends one request once.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        subject: &str,
        body: &impl Serialize,
    ) -> Result<T, Problem> {
        let call = Call::within(clock::begin_trace(), REQUEST);
        let answer = self.site.bus.request(subject, body, &call).await;
        let answer = answer.map_err(|error| match error {
            RequestError::Problem(problem) => *problem,
            error => error.into_problem("chaos"),
        });
        if let Err(problem) = &answer
            && problem.code == Code::Internal
        {
            self.ledger.violated("a defect admitted", format!("{subject}: {problem}"));
        }
        answer
    }

    /// Sends a request without a deadline, and waits for no answer.
    pub(super) async fn send(&self, subject: &str, body: &impl Serialize) {
        let body = serde_json::to_vec(body).expect("a request can be written");
        let Some(server) = self.site.server() else { return };
        if let Err(error) = raw::flood(server, subject, &body, 1).await {
            self.ledger.note(format!("{subject} was not sent: {error}"));
        }
    }

    /// Repeats one request as long as `again` says that a retry may help, at most for
    /// `patience`.
    pub(super) async fn pursue<T: DeserializeOwned>(
        &self,
        subject: &str,
        body: &impl Serialize,
        patience: Duration,
        again: impl Fn(&Problem) -> bool,
    ) -> Result<T, Problem> {
        let end = Instant::now() + patience;
        let mut pause = Duration::from_millis(50);
        loop {
            let answer = self.ask(subject, body).await;
            match answer {
                Err(problem) if again(&problem) && Instant::now() + pause < end => {}
                answer => return answer,
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Repeats a request of the default namespace as long as a retry may help.
    pub(super) async fn about<V: Verb<To = Namespace>>(
        &self,
        body: &impl Serialize,
        patience: Duration,
    ) -> Result<V::Reply, Problem> {
        let subject = V::subject(&Namespace::default());
        self.pursue(&subject, body, patience, |problem| problem.retryable).await
    }

    /// Has the node's agent claim and mount the volume, and records the mount.
    pub(super) async fn mount(
        &self,
        alloc: &str,
        workload: &Workload,
        patience: Duration,
    ) -> Result<Mounted, Problem> {
        let body = mount(alloc, workload);
        let subject =
            verb::AgentMount::subject(&verb::NodeAndNamespace::any_of(node_id(workload.node)));
        if workload.sending == Sending::Unbounded {
            self.send(&subject, &body).await;
        }
        let wait = workload.wait;
        let again = |problem: &Problem| if wait { problem.retryable } else { may_pass(problem) };
        let mounted: Mounted = self.pursue(&subject, &body, patience, again).await?;
        let hold = Hold {
            alloc: alloc.to_owned(),
            volume: workload.volume,
            node: workload.node,
            epoch: mounted.epoch,
            path: mounted.path.clone(),
            writes: !mounted.read_only,
            acknowledged: now_us(),
            let_go: None,
            gone: None,
        };
        self.ledger.held(hold);
        Ok(mounted)
    }

    /// Reports that an alloc has ended until that is acknowledged.
    pub(super) async fn stop(&self, alloc: &str, patience: Duration) -> Result<(), Problem> {
        self.ledger.lets_go(alloc);
        let body = stop(alloc, AllocState::Complete);
        let stopped = self.about::<verb::AllocStop>(&body, patience);
        stopped.await?;
        self.ledger.stopped(alloc);
        Ok(())
    }

    /// The claim as the stream's leader has it; an error if no server answers.
    pub(super) async fn claim(&self, alloc: &str, volume: usize) -> Result<Option<Claim>, String> {
        let volume = VolumeKey::new(Namespace::default(), volume_for(alloc, volume));
        let entry = self.volumes.get(&key::claim(&volume, &alloc_id(alloc))).await;
        let Some(entry) = entry.map_err(|error| error.to_string())? else { return Ok(None) };
        let Some(value) = entry.value else { return Ok(None) };
        let read = record::read::<Claim>(&value).map_err(|error| error.to_string())?;
        // A write cannot contain its own revision, so an epoch of 0 stands for it.
        let epoch = if read.body.epoch == 0 { entry.revision } else { read.body.epoch };
        Ok(Some(Claim { epoch, ..read.body }))
    }
}

/// The request that registers an alloc.
pub(super) fn register(alloc: &str, workload: &Workload) -> alloc::RegisterAlloc {
    let request = VolumeRequest::for_volume(volume_for(alloc, workload.volume));
    let volumes = vec![VolumeRequest { read_only: workload.read_only, ..request }];
    let register = alloc::RegisterAlloc::new(alloc_id(alloc), node_id(workload.node), volumes);
    alloc::RegisterAlloc { allow_missing: true, ..register }
}

/// The report that an alloc has ended.
pub(super) fn stop(alloc: &str, state: AllocState) -> alloc::StopAlloc {
    alloc::StopAlloc::new(alloc_id(alloc), state, None)
}

/// The request to mount the volume of an alloc.
pub(super) fn mount(alloc: &str, workload: &Workload) -> Mount {
    Mount {
        namespace: Namespace::default(),
        alloc: alloc_id(alloc),
        volume: volume_for(alloc, workload.volume),
        wait: workload.wait,
        alias: None,
        path: None,
    }
}

/// Every claim with its key, as the stream's leader has them.
pub(super) async fn claims(volumes: &Bucket) -> Result<Vec<(String, String)>, String> {
    let list = volumes.list(">").await.map_err(|error| error.to_string())?;
    let claims = list.entries.into_iter().filter(|entry| entry.key.contains(".claim."));
    let text = |value: Option<_>| value.map_or_else(String::new, |value| to_text(&value));
    Ok(claims.map(|entry| (entry.key, text(entry.value))).collect())
}

fn to_text(bytes: &impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(bytes.as_ref()).into_owned()
}
