//! One instance of a plugin.
//!
//! **Owns** its connection, its view, its record on disk, and its number of calls in flight.
//!
//! **Promises** that the newest record is written last, and that a failed write is tried again.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_csi::Client;
use berth_domain::Timestamp;
use berth_domain::volume::HoldingProcess;
use berth_host::trust::TrustedUsers;
use tokio::sync::Notify;

use super::declaration::{Declaration, PluginEndpoint};
use super::fold::InstanceCandidate;
use super::process::ProcessId;
use super::record::{InstanceRecord, InstanceRecords};
use super::view::InstanceView;
use crate::host::pool::with_agent_file;

/// Number of recorded volumes from which on the agent looks for volumes that are gone.
const VOLUMES_BEFORE_CLEANUP: usize = 256;

/// One instance of a plugin on this node.
#[derive(Debug)]
pub struct PluginInstance {
    /// [`InstanceRecord::key`].
    pub key: String,
    /// As the configuration or a file declares it.
    pub declaration: Declaration,
    /// The path of its CSI socket.
    pub socket: PathBuf,
    /// When the agent first found the instance.
    pub since: Timestamp,
    pub(crate) client: Client,
    /// Wakes the task that probes the instance.
    pub(crate) probe_requested: Notify,
    /// The next probe identifies the instance, although nothing shows that it has changed.
    identify_requested: AtomicBool,
    records: Option<InstanceRecords>,
    state: Mutex<InstanceState>,
    // Locked while the record is written, so that the newest is written last.
    write_lock: tokio::sync::Mutex<()>,
    in_flight: AtomicUsize,
}

#[derive(Debug)]
struct InstanceState {
    view: InstanceView,
    /// Whether a probe has ended.
    is_probed: bool,
    record: InstanceRecord,
    /// With more recorded volumes than this, the agent forgets those that are no longer mounted.
    cleanup_above: usize,
    /// The last write of the record failed.
    is_unsaved: bool,
    /// Why the process does not run, if the agent runs the instance.
    down: Option<String>,
    /// Set once its declaration is gone: the number of mounts that need the instance.
    leaving: Option<usize>,
    /// Why the agent does not restart the instance although it is unhealthy.
    spared: Option<String>,
}

impl PluginInstance {
    /// An instance that was not probed yet. Without `records` it is kept in memory only.
    pub fn new(
        record: InstanceRecord,
        records: Option<InstanceRecords>,
        now: Timestamp,
    ) -> Arc<Self> {
        let key = record.key();
        let socket = match (&records, &record.declaration.endpoint) {
            (Some(records), _) => records.socket(&key, &record.declaration),
            (None, PluginEndpoint::Socket(socket)) => socket.clone(),
            (None, PluginEndpoint::Command(_)) => PathBuf::new(),
        };
        let view = InstanceView {
            healthy: false,
            description: "it has not been asked yet".to_owned(),
            since: now,
            fingerprint: None,
            process: None,
        };
        Arc::new(Self {
            client: Client::trusting(&socket, TrustedUsers::own().and(record.declaration.owner)),
            declaration: record.declaration.clone(),
            since: record.since,
            state: Mutex::new(InstanceState {
                view,
                is_probed: false,
                record,
                cleanup_above: VOLUMES_BEFORE_CLEANUP,
                is_unsaved: false,
                down: None,
                leaving: None,
                spared: None,
            }),
            key,
            socket,
            probe_requested: Notify::new(),
            identify_requested: AtomicBool::new(false),
            records,
            write_lock: tokio::sync::Mutex::default(),
            in_flight: AtomicUsize::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, InstanceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that the instance is identified soon.
    pub(crate) fn request_identify(&self) {
        self.identify_requested.store(true, Ordering::Relaxed);
        self.probe_requested.notify_one();
    }

    /// Whether that was requested. Ends the request.
    pub(crate) fn take_identify_request(&self) -> bool {
        self.identify_requested.swap(false, Ordering::Relaxed)
    }

    /// The result of the last probe.
    pub fn view(&self) -> InstanceView {
        self.state().view.clone()
    }

    /// A copy of the current record, which may not be on disk yet.
    pub fn record(&self) -> InstanceRecord {
        self.state().record.clone()
    }

    /// The process at the other end of the connection, as far as it is known.
    pub(crate) fn process(&self) -> Option<HoldingProcess> {
        let process = self.client.process()?;
        Some(HoldingProcess { pid: process.pid, command: process.command })
    }

    /// Stores the result of a probe.
    pub(crate) fn set_view(&self, view: InstanceView) {
        let mut state = self.state();
        (state.view, state.is_probed) = (view, true);
    }

    /// Whether a probe has ended.
    pub(crate) fn is_probed(&self) -> bool {
        self.state().is_probed
    }

    /// Sets the process, or the reason why there is none. False if nothing changed.
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

    /// Sets the reason why the agent does not restart it. False if nothing changed.
    pub(crate) fn set_spared(&self, why: Option<String>) -> bool {
        let mut state = self.state();
        let is_news = state.spared != why;
        state.spared = why;
        is_news
    }

    /// Records that it mounts this volume. True if that is new.
    pub(crate) fn add_volume(&self, volume: &str) -> bool {
        self.state().record.volumes.insert(volume.to_owned())
    }

    pub(crate) fn has_mounted(&self, volume: &str) -> bool {
        self.state().record.volumes.contains(volume)
    }

    /// Whether so many volumes are on record that those that are gone must be forgotten.
    pub(crate) fn has_old_volumes(&self) -> bool {
        let state = self.state();
        state.record.volumes.len() > state.cleanup_above
    }

    /// Forgets the volumes that are no longer mounted on this node.
    pub(crate) fn keep_volumes(&self, here: &BTreeSet<String>) {
        let mut state = self.state();
        state.record.volumes.retain(|volume| here.contains(volume));
        // A node with many volumes is not cleaned up at each further volume.
        state.cleanup_above = VOLUMES_BEFORE_CLEANUP.max(2 * state.record.volumes.len());
    }

    /// Forgets all volumes. A single instance counts as having mounted all of them.
    pub(crate) fn forget_volumes(&self) {
        self.state().record.volumes.clear();
    }

    /// Writes the record.
    pub(crate) async fn save(self: &Arc<Self>) {
        let Some(records) = self.records.clone() else { return };
        let _write_lock = self.write_lock.lock().await;
        let (record, place) = (self.record(), records.file(&self.key));
        let write = move || records.write(&record);
        let written = with_agent_file("write a record", &place, write).await;
        let was_unsaved = std::mem::replace(&mut self.state().is_unsaved, written.is_err());
        // The roster tries again at each scan.
        if let (Err(error), false) = (written, was_unsaved) {
            let (plugin, instance) = (&self.declaration.id, &self.key);
            tracing::error!(%plugin, instance, %error, "what is kept of a plugin was not written");
        }
    }

    /// Whether the last write of the record failed.
    pub(crate) fn is_unsaved(&self) -> bool {
        self.state().is_unsaved
    }

    /// Counts a call until the returned value is dropped.
    pub(crate) fn start_call(self: &Arc<Self>) -> CallInFlight {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        CallInFlight { member: Arc::clone(self) }
    }

    /// Number of calls that have not been answered.
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
            remarks.push(format!("its source is gone, {}", describe_needing_mounts(mounts)));
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

/// The number of mounts that need an instance, for people.
pub(crate) fn describe_needing_mounts(mounts: usize) -> String {
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
