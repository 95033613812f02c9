//! Volumes are registered, updated, deregistered and detached by hand.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::collect::Sweep;
use berth_contract::message::volume::{Deregister, Deregistered, Detach, Detached, Registered};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use serde_json::json;
use tokio::time::sleep;

use super::Run;
use super::client::{node_id, volume_id};
use crate::plan::{VOLUMES, kind_of};
use crate::site::document;

/// How long a request is repeated that must get through.
const INSIST: Duration = Duration::from_secs(30);
/// How long an operator tries to detach a volume.
const DETACHES: Duration = Duration::from_secs(10);

/// What the test knows of the registration of one volume. One caller at a time changes it, as
/// an owner would.
#[derive(Default)]
pub(super) struct Book {
    pub(super) turn: tokio::sync::Mutex<()>,
    known: Mutex<Registration>,
}

/// The registration of a volume by the last answers.
#[derive(Default, Clone)]
struct Registration {
    /// The number of times at which the volume may have become absent.
    absences: u64,
    /// Whether the volume is surely registered.
    registered: bool,
    /// The change that was acknowledged last; `None` if a later one was not answered.
    change: Option<usize>,
    /// The number of changes that were requested.
    changes: usize,
}

impl Book {
    fn known(&self) -> MutexGuard<'_, Registration> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Run {
    /// A number that stays the same while the volume surely exists and can be claimed; `None`
    /// while that is in doubt.
    pub(super) fn presence(&self, volume: usize) -> Option<u64> {
        if !(0..VOLUMES.len()).contains(&volume) {
            return self.ledger.surely_created(kind_of(volume).id).map(|created| created.requested);
        }
        let registration = self.books[volume].known();
        registration.registered.then_some(registration.absences)
    }

    /// The change that the volume's record must show; `None` if that is in doubt.
    pub(super) fn acknowledged_change(&self, volume: usize) -> Option<usize> {
        let registration = self.books[volume].known();
        registration.change.filter(|_| registration.registered)
    }

    pub(super) async fn register_first(&self, volume: usize) {
        let registered = self.register(volume).await;
        registered.expect("a volume is registered while nothing is broken");
    }

    async fn register(&self, volume: usize) -> Result<Registered, Problem> {
        let change = {
            let mut registration = self.books[volume].known();
            registration.changes += 1;
            registration.change = None;
            registration.changes
        };
        let document = document(&VOLUMES[volume], change);
        let subject = verb::VolumeRegister::subject(&berth_domain::Namespace::default());
        // A volume that is still being deregistered is waited for.
        let again = |problem: &Problem| problem.retryable || problem.code == Code::VolumeClosing;
        let registered = self.pursue(&subject, &document, INSIST, again).await?;
        let mut registration = self.books[volume].known();
        (registration.change, registration.registered) = (Some(change), true);
        Ok(registered)
    }

    /// Registers the volume again with another name.
    pub(super) async fn update(&self, volume: usize) -> String {
        let _turn = self.books[volume].turn.lock().await;
        let before = self.presence(volume);
        match self.register(volume).await {
            Ok(_) => "done".to_owned(),
            Err(problem) => {
                let name = VOLUMES[volume].id;
                if before.is_some() && problem.code == Code::VolumeClosing {
                    let what = format!("{name} was not deregistered: {problem}");
                    self.ledger.violated("refused by what is not so", what);
                }
                self.ledger.note(format!("{name} not updated: {problem}"));
                problem.code.as_str().to_owned()
            }
        }
    }

    /// Deregisters the volume, and registers it again after a while.
    pub(super) async fn renew(&self, volume: usize, force: bool, pause: Duration) -> String {
        let _turn = self.books[volume].turn.lock().await;
        let name = VOLUMES[volume].id;
        {
            let mut registration = self.books[volume].known();
            registration.absences += 1;
            (registration.registered, registration.change) = (false, None);
        }
        let deregister = Deregister {
            id: volume_id(volume),
            force,
            reason: "chaos".to_owned(),
            create_index: None,
        };
        let request = self.about::<verb::VolumeDeregister>(&deregister, INSIST);
        let deregistered: Result<Deregistered, Problem> = request.await;
        self.ledger.note(format!("{name} deregistered: {deregistered:?}"));
        sleep(pause).await;
        let end = match deregistered {
            Ok(deregistered) if deregistered.gone => "gone".to_owned(),
            Ok(_) => "closing".to_owned(),
            Err(problem) => problem.code.as_str().to_owned(),
        };
        if let Err(problem) = self.register(volume).await {
            self.ledger.note(format!("{name} not registered again: {problem}"));
        }
        end
    }

    /// Registers the volume at the end of the run, in case it is not registered.
    pub(super) async fn register_again(&self, volume: usize) -> Result<(), Problem> {
        let _turn = self.books[volume].turn.lock().await;
        if self.presence(volume).is_some() {
            return Ok(());
        }
        self.register(volume).await.map(|_| ())
    }

    /// Runs an operator's `berth volume detach`. It releases the claims of ended allocs, and is
    /// refused for a live one. If it ended a live claim, that claim would count as lost.
    pub(super) async fn detach(&self, volume: usize, node: usize) -> String {
        let (id, node) = (volume_id(volume), node_id(node));
        let body = Detach {
            id,
            node: node.clone(),
            reason: "chaos".to_owned(),
            confirmed_by: None,
            unstaged_by: None,
        };
        let request = self.about::<verb::VolumeDetach>(&body, DETACHES);
        let answer: Result<Detached, Problem> = request.await;
        self.ledger.note(format!("{} detached from {node}: {answer:?}", kind_of(volume).id));
        match answer {
            Ok(detached) if detached.gone => "gone".to_owned(),
            Ok(_) => "releasing".to_owned(),
            Err(problem) => problem.code.as_str().to_owned(),
        }
    }

    /// Runs an operator's `berth gc`.
    pub(super) async fn collect(&self) -> String {
        let swept = self.ask::<Sweep>(&verb::GcForce::subject(&()), &json!({})).await;
        self.ledger.note(format!("gc.force: {swept:?}"));
        swept.map_or_else(|problem| problem.code.as_str().to_owned(), |_| "done".to_owned())
    }
}
