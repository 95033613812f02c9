//! The event of a refused request.

use berth_contract::actor::Actor;
use berth_contract::problem::Problem;
use berth_domain::Namespace;
use berth_domain::alloc::Alloc;
use berth_service::projection::Allocs;
use berth_service::refusals::RequestSubject;

use crate::caller::Caller;
use crate::store::state::State;

/// Publishes that a request was refused, in the name of the actor for which it was sent.
pub fn tell_refusal(
    state: &State,
    namespace: &Namespace,
    caller: &Caller,
    about: RequestSubject,
    problem: &Problem,
) {
    let by = about.alloc.as_ref().and_then(|alloc| {
        let find = |allocs: &Allocs| {
            let (_, alloc) = allocs.get(namespace, alloc)?;
            alloc.by.clone().filter(|_| is_sent_for(alloc, caller.actor.as_ref()))
        };
        state.allocs.mirror.read(find)
    });
    let sender = caller.by();
    let (namespace, by) = (Some(namespace.clone()), by.or_else(|| sender.clone()));
    let about = RequestSubject { namespace, by, sender, ..about };
    state.refusals.tell_refusal(about, problem, caller.trace);
}

/// Whether the sender of a refused request sends it for the alloc's registrant: an agent does for
/// the allocs of its node, Berth's own services do for all. Any other sender that names an alloc
/// appears in the event as itself.
fn is_sent_for(alloc: &Alloc, sender: Option<&Actor>) -> bool {
    match sender {
        Some(Actor::Node(node)) => alloc.node == *node,
        Some(Actor::Service(_)) => true,
        Some(Actor::Docker(_) | Actor::User(_)) | None => false,
    }
}
