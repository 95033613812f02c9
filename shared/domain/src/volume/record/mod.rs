//! The record of a volume: what its subtree holds.
//!
//! **Owns** the spec, the claims, and what follows from each alone.
//!
//! **Never** decides: [`step`](super::step()) does.

mod claim;
mod claims;
mod mount_options;
mod node_mount;
mod spec;
mod volume;

pub use claim::{Claim, State};
pub use claims::{Claims, Iter};
pub use mount_options::{MountOptions, MountSummary};
pub use node_mount::{NodeMount, NodeMountState};
pub use spec::{Closing, VolumeSpec};
pub use volume::Volume;

pub(super) use claims::{Calls, Newcomer};
