//! Compares names with the volumes that were created for them.
//!
//! **Promises** that the outcome of a creation or a removal is written once it is known, even if no
//! request of Docker waits for it any more or this process was killed.
//!
//! **Never** requests a creation or a deletion: Docker reported an error to its user, who may want
//! something else by now. It only follows what the claim service has stored. It deletes the record
//! of a volume that the storage refused to create: there is no volume.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::docker::volume_title;
use berth_contract::message::volume::VolumeStatus;
use berth_domain::VolumeKey;
use berth_domain::retry::Schedule;
use berth_domain::volume::storage::Stage;
use berth_service::clock;
use berth_service::locks::KeyGuard;
use berth_service::shutdown::Shutdown;
use tokio::time::{Instant, sleep, timeout_at};

use super::creation::{self, CreationProgress, CreationStep, Settlement};
use super::driver::{VolumeDriver, describe_lookup};
use super::record::NameDefinition;
use super::sessions::describe;
use super::target::VolumeTarget;

/// Interval at which a creation or a removal that no request waits for is compared with its volume.
const SETTLE_INTERVAL: Duration = Duration::from_secs(2);
/// Pauses between two reads of a volume that a request waits for.
pub const VOLUME_POLL: Schedule =
    Schedule { first: Duration::from_millis(50), max: Duration::from_secs(1) };

/// Locks a name and its volume. So two names of one volume are created and removed one after the
/// other.
pub struct DefinitionGuard {
    _name: KeyGuard<String>,
    _volume: KeyGuard<VolumeKey>,
}

impl VolumeDriver {
    /// Locks the definition of a name. `None` if another request holds it until then.
    pub async fn lock_definition(
        &self,
        name: &str,
        volume: &VolumeKey,
        until: Instant,
    ) -> Option<DefinitionGuard> {
        let lock = async {
            let name = self.name_locks.lock(&name.to_owned()).await;
            DefinitionGuard { _name: name, _volume: self.volume_locks.lock(volume).await }
        };
        timeout_at(until, lock).await.ok()
    }

    /// Compares a name with its volume at least once, until no creation or deletion is under way or
    /// the time has come. The caller holds the definition's lock.
    pub async fn settle(&self, name: &str, until: Instant) -> Result<Settlement, String> {
        let mut looks = 0;
        loop {
            let settlement = self.settle_once(name).await?;
            if !matches!(settlement, Settlement::UnderWay(_)) || !pause(&mut looks, until).await {
                return Ok(settlement);
            }
        }
    }

    async fn settle_once(&self, name: &str) -> Result<Settlement, String> {
        let Some(definition) = self.record(name).definition else {
            return Ok(Settlement::Gone("it was removed".to_owned()));
        };
        let NameDefinition { target, creation: Some(creation), .. } = definition else {
            return Ok(Settlement::Usable(None));
        };
        let volume = match self.look_up(&target).await {
            Ok(volume) => Some(volume),
            Err(problem) if problem.code == Code::NoSuchVolume => None,
            Err(problem) if creation.progress.is_under_way() => {
                return Ok(Settlement::UnderWay(describe(&problem)));
            }
            Err(_) => return Ok(Settlement::Usable(None)),
        };
        let title = volume_title(name, self.sessions.client.node());
        let step = creation::next_step(&creation.progress, volume.as_ref(), &title, clock::now());
        match step {
            CreationStep::Settled => {}
            CreationStep::Await(words) => return Ok(Settlement::UnderWay(words)),
            CreationStep::Advance(progress) => {
                self.write_progress(name, progress).await?;
                tracing::info!(name, volume = %target.key(), ?progress, "a volume for Docker");
            }
            CreationStep::Forget(reason) => return self.forget_gone(name, reason).await,
            CreationStep::ClearRefused { create_index, error } => {
                let reason = format!("its creation for the Docker volume {name} was refused");
                let client = &self.sessions.client;
                match client.delete_volume(&target.key(), create_index, reason).await {
                    Ok(_) => {}
                    Err(problem) if problem.code == Code::NoSuchVolume => {}
                    Err(problem) => {
                        let problem = describe(&problem);
                        return Ok(Settlement::UnderWay(format!("{error}; {problem}")));
                    }
                }
                self.learn(&target, false);
                return self.forget_gone(name, error).await;
            }
        }
        Ok(Settlement::Usable(volume.map(Box::new)))
    }

    async fn forget_gone(&self, name: &str, reason: String) -> Result<Settlement, String> {
        self.forget_definition(name).await?;
        tracing::warn!(name, reason, "forgotten for Docker");
        Ok(Settlement::Gone(reason))
    }

    /// Removes the definition of a name. A mount may have begun meanwhile; its session has its
    /// target.
    pub async fn forget_definition(&self, name: &str) -> Result<(), String> {
        let forget = self.sessions.names.update(name, |record| record.definition = None);
        forget.await.map_err(|error| describe(&error.into_problem()))
    }

    pub async fn write_progress(
        &self,
        name: &str,
        progress: CreationProgress,
    ) -> Result<(), String> {
        let write = self.sessions.names.update(name, move |record| {
            let creation =
                record.definition.as_mut().and_then(|definition| definition.creation.as_mut());
            if let Some(creation) = creation {
                creation.progress = progress;
            }
        });
        write.await.map_err(|error| describe(&error.into_problem()))
    }

    /// Waits until a claim may use the volume.
    pub async fn await_usable(
        &self,
        target: &VolumeTarget,
        until: Instant,
    ) -> Result<VolumeStatus, String> {
        let mut looks = 0;
        loop {
            let volume = self.look_up(target).await;
            let volume = volume.map_err(|problem| describe_lookup(target, &problem))?;
            let stage = creation::stage_of(&volume);
            if creation::is_usable(stage) {
                return Ok(volume);
            }
            if stage != Stage::Creating || !pause(&mut looks, until).await {
                let words = creation::describe_storage(&volume, clock::now());
                let argument = berth_contract::hint::volume_argument(&target.key());
                return Err(format!(
                    "volume {} cannot be used: {words}; next: look at it with `berth volume \
                     status {argument}`",
                    target.key()
                ));
            }
        }
    }

    /// Follows the creations and removals that no request waits for, until the shutdown.
    pub async fn settle_definitions(self, shutdown: Shutdown) {
        loop {
            for (name, record) in self.sessions.names.list() {
                let definition = record.definition.filter(NameDefinition::is_under_way);
                let Some(NameDefinition { target, .. }) = definition else { continue };
                let until = Instant::now() + Duration::from_millis(1);
                // A definition whose lock is held is being created or removed.
                let Some(_lock) = self.lock_definition(&name, &target.key(), until).await else {
                    continue;
                };
                if let Err(error) = self.settle(&name, Instant::now()).await {
                    tracing::error!(name, error, "the outcome could not be written");
                }
            }
            tokio::select! {
                () = sleep(clock::jittered(SETTLE_INTERVAL)) => {}
                () = shutdown.requested() => return,
            }
        }
    }
}

/// Pauses between two reads of a volume. `false` if there is no time for another read.
pub async fn pause(looks: &mut u32, until: Instant) -> bool {
    *looks += 1;
    let next = Instant::now() + VOLUME_POLL.wait(*looks, clock::jitter());
    if Instant::now() >= until {
        return false;
    }
    tokio::time::sleep_until(next.min(until)).await;
    true
}
