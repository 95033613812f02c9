//! Volumes as they are registered, deregistered, and released from a node by an operator.

pub mod deregister;
pub mod detach;
pub mod register;
pub mod running;
