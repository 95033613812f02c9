//! The connection: how it is made and proven, what the server refuses, and one exchange over it.

pub mod config;
pub mod connect;
pub mod credentials;
pub(crate) mod denial;
pub(crate) mod exchange;
pub(crate) mod fault_source;
pub(crate) mod handle;
pub(crate) mod headers;
pub(crate) mod health;
pub mod link;
pub(crate) mod pulse;
pub(crate) mod refused_events;
pub(crate) mod servers;
pub mod version;
