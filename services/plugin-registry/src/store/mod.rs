//! The registry's state: its buckets and their mirrors, one node's records, the leases that are
//! held, and the events.
//!
//! **Never** answers a request: the modules `node`, `plugin` and `read` do.

pub mod event_shares;
pub mod events;
pub mod evidence;
pub mod held_leases;
pub mod node_records;
pub mod pace;
pub mod state;
pub mod volumes_incarnation;
