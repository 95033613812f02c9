//! Owners create, copy, expand and delete volumes at their storage.
//!
//! Owns: those requests, and what their callers were told. Promises: the requests that create or
//! delete one volume are sent one after the other, as by one owner, and none waits for the result
//! of an earlier one. Never: deletes a volume other than the one that it has seen.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::storage::{DeleteVolume, Expand, StorageChanged};
use berth_contract::message::volume::VolumeStatus;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::size::Size;
use berth_domain::volume::storage::{OperationKind, Stage};
use berth_domain::{Namespace, VolumeId};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::Run;
use super::client::{volume_for, volume_id};
use crate::ledger::{CreatedVolume, CreationRequest, CutSnapshot, now_us};
use crate::plan::{CREATED_NUMBERS, SCRATCH, Source, StorageAction, kind_of};
use crate::site::creation;

/// How long a request is repeated that must get through.
const INSIST: Duration = Duration::from_secs(30);
/// How long a caller waits for the end of its request. The request goes on without the caller.
const WAITS: Duration = Duration::from_secs(20);

impl Run {
    /// Carries out `action`; returns how it ended in a word or two. `number` is new for each
    /// call.
    pub(super) async fn store(&self, number: usize, action: &StorageAction) -> String {
        let end = match action {
            StorageAction::Create { volume, source, abandon } => {
                self.create(*volume, *source, *abandon).await
            }
            StorageAction::Delete { volume } => self.delete(*volume).await,
            StorageAction::Expand { volume, bytes, when_free } => {
                self.expand(*volume, *bytes, *when_free).await
            }
            StorageAction::Snapshot { volumes, ready_after, abandon } => {
                self.cut(number, volumes, *ready_after, *abandon).await
            }
            StorageAction::DeleteSnapshot { pick } => match self.pick_cut(*pick, |_| true) {
                Some(cut) => self.delete_cut(&cut, INSIST).await,
                None => "there is none".to_owned(),
            },
        };
        self.ledger.note(format!("#{number} {}: {end}", action.kind()));
        end
    }

    /// A snapshot that exists and fits; `None` if there is none.
    fn pick_cut(&self, pick: usize, fits: impl Fn(&CutSnapshot) -> bool) -> Option<CutSnapshot> {
        let mut cuts = self.ledger.standing_cuts();
        cuts.retain(fits);
        let index = pick.checked_rem(cuts.len())?;
        Some(cuts.swap_remove(index))
    }

    async fn create(
        &self,
        volume: usize,
        source: Option<Source>,
        abandon: Option<Duration>,
    ) -> String {
        let from = match source {
            None => Value::Null,
            Some(Source::Volume(other)) => json!({"volume": volume_id(other)}),
            Some(Source::Snapshot(pick)) => {
                let is_plain = |cut: &CutSnapshot| {
                    CREATED_NUMBERS
                        .map(kind_of)
                        .any(|kind| kind.id == cut.volume && kind.is_copied())
                };
                let Some(cut) = self.pick_cut(pick, is_plain) else {
                    return "there is none".to_owned();
                };
                json!({"volume": cut.volume, "snapshot": cut.snapshot})
            }
        };
        let id = volume_id(volume);
        if source.is_some() || abandon.is_some() {
            let deleted = self.delete(volume).await;
            self.ledger.note(format!("{id} to be replaced: {deleted}"));
        }
        let requested = {
            let turn = timeout(INSIST, self.books[volume].turn.lock());
            let Ok(_turn) = turn.await else { return "another is at it".to_owned() };
            let mut document = creation(kind_of(volume), &id);
            if !from.is_null() {
                document["from"] = from;
            }
            self.request_creation(&id, &document).await
        };
        match (requested, abandon) {
            (Ok(_), Some(after)) => {
                sleep(after).await;
                self.delete(volume).await
            }
            (Ok(name), None) => self.await_ready(&id, &name, WAITS).await,
            (Err(problem), _) => problem.code.as_str().to_owned(),
        }
    }

    /// Creates a volume for an alloc; returns whether it can be claimed.
    pub(super) async fn create_for_run(&self, alloc: &str, patience: Duration) -> bool {
        let id = volume_for(alloc, SCRATCH);
        let mut document = creation(kind_of(SCRATCH), &id);
        document["for_alloc"] = json!(alloc);
        let end = match self.request_creation(&id, &document).await {
            Ok(name) => self.await_ready(&id, &name, patience).await,
            Err(problem) => problem.to_string(),
        };
        self.ledger.note(format!("{id} created: {end}"));
        end == "done"
    }

