//! Buckets: guarded writes, reads, lists, mirrors and leases.

pub(crate) mod absence;
pub(crate) mod batch;
pub(crate) mod birth;
pub mod bucket;
pub(crate) mod clock_check;
pub mod commit;
pub(crate) mod compare;
pub(crate) mod fall;
pub(crate) mod filter;
pub(crate) mod group;
pub mod lease;
pub mod list;
pub mod mirror;
pub mod newest_together;
pub mod purge;
pub(crate) mod question;
pub mod read;
pub(crate) mod resolve;
pub(crate) mod store_health;
pub(crate) mod ticks;
pub(crate) mod write;
