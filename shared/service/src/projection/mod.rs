//! The contents of the buckets, kept current in memory by watching.
//!
//! **Owns** how records fold into volumes, allocs, plugins and nodes. Decisions may use a
//! projection that lags, because the guard of the write catches it.
//!
//! **Promises** that a record of a newer version makes its volume read-only here, and does not
//! remove it. Fills in what a writer cannot know of its own write, such as epochs.
//!
//! **Never** writes.

mod alloc_index;
mod allocs;
mod arrivals;
mod change_log;
mod classes;
mod copies;
mod handles;
mod listed;
mod load;
mod lost;
mod registry;
mod subtree;
mod time_bounds;
mod unaccounted;
mod volume_index;
mod volumes;

pub use alloc_index::{AllocIndex, AllocKey};
pub use allocs::{AllocChange, Allocs};
pub use arrivals::Arrivals;
pub use change_log::ChangeLog;
pub use classes::{Classes, StoredClass};
pub use copies::{Copies, CopySource};
pub use handles::{HandleEntry, HandleGuard, Handles};
pub use load::Load;
pub use lost::{LostClaim, LostClaims};
pub use registry::{Instances, Nodes};
pub use subtree::Subtree;
pub use volume_index::{ClaimKey, VolumeIndex};
pub use volumes::{ClaimChange, VolumeChange, Volumes};
