//! The endpoints of the volume plugin.
//!
//! **Promises** that a volume's data is never touched: to create is to give a registered volume a
//! name, and to remove is to forget the name.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_contract::code::Code;
use berth_contract::message::volume::VolumeStatus;
use berth_contract::problem::Problem;
use berth_domain::Namespace;
use berth_domain::access::{AttachmentMode, Bound, Mode};
use berth_service::clock;
use serde_json::{Value, json};

use super::delivery::{MountReference, ResponseDelivery};
use super::lifecycle::default_target;
use super::listing::VolumeListing;
use super::options;
use super::protocol::{self, DockerVolume, Endpoint, PluginRequest};
use super::record::{CountTrust, NameDefinition, NameRecord, SessionPhase, VolumeTarget};
use super::sessions::{Sessions, describe};

/// The longest name that is taken, in bytes; Docker itself takes 255 characters.
const NAME_BYTES_MAX: usize = 255;
/// The longest of Docker's IDs, in bytes; they have 64.
const ID_BYTES_MAX: usize = 256;
/// Claims that one refusal names.
const NAMED_CLAIMS_MAX: usize = 3;

/// The endpoints. Cheap to clone.
#[derive(Clone)]
pub struct VolumeDriver {
    pub sessions: Arc<Sessions>,
    pub listing: VolumeListing,
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
            _ if name.is_empty() || name.len() > NAME_BYTES_MAX => {
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

    /// The first request of an engine that started. What an earlier engine held is in doubt.
    async fn activate(&self) -> Result<Value, String> {
        let doubt = self.sessions.names.doubt_counts(CountTrust::EngineRestarted).await;
        doubt.map_err(|error| describe(&error.into_problem()))?;
        self.sessions.wake.notify_one();
        tracing::info!("a Docker engine has come");
        Ok(protocol::activated())
    }

    async fn create(
        &self,
        name: &str,
        options: &BTreeMap<String, String>,
    ) -> Result<Value, String> {
        let target = options::parse(name, options)?;
        let record = self.record(name);
        if let Some(known) = record.target().filter(|known| **known != target) {
            return Err(format!(
                "volume {name} is there already, and is {}; next: choose another name, or remove \
                 this one first",
                describe_target(known)
            ));
        }
        if record.definition.is_some() {
            return Ok(protocol::error(""));
        }
        let volume = self.look_up(&target).await;
        let volume = volume.map_err(|problem| describe_lookup(&target, &problem))?;
        check_target(&target, &volume)?;
        if !self.sessions.names.has_room() {
            return Err("this node remembers as many volumes as it can; remove some".to_owned());
        }
        let definition = NameDefinition { target: target.clone(), created: clock::now() };
        let written = self.sessions.names.update(name, move |record| {
            record.definition.get_or_insert(definition);
        });
        written.await.map_err(|error| describe(&error.into_problem()))?;
        tracing::info!(name, volume = %target.key(), "named for Docker");
        Ok(protocol::error(""))
    }

    /// Forgets the name, unless the volume is claimed anywhere.
    async fn remove(&self, name: &str) -> Result<Value, String> {
        let record = self.record(name);
        if let Some(session) = &record.session {
            let reason = match session.phase {
                SessionPhase::Closing => "its last use is still being released",
                SessionPhase::Opening | SessionPhase::Open { .. } => "it is in use on this node",
            };
            return Err(format!("volume {name} cannot be removed: {reason}"));
        }
        let target = match record.target() {
            Some(target) => target.clone(),
            None => default_target(name).map_err(|problem| describe(&problem))?,
        };
        match self.look_up(&target).await {
            Ok(volume) if volume.claim_count > 0 || !volume.claims.is_empty() => {
                return Err(describe_claims(name, &volume));
            }
            Err(problem) if problem.code != Code::NoSuchVolume => {
                let problem = describe(&problem);
                return Err(format!("whether volume {name} is in use is not known: {problem}"));
            }
            // A name whose volume is no longer registered is not listed.
            Ok(_) | Err(_) => {}
        }
        let forget = self.sessions.names.update(name, |record| {
            // A mount may have begun meanwhile. Its target is in its session.
            record.definition = None;
        });
        forget.await.map_err(|error| describe(&error.into_problem()))?;
        tracing::info!(name, volume = %target.key(), "forgotten for Docker; its data is untouched");
        Ok(protocol::error(""))
    }

    /// Shows a name that was created here, or a volume of the default namespace.
    async fn get(&self, name: &str) -> Result<Value, String> {
        let record = self.record(name);
        if record.is_empty() {
            let target = default_target(name).map_err(|problem| describe(&problem))?;
            match self.look_up(&target).await {
                Ok(_) => {}
                // The last list answers where the claim service does not.
                Err(problem) if problem.code != Code::NoSuchVolume && self.listing.has(name) => {}
                Err(problem) => return Err(describe_lookup(&target, &problem)),
            }
        }
        let status = self.status(name, &record);
        Ok(protocol::volume(&DockerVolume { status, ..shown(name, &record) }))
    }

    /// Lists the names that were created here, and the volumes of the default namespace that Docker
    /// can name.
    async fn list(&self) -> Value {
        let listed = self.listing.names().await.into_iter();
        let mut records: BTreeMap<_, _> =
            listed.map(|name| (name, NameRecord::default())).collect();
        records.extend(self.sessions.names.list());
        let volumes: Vec<_> = records.iter().map(|(name, record)| shown(name, record)).collect();
        protocol::volumes(&volumes)
    }

    /// Asks the claim service for a volume. The list knows then whether the volume is there.
    async fn look_up(&self, target: &VolumeTarget) -> Result<VolumeStatus, Problem> {
        let volume = self.sessions.client.volume_status(&target.key()).await;
        let is_there = match &volume {
            Ok(_) => true,
            Err(problem) if problem.code == Code::NoSuchVolume => false,
            Err(_) => return volume,
        };
        if target.namespace == Namespace::default() {
            self.listing.learn(target.volume.as_str(), is_there);
        }
        volume
    }

    fn record(&self, name: &str) -> NameRecord {
        self.sessions.names.get(name)
    }

    /// What `docker volume inspect` shows as `Status`.
    fn status(&self, name: &str, record: &NameRecord) -> BTreeMap<&'static str, Value> {
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
            let references: u64 = session.ids.values().map(|held| u64::from(held.count)).sum();
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

/// Checks that containers can use the volume as the options ask.
fn check_target(target: &VolumeTarget, volume: &VolumeStatus) -> Result<(), String> {
    let offered = || volume.capabilities.iter().map(ToString::to_string).collect::<Vec<_>>();
    let key = target.key();
    let usable: Vec<_> = volume
        .capabilities
        .iter()
        .filter(|one| one.attachment == AttachmentMode::FileSystem)
        .filter(|one| target.access.is_none_or(|access| access == one.access))
        .collect();
    if usable.is_empty() {
        let requested = target.access.map(|access| format!("{access}/")).unwrap_or_default();
        let offered = offered().join(", ");
        return Err(format!("volume {key} offers {offered}, and not {requested}file-system"));
    }
    let writes = usable.iter().any(|one| one.access.sharing().writers != Bound::None);
    if target.mode == Mode::Write && !writes {
        let offered = offered().join(", ");
        return Err(format!("volume {key} offers {offered}: nobody writes there; say mode=ro"));
    }
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

/// Why a volume cannot be used, in words.
fn describe_lookup(target: &VolumeTarget, problem: &Problem) -> String {
    if problem.code != Code::NoSuchVolume {
        return describe(problem);
    }
    format!(
        "there is no volume {} in Berth's namespace {} ({}); next: register it with `berth volume \
         register FILE`, or say which is meant with the options volume and namespace",
        target.volume, target.namespace, problem.code
    )
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

fn mode_option(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "ro",
        Mode::Write => "rw",
    }
}
