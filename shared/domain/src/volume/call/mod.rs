//! The calls of plugins, as records keep them: whose call it is, its attempt, how far the calls of
//! one owner have come, and why one did not succeed.

mod attempt;
mod failure;
mod owner;
mod progress;

pub use attempt::{Attempt, CallKind};
pub use failure::{CallFailure, ErrorCode, FailureFacts, HoldingProcess};
pub use owner::CallOwner;
pub use progress::Progress;

pub(super) use failure::is_zero;
