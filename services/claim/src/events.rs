//! What is told of each transition. Fire and forget: no claim ever waits for an event.

use berth_bus::Events;
use berth_contract::event::{Event, EventName};
use berth_contract::service::CLAIM;
use berth_contract::trace::TraceContext;
use berth_domain::VolumeKey;
use berth_domain::volume::{Command, Outcome, State, Write};
use berth_service::clock;

/// Tells what a stored write means.
pub fn tell(
    events: &Events,
    volume: &VolumeKey,
    command: &Command,
    write: &Write,
    trace: TraceContext,
) {
    let event = narrate(volume, command, write, trace);
    events.publish(&event.subject(), &event, trace);
}

fn narrate(volume: &VolumeKey, command: &Command, write: &Write, trace: TraceContext) -> Event {
    let mut event = Event {
        event: EventName::Unknown,
        at: clock::now(),
        namespace: Some(volume.namespace.clone()),
        volume: Some(volume.volume.clone()),
        alloc: None,
        node: None,
        plugin: None,
        detail: None,
        service: CLAIM.name.to_owned(),
        trace: Some(trace.trace_id()),
    };
    let name = match write {
        Write::PutSpec(spec) => {
            event.plugin = Some(spec.plugin.clone());
            event.detail = spec.closing.as_ref().map(|closing| closing.reason.clone());
            match (&spec.closing, spec.create_index) {
                (Some(_), _) => EventName::VolumeClosing,
                (None, 0) => EventName::VolumeRegistered,
                (None, _) => EventName::VolumeUpdated,
            }
        }
        Write::DeleteSpec => EventName::VolumeDeregistered,
        Write::PutClaim(alloc, claim) => {
            event.alloc = Some(alloc.clone());
            event.node = Some(claim.node.clone());
            let failed = matches!(
                command,
                Command::Answer {
                    outcome: Outcome::Failed(_) | Outcome::Unanswered(_) | Outcome::Refused(_),
                    ..
                }
            );
            event.detail = match (&claim.error, &claim.attempt) {
                (Some(error), _) if failed => Some(error.clone()),
                (_, Some(attempt)) => Some(format!("{} by {}", attempt.call, attempt.worker)),
                _ => claim.reason.clone(),
            };
            match claim.state {
                _ if failed => EventName::ClaimFailed,
                State::Waiting => EventName::ClaimWaiting,
                State::Publishing => EventName::ClaimPublishing,
                State::Taken => EventName::ClaimTaken,
                State::Unpublishing => EventName::ClaimUnpublishing,
                State::NodeDetached => EventName::ClaimNodeDetached,
            }
        }
        Write::DeleteClaim(alloc) => {
            event.alloc = Some(alloc.clone());
            event.detail = Some(match command {
                Command::Answer { .. } => "detached from its node and its controller".to_owned(),
                Command::Release { reason, .. } => reason.clone(),
                _ => "nothing of it was left to detach".to_owned(),
            });
            EventName::ClaimFreed
        }
    };
    event.event = name;
    event
}
