//! Following a release: each step is printed as it happens.
//!
//! **Owns** two sources of steps. Live events name every step at once, but may be lost. The alloc's
//! status is polled; it says what a stuck step waits for, and alone decides when the release is
//! over.
//!
//! **Never** drives a release: the volumewatcher does.

mod steps;

use std::time::Duration;

use berth_bus::Cause;
use berth_bus::event::LiveEvents;
use berth_contract::code::Code;
use berth_contract::event::{Event, EventName};
use berth_contract::message::alloc::{AllocQuery, AllocStatus};
use berth_contract::problem::Problem;
use berth_contract::{subject, verb};
use berth_domain::AllocId;
use berth_service::clock;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout_at};

use crate::exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::wait::Waiter;
use steps::Steps;
pub use steps::describe;

/// How often the status is read.
const STATUS_POLL: Duration = Duration::from_millis(200);
/// How much later than the status that shows the release as done its events may come, at most.
const EVENTS_LATE_MAX: Duration = Duration::from_secs(1);
/// The most events in the queue to the printer.
const EVENTS_WAITING_MAX: usize = 64;

/// A release whose steps are printed.
#[derive(Debug)]
pub struct Follow<'a> {
    session: &'a Session,
    alloc: AllocId,
    events: mpsc::Receiver<Event>,
    steps: Steps,
    waiter: Waiter,
    // Ends the task that reads events when this is dropped.
    _reader: JoinSet<()>,
}

impl<'a> Follow<'a> {
    /// Subscribes to the events of claims. Call it before the release is requested, so that no
    /// step is missed.
    pub async fn open(session: &'a Session, alloc: &AllocId) -> Self {
        let (sender, events) = mpsc::channel(EVENTS_WAITING_MAX);
        let mut reader = JoinSet::new();
        // Without events fewer steps are printed.
        if let Ok(mut live) = subscribe(session).await {
            let alloc = alloc.clone();
            reader.spawn(async move {
                while let Some(body) = live.next().await {
                    let Ok(event) = serde_json::from_slice::<Event>(&body) else { continue };
                    if event.alloc.as_ref() == Some(&alloc) && sender.send(event).await.is_err() {
                        return;
                    }
                }
            });
        }
        Self {
            session,
            alloc: alloc.clone(),
            events,
            steps: Steps::default(),
            waiter: Waiter::begin("release"),
            _reader: reader,
        }
    }

    /// Prints each step until the alloc has no claim left, or until the deadline `until`. Returns
    /// the alloc's last status; none when its record is gone.
    pub async fn print_steps(&mut self, until: Instant) -> Result<Option<AllocStatus>, Failure> {
        let begun = Instant::now();
        self.waiter = Waiter::begin("release");
        // Events are printed before the status: they contain every step.
        let mut poll = interval_at(begun + STATUS_POLL, STATUS_POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Events first: they are older than the status.
                biased;
                Some(event) = self.events.recv() => {
                    let step = self.steps.event(&event);
                    self.print(step);
                    // The status decides whether the release is over. It is read at once, because
                    // it probably is.
                    if event.event == EventName::ClaimFreed {
                        poll.reset_immediately();
                    }
                    continue;
                }
                _ = poll.tick() => {}
            }
            let alloc = match self.read_status().await {
                Ok(alloc) => alloc,
                // The collector may remove an ended alloc's record once the alloc has no claim
                // left.
                Err(problem) if problem.code == Code::NoSuchAlloc => return Ok(None),
                Err(problem) if Instant::now() >= until => return Err(problem.into()),
                Err(problem) => {
                    self.waiter.print_silence(&problem);
                    continue;
                }
            };
            self.waiter.end_silence();
            if alloc.claims.is_empty() {
                self.print_late_events().await;
            }
            let lines = self.steps.status(&alloc.claims, clock::now());
            self.print(lines);
            if alloc.claims.is_empty() || Instant::now() >= until {
                return Ok(Some(alloc));
            }
        }
    }

    /// Prints the last steps whose events come after the status.
    async fn print_late_events(&mut self) {
        let until = Instant::now() + EVENTS_LATE_MAX;
        while !self.steps.are_all_free() {
            let Ok(Some(event)) = timeout_at(until, self.events.recv()).await else { return };
            let step = self.steps.event(&event);
            self.print(step);
        }
    }

    async fn read_status(&self) -> Result<AllocStatus, Problem> {
        let body = AllocQuery::current(self.alloc.clone());
        let deadline = Instant::now() + Duration::from_secs(2);
        self.session.once::<verb::AllocStatus>(&self.session.namespace, &body, deadline).await
    }

    fn print(&self, steps: impl IntoIterator<Item = String>) {
        steps.into_iter().for_each(|step| self.waiter.print(step));
    }
}

async fn subscribe(session: &Session) -> Result<LiveEvents, Cause> {
    session.bus.live_events(&[subject::claim_events(&session.namespace)]).await
}

/// The claims that are not free yet, as a failure; none when everything is free.
pub fn unfinished(alloc: &AllocStatus) -> Option<Failure> {
    if alloc.claims.is_empty() {
        return None;
    }
    let now = clock::now();
    let claims: Vec<String> =
        alloc.claims.iter().map(|claim| describe(claim, now).to_string()).collect();
    Some(Failure::Local {
        exit: exit::UNAVAILABLE,
        message: format!("not everything of {} is free yet: {}", alloc.id, claims.join("; ")),
        next: format!(
            "it is tried until it succeeds, also without this; `berth claim status --alloc {}` \
             shows\nhow far it is, and what to do where it does not go on",
            alloc.id
        ),
    })
}
