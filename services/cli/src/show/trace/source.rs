//! What a tree is made of: events and claims.

use berth_contract::event::Event;
use berth_contract::message::claim::ClaimStatus;
use berth_domain::Timestamp;
use berth_domain::volume::CallKind;

/// The events and claims that a tree is made of.
#[derive(Debug, Clone, Copy)]
pub struct TreeSource<'a> {
    /// The events of some allocs and their claims, and of volumes at their storage, in any order.
    pub events: &'a [Event],
    /// The present claims of those allocs.
    pub claims: &'a [ClaimStatus],
    /// The time of the oldest stored event, if older ones are gone.
    pub begins: Option<Timestamp>,
    /// When the claims were read.
    pub now: Timestamp,
}

/// Sorted by time, without duplicates.
pub(super) fn in_order(events: &[Event]) -> Vec<&Event> {
    let mut sorted: Vec<&Event> = events.iter().collect();
    sorted.sort_by_key(|event| event.at);
    let mut once: Vec<&Event> = Vec::with_capacity(sorted.len());
    for event in sorted {
        let mut at_that_time = once.iter().rev().take_while(|other| other.at == event.at);
        if !at_that_time.any(|known| *known == event) {
            once.push(event);
        }
    }
    once
}

/// Whether the event is a change of a claim's record.
pub(super) fn is_claims(event: &Event) -> bool {
    event.event.as_str().starts_with("claim.")
}

/// The call of a call's event.
pub(super) fn call_of(event: &Event) -> Option<CallKind> {
    let detail = event.detail.as_deref()?;
    let name = detail.split([' ', ':']).next()?;
    let calls = [CallKind::ControllerPublish, CallKind::NodeDetach, CallKind::ControllerUnpublish];
    calls.into_iter().find(|call| call.as_str() == name)
}
