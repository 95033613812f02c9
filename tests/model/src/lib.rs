//! Every interleaving of the claim protocol, searched breadth first over the real
//! [`berth_domain::volume::step`].
//!
//! **Owns** a small world around one volume: allocs that end and come back, calls and grants that
//! are late or lost, executors, agents that crash, nodes that reboot or go and come back, a plugin
//! that acts and says it did not, and time. What is decided about the volume is not modelled: the
//! world keeps the volume's record and asks the same function that the services ask.
//!
//! **Promises** that each state it reports as seen was checked against the safety rules
//! ([`safety`]) and can come to rest ([`weather`]), and that a breach comes with the shortest way
//! to it, readable by a person ([`search`]).
//!
//! **Never** changes the domain: a [`Mutation`] breaks the world around it, or wraps its answer, to
//! show that the search would notice.
//!
//! `README.md` says how large the worlds are and what is not covered.

mod absent_nodes;
mod action;
mod claims;
mod controller;
mod decide;
mod fingerprint;
pub mod handle;
mod lost_plugin;
mod model;
mod node;
mod normal;
pub mod pair;
mod repeat;
pub mod restored;
pub mod safety;
mod scenario;
pub mod search;
pub mod storage;
mod story;
mod symmetry;
mod translate;
pub mod weather;
mod world;

pub use action::{Action, Ending, LateAsk};
pub use model::Model;
pub use scenario::{Attaches, Mutation, Placed, Scenario, Trouble};
pub use world::World;
