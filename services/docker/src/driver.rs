//! The endpoints of the volume plugin.
//!
//! **Promises** that Docker sees a name only while the name has its volume. So `docker volume
//! create` of any other name reaches this process, and is not answered by the engine itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::docker::volume_title;
use berth_contract::message::volume::VolumeStatus;
use berth_contract::problem::Problem;
use berth_domain::access::Mode;
use berth_domain::{Namespace, VolumeKey};
use berth_service::clock;
use berth_service::locks::KeyedLocks;
use serde_json::{Value, json};

use super::creation::{Settlement, is_usable, plan_removal, stage_of};
use super::delivery::{MountReference, ResponseDelivery};
use super::listing::VolumeListing;
use super::protocol::{self, DockerVolume, Endpoint, PluginRequest};
use super::record::{CountTrust, NameDefinition, NameRecord, SessionPhase};
use super::sessions::{Sessions, describe};
use super::target::{VolumeTarget, default_target};

/// Longest accepted name, in bytes; Docker itself accepts 255 characters.
const NAME_BYTES_MAX: usize = 255;
/// An engine repeats a request without its body when the connection breaks (Docker 20.10).
const NO_NAME: &str = "the request names no volume. Docker repeats a request so when berth-docker \
                       was restarted meanwhile. Next: run the command again";
/// Longest accepted ID, in bytes; Docker's IDs have 64.
const ID_BYTES_MAX: usize = 256;
/// How long a request waits for a volume that is being created or deleted, before the response is
/// that there is none. The engine itself gives up after 60 s.
const GET_WAIT_MAX: Duration = Duration::from_secs(30);

/// The endpoints. Cheap to clone.
#[derive(Clone)]
pub struct VolumeDriver {
    pub sessions: Arc<Sessions>,
    pub listing: VolumeListing,
    /// Only one task at a time changes the definition of a name, or creates or deletes a volume.
    pub name_locks: KeyedLocks<String>,
    pub volume_locks: KeyedLocks<VolumeKey>,
}

impl VolumeDriver {
    /// Handles a request; an error is a text for Docker's user.
    pub async fn handle(
        &self,
        endpoint: Endpoint,
        request: PluginRequest,
        delivery: Arc<ResponseDelivery>,
    ) -> Result<Value, String> {
        let PluginRequest { name, id, options } = request;
        match endpoint {
            Endpoint::Activate => self.activate().await,
            Endpoint::Capabilities => Ok(protocol::capabilities()),
            Endpoint::List => Ok(self.list().await),
            _ if name.is_empty() => Err(NO_NAME.to_owned()),
            _ if name.len() > NAME_BYTES_MAX => {
                Err(format!("a volume's name has 1 to {NAME_BYTES_MAX} bytes, not {}", name.len()))
            }
            Endpoint::Create => self.create(&name, &options.unwrap_or_default()).await,
            Endpoint::Remove => self.remove(&name).await,
            Endpoint::Path => {
                Ok(protocol::mountpoint(self.record(&name).path().unwrap_or_default()))
            }
            Endpoint::Get => self.get(&name).await,
            Endpoint::Mount | Endpoint::Unmount if id.is_empty() || id.len() > ID_BYTES_MAX => {
                Err(format!("an ID has 1 to {ID_BYTES_MAX} bytes, not {}", id.len()))
            }
            Endpoint::Mount => {
                let reference = MountReference { name, id };
                let path = self.sessions.mount(reference, delivery).await?;
                Ok(protocol::mountpoint(&path))
            }
            Endpoint::Unmount => {
                self.sessions.unmount(&name, &id).await.map(|()| protocol::error(""))
            }
        }
    }

    /// The first request of an engine that started. The references of the earlier engine are in
    /// doubt.
    async fn activate(&self) -> Result<Value, String> {
        let doubt = self.sessions.names.doubt_counts(CountTrust::EngineRestarted).await;
        doubt.map_err(|error| describe(&error.into_problem()))?;
        self.sessions.wake.notify_one();
        tracing::info!("a Docker engine has come");
        Ok(protocol::activated())
    }

    /// Shows a name that was created here, or a volume of the default namespace. A volume that is
    /// being created or deleted is not shown.
    async fn get(&self, name: &str) -> Result<Value, String> {
        let mut record = self.record(name);
        let mut volume = None;
        if record.session.is_none()
            && let Some(definition) = &record.definition
            && definition.creation.is_some()
        {
            volume = self.find_created(name, &definition.target.key()).await?;
            record = self.record(name);
        }
        if record.is_empty() {
            let target = default_target(name).map_err(|problem| describe(&problem))?;
            match self.look_up(&target).await {
                Ok(volume) if is_usable(stage_of(&volume)) => {}
                Ok(_) => {
                    let until = self.sessions.request_deadline(GET_WAIT_MAX);
                    self.await_usable(&target, until).await?;
                }
                // If the claim service does not answer, the last list decides.
                Err(problem) if problem.code != Code::NoSuchVolume && self.listing.has(name) => {}
                Err(problem) => return Err(describe_lookup(&target, &problem)),
            }
        }
        let status = self.status(name, &record, volume.as_deref());
        Ok(protocol::volume(&DockerVolume { status, ..shown(name, &record) }))
    }

