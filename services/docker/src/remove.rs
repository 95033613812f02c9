//! `VolumeDriver.Remove`: the name is removed, and the volume that it created is deleted.
//!
//! **Promises** that only one volume is deleted: the one that the name's own `docker volume create`
//! made ([`creation`](super::creation)), with the reclaim policy `delete`, and only while
//! - no node has a claim on it;
//! - no other name of this node's Docker stands for it.
//!
//! Other nodes' names for the volume are unknown here: their Dockers may name any volume.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::docker::volume_title;
use berth_contract::hint::volume_argument;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::storage::FailedOperation;
use berth_contract::message::volume::VolumeStatus;
use berth_domain::Namespace;
use berth_domain::volume::State as ClaimState;
use berth_domain::volume::storage::OperationKind;
use berth_service::clock;
use berth_service::process::chain;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::creation::{
    Creation, CreationProgress, RemovalPlan, describe_storage, is_usable, plan_removal, stage_of,
};
use super::driver::VolumeDriver;
use super::engine;
use super::protocol;
use super::record::{NameRecord, SessionPhase};
use super::sessions::describe;
use super::settling::pause;
use super::target::{VolumeTarget, default_target};

/// How long a removal waits for the deletion of its volume. The engine itself gives up after 60 s.
const REMOVE_WAIT_MAX: Duration = Duration::from_secs(50);
/// How long a deletion is requested again if the claim service does not answer, or cannot do it
/// yet.
const REQUEST_RETRY_MAX: Duration = Duration::from_secs(15);
/// Claims that one refusal names, at most.
const NAMED_CLAIMS_MAX: usize = 3;

impl VolumeDriver {
    /// Removes a name, unless any node has a claim on its volume.
    pub async fn remove(&self, name: &str) -> Result<Value, String> {
        let deadline = self.sessions.request_deadline(REMOVE_WAIT_MAX);
        let target = match self.record(name).target() {
            Some(target) => target.clone(),
            None => default_target(name).map_err(|problem| describe(&problem))?,
        };
        let Some(_lock) = self.lock_definition(name, &target.key(), deadline).await else {
            return Err(format!("volume {name} is still being created or removed; ask again"));
        };
        let record = self.await_released(name, deadline).await?;
        if record.target().is_some_and(|now| now.key() != target.key()) {
            return Err(format!("volume {name} was changed at the same time; ask again"));
        }
        let creation = record.definition.and_then(|definition| definition.creation);
        let (volume, plan) = self.plan(name, &target, creation.as_ref(), deadline).await?;
        match (plan, volume) {
            (RemovalPlan::DeleteVolume { create_index }, Some(volume)) => {
                self.check_other_names(name, &target).await?;
                let progress = creation.map(|creation| creation.progress);
                self.delete_volume(name, &target, progress, create_index, deadline).await?;
                self.await_deleted(name, &target, &volume, create_index, deadline).await?;
                self.learn(&target, false);
                tracing::info!(name, volume = %target.key(), create_index, "deleted for Docker");
            }
            (plan, _) => {
                let reason = plan.describe();
                tracing::info!(name, volume = %target.key(), reason, "forgotten for Docker");
            }
        }
        self.forget_definition(name).await?;
        Ok(protocol::error(""))
    }

    /// The record of the name, after its last use is released. Docker removes a volume right after
    /// the container that it was made for (`docker run --rm`).
    async fn await_released(&self, name: &str, deadline: Instant) -> Result<NameRecord, String> {
        let mut changes = self.sessions.names.subscribe();
        loop {
            let record = self.record(name);
            let Some(session) = &record.session else { return Ok(record) };
            let is_unused = match session.phase {
                SessionPhase::Closing => true,
                SessionPhase::Open { .. } => session.ids.is_empty(),
                SessionPhase::Opening => false,
            };
            if !is_unused {
                return Err(format!("volume {name} cannot be removed: it is in use on this node"));
            }
            if !matches!(timeout_at(deadline, changes.changed()).await, Ok(Ok(()))) {
                let reason = "its last use is still being released";
                return Err(format!("volume {name} cannot be removed: {reason}"));
            }
        }
    }

    /// Decides what happens to the volume, as soon as it is known whether it exists.
    async fn plan(
        &self,
        name: &str,
        target: &VolumeTarget,
        creation: Option<&Creation>,
        deadline: Instant,
    ) -> Result<(Option<VolumeStatus>, RemovalPlan), String> {
        let title = volume_title(name, self.sessions.client.node());
        let mut looks = 0;
        loop {
            let volume = match self.look_up(target).await {
                Ok(volume) if volume.claim_count > 0 || !volume.claims.is_empty() => {
                    // Compose removes a volume right after the last container that used it.
                    if is_released(&volume) && pause(&mut looks, deadline).await {
                        continue;
                    }
                    return Err(describe_claims(name, &volume));
                }
                Ok(volume) => Some(volume),
                Err(problem) if problem.code == Code::NoSuchVolume => None,
                Err(problem) => {
                    let problem = describe(&problem);
                    return Err(format!("whether volume {name} is in use is not known: {problem}"));
                }
            };
            let plan = plan_removal(creation, volume.as_ref(), &title, clock::now());
            if plan != RemovalPlan::AwaitRequest {
                return Ok((volume, plan));
            }
            if !pause(&mut looks, deadline).await {
                return Err(format!(
                    "whether volume {name} is created is not known yet; ask again"
                ));
            }
        }
    }

