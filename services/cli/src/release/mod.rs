//! Following a release: each step, told as it happens.
//!
//! **Owns** two sources for one story: events, which tell every step at once but may be lost, and
//! the alloc's status, which is asked now and then, says what a stuck step waits for, and alone
//! decides when the release is over.
//!
//! **Never** drives a release: the watcher does, whether anybody looks or not.

mod steps;

use std::time::Duration;

use berth_bus::Bus;
use berth_contract::code::Code;
use berth_contract::event::{Event, EventName};
use berth_contract::message::alloc::{AllocStatus, Status};
use berth_contract::problem::Problem;
use berth_contract::stream::EVENTS;
use berth_contract::{subject, verb};
use berth_domain::{AllocId, Namespace};
use berth_service::clock;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::exit;
use crate::failure::Failure;
use crate::output::say;
use crate::session::Session;
use crate::span;
use steps::Steps;
pub use steps::describe;

/// How often the status is asked for.
const LOOK: Duration = Duration::from_millis(200);
/// How long events may take to be had; without them the story has fewer steps.
const TUNE_IN: Duration = Duration::from_secs(2);
/// Events that may wait to be told.
const QUEUE: usize = 64;

/// A release that is being watched.
#[derive(Debug)]
pub struct Follow<'a> {
    session: &'a Session,
    alloc: AllocId,
    events: mpsc::Receiver<Event>,
    steps: Steps,
    started: Instant,
    // Ends the task that reads events when this is dropped.
    _reader: JoinSet<()>,
}

impl<'a> Follow<'a> {
    /// Begins to watch, before the release is asked for, so that no step is missed.
    pub async fn begin(session: &'a Session, alloc: &AllocId) -> Self {
        let (sender, events) = mpsc::channel(QUEUE);
        let mut reader = JoinSet::new();
        let opened = timeout(TUNE_IN, open(&session.bus, &session.namespace)).await;
        if let Ok(Some(mut feed)) = opened {
            let alloc = alloc.clone();
            reader.spawn(async move {
                loop {
                    let event = feed.next().await;
                    let Ok(event) = serde_json::from_slice::<Event>(&event.body) else { continue };
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
            started: Instant::now(),
            _reader: reader,
        }
    }

    /// Tells each step until the alloc has no claim left, or until then; answers how it stands.
    pub async fn to_the_end(&mut self, until: Instant) -> Result<Option<AllocStatus>, Failure> {
        self.started = Instant::now();
        // The events have the first word: they know every step.
        let mut look = interval_at(self.started + LOOK, LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Events first: they are what happened before the status is as it is.
                biased;
                Some(event) = self.events.recv() => {
                    let step = self.steps.event(&event);
                    self.tell(step);
                    // The status decides, and now it is likely to say that nothing is left.
                    if event.event == EventName::ClaimFreed {
                        look.reset_immediately();
                    }
                    continue;
                }
                _ = look.tick() => {}
            }
            let alloc = match self.look().await {
                Ok(alloc) => alloc,
                // The record of an alloc that ended may be collected once nothing is left of it.
                Err(problem) if problem.code == Code::NoSuchAlloc => return Ok(None),
                Err(problem) if Instant::now() >= until => return Err(problem.into()),
                Err(problem) => {
                    let step = self.steps.silence(&problem);
                    self.tell(step);
                    continue;
                }
            };
            let told = self.steps.status(&alloc.claims, clock::now());
            self.tell(told);
            if alloc.claims.is_empty() || Instant::now() >= until {
                return Ok(Some(alloc));
            }
        }
    }

    async fn look(&self) -> Result<AllocStatus, Problem> {
        let body = Status::of(self.alloc.clone());
        let deadline = Instant::now() + Duration::from_secs(2);
        self.session.once::<verb::AllocStatus>(&self.session.namespace, &body, deadline).await
    }

    fn tell(&self, steps: impl IntoIterator<Item = String>) {
        for step in steps {
            say(format_args!("  {:>5}  {step}", span::short(self.started.elapsed())));
        }
    }
}

async fn open(bus: &Bus, namespace: &Namespace) -> Option<berth_bus::event::EventFeed> {
    // The claim service has made the stream long since: one copy or three is its affair.
    let events = bus.events(&EVENTS, 1).await.ok()?;
    events.follow(&subject::claim_events(namespace)).await.ok()
}

/// What is not free yet, as a failure; none when everything is.
pub fn unfinished(alloc: &AllocStatus) -> Option<Failure> {
    if alloc.claims.is_empty() {
        return None;
    }
    let now = clock::now();
    let claims: Vec<String> = alloc.claims.iter().map(|claim| describe(claim, now)).collect();
    Some(Failure::Here {
        exit: exit::UNAVAILABLE,
        message: format!("not everything of {} is free yet: {}", alloc.id, claims.join("; ")),
        next: format!(
            "it is tried until it succeeds, also without this; `berth claim status --alloc {}` \
             shows\nhow far it is, and what to do where it does not go on",
            alloc.id
        ),
    })
}
