//! `VolumeDriver.Create`: a registered volume gets a name, or a volume is created at its storage.
//!
//! **Promises** a response within the time that the engine waits. A creation that takes longer goes
//! on, and the same command again joins it.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::docker::volume_title;
use berth_contract::hint::volume_argument;
use berth_contract::message::volume::VolumeStatus;
use berth_contract::problem::Problem;
use berth_domain::access::{AttachmentMode, Bound, Capability, Mode};
use berth_domain::volume::storage::Stage;
use berth_service::clock;
use serde_json::Value;
use tokio::time::Instant;

use super::creation::Settlement;
use super::creation::{Creation, CreationProgress, StorageOptions, stage_of};
use super::driver::{VolumeDriver, mode_option};
use super::options::{self, NameOptions};
use super::protocol;
use super::record::{NameDefinition, NameRecord};
use super::sessions::describe;
use super::settling::pause;
use super::target::VolumeTarget;

/// How long a request is repeated that the claim service does not answer, or cannot serve yet.
const REQUEST_RETRY_MAX: Duration = Duration::from_secs(15);

impl VolumeDriver {
    /// Creates a name, and its volume where the options say so.
    pub async fn create(
        &self,
        name: &str,
        options: &BTreeMap<String, String>,
    ) -> Result<Value, String> {
        let NameOptions { target, storage } = options::parse(name, options)?;
        let deadline = self.sessions.request_deadline(Duration::MAX);
        let Some(_lock) = self.lock_definition(name, &target.key(), deadline).await else {
            return Err(format!("volume {name} is still being created or removed; ask again"));
        };
        let record = self.record(name);
        check_same(name, &record, &target, storage.as_ref())?;
        match storage {
            Some(storage) => {
                self.create_volume(name, &record, &target, storage, deadline).await?;
            }
            None if record.definition.is_some() => {}
            None => {
                let volume = self.await_usable(&target, deadline).await?;
                check_target(&target, &volume)?;
                tracing::info!(name, volume = %target.key(), "named for Docker");
                self.write_definition(name, target, None).await?;
            }
        }
        Ok(protocol::error(""))
    }

    /// Has the volume of a name created, and waits until that is over.
    async fn create_volume(
        &self,
        name: &str,
        record: &NameRecord,
        target: &VolumeTarget,
        options: StorageOptions,
        deadline: Instant,
    ) -> Result<(), String> {
        if record.definition.is_some() {
            match self.settle(name, deadline).await? {
                Settlement::Usable(_) => return Ok(()),
                Settlement::UnderWay(words) => return Err(still_under_way(name, target, &words)),
                Settlement::Gone(_) => {}
            }
        }
        self.check_class(target, &options).await?;
        let class = options.class.as_ref().map(ToString::to_string);
        self.request_volume(name, target, options, deadline).await?;
        match self.settle(name, deadline).await? {
            Settlement::Usable(_) => {
                tracing::info!(name, volume = %target.key(), class, "created for Docker");
                Ok(())
            }
            Settlement::Gone(reason) => Err(format!("volume {name} was not created: {reason}")),
            Settlement::UnderWay(words) => Err(still_under_way(name, target, &words)),
        }
    }

    /// Has the claim service store the volume that is to be created. The request is on the disk
    /// first, and is forgotten if it was refused.
    async fn request_volume(
        &self,
        name: &str,
        target: &VolumeTarget,
        options: StorageOptions,
        deadline: Instant,
    ) -> Result<(), String> {
        let until = deadline.min(Instant::now() + REQUEST_RETRY_MAX);
        let own_title = volume_title(name, self.sessions.client.node());
        let (mut tries, mut looked) = (0, false);
        let (mut before, mut is_unanswered, mut had_other) = (None, false, false);
        loop {
            let existing = match self.look_up(target).await {
                Ok(volume) => Some(volume),
                Err(problem) if problem.code == Code::NoSuchVolume => None,
                Err(problem) => {
                    if problem.retryable && pause(&mut tries, until).await {
                        continue;
                    }
                    return Err(describe(&problem));
                }
            };
            if let Some(volume) = &existing {
                check_joinable(target, volume)?;
                if stage_of(volume) == Stage::Deleting {
                    if pause(&mut tries, deadline).await {
                        continue;
                    }
                    return Err(still_under_way(name, target, "its predecessor is being deleted"));
                }
            }
            if !looked || existing.is_none() {
                before = existing.as_ref().map(|volume| volume.create_index);
                looked = true;
            }
            // The title is a part of the request: the request of another name is repeated as it is.
            let title = existing.map_or_else(|| own_title.clone(), |volume| volume.name);
            let progress = CreationProgress::Requested { at: clock::now(), before };
            let creation = Creation { options: options.clone(), progress };
            self.write_definition(name, target.clone(), Some(creation)).await?;
            let document = options.document(target, &title);
            let client = &self.sessions.client;
            let asked = client.create_volume(&target.namespace, &document).await;
            let Err(problem) = asked else { return Ok(()) };
            tracing::debug!(name, %problem, "not created for Docker yet");
            is_unanswered |= problem.code == Code::NoAnswer;
            // Another name's request was stored at the same moment, or the volume is being deleted.
            let retries = problem.retryable || (problem.code == Code::VolumeExists && !had_other);
            had_other |= problem.code == Code::VolumeExists;
            if retries && pause(&mut tries, until).await {
                continue;
            }
            if is_unanswered {
                return Err(format!(
                    "whether volume {name} is created is not known yet: {}",
                    describe(&problem)
                ));
            }
            self.forget_definition(name).await?;
            return Err(describe_refusal(name, target, &problem));
        }
    }

