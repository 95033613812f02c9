//! Explains the state of one claim.

mod case;
mod controller;
mod mount;
mod node;
mod rules;

pub use case::Case;
pub use controller::no_room;
pub use rules::{
    STORES_NOTHING, behind_holder, behind_other_name, find, find_holder, keeps_itself, state,
};
