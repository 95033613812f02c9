//! Volumes as they are registered, deregistered, and released from a node by an operator.

pub mod deregister;
pub mod detach;
mod many;
pub mod register;
pub mod running;

pub use many::{deregister_many, register_many};
