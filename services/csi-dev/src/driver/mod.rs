//! The driver: one instance, serving one node, of a CSI plugin on directories.
//!
//! Owns: what each call does, one file per pair of calls that undo each other. Promises: every call
//! is logged, is idempotent, and is survived by the next when its process is killed at any point;
//! what a CO must never do is refused and recorded. Never: deletes or moves a volume's data.
//!
//! ```text
//! call        the life of any call: log, lane, work, log
//! suffer      what planted faults do to it
//! request     fields of requests, all faults at once
//! refusal     why a call fails, and what it changed before
//! identity    GetPluginInfo, GetPluginCapabilities, Probe
//! controller  attach (ControllerPublish/Unpublish), validate
//! node        stage (NodeStage/Unstage), publish (NodePublish/Unpublish)
//! recover     what is still mounted when an instance starts
//! ```

mod call;
pub mod controller;
pub mod identity;
pub mod node;
mod recover;
mod refusal;
mod request;
mod suffer;

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_csi::Code;
use tokio::sync::watch;

use crate::backend::{Attachment, Backend, BackendError, Meta, State, Volume};
use crate::faults::Faults;
use crate::log::Recorder;
use crate::rules;

use refusal::Refusal;

pub use refusal::chain;

/// What an instance is, and can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// The plugin's name (CSI `GetPluginInfoResponse.name`).
    pub driver_name: String,
    /// The node it serves.
    pub node_id: String,
    /// How many volumes can be attached to the node; 0 means no limit.
    pub max_volumes: i64,
    /// Whether it serves the controller service.
    pub controller: bool,
    /// Whether volumes must be attached to a node before they are used there.
    /// Only with a controller: without one nobody could.
    pub attach: bool,
    /// Whether volumes must be staged before they are published.
    pub stage: bool,
}

/// One running instance.
#[derive(Debug)]
pub struct Driver {
    profile: Profile,
    backend: Backend,
    recorder: Recorder,
    faults: Arc<Faults>,
    in_flight: watch::Sender<usize>,
}

impl Driver {
    /// An instance on `backend` that logs to `recorder` and suffers `faults`.
    pub fn new(
        profile: Profile,
        backend: Backend,
        recorder: Recorder,
        faults: Arc<Faults>,
    ) -> Self {
        Self { profile, backend, recorder, faults, in_flight: watch::Sender::new(0) }
    }

    /// What it is, and can do.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Waits until no call is in flight, also none whose caller has left.
    pub async fn idle(&self) {
        // Fails only when the sender is gone, and it is ours.
        let _ = self.in_flight.subscribe().wait_for(|in_flight| *in_flight == 0).await;
    }

    fn node_id(&self) -> &str {
        &self.profile.node_id
    }

    /// The volume `id`, or `NOT_FOUND`.
    fn volume(&self, id: &str) -> Result<Volume, Refusal> {
        let unknown = || {
            Refusal::new(
                Code::NotFound,
                format!("volume {id:?} does not exist; `berth-csi-dev provision` makes volumes"),
            )
        };
        self.backend.volume(id)?.ok_or_else(unknown)
    }

    /// What a CO has to hand from `ControllerPublishVolume` to the calls on the node.
    fn publish_context(&self, attachment: &Attachment) -> BTreeMap<String, String> {
        // Differs from one attachment to the next, as a device path may.
        BTreeMap::from([(self.device_key(), format!("disk-{}", attachment.number))])
    }

    fn device_key(&self) -> String {
        format!("{}/device", self.profile.driver_name)
    }

    /// Refuses a call on this node unless the volume is attached here (where it has to be) and the
    /// call brings what the attaching call gave. Returns the attachment, if there are any.
    fn check_attached<'a>(
        &self,
        meta: &Meta,
        state: &'a State,
        publish_context: &BTreeMap<String, String>,
    ) -> Result<Option<&'a Attachment>, Refusal> {
        if !self.profile.attach {
            return Ok(None);
        }
        let attachment = rules::attached(state, self.node_id());
        let attachment =
            attachment.map_err(|broken| Refusal::violation(&meta.volume_id, broken))?;
        let key = self.device_key();
        let current = self.publish_context(attachment);
        let wrong = match publish_context.get(&key) {
            None => "is missing",
            Some(given) if Some(given) == current.get(&key) => return Ok(Some(attachment)),
            Some(_) => "belongs to another attachment",
        };
        Err(Refusal::new(
            Code::InvalidArgument,
            format!(
                "volume {:?} on node {}: publish_context[{key:?}] {wrong}; pass on what \
                 ControllerPublishVolume returned last",
                meta.volume_id,
                self.node_id()
            ),
        ))
    }
}

/// Changes a volume's state in one step.
fn change(volume: &Volume, change: impl FnOnce(&mut State)) -> Result<(), BackendError> {
    let locked = volume.lock()?;
    let mut state = locked.state()?;
    change(&mut state);
    locked.save(&state)
}
