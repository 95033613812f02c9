//! `berth why`: the decisive cause of what a volume, an alloc, a node or a plugin waits for.
//!
//! **Owns** the facts that are read ([`Facts`]), the order in which one cause hides another
//! ([`Cause`]) and the rules that find it. **Promises** that [`diagnose`] is pure: the same facts
//! give the same diagnosis. A source that did not answer is a fact, too.
//!
//! **Never** changes anything, and never waits longer than some seconds.

mod alloc;
mod cause;
mod claim;
mod facts;
mod gather;
mod name;
pub mod next;
mod node;
mod obstacle;
mod plugin;
mod rights;
mod service;
mod snapshot;
mod storage;
mod volume;

pub use cause::{Actor, Cause, Diagnoses, Diagnosis, Finding};
pub use claim::{STORES_NOTHING, unreadable_record};
pub use facts::{Facts, Names, ServiceInfo, SnapshotName, SourceAnswer};
pub use gather::{complete, gather};
pub use name::names;
pub use node::{
    is_returning, state as node_state, troubles as node_troubles, wrong_clock as wrong_node_clock,
};
pub use plugin::troubles as plugin_troubles;
pub use service::{bus_away, is_wrong as is_wrong_skew, skew as words_of_skew};
pub use storage::{find_change, find_refusal, find_snapshot};

use berth_contract::code::Code;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::problem::Problem;

/// The state of a thing whose record was not read.
const NOT_KNOWN: &str = "not known";

/// The diagnoses of everything with this name; nothing when nothing has it.
pub fn diagnose(facts: &Facts) -> Vec<Diagnosis> {
    let Names { volume, alloc, node, plugin, snapshot } = &facts.names;
    let mut found: Vec<Diagnosis> = Vec::new();
    found.extend(volume.as_ref().and_then(|id| volume::diagnose(facts, id)));
    found.extend(alloc.as_ref().and_then(|id| alloc::diagnose(facts, id)));
    found.extend(node.as_ref().and_then(|id| node::diagnose(facts, id)));
    found.extend(plugin.as_ref().and_then(|id| plugin::diagnose(facts, id)));
    found.extend(snapshot.as_ref().and_then(|name| snapshot::diagnose(facts, name)));
    if found.is_empty() {
        found.extend(service::unanswered(facts));
    }
    found
}

/// The decisive cause of what one claim waits for.
pub fn find_claim(facts: &Facts, claim: &ClaimStatus) -> Finding {
    claim::find(&claim::Case { facts, claim })
}

/// The record in a source's answer; otherwise the diagnosis of the failure. None when there is no
/// such thing, or when `unanswered` has no finding for a source that did not answer.
fn read_record<'a, T>(
    answer: &'a SourceAnswer<T>,
    subject: &str,
    unanswered: impl FnOnce(&Problem) -> Option<Finding>,
) -> Result<&'a T, Option<Diagnosis>> {
    answer.as_ref().map_err(|problem| {
        let finding = match problem {
            problem if is_unreadable(problem) => Some(unreadable_record(problem)),
            problem if is_none(problem) => None,
            problem => unanswered(problem),
        };
        finding.map(|finding| Diagnosis::new(subject, NOT_KNOWN, finding))
    })
}

/// Whether the answer says that there is no such thing.
fn is_none(problem: &Problem) -> bool {
    use Code as C;
    matches!(
        problem.code,
        C::NoSuchVolume | C::NoSuchAlloc | C::NoSuchNode | C::NoSuchPlugin | C::NoSuchSnapshot
    )
}

/// Whether the answer says that a record cannot be read.
fn is_unreadable(problem: &Problem) -> bool {
    matches!(problem.code, Code::NewerRecord | Code::DamagedRecord)
}

#[cfg(test)]
mod tests;
