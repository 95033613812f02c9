//! What a person does to the bus, and looks at: backups, restored buckets, certificates, copies.

pub(crate) mod backup;
pub(crate) mod certificate;
pub(crate) mod raise;
pub mod restore;
pub(crate) mod stream_report;