    /// Creates a volume that may not exist, while no fault strikes. A volume whose creation
    /// failed earlier is deleted first.
    pub(super) async fn create_again(&self, volume: usize) -> Result<(), String> {
        let id = volume_id(volume);
        match self.volume_status(&id).await {
            Ok(seen) if stage(&seen) == Stage::Ready => return Ok(()),
            Ok(seen) if stage(&seen) == Stage::Failed => {
                let deleted = self.request_deletion(&seen, INSIST).await;
                deleted.map_err(|problem| problem.to_string())?;
            }
            Ok(_) => {}
            Err(problem) if problem.code == Code::NoSuchVolume => {}
            Err(problem) => return Err(problem.to_string()),
        }
        let name = self.request_creation(&id, &creation(kind_of(volume), &id)).await;
        let name = name.map_err(|problem| problem.to_string())?;
        match self.await_ready(&id, &name, WAITS).await.as_str() {
            "done" => Ok(()),
            other => Err(format!("{id} is {other}")),
        }
    }

    /// Deletes a volume if it exists, while no fault strikes.
    pub(super) async fn delete_at_last(&self, volume: usize) -> Result<(), String> {
        match self.delete(volume).await {
            end if end == "gone" || end == Code::NoSuchVolume.as_str() => Ok(()),
            end => Err(format!("{}: {end}", kind_of(volume).id)),
        }
    }

    /// Requests a creation; returns the volume's name at the plugin.
    async fn request_creation(&self, id: &VolumeId, document: &Value) -> Result<String, Problem> {
        let requested = now_us();
        let answer = self.about::<verb::VolumeCreate>(document, INSIST).await;
        let answer: StorageChanged = answer.inspect_err(|problem| {
            self.ledger.note(format!("{id} not created: {problem}"));
        })?;
        let name = answer.storage.and_then(|storage| storage.plugin_name).unwrap_or_default();
        let request = match (&document["from"], &document["for_alloc"]) {
            (Value::Null, Value::Null) => CreationRequest::Empty,
            (Value::Null, _) => CreationRequest::ForRun,
            _ => CreationRequest::Copy,
        };
        let acknowledged = CreatedVolume { requested, request, ..unknown(id, &name) };
        self.ledger.created(acknowledged);
        Ok(name)
    }

