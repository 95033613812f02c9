//! The host beneath the agent: what it is, where volumes are on it, and what may hang there.
//!
//! **Owns** the layout of the state directory, and the way to run an operation that may hang.
//!
//! **Promises** that whatever touches a mount, a caller's path, a plugin's file or `/proc` has a
//! deadline.
//!
//! **Never** knows of a claim, a plugin call or the bus.
//!
//! | | |
//! | --- | --- |
//! | [`facts`] | the facts about this host that the agent reports |
//! | [`paths`] | where volumes are |
//! | [`pool`] | operations that may hang |
//! | [`mount_users`] | the processes that use a mount |
//! | [`unmount_copy`] | a process of its own, which unmounts in another mount namespace |

mod facts;
pub(crate) mod mount_users;
pub(crate) mod paths;
pub(crate) mod pool;
pub mod unmount_copy;

pub use facts::Host;
