//! What the buckets say, in memory, kept current by watching.
//!
//! **Owns** how records fold into volumes, allocs, plugins and nodes. Decisions may use a
//! projection that lags, because the guard of the write catches it.
//!
//! **Promises** that a record of a newer version makes its volume read-only here rather than
//! vanish, and that whatever a writer could not know of its own write (epochs) is filled in.
//!
//! **Never** writes.

mod allocs;
mod handles;
mod load;
mod registry;
mod volumes;

pub use allocs::Allocs;
pub use handles::{HandleEntry, HandleGuard, Handles};
pub use load::Load;
pub use registry::{Instances, Nodes};
pub use volumes::{Subtree, Volumes};
