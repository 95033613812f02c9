//! One claim's release, from where its record says it is to where nothing more is due.

use std::sync::Arc;
use std::time::Duration;

use berth_bus::{Bus, Call, Mirror, RequestError};
use berth_contract::message::claim::{Checkpoint, Checkpointed, Report};
use berth_contract::subject::Namespaced;
use berth_contract::trace::TraceContext;
use berth_domain::{Timestamp, WorkerId, limits};
use berth_service::reconcile::Next;
use berth_service::{call, clock};
use berth_telemetry::{Kind, Span, attribute};

use crate::watch::{ClaimKey, WokenAllocs, WokenVolumes, is_work};

/// How long the claim service may take to record a step: an election of three NATS servers
/// included.
const CHECKPOINT: Duration = Duration::from_secs(15);
/// When the claim service cannot be asked, it is asked again after this, give or take half.
const UNREACHABLE: Duration = Duration::from_millis(500);

/// What drives releases.
pub struct Driver {
    pub bus: Bus,
    pub worker: WorkerId,
    pub volumes: Mirror<WokenVolumes>,
    pub allocs: Mirror<WokenAllocs>,
    pub look_again: Duration,
}

impl Driver {
    /// Every claim that is, or may be, work.
    pub fn all_work(&self) -> Vec<ClaimKey> {
        self.allocs.read(|allocs| {
            self.volumes.read(|volumes| {
                let claims = volumes.volumes.iter().flat_map(|(volume, subtree)| {
                    subtree.volume.claims.iter().map(move |(alloc, claim)| (volume, alloc, claim))
                });
                claims
                    .filter(|(volume, alloc, claim)| {
                        is_work(claim, allocs.allocs.is_live(&volume.namespace, alloc))
                    })
                    .map(|(volume, alloc, _)| (volume.clone(), alloc.clone()))
                    .collect()
            })
        })
    }

    fn is_work(&self, (volume, alloc): &ClaimKey) -> bool {
        let wanted = self.allocs.read(|allocs| allocs.allocs.is_live(&volume.namespace, alloc));
        self.volumes.read(|volumes| {
            let claims = volumes.volumes.get(volume).map(|subtree| &subtree.volume.claims);
            claims.and_then(|claims| claims.get(alloc)).is_some_and(|claim| is_work(claim, wanted))
        })
    }

    /// Works on a claim until it is freed, or until nothing may be done for it now.
    pub async fn drive(self: Arc<Self>, claim: ClaimKey) -> Next {
        if !self.is_work(&claim) {
            return Next::AwaitChange;
        }
        let trace = self.trace(&claim);
        let drive = Span::child_of(trace, "drive a release", Kind::Internal);
        let _ends_with_this = drive.with(attribute::WORKER, self.worker.as_str());
        let mut report = None;
        // Until when the report of a call is worth delivering: after that the attempt is dead, and
        // whoever asks makes another.
        let mut deliver_until = Timestamp::default();
        loop {
            let error = match self.checkpoint(&claim, report.clone(), trace).await {
                Ok(Checkpointed { call: Some(next), .. }) => {
                    let outcome = call::make(&self.bus, &next, trace).await;
                    deliver_until = next.deadline.after(limits::CLOCK_MARGIN);
                    report = Some(Report::new(next.attempt, outcome));
                    continue;
                }
                Ok(Checkpointed { state: None, .. }) => {
                    tracing::info!(volume = %claim.0, alloc = %claim.1, "freed");
                    return Next::AwaitChange;
                }
                Ok(Checkpointed { next_try, .. }) => return self.look_again(next_try),
                Err(error) => error,
            };
            tracing::warn!(
                volume = %claim.0,
                alloc = %claim.1,
                error = berth_service::process::chain(&error),
                "the claim service could not be asked; asking again"
            );
            let wait = UNREACHABLE.mul_f64(0.5 + rand::random::<f64>());
            if report.is_none() || clock::now() > deliver_until {
                return Next::After(wait);
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// The claim's release is one trace, whoever works on it and however often.
    fn trace(&self, (volume, alloc): &ClaimKey) -> TraceContext {
        let trail = self.volumes.read(|volumes| {
            volumes.volumes.get(volume).and_then(|subtree| subtree.trails.get(alloc).copied())
        });
        trail.map_or_else(clock::begin_trace, |trail| trail.release)
    }

    /// A claim that is not at rest is looked at again, whether or not something is seen to change.
    fn look_again(&self, next_try: Option<Timestamp>) -> Next {
        let wait = next_try.map_or(self.look_again, |next| next.since(clock::now()));
        // The claim service's clock says when; a little later both agree that it is then.
        Next::After(wait.min(self.look_again) + Duration::from_millis(2))
    }

    async fn checkpoint(
        &self,
        (volume, alloc): &ClaimKey,
        report: Option<Report>,
        trace: TraceContext,
    ) -> Result<Checkpointed, RequestError> {
        let request = Checkpoint {
            alloc: alloc.clone(),
            volume: volume.volume.clone(),
            worker: self.worker.clone(),
            report,
            early: false,
        };
        let subject = Namespaced::ClaimCheckpoint.subject(&volume.namespace);
        // A span of ours would be lost with this process, and the service's be without a parent.
        self.bus.request(&subject, &request, &Call::within(trace, CHECKPOINT).as_it_is()).await
    }
}
