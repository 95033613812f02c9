//! `VolumeDriver.Create`: a registered volume gets a name, or a volume is created at its storage.
//!
//! **Promises** a response within the time that the engine waits. A longer creation continues, and
//! a repeated command joins it.

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

/// How long a request is repeated if the claim service does not answer it, or cannot serve it yet.
const REQUEST_RETRY_MAX: Duration = Duration::from_secs(15);

impl VolumeDriver {
    /// Creates a name, and its volume if the options ask for one.
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

    /// Has the volume of a name created, and waits for the outcome.
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
        let of_class = self.choose_of_class(target, &options).await?;
        let class = options.class.as_ref().map(ToString::to_string);
        self.request_volume(name, target, (options, of_class), deadline).await?;
        match self.settle(name, deadline).await? {
            Settlement::Usable(_) => {
                tracing::info!(name, volume = %target.key(), class, "created for Docker");
                Ok(())
            }
            Settlement::Gone(reason) => Err(format!("volume {name} was not created: {reason}")),
            Settlement::UnderWay(words) => Err(still_under_way(name, target, &words)),
        }
    }

    /// Has the claim service store the volume that is to be created. The request is written to the
    /// disk first, and forgotten if it is refused.
    async fn request_volume(
        &self,
        name: &str,
        target: &VolumeTarget,
        (options, of_class): (StorageOptions, Option<Capability>),
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
            // The title is part of the request: if another name's request made the volume, that
            // request is repeated unchanged.
            let title = existing.map_or_else(|| own_title.clone(), |volume| volume.name);
            let progress = CreationProgress::Requested { at: clock::now(), before };
            let creation = Creation { options: options.clone(), progress };
            self.write_definition(name, target.clone(), Some(creation)).await?;
            let document =
                options.document(target, &title, (self.sessions.client.node(), of_class));
            let client = &self.sessions.client;
            let result = client.create_volume(&target.namespace, &document).await;
            let Err(problem) = result else { return Ok(()) };
            tracing::debug!(name, %problem, "not created for Docker yet");
            is_unanswered |= problem.code == Code::NoAnswer;
            // Another name's request was stored at the same time, or the volume is being deleted.
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

    /// Checks that the class exists, and that containers can use its volumes as the options say.
    /// Returns the use to request of the class's, if its first is not one for a container.
    async fn choose_of_class(
        &self,
        target: &VolumeTarget,
        options: &StorageOptions,
    ) -> Result<Option<Capability>, String> {
        let Some(class) = &options.class else { return Ok(None) };
        let listed = self.sessions.client.list_classes(&target.namespace).await;
        let listed = listed.map_err(|problem| describe(&problem))?;
        let Some(class_status) = listed.iter().find(|class_status| class_status.id == *class)
        else {
            let names: Vec<_> =
                listed.iter().map(|class_status| class_status.id.to_string()).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(format!(
                "namespace {} has no class {class} ({}); next: use one of its classes: {names}",
                target.namespace,
                Code::NoSuchClass
            ));
        };
        if target.access.is_some() {
            return Ok(None);
        }
        let capabilities = &class_status.class.capabilities;
        let usable = check_capabilities(target, capabilities, &format!("class {class}"))?;
        Ok(Some(usable).filter(|usable| capabilities.first() != Some(usable)))
    }
}

/// Checks that an existing name has the same options.
fn check_same(
    name: &str,
    record: &NameRecord,
    target: &VolumeTarget,
    storage: Option<&StorageOptions>,
) -> Result<(), String> {
    let Some(existing) = record.target() else { return Ok(()) };
    let definition = record.definition.as_ref();
    let creation = definition.and_then(|definition| definition.creation.as_ref());
    let known_storage = creation.map(|creation| &creation.options);
    if existing == target && (definition.is_none() || known_storage == storage) {
        return Ok(());
    }
    let mut words = describe_target(existing);
    for option in known_storage.map(StorageOptions::describe).unwrap_or_default() {
        words = format!("{words}, {option}");
    }
    Err(format!(
        "volume {name} is there already, and is {words}; next: choose another name, or remove this \
         one first"
    ))
}

/// Checks that an existing volume may have been created by the same request.
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

/// Checks that containers can use the volume in the way that the options say.
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
) -> Result<Capability, String> {
    let offered = || {
        let offered = capabilities.iter().map(ToString::to_string);
        offered.collect::<Vec<_>>().join(", ")
    };
    let usable: Vec<_> = capabilities
        .iter()
        .filter(|capability| capability.attachment == AttachmentMode::FileSystem)
        .filter(|capability| target.access.is_none_or(|access| access == capability.access))
        .collect();
    if usable.is_empty() {
        let requested = target.access.map(|access| format!("{access}/")).unwrap_or_default();
        return Err(format!("{owner} offers {}, and not {requested}file-system", offered()));
    }
    let writes = |capability: &Capability| capability.access.sharing().writers != Bound::None;
    let fits = |capability: &&&Capability| target.mode == Mode::Read || writes(capability);
    let nobody = || format!("{owner} offers {}: nobody writes there; say mode=ro", offered());
    usable.iter().find(fits).map(|capability| **capability).ok_or_else(nobody)
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
    let argument = volume_argument(&target.key());
    format!(
        "{problem}; next: see it with `berth volume status {argument}`; to use it as it is, leave \
         out the options that say how it is created: `docker volume create -d berth -o volume={} \
         {name}`",
        target.volume
    )
}

/// The response at the deadline. Docker does not ask for the state of a name that it failed to
/// create, so the text says how the user can see it.
fn still_under_way(name: &str, target: &VolumeTarget, words: &str) -> String {
    let argument = volume_argument(&target.key());
    format!(
        "volume {name} is not created yet: {words}; this goes on without Docker. Next: wait for it \
         with the same command, look at it with `berth volume status {argument}`, or give it up \
         with `berth volume delete {argument}`"
    )
}

#[cfg(test)]
mod tests;
