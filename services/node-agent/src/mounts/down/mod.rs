//! Taking down: for a release, by an operator, or because the node counted as gone.
//!
//! **Owns** the order of the steps down.
//!
//! **Promises** that a detach is journalled before the first call, and is done when the mount
//! tables of the host say so (rule 11).
//!
//! **Never** ends a process, and never unmounts what another claim covers.

mod detach;
mod undo;
mod unmount;
mod unmounting;

pub use unmounting::Unmounting;
