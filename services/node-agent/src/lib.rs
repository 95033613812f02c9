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
//! Each shelf uses only those below it:
//!
//! | | |
//! | --- | --- |
//! | [`agent`] | starts all parts, reports the node, compares what is mounted with the claims |
//! | [`endpoints`] | the verbs, and who answers them |
//! | [`mounts`] | mounts volumes, takes them down, watches them |
//! | [`roster`] | the plugin instances, and the processes that the agent runs for them |
//! | [`controllers`] | calls to controllers that are hosted here |
//! | [`executor`] | the rules of an executor |
//! | [`plugins`] | identity and health of the plugin behind each socket, and calls to it |
//! | [`fleet`] | the node's lease, its gate, its rights, secrets and events |
//! | [`journal`] | what is, or may be, mounted here |
//! | [`host`] | paths, facts of the host, operations that may hang |

pub mod agent;
mod caller;
mod config;
pub mod controllers;
mod endpoints;
pub mod executor;
pub mod fleet;
pub mod host;
mod journal;
mod mounts;
pub mod plugins;
mod roster;

pub use agent::run;
pub use config::Config;
