//! One transition of several volumes, stored in one atomic batch.
//!
//! **Promises** that all of them are stored or none is, each under its own volume's guard. If some
//! volumes need the change and others do not, none is changed.

use berth_bus::caller;
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::VolumeKey;
use berth_domain::volume::{Command, Step, Volume};
use berth_service::deadline;
use tokio::time::Instant;

use super::batch::GuardedWrite;
use super::{Committed, RACES_MAX, TransactError, is_of_absence};
use crate::store::events::StoredTransition;
use crate::store::measure::AnsweredChange;
use crate::store::state::StateInner;

impl StateInner {
    /// Decides a command on each volume, with one attempt for all, and stores all writes. The
    /// volumes are in the order of their keys, so that two such transitions cannot deadlock.
    pub async fn transact_together(
        &self,
        volumes: &[VolumeKey],
        trace: TraceContext,
        until: Option<Instant>,
        command: impl Fn(&VolumeKey, &Volume) -> Result<Command, Problem>,
    ) -> Result<Vec<Committed>, (VolumeKey, TransactError)> {
        let first = volumes.first().cloned();
        let mut locks = Vec::new();
        for volume in volumes {
            let lock = caller::wait_until_deadline(self.volume_locks.lock(volume)).await;
            locks.push(lock.ok_or_else(|| (volume.clone(), TransactError::Queued))?);
        }
        for _ in 0..RACES_MAX {
            if let Some(done) = self.try_together(volumes, trace, until, &command).await? {
                return Ok(done);
            }
        }
        match first {
            Some(volume) => Err((volume, TransactError::Contended)),
            None => Ok(Vec::new()),
        }
    }

    /// One try; none if a race was lost.
    async fn try_together(
        &self,
        volumes: &[VolumeKey],
        trace: TraceContext,
        until: Option<Instant>,
        command: &impl Fn(&VolumeKey, &Volume) -> Result<Command, Problem>,
    ) -> Result<Option<Vec<Committed>>, (VolumeKey, TransactError)> {
        let context = self.decision_context();
        let mut decided: Vec<(Command, Step, u64, Option<AnsweredChange>)> = Vec::new();
        for volume in volumes {
            let at = |error| (volume.clone(), error);
            let head = self.catch_up(volume).await.map_err(at)?;
            let decide = |now: &Volume| command(volume, now);
            let decision = self.decide(volume, decide, context.clone()).map_err(at)?;
            match decision.step {
                Ok(step) => decided.push((decision.command, step, head, decision.answered)),
                Err(refusal) => {
                    if is_of_absence(&decision.command, &refusal)
                        && !self.confirm_head(volume, head, trace).await.map_err(at)?
                    {
                        return Ok(None);
                    }
                    return Err(at(refusal.into()));
                }
            }
        }
        let needs = |step: &Step| step.write.is_some();
        let mut each = volumes.iter().zip(&decided);
        if decided.iter().any(|(_, step, ..)| needs(step))
            && let Some((volume, _)) = each.find(|(_, (_, step, ..))| !needs(step))
        {
            let message = "it has the snapshot already, and other volumes of the group have not";
            let problem = Problem::new(Code::SnapshotExists, message);
            return Err((volume.clone(), problem.into()));
        }
        let mut writes = Vec::new();
        for (volume, (_, step, head, _)) in volumes.iter().zip(&decided) {
            if let Some(write) = &step.write {
                let own = GuardedWrite::own(volume, write, None, *head, trace);
                writes.push(own.map_err(|error| (volume.clone(), error.into()))?);
            }
        }
        let mut stored = 0;
        if let Some(first) = volumes.first().filter(|_| !writes.is_empty()) {
            let at_first = |error| (first.clone(), error);
            if let Some(until) = until {
                deadline::check(until).map_err(|problem| at_first(problem.into()))?;
            }
            let Some(first) = self.store_all(&writes, trace).await.map_err(at_first)? else {
                return Ok(None);
            };
            stored = first;
        }
        let mut done = Vec::new();
        for (volume, (command, step, head, answered)) in volumes.iter().zip(decided) {
            let revision = if let Some(write) = &step.write {
                let (before, spec_before, trail, by) = (None, None, None, None);
                let now = context.now;
                if let Some(answered) = answered {
                    answered.count(write, now);
                }
                let command = &command;
                let transition = StoredTransition {
                    volume,
                    command,
                    write,
                    before,
                    spec_before,
                    trail,
                    trace,
                    now,
                    by,
                };
                let event = transition.event(&self.policy);
                self.events.publish(&event.subject(), &event, transition.context());
                let revision = stored;
                stored += 1;
                revision
            } else {
                head
            };
            done.push(Committed { step, revision });
        }
        Ok(Some(done))
    }
}
