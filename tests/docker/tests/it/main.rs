//! Docker's volumes on a real engine, and the plugin's protocol without an engine. The tests need
//! root for the mounts.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test must stop where its footing fails")]

mod compose;
mod containers;
mod copy_up;
mod counting;
mod created_by_docker;
mod creation;
mod creation_kills;
mod held;
mod listing;
mod protocol;
mod removal;
mod restarts;
