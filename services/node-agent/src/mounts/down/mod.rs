//! Taking down: for a release, by an operator, or because the node counted as gone.
//!
//! **Owns** the order of the steps down.
//!
//! **Promises** that a detach is journalled before the first call, and is done when the mount
//! tables of the host say so (rule 11).
//!
//! **Never** takes down a use that a claim covers, unless the claim is being released or the node
//! counted as gone. Only in the latter case it ends processes.
//!
//! - `detach`: `agent.detach`, for a release
//! - `unmount`: `agent.unmount`, for an operator
//! - `undo`: everything, once the node counted as gone
//! - `unmounting`: the parts that these need, and the order of the steps

mod detach;
mod undo;
mod unmount;
mod unmounting;

pub use unmounting::Unmounting;
