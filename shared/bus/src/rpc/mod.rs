//! Requests between services: sent, handled and counted.

pub(crate) mod anyone;
pub mod caller;
pub(crate) mod places;
pub mod request;
pub mod serve;
pub(crate) mod survey;
