//! The commands that send a service a request and print its answer.
//!
//! **Promises** that stdout holds the answer and nothing else, and that nothing is sent while the
//! input has a fault.

pub mod access;
pub mod alloc;
pub mod bus;
pub mod change;
pub mod claim;
pub mod class;
pub mod detach;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod external;
pub mod gc;
pub mod keygen;
pub mod level;
pub mod listing;
mod many;
pub mod new_volume;
pub mod node;
pub mod plugin;
pub mod plugin_here;
pub mod register;
pub mod republish;
pub mod restore;
pub mod search;
pub mod snapshot;
pub mod spec;
pub mod trace;
pub mod volume;
pub mod volume_change;
pub mod volume_create;
pub mod volume_delete;
pub mod why;
