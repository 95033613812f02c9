//! What the facts of a failed call mean.

use berth_contract::code::Code;
use berth_domain::volume::CallFailure;

use crate::cause::{Actor, Cause};
use crate::finding::Finding;
use crate::next;

/// Whether the failure has one of these codes.
pub fn is_code(failure: &CallFailure, codes: &[Code]) -> bool {
    failure.facts.code.is_some_and(|code| codes.contains(&code.into()))
}

/// Whether the plugin did not answer the call, if it got it.
pub fn is_unanswered(failure: &CallFailure) -> bool {
    is_code(failure, &[Code::StillBusy, Code::NoAnswer])
}

/// An agent refused the request as older than another one, so the plugin was not called. A retry is
/// newer, or comes after the agent has forgotten the newer request.
pub fn not_called(plugin: &str, failure: &CallFailure, nobody: Actor) -> Option<Finding> {
    if !is_code(failure, &[Code::OldCall]) {
        return None;
    }
    let node = failure.facts.node.as_ref();
    let agent = node.map_or_else(|| "an agent".to_owned(), |node| format!("the agent of {node}"));
    let sentence = format!(
        "{agent} refused the request, because it knows of a newer one for the volume; {plugin} was \
         not called"
    );
    let finding = Finding::new(Cause::RequestOutdated, nobody, sentence);
    Some(
        finding
            .shown_by([failure.to_string()])
            .next_if_known(node.map(next::node_status))
            .next(format!("berth explain {}", Code::OldCall)),
    )
}
