//! The newest refusal of a volume or an alloc, read from the events.
//!
//! **Promises** that a status request is answered without the refusal if the event stream does not
//! answer soon.
//!
//! **Never** decides anything by an event.

use std::time::Duration;

use berth_contract::event::{Event, EventName};
use berth_contract::message::query::RefusedRequest;
use berth_contract::subject::{EventsOf, event_filter, refusal_filter};
use berth_domain::volume::State as ClaimState;
use berth_domain::{AllocId, Namespace, VolumeId, VolumeKey};
use tokio::time::{Instant, timeout_at};

use crate::store::state::StateInner;

/// How long a status waits for the event stream.
const READ_TIMEOUT: Duration = Duration::from_millis(250);
/// Events of the volume, and of its claims, that are searched after the refusal for a grant or a
/// mount; so many of each.
const LATER_EVENTS_MAX: usize = 16;

impl StateInner {
    /// The newest refusal that names the volume, or the alloc. None if a claim was granted, or the
    /// volume mounted, after it.
    pub async fn last_refusal(
        &self,
        namespace: &Namespace,
        volume: Option<&VolumeId>,
        alloc: Option<&AllocId>,
        deadline: Instant,
    ) -> Option<RefusedRequest> {
        let until = deadline.min(Instant::now() + READ_TIMEOUT);
        timeout_at(until, self.read_refusal(namespace, volume, alloc)).await.ok()?
    }

    async fn read_refusal(
        &self,
        namespace: &Namespace,
        volume: Option<&VolumeId>,
        alloc: Option<&AllocId>,
    ) -> Option<RefusedRequest> {
        let (log, of) = (self.events.log(), EventsOf::Namespace(namespace));
        let newest = log.newest(&refusal_filter(of, volume, alloc), READ_TIMEOUT).await.ok()??;
        let refusal = RefusedRequest::from_event(serde_json::from_slice(&newest.body).ok()?)?;
        let Some(volume) = &refusal.volume else { return Some(refusal) };
        if self.is_granted_since(VolumeKey::new(namespace.clone(), volume.clone()), alloc, &refusal)
        {
            return None;
        }
        for kind in ["claim", "volume"] {
            let later = event_filter(of, Some(kind), Some(volume.as_str()));
            let mut sequence = newest.sequence;
            for _ in 0..LATER_EVENTS_MAX {
                let next = log.first_after(&later, sequence, READ_TIMEOUT).await.ok()?;
                let Some(next) = next else { break };
                let is_success = |event: Event| is_success(&event, alloc);
                if serde_json::from_slice(&next.body).is_ok_and(is_success) {
                    return None;
                }
                sequence = next.sequence;
            }
        }
        Some(refusal)
    }

    /// Whether a present claim was granted after the refusal. The event of the grant may be late.
    fn is_granted_since(
        &self,
        volume: VolumeKey,
        alloc: Option<&AllocId>,
        refusal: &RefusedRequest,
    ) -> bool {
        self.volumes.mirror.read(|volumes| {
            let Some(subtree) = volumes.get(&volume) else { return false };
            subtree.volume.claims.iter().any(|(claim_alloc, claim)| {
                claim.state == ClaimState::Taken
                    && claim.since >= refusal.at
                    && alloc.is_none_or(|alloc| claim_alloc == alloc)
            })
        })
    }
}

/// Whether the volume was granted or mounted; for the alloc, if one is named.
fn is_success(event: &Event, alloc: Option<&AllocId>) -> bool {
    let is_meant = alloc.is_none() || event.alloc.as_ref() == alloc;
    is_meant && matches!(event.event, EventName::ClaimTaken | EventName::VolumeMounted)
}
