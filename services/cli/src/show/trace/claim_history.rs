//! Assigns events to claims.
//!
//! Events of a claim contain its trace, and those of its release contain both. An alloc may claim a
//! volume repeatedly, even in one trace. An event without either trace is assigned by its time.

use berth_contract::event::{Event, EventName};
use berth_contract::message::claim::ClaimStatus;
use berth_domain::Timestamp;
use berth_domain::volume::{CallKind, State};

use super::source::{call_of, in_order, is_claims};
use super::tree::earlier;
use crate::show::ClaimKey;

/// The events and the record of one claim.
#[derive(Debug)]
pub(super) struct ClaimHistory<'a> {
    pub(super) key: ClaimKey<'a>,
    /// The claim's trace.
    pub(super) claim: Option<&'a str>,
    /// The release's trace.
    pub(super) release: Option<&'a str>,
    /// Sorted by time, without duplicates.
    pub(super) events: Vec<&'a Event>,
    /// The record, while the claim exists.
    pub(super) status: Option<&'a ClaimStatus>,
}

/// All claims, oldest first.
pub(super) fn claim_histories<'a>(
    events: &'a [Event],
    statuses: &'a [ClaimStatus],
) -> Vec<ClaimHistory<'a>> {
    let mut events = in_order(events);
    events.retain(|event| event.event != EventName::RequestRefused);
    let mut histories = Vec::new();
    for event in events.iter().filter(|event| is_claims(event)) {
        add_claims(&mut histories, event);
    }
    for event in events.iter().filter(|event| event.volume.is_some() && !is_claims(event)) {
        add_work(&mut histories, event);
    }
    for status in statuses {
        add_status(&mut histories, status);
    }
    for history in &mut histories {
        history.add_alloc(&events);
        history.events.sort_by_key(|event| event.at);
    }
    histories.sort_by_key(ClaimHistory::began);
    histories
}

/// Whether a claim in this state is being released.
pub(super) fn is_leaving(state: State) -> bool {
    matches!(state, State::Unpublishing | State::NodeDetached)
}

fn key(event: &Event) -> Option<ClaimKey<'_>> {
    Some((event.namespace.as_ref()?, event.volume.as_ref()?, event.alloc.as_ref()?))
}

/// Adds a change of the record.
fn add_claims<'a>(histories: &mut Vec<ClaimHistory<'a>>, event: &'a Event) {
    let Some(key) = key(event) else { return };
    let trace = event.trace.as_deref();
    let (claim, release) = match event.claim_trace.as_deref() {
        Some(claim) => (Some(claim), trace),
        None => (trace, None),
    };
    let is_of = |history: &ClaimHistory<'_>| history.key == key && history.claim == claim;
    // A released claim has no further events: the same trace may have begun another claim.
    let same_release =
        histories.iter().rposition(|history| is_of(history) && history.release == release);
    let unreleased =
        || histories.iter().rposition(|history| is_of(history) && history.release.is_none());
    let at = same_release.or_else(unreleased).unwrap_or_else(|| {
        histories.push(ClaimHistory { claim, ..ClaimHistory::new(key) });
        histories.len() - 1
    });
    histories[at].release = release;
    histories[at].events.push(event);
}

/// Adds a call or a mount: to the claim with its attempt, or else to the claim at its time.
fn add_work<'a>(histories: &mut Vec<ClaimHistory<'a>>, event: &'a Event) {
    let Some(key) = key(event) else { return };
    let (trace, attempt) = (event.trace.as_deref(), event.attempt.as_ref());
    let has_attempt = |history: &ClaimHistory<'_>| {
        attempt.is_some()
            && history.events.iter().any(|own_event| own_event.attempt.as_ref() == attempt)
    };
    let find = |is: &dyn Fn(&ClaimHistory<'_>) -> bool| {
        histories.iter().rposition(|history| history.key == key && is(history))
    };
    let index = find(&has_attempt)
        .or_else(|| find(&|history| history.began() <= event.at))
        .or_else(|| histories.iter().position(|history| history.key == key));
    if let Some(at) = index {
        return histories[at].events.push(event);
    }
    let is_release_call =
        matches!(call_of(event), Some(CallKind::NodeDetach | CallKind::ControllerUnpublish));
    let is_release = is_release_call || event.event == EventName::VolumeUnmounted;
    let (claim, release) = if is_release { (None, trace) } else { (trace, None) };
    histories.push(ClaimHistory { claim, release, events: vec![event], ..ClaimHistory::new(key) });
}

fn add_status<'a>(histories: &mut Vec<ClaimHistory<'a>>, status: &'a ClaimStatus) {
    let key = (&status.namespace, &status.volume, &status.alloc);
    let trace = status.trace.as_deref();
    let leaves = is_leaving(status.state);
    let (claim, release) = if leaves { (None, trace) } else { (trace, None) };
    // If events of the claim or of its release are lost, the trace is unknown.
    let is_of = |history: &ClaimHistory<'_>| match (trace, leaves) {
        (Some(_), _) if history.claim == trace || history.release == trace => true,
        (_, true) => history.release.is_none() && history.began() <= status.since,
        (_, false) => history.claim.is_none() && history.began() <= status.since,
    };
    let index = histories
        .iter()
        .rposition(|history| history.key == key && history.freed().is_none() && is_of(history));
    let at = index.unwrap_or_else(|| {
        histories.push(ClaimHistory::new(key));
        histories.len() - 1
    });
    let history = &mut histories[at];
    history.claim = history.claim.or(claim);
    history.release = history.release.or(release);
    history.status = Some(status);
}

impl<'a> ClaimHistory<'a> {
    fn new(key: ClaimKey<'a>) -> Self {
        Self { key, claim: None, release: None, events: Vec::new(), status: None }
    }

    /// The time of the claim's first known event.
    pub(super) fn began(&self) -> Timestamp {
        let began = |event: &&Event| match event.event {
            EventName::ClaimTaken => earlier(event.at, event.took_us.unwrap_or_default()),
            _ => event.at,
        };
        let recorded = self.events.iter().filter(|event| is_claims(event)).map(began).min();
        let worked = || self.events.iter().filter(|event| event.volume.is_some()).map(began).min();
        let since = || self.status.map(|status| status.since);
        recorded.or_else(worked).or_else(since).unwrap_or_default()
    }

    /// The event that ended it.
    pub(super) fn freed(&self) -> Option<&'a Event> {
        self.events.iter().copied().find(|event| event.event == EventName::ClaimFreed)
    }

    /// Adds the alloc's registration before the claim, and the alloc's end during the claim.
    fn add_alloc(&mut self, events: &[&'a Event]) {
        let (namespace, _, alloc) = self.key;
        let (began, freed) = (self.began(), self.freed().map(|freed| freed.at));
        let is_allocs = |event: &&&Event| {
            event.volume.is_none()
                && event.namespace.as_ref() == Some(namespace)
                && event.alloc.as_ref() == Some(alloc)
        };
        let of_alloc: Vec<&Event> = events.iter().filter(is_allocs).copied().collect();
        let (registered, ended): (Vec<&Event>, Vec<&Event>) =
            of_alloc.into_iter().partition(|event| event.event == EventName::AllocRegistered);
        let trace = self.claim;
        let before = registered.iter().rev().find(|event| event.at <= began);
        let same = || {
            registered.iter().rev().find(|event| trace.is_some() && event.trace.as_deref() == trace)
        };
        let while_it_lived =
            |event: &&Event| began <= event.at && freed.is_none_or(|freed| event.at <= freed);
        self.events.extend(before.or_else(same));
        self.events.extend(ended.into_iter().filter(while_it_lived));
    }
}
