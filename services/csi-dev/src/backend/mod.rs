//! The directory that all instances of the driver share: the "storage system".
//!
//! Owns: the layout below its root, and every file in it. Promises: a killed process leaves the old
//! or the new content of a file, and no lock. Changes of one volume by several instances are
//! serialized. Never: mounts, or decides whether a call is allowed.
//!
//! ```text
//! volumes/<id>/meta.json     what the volume is; it exists once this does
//! volumes/<id>/data/         its content, if it is a directory
//! volumes/<id>/image         its content, if it is an image
//! volumes/<id>/state.json    where it is attached, staged and published
//! volumes/<id>/abnormal.json why it is reported as abnormal, where a test says so
//! volumes/<id>/lock          held while meta and state are read or changed, or content is copied
//! volumes/<id>/work          held by each program that works on its content or devices
//! volumes/<id>/calls/        one file per slot, locked while a call is in flight
//! snapshots/<id>/            meta.json, lock, work, and data/ or image
//! groups/<id>.json           the groups of snapshots
//! nodes/<id>.json            the nodes that an instance has served
//! lock                       held while attachments or sizes are counted or a node is recorded
//! ```
//! `<id>` is the id as [`encoding`] writes it.

mod condition;
pub mod content;
pub mod directory;
pub mod encoding;
mod error;
mod file;
pub mod meta;
mod node;
mod slot;
mod snapshot;
pub mod state;
mod store;
mod volume;

pub use error::BackendError;
pub use meta::{ContentSource, CreationRequest, GroupMeta, SnapshotMeta, VolumeMeta};
pub use node::NodeRecord;
pub use slot::{CallSlot, HeldSlot, RunningCall};
pub use snapshot::Snapshot;
pub use state::{Attachment, NodeUse, PublishedVolume, StagedVolume, VolumeState};
pub use store::{Backend, ProvisionError, Provisioned};
pub use volume::{LockedVolume, Volume};
