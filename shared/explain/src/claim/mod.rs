//! Explains the state of one claim.

mod case;
mod controller;
mod mount;
mod node;
mod rules;

pub use case::Case;
pub use rules::{STORES_NOTHING, behind_holder, find, state};
