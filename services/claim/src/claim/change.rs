//! An alloc claims again in another mode (B12): its claim is given up first, if nothing of it is
//! mounted.
//!
//! **Promises** that the node's agent is asked before a granted claim is given up: where it does
//! not answer, or has anything of the volume for the alloc, the claim stays.

use std::time::Duration;

use berth_bus::Call;
use berth_contract::message::agent::{AgentQuery, AgentStatus};
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, NodeAndNamespace};
use berth_domain::volume::{Command, State as ClaimState, Take};
use berth_domain::{AllocId, Namespace, Timestamp, VolumeId, VolumeKey};
use berth_service::clock;
use tokio::time::Instant;

use crate::store::state::State;
use crate::store::transact::TransactError;

/// How long an agent may take to say what it has mounted.
const AGENT_TIMEOUT: Duration = Duration::from_secs(2);
/// When it is looked at again whether other requests for a mount have ended.
const OTHER_REQUESTS_PAUSE: Duration = Duration::from_millis(500);

/// What the node has of a claim.
#[derive(Debug, PartialEq, Eq)]
enum OnNode {
    Nothing,
    /// Another request may be about to mount it.
    Requested,
    Something,
}

/// Gives up the claim that the alloc has, so that `take` can be taken, or says why it stays.
/// `is_from_agent` says that the node's agent asks, for a mount. While other requests for a mount
/// are under way, returns when to look again.
pub async fn give_up_for(
    state: &State,
    volume: &VolumeKey,
    take: &Take,
    is_from_agent: bool,
    (trace, deadline): (TraceContext, Instant),
) -> Result<Option<Timestamp>, TransactError> {
    let granted = state.volumes.mirror.read(|volumes| {
        let own = volumes.get(volume)?.volume.claims.get(&take.alloc)?;
        (own.state == ClaimState::Taken).then_some(own.epoch)
    });
    let mut unmounted = None;
    if let Some(epoch) = granted {
        match ask_node(state, volume, take, is_from_agent, (trace, deadline)).await {
            OnNode::Nothing => unmounted = Some(epoch),
            OnNode::Requested => return Ok(Some(clock::now().after(OTHER_REQUESTS_PAUSE))),
            OnNode::Something => {}
        }
    }
    let command = Command::Change { take: take.clone(), unmounted };
    let done = state.transact_until(volume, trace, deadline, |_| Ok(command.clone())).await;
    done.map(|_| None)
}

/// What the agent of the claim's node has of the volume for the alloc.
async fn ask_node(
    state: &State,
    volume: &VolumeKey,
    take: &Take,
    is_from_agent: bool,
    (trace, deadline): (TraceContext, Instant),
) -> OnNode {
    let until = deadline.min(Instant::now() + AGENT_TIMEOUT);
    let agent = NodeAndNamespace::any_of(take.node.clone());
    let call = Call::until(trace, until);
    let asked = state.bus.ask_service::<verb::AgentStatus>(&agent, &AgentQuery {}, &call).await;
    asked.map_or(OnNode::Something, |status| {
        judge(&status, volume, &take.alloc, usize::from(is_from_agent))
    })
}

/// `own_requests` of the agent's requests for the alloc are this one.
fn judge(status: &AgentStatus, volume: &VolumeKey, alloc: &AllocId, own_requests: usize) -> OnNode {
    // An agent that does not tell of its requests may be about to mount it. Without its journal it
    // may have it mounted.
    let Some(requests) = &status.requests else { return OnNode::Something };
    let mut mounts = status.mounts.iter();
    let mut work = status.work.iter();
    let is_here = mounts.any(|it| is_of(volume, alloc, (&it.namespace, &it.volume, &it.alloc)))
        || work.any(|it| is_of(volume, alloc, (&it.namespace, &it.volume, &it.alloc)))
        || !status.strays.is_empty();
    if is_here {
        return OnNode::Something;
    }
    let of_claim = requests.iter().filter(|request| {
        request.namespace == volume.namespace
            && request.alloc == *alloc
            && request.volume.as_ref().is_none_or(|it| *it == volume.volume)
    });
    let count: usize = of_claim.map(|request| request.count).sum();
    if count > own_requests { OnNode::Requested } else { OnNode::Nothing }
}

fn is_of(
    key: &VolumeKey,
    own: &AllocId,
    (namespace, volume, alloc): (&Namespace, &VolumeId, &AllocId),
) -> bool {
    *namespace == key.namespace && *volume == key.volume && alloc == own
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(more: &Value, own_requests: usize) -> OnNode {
        let mut status = json!({"node": "n1", "mounts": [], "controllers": [], "requests": []});
        status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let status: AgentStatus = serde_json::from_value(status).unwrap();
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
        judge(&status, &volume, &AllocId::new("a").unwrap(), own_requests)
    }

    #[test]
    fn a_claim_stays_where_its_mount_is_or_may_come() {
        let requests = |volume: Value, alloc: &str, count: usize| {
            json!({"requests": [{"namespace": "default", "alloc": alloc, "volume": volume,
                "count": count}]})
        };
        let work = json!({"work": [{"namespace": "default", "volume": "data", "alloc": "a",
            "step": "agent.mount", "since": "2026-11-21T20:00:00.000Z", "hung": false}]});
        for (more, own_requests, expected) in [
            (json!({}), 0, OnNode::Nothing),
            (json!({"requests": null}), 0, OnNode::Something),
            (json!({"strays": ["/somewhere"]}), 0, OnNode::Something),
            (work, 0, OnNode::Something),
            (requests(json!("data"), "a", 1), 0, OnNode::Requested),
            (requests(json!("data"), "a", 1), 1, OnNode::Nothing),
            (requests(json!("data"), "a", 2), 1, OnNode::Requested),
            (requests(json!(null), "a", 1), 0, OnNode::Requested),
            (requests(json!("logs"), "a", 1), 0, OnNode::Nothing),
            (requests(json!("data"), "b", 1), 0, OnNode::Nothing),
        ] {
            assert_eq!(judged(&more, own_requests), expected, "{more} {own_requests}");
        }
    }
}