    /// Waits until the volume can be claimed. Its owner removes it if its creation failed.
    async fn await_ready(&self, id: &VolumeId, name: &str, patience: Duration) -> String {
        let end = Instant::now() + patience;
        loop {
            match self.volume_status(id).await {
                Ok(status) if !is_called(&status, name) => return "replaced".to_owned(),
                Ok(status) => match stage(&status) {
                    Stage::Ready => {
                        self.ledger.change_created(name, |entry| {
                            entry.ready = true;
                            entry.bytes =
                                entry.bytes.max(status.capacity_bytes.unwrap_or_default());
                        });
                        return "done".to_owned();
                    }
                    Stage::Failed => {
                        let _: Result<_, Problem> = self.request_deletion(&status, INSIST).await;
                        return "failed".to_owned();
                    }
                    Stage::Creating | Stage::Unused => {}
                    Stage::Deleting => return "deleted meanwhile".to_owned(),
                },
                Err(problem) if problem.code == Code::NoSuchVolume => {
                    return "deleted meanwhile".to_owned();
                }
                Err(_) => {}
            }
            if Instant::now() > end {
                return "under way".to_owned();
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn delete(&self, volume: usize) -> String {
        let id = volume_id(volume);
        let (status, requested) = {
            let turn = timeout(INSIST, self.books[volume].turn.lock());
            let Ok(_turn) = turn.await else { return "another is at it".to_owned() };
            let status = match self.volume_status(&id).await {
                Ok(status) => status,
                Err(problem) => return problem.code.as_str().to_owned(),
            };
            let requested = self.request_deletion(&status, INSIST).await;
            (status, requested)
        };
        match requested {
            Ok(()) => self.await_gone(&status, WAITS).await,
            Err(problem) => {
                self.ledger.note(format!("{id} not deleted: {problem}"));
                problem.code.as_str().to_owned()
            }
        }
    }

    /// Requests the deletion of the volume that was seen, and of no later one.
    pub(super) async fn request_deletion(
        &self,
        seen: &VolumeStatus,
        patience: Duration,
    ) -> Result<(), Problem> {
        let name = name(seen);
        let now = now_us();
        let mut is_first = false;
        // A volume whose creation was not answered may still be acknowledged later.
        self.ledger.created(unknown(&seen.id, &name));
        self.ledger.change_created(&name, |entry| {
            is_first = entry.let_go.is_none();
            entry.let_go = entry.let_go.or(Some(now));
        });
        let body = DeleteVolume {
            id: seen.id.clone(),
            reason: "chaos".to_owned(),
            create_index: Some(seen.create_index),
        };
        let subject = verb::VolumeDelete::subject(&Namespace::default());
        let is_refused =
            |problem: &Problem| matches!(problem.code, Code::ClaimsLive | Code::StorageInUse);
        match self.ask::<StorageChanged>(&subject, &body).await {
            Ok(_) => return Ok(()),
            Err(problem) if is_refused(&problem) => {
                // No other request for the volume is on its way, so nothing was deleted.
                if is_first {
                    self.ledger.change_created(&name, |entry| entry.let_go = None);
                }
                return Err(problem);
            }
            Err(problem) if problem.code == Code::NoSuchVolume => return Ok(()),
            Err(_) => {}
        }
        let again = |problem: &Problem| problem.retryable && !is_refused(problem);
        match self.pursue::<StorageChanged>(&subject, &body, patience, again).await {
            Err(problem) if problem.code != Code::NoSuchVolume => Err(problem),
            _ => Ok(()),
        }
    }

    /// Waits until the volume that was seen has no record any more.
    pub(super) async fn await_gone(&self, seen: &VolumeStatus, patience: Duration) -> String {
        let end = Instant::now() + patience;
        let name = name(seen);
        loop {
            let is_gone = match self.volume_status(&seen.id).await {
                Ok(status) if is_called(&status, &name) => {
                    let failure =
                        status.storage.as_ref().and_then(|storage| storage.failure.as_ref());
                    let refused = failure.is_some_and(|it| it.operation == OperationKind::Delete);
                    if refused && stage(&status) == Stage::Ready {
                        return "refused".to_owned();
                    }
                    false
                }
                Ok(_) => true,
                Err(problem) => problem.code == Code::NoSuchVolume,
            };
            if is_gone {
                self.ledger.change_created(&name, |entry| entry.gone = true);
                return "gone".to_owned();
            }
            if Instant::now() > end {
                return "under way".to_owned();
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn expand(&self, volume: usize, bytes: u64, when_free: bool) -> String {
        let id = volume_id(volume);
        let body = Expand {
            id: id.clone(),
            size: Size::new(bytes).expect("the plan's sizes are sizes"),
            limit: None,
            when_free,
        };
        let subject = verb::VolumeExpand::subject(&Namespace::default());
        let waits_long = [Code::VolumeNotReady, Code::OperationUnderWay, Code::VolumeInUse];
        let again = |problem: &Problem| problem.retryable && !waits_long.contains(&problem.code);
        let requested = self.pursue::<StorageChanged>(&subject, &body, INSIST, again).await;
        let name = match requested {
            Ok(answer) => {
                answer.storage.and_then(|storage| storage.plugin_name).unwrap_or_default()
            }
            Err(problem) => {
                self.ledger.note(format!("{id} not expanded: {problem}"));
                return problem.code.as_str().to_owned();
            }
        };
        let end = Instant::now() + WAITS;
        while Instant::now() < end {
            match self.volume_status(&id).await {
                Ok(status) if !is_called(&status, &name) => return "replaced".to_owned(),
                Ok(status) => {
                    let storage = status.storage.as_ref();
                    let capacity = status.capacity_bytes.unwrap_or_default();
                    if capacity >= bytes {
                        self.ledger.change_created(&name, |entry| {
                            entry.bytes = entry.bytes.max(capacity);
                        });
                        return "done".to_owned();
                    }
                    if storage.is_some_and(|it| it.operation.is_none() && it.failure.is_some()) {
                        return "refused".to_owned();
                    }
                }
                Err(problem) if problem.code == Code::NoSuchVolume => {
                    return "deleted meanwhile".to_owned();
                }
                Err(_) => {}
            }
            sleep(Duration::from_millis(200)).await;
        }
        "under way".to_owned()
    }

    /// The volume as a caller sees it. The request is repeated for some time.
    pub(super) async fn volume_status(&self, id: &VolumeId) -> Result<VolumeStatus, Problem> {
        self.about::<verb::VolumeStatus>(&json!({"id": id}), Duration::from_secs(10)).await
    }
}

/// A volume of which callers know only that it was requested.
fn unknown(id: &VolumeId, name: &str) -> CreatedVolume {
    CreatedVolume {
        id: id.to_string(),
        name: name.to_owned(),
        requested: 0,
        request: CreationRequest::Unknown,
        ready: false,
        bytes: 0,
        let_go: None,
        gone: false,
    }
}

fn name(status: &VolumeStatus) -> String {
    status.storage.as_ref().and_then(|storage| storage.plugin_name.clone()).unwrap_or_default()
}

fn is_called(status: &VolumeStatus, name: &str) -> bool {
    self::name(status) == name
}

fn stage(status: &VolumeStatus) -> Stage {
    status.storage.as_ref().map_or(Stage::Ready, |storage| storage.stage)
}
