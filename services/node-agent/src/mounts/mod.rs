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

mod account;
mod alive;
mod bind;
mod calls;
mod claim_use;
mod claims_before;
mod condition;
mod detach;
mod dirs;
mod enforce;
mod expand;
mod grant;
mod guard;
pub(crate) mod health;
mod holders;
mod local;
mod mount;
mod mount_all;
mod mounter;
mod observe;
mod plan;
mod processes;
mod republish;
pub(crate) mod runs;
mod status;
mod still_mounted;
mod undo;
mod unmount;
mod unstaged;
mod volume_size;
mod watch;
mod whole_mount;

pub use bind::Binds;
pub use mounter::{Mounter, MounterContext};
pub use status::log_leftovers;
