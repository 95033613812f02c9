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
//! | what changes or shows something | and has no more than that takes |
//! | --- | --- |
//! | [`MountRequests`] | `agent.mount`, `agent.mount-all`: who waits for which volumes |
//! | [`Mounting`] | mounts what is granted; `agent.republish` |
//! | [`Unmounting`] | `agent.detach`, `agent.unmount`, and everything once the node counted as gone |
//! | [`Expanding`] | `agent.expand` |
//! | [`Guards`] | `agent.guard` |
//! | [`NodeStatus`] | `agent.status` |
//! | [`LocalVolumes`] | what is here; calls no plugin, and tells nobody |
//! | [`NodePlugins`], [`ClaimService`] | who is called, and who is asked |

mod account;
mod alive;
mod bind;
mod calls;
mod claim_use;
mod claims;
mod claims_before;
mod condition;
mod detach;
mod dirs;
mod enforce;
mod expand;
mod guard;
pub(crate) mod health;
mod holders;
mod local;
mod mount;
mod mount_all;
mod mounting;
mod observe;
mod plan;
mod processes;
mod republish;
mod requests;
pub(crate) mod runs;
mod status;
mod still_mounted;
mod undo;
mod unmount;
mod unmounting;
mod unstaged;
mod volume_size;
mod volumes;
mod watch;
mod whole_mount;

pub use bind::Binds;
pub use calls::NodePlugins;
pub use claims::ClaimService;
pub use expand::Expanding;
pub use guard::Guards;
pub use mounting::Mounting;
pub use requests::MountRequests;
pub use status::{NodeStatus, log_leftovers};
pub use unmounting::Unmounting;
pub use volumes::LocalVolumes;
pub use watch::watch_mounts;
