//! What a thing waits for, who acts and what to try: the decisive cause, from facts.
//!
//! **Owns** the facts ([`facts`]), the causes with their order ([`Cause`]: an earlier cause hides a
//! later one), the rules that find them, and their words.
//!
//! **Promises** that everything here is pure: the same facts give the same finding. That a source
//! did not answer is a fact, too.
//!
//! **Never** asks a service, reads a clock or prints. Its callers gather the facts, and show the
//! finding.

mod at_storage;
mod cause;
mod change;
mod claim;
pub mod facts;
mod failure;
mod finding;
mod instance;
mod judgement;
pub mod missing_rights;
mod mounted;
mod name;
pub mod next;
mod node;
mod obstacle;
mod plugin;
mod problem;
mod record;
mod refusal;
mod rights;
mod service;
pub mod span;
mod storage;
mod subject;
mod wait_reason;

pub use at_storage::AtStorage;
pub use cause::{Actor, Cause};
pub use change::{delete_command, name_operation};
pub use claim::{STORES_NOTHING, behind_other_name, no_room};
pub use facts::{Facts, Holders, Names, ServiceInfo, SnapshotName, SourceAnswer};
pub use finding::{Diagnoses, Diagnosis, Finding};
pub use instance::not_known as unreported_plugin;
pub use name::names;
pub use node::{
    is_returning, keeps_unmount, state as node_state, troubles as node_troubles,
    wrong_clock as wrong_node_clock,
};
pub use plugin::troubles as plugin_troubles;
pub use problem::{find_problem, find_unusable, is_of_holders};
pub use record::unreadable_record;
pub use refusal::{next_of_deletion, next_of_mount, next_of_refusal};
pub use service::{bus_away, is_wrong as is_wrong_skew, skew as words_of_skew};
pub use storage::{find_change, find_refusal, find_snapshot};
pub use subject::{diagnose, find_volume};
pub use wait_reason::WaitReason;

use berth_contract::message::claim::ClaimStatus;

/// The decisive cause of what one claim waits for.
pub fn find_claim(facts: &Facts, claim: &ClaimStatus) -> Finding {
    claim::find(&claim::Case { facts, claim })
}

#[cfg(test)]
mod tests;
