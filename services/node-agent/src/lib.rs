//! `berth-node-agent`: stages and publishes volumes on its node, and answers for the controllers
//! beside it.
//!
//! **Owns** its node's lease and its state directory: the journal of what is, or may be, mounted
//! here, and the paths below which plugins mount.
//!
//! **Promises** the executor's half of the claim protocol (rules 4, 10 and 11): a call that is late
//! or old does nothing; one plugin call at a time for each volume, until the plugin has really
//! answered; what is about to be done is on the disk before it is done; a volume is gone from here
//! when the kernel's mount table says so.
//!
//! **Never** sets the state of a claim, decides who may have a volume, or removes a file.
//!
//! | | |
//! | --- | --- |
//! | [`config`], [`agent`] | what is configured; the parts put together |
//! | [`host`], [`identity`], [`lease`], [`report`] | what the node is, and that it lives |
//! | [`plugin`] | who sits behind each socket, and whether it is well |
//! | [`roster`] | which plugins there are, and the processes that the agent runs for them |
//! | [`executor`], [`start_revision`] | the rules of an executor |
//! | [`controller`] | calls to controllers that are hosted here |
//! | [`plan`], [`journal`], [`paths`] | what to do on this node, and why |
//! | [`node`] | doing it |
//! | [`mount_health`] | whether what is mounted still answers |
//! | [`claimed`], [`compare`] | whether what is mounted is still claimed |
//! | [`unaccounted`] | mounts that no claim covers |
//! | [`gate`], [`comeback`] | taking nothing new before the node is known to count as there |
//! | [`runs`] | commands that use what is mounted, watched to their end |
//! | [`host_pool`] | operations that may hang |
//! | [`secret`] | the secrets of a call |
//! | [`events`] | events |

mod agent;
mod call_log;
mod claimed;
mod comeback;
mod compare;
mod config;
pub mod controller;
pub mod events;
pub mod executor;
mod finish;
pub mod gate;
pub mod host;
mod host_pool;
mod identity;
mod journal;
pub mod lease;
mod mount_health;
mod node;
mod paths;
mod plan;
pub mod plugin;
pub mod report;
mod roster;
mod runs;
mod secret;
pub mod start_revision;
pub mod unaccounted;

pub use agent::run;
pub use config::Config;
