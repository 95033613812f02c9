//! Actions of an operator on the bus: backups, restored buckets, reports of streams.
//!
//! Only `berth bus` and `berth doctor` use this module, and nothing else in this crate does. It is
//! part of this crate because it needs the insides of streams and incarnations, which no other
//! crate may see.

pub(crate) mod backup;
pub(crate) mod raise;
pub mod restore;
pub(crate) mod stream_report;
