//! The requests about nodes, and their state.

pub mod gone;
pub mod hold;
pub mod host;
pub mod leave;
mod lost_claims;
pub mod presence;
pub mod report;
pub mod tell;
mod witness;