    async fn write_definition(
        &self,
        name: &str,
        target: VolumeTarget,
        creation: Option<Creation>,
    ) -> Result<(), String> {
        if !self.sessions.names.has_room() {
            return Err("this node remembers as many volumes as it can; remove some".to_owned());
        }
        let created = clock::now();
        let written = self.sessions.names.update(name, move |record| {
            record.definition = Some(NameDefinition { target, created, creation });
        });
        written.await.map_err(|error| describe(&error.into_problem()))
    }

    /// Checks that the class is there, and that containers can use its volumes as the options say.
    async fn check_class(
        &self,
        target: &VolumeTarget,
        options: &StorageOptions,
    ) -> Result<(), String> {
        let Some(class) = &options.class else { return Ok(()) };
        let listed = self.sessions.client.list_classes(&target.namespace).await;
        let listed = listed.map_err(|problem| describe(&problem))?;
        let Some(known) = listed.iter().find(|known| known.id == *class) else {
            let names: Vec<_> = listed.iter().map(|known| known.id.to_string()).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(format!(
                "namespace {} has no class {class} ({}); next: use one of its classes: {names}",
                target.namespace,
                Code::NoSuchClass
            ));
        };
        if target.access.is_some() {
            return Ok(());
        }
        let capabilities = &known.class.capabilities;
        check_capabilities(target, capabilities, &format!("class {class}"))
    }
}

/// Checks that a name that is known already has the same options.
fn check_same(
    name: &str,
    record: &NameRecord,
    target: &VolumeTarget,
    storage: Option<&StorageOptions>,
) -> Result<(), String> {
    let Some(known) = record.target() else { return Ok(()) };
    let definition = record.definition.as_ref();
    let creation = definition.and_then(|definition| definition.creation.as_ref());
    let known_storage = creation.map(|creation| &creation.options);
    if known == target && (definition.is_none() || known_storage == storage) {
        return Ok(());
    }
    let mut words = describe_target(known);
    for option in known_storage.map(StorageOptions::describe).unwrap_or_default() {
        words = format!("{words}, {option}");
    }
    Err(format!(
        "volume {name} is there already, and is {words}; next: choose another name, or remove this \
         one first"
    ))
}

/// Checks that the same request may have created the volume that is there.
fn check_joinable(target: &VolumeTarget, volume: &VolumeStatus) -> Result<(), String> {
    let was_created = volume.storage.as_ref().is_some_and(|storage| storage.reclaim.is_some());
    if was_created {
        return Ok(());
    }
    Err(format!(
        "volume {} is registered with Berth, and was not created there; next: leave out the \
         options that say how it is created, or choose another name",
        target.key()
    ))
}

/// Checks that containers can use the volume as the options ask.
fn check_target(target: &VolumeTarget, volume: &VolumeStatus) -> Result<(), String> {
    let key = target.key();
    check_capabilities(target, &volume.capabilities, &format!("volume {key}"))?;
    match (target.size, volume.capacity_bytes) {
        (Some(wanted), Some(has)) if has < wanted => {
            Err(format!("volume {key} has {has} bytes, and {wanted} are asked for (size)"))
        }
        (Some(_), None) => Err(format!(
            "how large volume {key} is, is not known; next: leave size away, or say \
             capacity_bytes when it is registered with Berth"
        )),
        _ => Ok(()),
    }
}

fn check_capabilities(
    target: &VolumeTarget,
    capabilities: &[Capability],
    owner: &str,
) -> Result<(), String> {
    let offered = || {
        let offered = capabilities.iter().map(ToString::to_string);
        offered.collect::<Vec<_>>().join(", ")
    };
    let usable: Vec<_> = capabilities
        .iter()
        .filter(|one| one.attachment == AttachmentMode::FileSystem)
        .filter(|one| target.access.is_none_or(|access| access == one.access))
        .collect();
    if usable.is_empty() {
        let requested = target.access.map(|access| format!("{access}/")).unwrap_or_default();
        return Err(format!("{owner} offers {}, and not {requested}file-system", offered()));
    }
    let writes = usable.iter().any(|one| one.access.sharing().writers != Bound::None);
    if target.mode == Mode::Write && !writes {
        return Err(format!("{owner} offers {}: nobody writes there; say mode=ro", offered()));
    }
    Ok(())
}

/// The volume and the access of a name, in words.
fn describe_target(target: &VolumeTarget) -> String {
    let VolumeTarget { mode, access, fs, size, .. } = target;
    let mut words = format!("{} of {}", mode_option(*mode), target.key());
    let more = [
        ("access", access.map(|access| access.to_string())),
        ("fs", fs.clone()),
        ("size", size.map(|size| size.to_string())),
    ];
    for (option, value) in more {
        words.extend(value.map(|value| format!(", {option}={value}")));
    }
    words
}

fn describe_refusal(name: &str, target: &VolumeTarget, problem: &Problem) -> String {
    if problem.code != Code::VolumeExists {
        return describe(problem);
    }
    let shown = volume_argument(&target.key());
    format!(
        "{problem}; next: see it with `berth volume status {shown}`; to use it as it is, leave out \
         the options that say how it is created: `docker volume create -d berth -o volume={} \
         {name}`",
        target.volume
    )
}

/// The response at the deadline. Docker asks for the state of no name that it failed to create, so
/// the user is shown where to look.
fn still_under_way(name: &str, target: &VolumeTarget, words: &str) -> String {
    let shown = volume_argument(&target.key());
    format!(
        "volume {name} is not created yet: {words}; this goes on without Docker. Next: wait for it \
         with the same command, look at it with `berth volume status {shown}`, or give it up with \
         `berth volume delete {shown}`"
    )
}

#[cfg(test)]
mod tests;