    /// Checks that no other name of this node's Docker stands for the volume.
    async fn check_other_names(&self, name: &str, target: &VolumeTarget) -> Result<(), String> {
        let key = target.key();
        let names = self.sessions.names.list().into_iter();
        let is_of_volume = |(other_name, record): &(String, NameRecord)| {
            other_name != name && record.target().is_some_and(|target| target.key() == key)
        };
        let others: Vec<_> = names.filter(is_of_volume).map(|(other_name, _)| other_name).collect();
        if !others.is_empty() {
            return Err(format!(
                "volume {name} cannot be removed: Docker has its volume on this node also as {}; \
                 next: remove that first",
                others.join(", ")
            ));
        }
        // The volume's own id is a name without a definition.
        let id = target.volume.as_str();
        if target.namespace != Namespace::default() || id == name {
            return Ok(());
        }
        match engine::list_holders(&self.sessions.engine, id).await {
            Ok(holders) if holders.is_empty() => Ok(()),
            Ok(holders) => Err(format!(
                "volume {name} cannot be removed: containers of this node have its volume as {id}: \
                 {}",
                holders.join(", ")
            )),
            Err(error) => Err(format!(
                "volume {name} cannot be removed: whether containers have its volume as {id} is \
                 not known: {}",
                chain(&error)
            )),
        }
    }

    /// Has the claim service store that the volume is to be deleted. The request is written to the
    /// disk first.
    async fn delete_volume(
        &self,
        name: &str,
        target: &VolumeTarget,
        before: Option<CreationProgress>,
        create_index: u64,
        deadline: Instant,
    ) -> Result<(), String> {
        let key = target.key();
        let client = &self.sessions.client;
        let until = deadline.min(Instant::now() + REQUEST_RETRY_MAX);
        let (mut tries, mut is_unanswered) = (0, false);
        loop {
            let progress = CreationProgress::Removing { create_index, at: clock::now() };
            self.write_progress(name, progress).await?;
            let reason = format!("docker volume rm {name} on node {}", client.node());
            let problem = match client.delete_volume(&key, create_index, reason).await {
                Ok(_) => return Ok(()),
                Err(problem) if problem.code == Code::NoSuchVolume => return Ok(()),
                Err(problem) => problem,
            };
            is_unanswered |= problem.code == Code::NoAnswer;
            if problem.retryable && pause(&mut tries, until).await {
                continue;
            }
            let problem = describe(&problem);
            if is_unanswered {
                return Err(format!(
                    "whether volume {name} is deleted is not known yet: {problem}"
                ));
            }
            let progress = match before {
                Some(requested @ CreationProgress::Requested { .. }) => requested,
                _ => CreationProgress::Made { create_index },
            };
            self.write_progress(name, progress).await?;
            return Err(format!("volume {name} cannot be removed: {problem}"));
        }
    }

    /// Waits until the volume is gone from its storage, or the storage has refused.
    async fn await_deleted(
        &self,
        name: &str,
        target: &VolumeTarget,
        earlier: &VolumeStatus,
        create_index: u64,
        deadline: Instant,
    ) -> Result<(), String> {
        let mut looks = 0;
        loop {
            let words = match self.look_up(target).await {
                Ok(volume) if volume.create_index != create_index => return Ok(()),
                Ok(volume) => {
                    let refused = refused_deletion(&volume);
                    if let Some(refused) =
                        refused.filter(|now| refused_deletion(earlier) != Some(now))
                        && is_usable(stage_of(&volume))
                    {
                        let error = format!(
                            "volume {name} cannot be removed: its storage refused to delete it: {}",
                            refused.failure
                        );
                        self.write_progress(name, CreationProgress::Made { create_index }).await?;
                        return Err(error);
                    }
                    describe_storage(&volume, clock::now())
                }
                Err(problem) if problem.code == Code::NoSuchVolume => return Ok(()),
                Err(problem) => describe(&problem),
            };
            if !pause(&mut looks, deadline).await {
                let argument = volume_argument(&target.key());
                return Err(format!(
                    "volume {name} is not deleted yet: {words}; this goes on without Docker. Next: \
                     look at it with `berth volume status {argument}`"
                ));
            }
        }
    }
}

fn refused_deletion(volume: &VolumeStatus) -> Option<&FailedOperation> {
    let failure = volume.storage.as_ref()?.failure.as_ref()?;
    (failure.operation == OperationKind::Delete).then_some(failure)
}

/// Whether every claim of the volume is being released.
fn is_released(volume: &VolumeStatus) -> bool {
    let releasing = |claim: &ClaimStatus| {
        matches!(claim.state, ClaimState::Unpublishing | ClaimState::NodeDetached)
    };
    volume.claim_count <= volume.claims.len() && volume.claims.iter().all(releasing)
}

/// Why a claimed volume cannot be removed.
fn describe_claims(name: &str, volume: &VolumeStatus) -> String {
    let claims = volume.claims.iter().take(NAMED_CLAIMS_MAX);
    let mut claims: Vec<_> = claims
        .map(|claim| format!("{} on node {} ({})", claim.alloc, claim.node, claim.state))
        .collect();
    let more = volume.claim_count.saturating_sub(claims.len());
    if more > 0 {
        claims.push(format!("{more} more"));
    }
    format!("volume {name} cannot be removed: it is claimed by {}", claims.join(", "))
}
