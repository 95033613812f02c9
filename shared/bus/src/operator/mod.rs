//! What a person does to the bus, and looks at: backups, restored buckets, reports of streams.
//!
//! Only `berth bus` and `berth doctor` use it, and nothing else in this crate does. It stands here
//! because it needs what streams and incarnations are made of, which no other crate may see.

pub(crate) mod backup;
pub(crate) mod raise;
pub mod restore;
pub(crate) mod stream_report;