    /// The volume that was created for a name. `None` if the claim service did not answer, or if
    /// the name was forgotten because its volume is gone.
    async fn find_created(
        &self,
        name: &str,
        volume: &VolumeKey,
    ) -> Result<Option<Box<VolumeStatus>>, String> {
        let until = self.sessions.request_deadline(GET_WAIT_MAX);
        let Some(_lock) = self.lock_definition(name, volume, until).await else {
            return Err(format!("volume {name} is being created or removed"));
        };
        match self.settle(name, until).await? {
            Settlement::Usable(volume) => Ok(volume),
            Settlement::Gone(_) => Ok(None),
            Settlement::UnderWay(words) => Err(format!("volume {name} is not there: {words}")),
        }
    }

    /// Lists the names that were created here, and the volumes of the default namespace that Docker
    /// can name.
    async fn list(&self) -> Value {
        let listed = self.listing.names().await.into_iter();
        let mut records: BTreeMap<_, _> =
            listed.map(|name| (name, NameRecord::default())).collect();
        records.extend(self.sessions.names.list());
        let is_under_way = |record: &NameRecord| {
            let definition = record.definition.as_ref();
            record.session.is_none() && definition.is_some_and(NameDefinition::is_under_way)
        };
        records.retain(|_, record| !is_under_way(record));
        let volumes: Vec<_> = records.iter().map(|(name, record)| shown(name, record)).collect();
        protocol::volumes(&volumes)
    }

    /// Asks the claim service for a volume, and updates the list with the answer.
    pub async fn look_up(&self, target: &VolumeTarget) -> Result<VolumeStatus, Problem> {
        let volume = self.sessions.client.volume_status(&target.key()).await;
        match &volume {
            Ok(volume) => self.learn(target, is_usable(stage_of(volume))),
            Err(problem) if problem.code == Code::NoSuchVolume => self.learn(target, false),
            Err(_) => {}
        }
        volume
    }

    /// Shows a volume of the default namespace in the list, or hides it.
    pub fn learn(&self, target: &VolumeTarget, is_there: bool) {
        if target.namespace == Namespace::default() {
            self.listing.learn(target.volume.as_str(), is_there);
        }
    }

    pub fn record(&self, name: &str) -> NameRecord {
        self.sessions.names.get(name)
    }

    /// What `docker volume inspect` shows as `Status`.
    fn status(
        &self,
        name: &str,
        record: &NameRecord,
        volume: Option<&VolumeStatus>,
    ) -> BTreeMap<&'static str, Value> {
        let mut status = BTreeMap::new();
        let Some(target) = record.target().cloned().or_else(|| default_target(name).ok()) else {
            return status;
        };
        status.insert("namespace", json!(target.namespace));
        status.insert("volume", json!(target.volume));
        status.insert("mode", json!(mode_option(target.mode)));
        if let Some(access) = target.access {
            status.insert("access", json!(access));
        }
        if let Some(fs) = &target.fs {
            status.insert("fs", json!(fs));
        }
        if let Some(size) = target.size {
            status.insert("size", json!(size));
        }
        let definition = record.definition.as_ref();
        if let Some(creation) = definition.and_then(|definition| definition.creation.as_ref()) {
            if let Some(class) = &creation.options.class {
                status.insert("class", json!(class));
            }
            if let Some(volume) = volume {
                let title = volume_title(name, self.sessions.client.node());
                let plan = plan_removal(Some(creation), Some(volume), &title, clock::now());
                status.insert("removal", json!(plan.describe()));
                status.insert("stage", json!(stage_of(volume)));
                status.insert("capacity_bytes", json!(volume.capacity_bytes));
            }
        }
        if let Some(session) = &record.session {
            let memory = self.sessions.memory(name);
            let state = match session.phase {
                SessionPhase::Opening => "attaching",
                SessionPhase::Open { .. }
                    if session.ids.is_empty() && memory.is_kept_after_copy =>
                {
                    "kept"
                }
                SessionPhase::Open { .. } => "mounted",
                SessionPhase::Closing => "releasing",
            };
            let references: u64 =
                session.ids.values().map(|id_count| u64::from(id_count.count)).sum();
            status.insert("state", json!(state));
            status.insert("alloc", json!(session.alloc));
            status.insert("references", json!(references));
            if let Some(problem) = memory.problem {
                status.insert("problem", json!(problem));
            }
        }
        status
    }
}

/// A volume as a list shows it, without its status.
fn shown(name: &str, record: &NameRecord) -> DockerVolume {
    let created = record.definition.as_ref().map(|definition| definition.created);
    DockerVolume {
        name: name.to_owned(),
        mountpoint: record.path().unwrap_or_default().to_owned(),
        created_at: created.map(|at| at.to_string()),
        status: BTreeMap::new(),
    }
}

/// Why a volume cannot be used, in words.
pub fn describe_lookup(target: &VolumeTarget, problem: &Problem) -> String {
    if problem.code != Code::NoSuchVolume {
        return describe(problem);
    }
    format!(
        "there is no volume {} in Berth's namespace {} ({}); next: have it created with the option \
         class, register it with `berth volume register FILE`, or say which is meant with the \
         options volume and namespace",
        target.volume, target.namespace, problem.code
    )
}

pub fn mode_option(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "ro",
        Mode::Write => "rw",
    }
}
