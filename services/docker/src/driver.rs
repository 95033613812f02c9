//! What each endpoint does.
//!
//! **Promises** that a volume's data is never touched: to create is to give a volume that is there
//! a name, and to remove is to forget the name.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_contract::code::Code;
use berth_contract::message::volume::VolumeStatus;
use berth_contract::problem::Problem;
use berth_domain::Namespace;
use berth_domain::access::{AttachmentMode, Bound, Mode};
use berth_service::clock;
use serde_json::{Value, json};

use super::adapter::{Adapter, in_words};
use super::delivery::{Delivery, Reference};
use super::listing::Listing;
use super::options;
use super::protocol::{Answer, Endpoint, Question, Volume};
use super::record::{Definition, Phase, Record, Target, Trust};
use super::session::{not_kept, own_name};

/// The longest name that is taken, in bytes; Docker itself takes 255 characters.
const NAME_BYTES_MAX: usize = 255;
/// The longest of Docker's IDs, in bytes; they have 64.
const ID_BYTES_MAX: usize = 256;
/// Claims that are named in one refusal.
const NAMED: usize = 3;

/// The endpoints. Cheap to clone.
#[derive(Clone)]
pub struct Driver {
    adapter: Adapter,
    listing: Listing,
}

impl Driver {
    /// The endpoints of this adapter, which list what is known there.
    pub fn new(adapter: Adapter, listing: Listing) -> Self {
        Self { adapter, listing }
    }

    /// Answers; an error is a text for Docker's user.
    pub async fn answer(
        &self,
        endpoint: Endpoint,
        question: Question,
        delivery: Arc<Delivery>,
    ) -> Result<Answer, String> {
        let Question { name, id, options } = question;
        match endpoint {
            Endpoint::Activate => self.activate().await,
            Endpoint::Capabilities => Ok(Answer::capabilities()),
            Endpoint::List => Ok(self.list().await),
            _ if name.is_empty() || name.len() > NAME_BYTES_MAX => {
                Err(format!("a volume's name has 1 to {NAME_BYTES_MAX} bytes, not {}", name.len()))
            }
            Endpoint::Create => self.create(&name, &options.unwrap_or_default()).await,
            Endpoint::Remove => self.remove(&name).await,
            Endpoint::Path => {
                let path = self.record(&name).path().unwrap_or_default().to_owned();
                Ok(Answer::mountpoint(path))
            }
            Endpoint::Get => self.get(&name).await,
            Endpoint::Mount | Endpoint::Unmount if id.is_empty() || id.len() > ID_BYTES_MAX => {
                Err(format!("an ID has 1 to {ID_BYTES_MAX} bytes, not {}", id.len()))
            }
            Endpoint::Mount => {
                let reference = Reference { name, id };
                self.adapter.mount(reference, delivery).await.map(Answer::mountpoint)
            }
            Endpoint::Unmount => self.adapter.unmount(&name, &id).await.map(|()| Answer::done()),
        }
    }

    /// Takes back what the engine was not told.
    pub async fn undelivered(&self, reference: Reference) {
        self.adapter.undelivered(reference).await;
    }

    /// An engine that starts says so first; what an earlier one held is in doubt from here on.
    async fn activate(&self) -> Result<Answer, String> {
        let doubt = self.adapter.book().doubt(Trust::EngineRestarted).await;
        doubt.map_err(|error| in_words(&not_kept(error)))?;
        self.adapter.wake();
        tracing::info!("a Docker engine has come");
        Ok(Answer::activated())
    }

    async fn create(
        &self,
        name: &str,
        options: &BTreeMap<String, String>,
    ) -> Result<Answer, String> {
        let target = options::read(name, options)?;
        let record = self.record(name);
        if let Some(known) = record.target().filter(|known| **known != target) {
            return Err(format!(
                "volume {name} is there already, and is {}; next: choose another name, or remove \
                 this one first",
                meant(known)
            ));
        }
        if record.definition.is_some() {
            return Ok(Answer::done());
        }
        let volume = self.volume(&target).await;
        let volume = volume.map_err(|problem| unknown_volume(&target, &problem))?;
        check(&target, &volume)?;
        if !self.adapter.book().has_room() {
            return Err("this node remembers as many volumes as it can; remove some".to_owned());
        }
        let definition = Definition { target: target.clone(), created: clock::now() };
        let keep = self.adapter.book().change(name, move |record| {
            record.definition.get_or_insert(definition);
        });
        keep.await.map_err(|error| in_words(&not_kept(error)))?;
        tracing::info!(name, volume = %target.key(), "named for Docker");
        Ok(Answer::done())
    }

    /// Forgets the name, unless the volume is claimed anywhere.
    async fn remove(&self, name: &str) -> Result<Answer, String> {
        let record = self.record(name);
        if let Some(session) = &record.session {
            let how = match session.phase {
                Phase::Closing => "its last use is still being released",
                Phase::Opening | Phase::Open { .. } => "it is in use on this node",
            };
            return Err(format!("volume {name} cannot be removed: {how}"));
        }
        let target = match record.target() {
            Some(target) => target.clone(),
            None => own_name(name).map_err(|problem| in_words(&problem))?,
        };
        match self.volume(&target).await {
            Ok(volume) if volume.claim_count > 0 || !volume.claims.is_empty() => {
                return Err(claimed(name, &volume));
            }
            // Gone from Berth: then the name stands for nothing.
            Err(problem) if problem.code != Code::NoSuchVolume => {
                let problem = in_words(&problem);
                return Err(format!("whether volume {name} is in use is not known: {problem}"));
            }
            Ok(_) | Err(_) => {}
        }
        let forget = self.adapter.book().change(name, |record| {
            // A mount may have begun meanwhile; what it uses is in its session.
            record.definition = None;
        });
        forget.await.map_err(|error| in_words(&not_kept(error)))?;
        tracing::info!(name, volume = %target.key(), "forgotten for Docker; its data is untouched");
        Ok(Answer::done())
    }

