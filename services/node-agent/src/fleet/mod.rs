//! The agent as one of the fleet: what the rest of Berth must know of it, and it of them.
//!
//! **Owns** the node's lease, the gate that follows from it, and the key that secrets are sealed
//! for.
//!
//! **Promises** that nothing new is taken while the registry does not count the node as there.
//!
//! **Never** calls a plugin or changes a mount.
//!
//! | | |
//! | --- | --- |
//! | [`lease`], [`start_revision`] | that this agent lives, and since when it is an executor |
//! | [`gate`] | refuses new work until the registry counts the node as ready |
//! | [`claimed`], [`unaccounted`] | the uses that have a claim, and the mounts that have none |
//! | [`hosting`] | which controllers the node may host |
//! | [`secret`] | the secrets of a call |
//! | [`events`] | events |
//! | [`finish`] | releases that are under way here when the agent is to end |

pub mod claimed;
pub mod events;
pub(crate) mod finish;
pub mod gate;
pub mod hosting;
pub mod lease;
pub mod secret;
pub mod start_revision;
pub mod unaccounted;
