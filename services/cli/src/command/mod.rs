//! The commands that send a service a request and print its answer.
//!
//! **Promises** that stdout holds the answer and nothing else, and that nothing is sent while the
//! input has a fault.

pub mod access;
pub mod alloc;
pub mod bus;
pub mod claim;
pub mod detach;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod gc;
pub mod keygen;
pub mod listing;
pub mod node;
pub mod plugin;
pub mod plugin_here;
pub mod republish;
pub mod spec;
pub mod trace;
pub mod volume;
pub mod why;
