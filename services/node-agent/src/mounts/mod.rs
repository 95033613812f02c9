//! Mounts volumes on this node, takes them down, and shows them.
//!
//! **Owns** the work of `agent.mount`, `agent.mount-all`, `agent.guard`, `agent.detach`,
//! `agent.expand`, `agent.republish`, `agent.unmount` and `agent.status`. The plan says which
//! plugin calls to make ([`plan`]); this module makes them.
//!
//! **Promises** that a use is in the journal before its first plugin call (E4, E5), that a detach
//! is done when the mount table says so (rule 11), and that a grant is used only by the request
//! that took it (rule 10).
//!
//! **Never** removes a file, a mount point, or a directory that is not empty.
//!
//! Each of these has no more than its work takes:
//!
//! | | |
//! | --- | --- |
//! | [`MountHandlers`] | `agent.mount`, `agent.mount-all`: who waits for which volumes |
//! | [`Mounting`] | mounts what is granted; `agent.republish` |
//! | [`Unmounting`] | `agent.detach`, `agent.unmount`, and all once the node counted as gone |
//! | [`Expanding`] | `agent.expand` |
//! | [`Guards`] | `agent.guard` |
//! | [`NodeStatus`] | `agent.status` |
//! | [`LocalVolumes`] | what is here; calls no plugin, and tells nobody |
//! | [`NodePlugins`], [`ClaimService`] | who is called, and who is asked |

mod account;
mod beside;
mod bind;
mod calls;
mod claims;
mod dirs;
mod down;
mod expand;
mod guard;
pub(crate) mod health;
mod holders;
mod node_faults;
mod plan;
mod processes;
pub(crate) mod runs;
mod status;
mod still_mounted;
mod unstaged;
mod up;
mod volume_size;
mod volumes;
mod watch;

pub use bind::Binds;
pub use calls::NodePlugins;
pub use claims::ClaimService;
pub use down::Unmounting;
pub use expand::Expanding;
pub use guard::Guards;
pub use status::{NodeStatus, log_leftovers};
pub use up::{MountHandlers, Mounting};
pub use volumes::LocalVolumes;
pub use watch::watch_mounts;