    /// A name that was created here, or a volume of the default namespace.
    async fn get(&self, name: &str) -> Result<Answer, String> {
        let record = self.record(name);
        if !record.is_empty() {
            return Ok(Answer::volume(self.shown(name, &record, true)));
        }
        let target = own_name(name).map_err(|problem| in_words(&problem))?;
        match self.volume(&target).await {
            Ok(_) => Ok(Answer::volume(self.shown(name, &record, true))),
            Err(problem) if problem.code != Code::NoSuchVolume && self.listing.has(name) => {
                Ok(Answer::volume(self.shown(name, &record, true)))
            }
            Err(problem) => Err(unknown_volume(&target, &problem)),
        }
    }

    /// What was created here, and the volumes of the default namespace that Docker can name.
    async fn list(&self) -> Answer {
        let listed = self.listing.names().await.into_iter();
        let mut records: BTreeMap<_, _> = listed.map(|name| (name, Record::default())).collect();
        records.extend(self.adapter.book().all());
        let shown = records.iter().map(|(name, record)| self.shown(name, record, false));
        Answer::volumes(shown.collect())
    }

    /// Asks for a volume; whether it is there is known from then on.
    async fn volume(&self, target: &Target) -> Result<VolumeStatus, Problem> {
        let volume = self.adapter.asker().volume(&target.key()).await;
        let is_there = match &volume {
            Ok(_) => true,
            Err(problem) if problem.code == Code::NoSuchVolume => false,
            Err(_) => return volume,
        };
        if target.namespace == Namespace::default() {
            self.listing.heard(target.volume.as_str(), is_there);
        }
        volume
    }

    fn record(&self, name: &str) -> Record {
        self.adapter.book().get(name)
    }

    fn shown(&self, name: &str, record: &Record, whole: bool) -> Volume {
        let created = record.definition.as_ref().map(|definition| definition.created);
        let mut volume = Volume {
            name: name.to_owned(),
            mountpoint: record.path().unwrap_or_default().to_owned(),
            created_at: created.map(|at| at.to_string()),
            status: BTreeMap::new(),
        };
        if whole {
            volume.status = self.status(name, record);
        }
        volume
    }

    /// What `docker volume inspect` shows besides.
    fn status(&self, name: &str, record: &Record) -> BTreeMap<&'static str, Value> {
        let mut status = BTreeMap::new();
        let Some(target) = record.target().cloned().or_else(|| own_name(name).ok()) else {
            return status;
        };
        status.insert("namespace", json!(target.namespace));
        status.insert("volume", json!(target.volume));
        status.insert("mode", json!(in_mode(target.mode)));
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
            let memory = self.adapter.memory(name);
            let state = match session.phase {
                Phase::Opening => "attaching",
                Phase::Open { .. } if session.ids.is_empty() && memory.is_kept => "kept",
                Phase::Open { .. } => "mounted",
                Phase::Closing => "releasing",
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

/// Whether containers can use the volume as it is asked for.
fn check(target: &Target, volume: &VolumeStatus) -> Result<(), String> {
    let offered = || volume.capabilities.iter().map(ToString::to_string).collect::<Vec<_>>();
    let key = target.key();
    let usable: Vec<_> = volume
        .capabilities
        .iter()
        .filter(|one| one.attachment == AttachmentMode::FileSystem)
        .filter(|one| target.access.is_none_or(|access| access == one.access))
        .collect();
    if usable.is_empty() {
        let asked = target.access.map(|access| format!("{access}/")).unwrap_or_default();
        let offered = offered().join(", ");
        return Err(format!("volume {key} offers {offered}, and not {asked}file-system"));
    }
    let writes = usable.iter().any(|one| one.access.sharing().writers != Bound::None);
    if target.mode == Mode::Write && !writes {
        let offered = offered().join(", ");
        return Err(format!("volume {key} offers {offered}: nobody writes there; say mode=ro"));
    }
    match (target.size, volume.capacity_bytes) {
        (Some(asked), Some(has)) if has < asked => {
            Err(format!("volume {key} has {has} bytes, and {asked} are asked for (size)"))
        }
        (Some(_), None) => Err(format!(
            "how large volume {key} is, is not known; next: leave size away, or say \
             capacity_bytes when it is registered with Berth"
        )),
        _ => Ok(()),
    }
}

/// What a name stands for, in words.
fn meant(target: &Target) -> String {
    let Target { mode, access, fs, size, .. } = target;
    let mut words = format!("{} of {}", in_mode(*mode), target.key());
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

/// Why nothing can be said of a volume; that it is not there has words of its own.
fn unknown_volume(target: &Target, problem: &Problem) -> String {
    if problem.code != Code::NoSuchVolume {
        return in_words(problem);
    }
    format!(
        "there is no volume {} in Berth's namespace {} ({}); next: register it with `berth volume \
         register FILE`, or say which is meant with the options volume and namespace",
        target.volume, target.namespace, problem.code
    )
}

/// Who claims a volume that is to be removed.
fn claimed(name: &str, volume: &VolumeStatus) -> String {
    let claims = volume.claims.iter().take(NAMED);
    let mut claims: Vec<_> = claims
        .map(|claim| format!("{} on node {} ({})", claim.alloc, claim.node, claim.state))
        .collect();
    let more = volume.claim_count.saturating_sub(claims.len());
    if more > 0 {
        claims.push(format!("{more} more"));
    }
    format!("volume {name} cannot be removed: it is claimed by {}", claims.join(", "))
}

fn in_mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "ro",
        Mode::Write => "rw",
    }
}
