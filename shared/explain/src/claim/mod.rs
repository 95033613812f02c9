//! Explains the state of one claim.

mod case;
mod controller;
mod holder;
mod mount;
mod node;
mod rules;

pub use case::Case;
pub use controller::no_room;
pub use holder::{Waiter, behind_holder, find_holder, find_in_the_way, keeps_itself};
pub use rules::{STORES_NOTHING, behind_other_name, state};

use crate::finding::Finding;

/// The decisive cause. A waiting claim is explained by what keeps the holder of the volume.
pub fn find(case: &Case<'_>) -> Finding {
    let finding = rules::find_own(case).or_else(|| holder::turn(case));
    finding.unwrap_or_else(|| case.at_rest())
}
