//! Reads events from the claim service: stored events, and new ones as they come.
//!
//! **Promises** that following leaves out no event and returns none twice. A live event only says
//! that there is something to ask for, so a lost one delays what follows, and loses nothing.
//!
//! **Never** reads the stream: a user of one namespace may not.

use std::time::Duration;

use berth_bus::event::LiveEvents;
use berth_contract::code::Code;
use berth_contract::message::history::{EventEntry, EventPage, ListEvents};
use berth_contract::subject::{EventsOf, event_filter};
use berth_contract::verb;
use berth_domain::{Namespace, Timestamp, limits};
use tokio::time::{sleep, timeout};

use crate::failure::Failure;
use crate::output::print_note;
use crate::session::{Patience, Session};

/// The most events that are read before following begins.
pub const EVENTS_MAX: usize = 10_000;
/// How long reading may take without a `--timeout`: the stream may hold its 256 MiB.
const READ_MAX: Duration = Duration::from_secs(30);
/// How long the service may take to answer one page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a follower asks when no live event comes.
const POLL: Duration = Duration::from_secs(2);
/// Pause of a follower between two requests, so that a busy fleet is no load.
const POLL_REST: Duration = Duration::from_millis(200);
/// How often a follower asks for a live event that is not stored yet.
const UNSTORED_TRIES: u32 = 5;

/// A reader of the events of the session's namespace.
#[derive(Debug)]
pub struct History<'a> {
    session: &'a Session,
    /// Whether events of no namespace are read, too.
    with_fleet: bool,
}

/// The stored events that match.
#[derive(Debug, Default)]
pub struct PastEvents {
    /// Oldest first.
    pub events: Vec<EventEntry>,
    /// Whether older events match, too.
    pub more: bool,
    /// The token of the newest event: following begins after it.
    pub end: String,
    /// When the oldest event that is kept was stored, if older ones were removed.
    pub begins: Option<Timestamp>,
}

impl<'a> History<'a> {
    /// Events of the session's namespace; with those of no namespace if the user may read all.
    pub fn new(session: &'a Session, with_fleet: bool) -> Self {
        Self { session, with_fleet }
    }

    /// Reads the newest events, at most `last`.
    pub async fn read_newest(
        &mut self,
        request: &ListEvents,
        last: usize,
    ) -> Result<PastEvents, Failure> {
        let patience = self.patience();
        let mut request = request.clone();
        let mut past = PastEvents::default();
        loop {
            let left = last.min(EVENTS_MAX) - past.events.len();
            request.page.limit = u32::try_from(left.min(limits::PAGE_MAX)).ok();
            let mut page = self.ask_page(&request, patience).await?;
            if past.end.is_empty() {
                past.end = page.end;
            }
            past.begins = past.begins.max(page.begins);
            page.events.append(&mut past.events);
            past.events = page.events;
            past.more = page.next.is_some();
            if !past.more || past.events.len() >= last.min(EVENTS_MAX) {
                return Ok(past);
            }
            request.page.after = page.next;
        }
    }

    /// Follows the events that are stored after [`PastEvents::end`].
    pub async fn follow(self, request: ListEvents, end: String) -> EventFollower<'a> {
        let live = self.subscribe().await;
        EventFollower { history: self, request, end, live, tries: 1, noted: None }
    }

    /// Subscribes to live events of the namespace: each says that it is time to ask.
    async fn subscribe(&self) -> Option<LiveEvents> {
        let namespace = &self.session.namespace;
        let of =
            if namespace.is_wildcard() { EventsOf::All } else { EventsOf::Namespace(namespace) };
        let mut filters = vec![event_filter(of, None, None)];
        if self.with_fleet && of != EventsOf::All {
            filters.push(event_filter(EventsOf::None, None, None));
        }
        self.session.bus.live_events(&filters).await.ok()
    }

    fn patience(&self) -> Patience {
        self.session.patience(READ_MAX).each(PAGE_TIMEOUT)
    }

    async fn ask_page(
        &mut self,
        request: &ListEvents,
        patience: Patience,
    ) -> Result<EventPage, Failure> {
        let (session, own) = (self.session, &self.session.namespace);
        if self.with_fleet && !own.is_wildcard() {
            let wide = ListEvents { only_namespace: Some(own.clone()), ..request.clone() };
            let all = Namespace::wildcard();
            match session.pursue::<verb::HistoryList>(&all, &wide, patience).await {
                Err(Failure::Problem(problem)) if problem.code == Code::NotAllowed => {
                    self.with_fleet = false;
                    print_note(format_args!(
                        "events of nodes and plugins are not shown: these credentials may not read \
                         all namespaces"
                    ));
                }
                answer => return answer,
            }
        }
        session.pursue::<verb::HistoryList>(own, request, patience).await
    }
}

/// Events as they come.
pub struct EventFollower<'a> {
    history: History<'a>,
    request: ListEvents,
    end: String,
    live: Option<LiveEvents>,
    /// Requests to send before the next live event is waited for.
    tries: u32,
    /// The error that was printed last.
    noted: Option<Code>,
}

impl EventFollower<'_> {
    /// The next events, in their order. Waits for them, also while the service does not answer.
    /// Fails when the service refuses.
    pub async fn next(&mut self) -> Result<Vec<EventEntry>, Failure> {
        loop {
            if self.tries == 0 {
                self.wait().await;
            } else {
                sleep(POLL_REST).await;
            }
            self.request.page.after = Some(self.end.clone());
            self.request.page.limit = None;
            let patience = Patience::lasting(PAGE_TIMEOUT);
            let page = match self.history.ask_page(&self.request, patience).await {
                Ok(page) => page,
                Err(Failure::Problem(problem)) if problem.retryable => {
                    self.tries = 1;
                    if self.noted.replace(problem.code) != Some(problem.code) {
                        print_note(format_args!("  {problem}; asking again"));
                    }
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            self.noted = None;
            // A live event is stored a moment after it was sent.
            let has_moved = page.end != self.end;
            self.tries = match page.next {
                Some(_) => 1,
                None if has_moved => 0,
                None => self.tries.saturating_sub(1),
            };
            self.end = page.end;
            if !page.events.is_empty() {
                return Ok(page.events);
            }
        }
    }

    /// Waits for a live event, or for the poll interval, because a live event may have been lost.
    async fn wait(&mut self) {
        let Some(live) = &mut self.live else { return sleep(POLL).await };
        match timeout(POLL, live.next()).await {
            Ok(Some(_)) => {
                self.tries = UNSTORED_TRIES;
                sleep(POLL_REST / 10).await;
            }
            Ok(None) => self.live = None,
            Err(_) => self.tries = 1,
        }
    }
}
