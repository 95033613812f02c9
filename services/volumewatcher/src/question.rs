//! What the claim service is asked about a claim, an operation or a snapshot, and its answer.
//!
//! **Owns** the differences between `claim.checkpoint` and `volume.checkpoint`, so that the loop in
//! [`drive`](crate::drive) has none.

use berth_bus::{Bus, Call as BusCall, RequestError};
use berth_contract::message::call::Call;
use berth_contract::message::claim::{Checkpoint, Report};
use berth_contract::message::storage_call::{StorageCall, StorageCheckpoint, StorageReport};
use berth_contract::trace::TraceContext;
use berth_contract::verb;
use berth_domain::volume::{CallKind, CallOwner, Outcome, State};
use berth_domain::{Namespace, NodeId, PluginId, Timestamp, WorkerId};

use crate::due::Executor;
use crate::watch::WorkKey;

/// A question to the claim service.
#[derive(Debug, Clone)]
pub enum Question {
    Claim(Checkpoint),
    Storage(StorageCheckpoint),
}

/// The claim service's answer.
#[derive(Debug)]
pub struct WhatNext {
    /// The call to make next, once.
    pub call: Option<NextCall>,
    /// Whether nothing is left to do.
    pub is_over: bool,
    /// Whether the claim has left its node, and its controller is next.
    pub goes_on_at_controller: bool,
    /// When to ask again, if there is no call.
    pub next_try: Option<Timestamp>,
}

/// A call that the claim service recorded.
#[derive(Debug)]
pub enum NextCall {
    Claim(Box<Call>),
    Storage(Box<StorageCall>),
}

impl Question {
    /// Asks for the next call.
    pub fn new((volume, owner): &WorkKey, worker: &WorkerId) -> Self {
        let (volume, worker) = (volume.volume.clone(), worker.clone());
        let storage = |snapshot| {
            Self::Storage(StorageCheckpoint {
                volume: volume.clone(),
                snapshot,
                worker: worker.clone(),
                report: None,
                early: false,
                report_only: false,
            })
        };
        match owner {
            CallOwner::Volume => storage(None),
            CallOwner::Snapshot(snapshot) => storage(Some(snapshot.clone())),
            CallOwner::Claim(alloc) => Self::Claim(Checkpoint {
                alloc: alloc.clone(),
                volume,
                worker,
                report: None,
                early: false,
                report_only: false,
            }),
        }
    }

    /// Something changed that may let the failed call succeed now.
    pub fn set_early(&mut self) {
        match self {
            Self::Claim(question) => question.early = true,
            Self::Storage(question) => question.early = true,
        }
    }

    /// Reports what came of a call.
    pub fn set_report(&mut self, call: NextCall, outcome: Outcome) {
        match (self, call) {
            (Self::Claim(question), NextCall::Claim(call)) => {
                question.report = Some(Report::new(call.attempt, outcome));
            }
            (Self::Storage(question), NextCall::Storage(call)) => {
                question.report = Some(StorageReport::new(call.attempt, outcome));
            }
            // A question gets calls of its own kind.
            (Self::Claim(_), NextCall::Storage(_)) | (Self::Storage(_), NextCall::Claim(_)) => {}
        }
    }

    /// Whether no call may be begun now.
    pub fn set_report_only(&mut self, only: bool) {
        match self {
            Self::Claim(question) => question.report_only = only,
            Self::Storage(question) => question.report_only = only,
        }
    }

    /// Whether it only reports.
    pub fn is_report_only(&self) -> bool {
        match self {
            Self::Claim(question) => question.report_only,
            Self::Storage(question) => question.report_only,
        }
    }

    /// Whether it reports the outcome of a call.
    pub fn has_report(&self) -> bool {
        match self {
            Self::Claim(question) => question.report.is_some(),
            Self::Storage(question) => question.report.is_some(),
        }
    }

    /// Asks the claim service once.
    pub async fn ask_claim_service(
        &self,
        bus: &Bus,
        namespace: &Namespace,
        call: &BusCall,
    ) -> Result<WhatNext, RequestError> {
        match self {
            Self::Claim(question) => {
                let asked = bus.ask_service::<verb::ClaimCheckpoint>(namespace, question, call);
                let answer = asked.await?;
                Ok(WhatNext {
                    is_over: answer.state.is_none() && answer.call.is_none(),
                    goes_on_at_controller: answer.state == Some(State::NodeDetached),
                    next_try: answer.next_try,
                    call: answer.call.map(|call| NextCall::Claim(Box::new(call))),
                })
            }
            Self::Storage(question) => {
                let asked = bus.ask_service::<verb::VolumeCheckpoint>(namespace, question, call);
                let answer = asked.await?;
                Ok(WhatNext {
                    is_over: !answer.pending,
                    goes_on_at_controller: false,
                    next_try: answer.next_try,
                    call: answer.call.map(|call| NextCall::Storage(Box::new(call))),
                })
            }
        }
    }
}

impl NextCall {
    /// Makes the call, once.
    pub async fn make(&self, bus: &Bus, trace: TraceContext) -> Outcome {
        match self {
            Self::Claim(call) => berth_service::call::make(bus, call, trace).await,
            Self::Storage(call) => berth_service::call::make_storage(bus, call, trace).await,
        }
    }

    /// Who carries it out.
    pub fn executor(&self) -> Executor {
        let at_node = |node: &NodeId| Executor::Node(self.plugin().clone(), node.clone());
        match self {
            Self::Claim(call) if !call.call.is_controller() => at_node(&call.node),
            Self::Storage(call) if !call.call.is_controller() => match &call.node {
                Some(node) => at_node(node),
                None => Executor::Controller(call.plugin.clone()),
            },
            _ => Executor::Controller(self.plugin().clone()),
        }
    }

    /// The plugin that is called.
    pub fn plugin(&self) -> &PluginId {
        match self {
            Self::Claim(call) => &call.plugin,
            Self::Storage(call) => &call.plugin,
        }
    }

    /// When the executor gives it up.
    pub fn deadline(&self) -> Timestamp {
        match self {
            Self::Claim(call) => call.deadline,
            Self::Storage(call) => call.deadline,
        }
    }

    /// Whether it takes the volume down on a node.
    pub fn is_detach(&self) -> bool {
        matches!(self, Self::Claim(call) if call.call == CallKind::NodeDetach)
    }
}
