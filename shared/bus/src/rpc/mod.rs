//! Requests between services: sent, handled and counted.

pub mod caller;
pub(crate) mod hedge;
pub(crate) mod places;
pub mod request;
pub mod serve;
mod span;
pub(crate) mod survey;
