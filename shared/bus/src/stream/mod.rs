//! Streams: made with our settings, described, and read as they come.

pub(crate) mod ack;
pub mod copies;
pub(crate) mod copies_watch;
pub(crate) mod correction;
pub(crate) mod feed;
pub(crate) mod names;
pub(crate) mod open;
pub mod replication;
