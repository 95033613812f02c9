//! Docker on one machine, for tests: a complete Berth, real engines, and the plugin's socket.
//!
//! Owns: engines that share nothing with the host's own engine, and the removal of what they leave.
//!
//! Promises: no test needs a network; no container, mount, process or socket outlives its test.
//!
//! Never: sends a request to the host's own engine.

#![expect(clippy::expect_used, reason = "a test must stop where its footing fails")]

mod engine;
mod plugin;
mod reported_mounts;
mod site;

pub use engine::{Engine, IMAGE_WITH_DATA, compose_or_skip, engine_or_skip};
pub use plugin::{Answer, Plugin, request, until_done};
pub use site::{PATIENCE, Site};
