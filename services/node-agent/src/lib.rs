//! `berth-node-agent`: stages and publishes volumes on its node, and answers for the controllers
//! beside it.
//!
//! **Owns** its node's lease and its state directory: the journal of what is, or may be, mounted
//! here, and the paths below which plugins mount.
//!
//! **Promises** the executor's half of the claim protocol (rules 4, 10 and 11):
//! - A late or outdated call does nothing.
//! - Each volume has one plugin call at a time, until the plugin has answered.
//! - The journal on the disk has each step before the step is taken.
//! - A volume is unmounted when the kernel's mount table says so.
//!
//! **Never** sets the state of a claim, decides who may have a volume, or removes a file.
//!
//! | | |
//! | --- | --- |
//! | [`config`], [`agent`] | the configuration; starts all parts |
//! | [`host`], [`identity`], [`lease`], [`report`] | facts about the node, and its liveness |
//! | [`plugin`] | identity and health of the plugin behind each socket |
//! | [`roster`] | the plugin instances, and the processes that the agent runs for them |
//! | [`executor`], [`start_revision`] | the rules of an executor |
//! | [`controller`] | calls to controllers that are hosted here |
//! | [`plan`], [`journal`], [`paths`] | which steps are due on this node, and why |
//! | [`node`] | takes the steps: mounts and unmounts |
//! | [`unmount_copy`] | a process of its own, which unmounts in another mount namespace |
//! | [`mount_health`] | whether what is mounted still answers |
//! | [`claimed`], [`compare`] | whether what is mounted is still claimed |
//! | [`hosting`] | which controllers the node may host |
//! | [`unaccounted`] | mounts that no claim covers |
//! | [`gate`], [`comeback`] | refuse new work until the registry counts the node as ready |
//! | [`runs`] | commands that use a mount, watched until they end |
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
pub mod hosting;
mod identity;
mod journal;
pub mod lease;
mod mount_health;
mod mount_users;
mod node;
mod paths;
mod plan;
pub mod plugin;
pub mod report;
mod roster;
mod runs;
pub mod secret;
pub mod start_revision;
pub mod unaccounted;
pub mod unmount_copy;

pub use agent::run;
pub use config::Config;
