//! One instance of a plugin: its connection, what is known of it, and what it has mounted.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_csi::Client;
use berth_domain::Timestamp;
use berth_host::trust::TrustedUsers;
use tokio::sync::Notify;

use super::InstanceView;
use super::declaration::Declaration;
use super::fold::InstanceCandidate;
use super::process::ProcessId;
use super::record::{InstanceRecord, InstanceRecords};
use crate::host_pool::with_agent_file;

/// Volumes that an instance has on record at least before those that are gone are forgotten.
const VOLUMES_MAX: usize = 256;

/// One instance of a plugin on this node.
#[derive(Debug)]
pub struct PluginInstance {
    /// Which: [`InstanceRecord::key`].
    pub key: String,
    /// What is said of it.
    pub declaration: Declaration,
    /// Where it is reached.
    pub socket: PathBuf,
    /// Since when this node has it.
    pub since: Timestamp,
    pub(crate) client: Client,
    /// Asks for a look at it now.
    pub(crate) probe_requested: Notify,
    records: Option<InstanceRecords>,
    state: Mutex<InstanceState>,
    // Held while the record is written, so that the newest is on the disk last.
    writing: tokio::sync::Mutex<()>,
    in_flight: AtomicUsize,
}

#[derive(Debug)]
struct InstanceState {
    view: InstanceView,
    record: InstanceRecord,
    /// More volumes on record than this are worth a look at which of them are still here.
    volumes_max: usize,
    /// The last write of the record failed.
    is_unsaved: bool,
    /// Why its process does not run, of one that the agent runs.
    down: Option<String>,
    /// Its source is gone; how many mounts need it.
    leaving: Option<usize>,
    /// Its health is as bad as can be and it still runs; why it is not started again.
    spared: Option<String>,
}

impl PluginInstance {
    /// An instance nobody has asked yet; with nowhere to keep it, it is forgotten with the agent.
    pub fn new(
        record: InstanceRecord,
        records: Option<InstanceRecords>,
        now: Timestamp,
    ) -> Arc<Self> {
        let key = record.key();
        let socket = match (&records, &record.declaration.endpoint) {
            (Some(records), _) => records.socket(&key, &record.declaration),
            (None, super::declaration::PluginEndpoint::Socket(socket)) => socket.clone(),
            (None, super::declaration::PluginEndpoint::Command(_)) => PathBuf::new(),
        };
        let view = InstanceView {
            healthy: false,
            description: "it has not been asked yet".to_owned(),
            since: now,
            fingerprint: None,
        };
        Arc::new(Self {
            client: Client::trusting(&socket, TrustedUsers::own().and(record.declaration.owner)),
            declaration: record.declaration.clone(),
            since: record.since,
            state: Mutex::new(InstanceState {
                view,
                record,
                volumes_max: VOLUMES_MAX,
                is_unsaved: false,
                down: None,
                leaving: None,
                spared: None,
            }),
            key,
            socket,
            probe_requested: Notify::new(),
            records,
            writing: tokio::sync::Mutex::default(),
            in_flight: AtomicUsize::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, InstanceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of it now.
    pub fn view(&self) -> InstanceView {
        self.state().view.clone()
    }

    /// What is kept of it.
    pub fn record(&self) -> InstanceRecord {
        self.state().record.clone()
    }

    pub(crate) fn set_view(&self, view: InstanceView) {
        self.state().view = view;
    }

    /// Its process runs, or does not and why; false when that was known.
    pub(crate) fn set_process(&self, process: Option<ProcessId>, down: Option<String>) -> bool {
        let mut state = self.state();
        let is_news = state.record.process != process || state.down != down;
        (state.record.process, state.down) = (process, down);
        is_news
    }

    pub(crate) fn count_restart(&self) {
        self.state().record.restarts += 1;
    }

    pub(crate) fn set_leaving(&self, mounts: Option<usize>) {
        self.state().leaving = mounts;
    }

    pub(crate) fn set_stopped_by(&self, by: Option<String>) {
        self.state().record.stopped_by = by;
    }

    /// Says why it is not started again, or that there is no reason to; false when that was known.
    pub(crate) fn set_spared(&self, why: Option<String>) -> bool {
        let mut state = self.state();
        let is_news = state.spared != why;
        state.spared = why;
        is_news
    }

    /// Whether it mounts this volume, and was not known to.
    pub(crate) fn add_volume(&self, volume: &str) -> bool {
        self.state().record.volumes.insert(volume.to_owned())
    }

    pub(crate) fn has_mounted(&self, volume: &str) -> bool {
        self.state().record.volumes.contains(volume)
    }

    /// Whether it has so many volumes on record that those that are gone are to be forgotten.
    pub(crate) fn has_old_volumes(&self) -> bool {
        let state = self.state();
        state.record.volumes.len() > state.volumes_max
    }

    /// Forgets the volumes of which nothing is here any more.
    pub(crate) fn keep_volumes(&self, here: &BTreeSet<String>) {
        let mut state = self.state();
        state.record.volumes.retain(|volume| here.contains(volume));
        // Not at each volume from here on, where a node has many.
        state.volumes_max = VOLUMES_MAX.max(2 * state.record.volumes.len());
    }

    /// It has no company: it has mounted all that there is, and need not say so.
    pub(crate) fn forget_volumes(&self) {
        self.state().record.volumes.clear();
    }

    /// Writes down what is to be kept of it.
    pub(crate) async fn save(self: &Arc<Self>) {
        let Some(records) = self.records.clone() else { return };
        let _writing = self.writing.lock().await;
        let (record, place) = (self.record(), records.file(&self.key));
        let write = move || records.write(&record);
        let written = with_agent_file("write a record", &place, write).await;
        let was_unsaved = std::mem::replace(&mut self.state().is_unsaved, written.is_err());
        // It is tried again each time that the roster looks.
        if let (Err(error), false) = (written, was_unsaved) {
            let (plugin, instance) = (&self.declaration.id, &self.key);
            tracing::error!(%plugin, instance, %error, "what is kept of a plugin was not written");
        }
    }

    /// Whether the record on the disk is older than what is known.
    pub(crate) fn is_unsaved(&self) -> bool {
        self.state().is_unsaved
    }

    /// A call begins, until what is returned is dropped.
    pub(crate) fn start_call(self: &Arc<Self>) -> CallInFlight {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        CallInFlight { member: Arc::clone(self) }
    }

    /// Calls that have not been answered.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    pub(crate) fn candidate(&self) -> InstanceCandidate {
        let state = self.state();
        let mut remarks = Vec::new();
        match state.record.restarts {
            0 => {}
            1 => remarks.push("started again once".to_owned()),
            times => remarks.push(format!("started again {times} times")),
        }
        if let Some(mounts) = state.leaving {
            remarks.push(format!("its source is gone, {}", describe_need(mounts)));
        }
        remarks.extend(state.spared.clone());
        InstanceCandidate {
            key: self.key.clone(),
            view: state.view.clone(),
            down: state.down.clone(),
            remarks,
            leaving: state.leaving.is_some(),
            since: self.since,
        }
    }
}

/// How many mounts need it, in words.
pub(crate) fn describe_need(mounts: usize) -> String {
    match mounts {
        0 => "no mount needs it".to_owned(),
        1 => "1 mount needs it".to_owned(),
        mounts => format!("{mounts} mounts need it"),
    }
}

/// A call that has not been answered.
#[derive(Debug)]
pub(crate) struct CallInFlight {
    pub(crate) member: Arc<PluginInstance>,
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        self.member.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}
