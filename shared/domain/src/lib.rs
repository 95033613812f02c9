//! Berth's decisions, pure: no clock, no randomness, no I/O, no async.
//!
//! **Owns** the meaning of every id, access rule, claim state and transition: what may happen to a
//! volume next, and why not. The protocol is written down in `docs/claims.md`.
//!
//! **Promises** that [`volume::step()`] is total: each command in each state gives a
//! [`volume::Step`] (one write, at most one call) or a named [`volume::Refusal`] with the facts an
//! operator needs. The same function runs in the services, in the property tests and in the model
//! checker.
//!
//! **Never** reads the time, draws a random number, knows a subject or a key, or talks to anyone:
//! services load, step, commit under the guard, then act and feed the outcome back.

pub mod access;
pub mod alloc;
pub mod class;
pub mod clock_offset;
pub mod grpc_code;
pub mod id;
pub mod in_doubt;
pub mod interned;
pub mod limits;
pub mod owner;
pub mod placement;
pub mod plugin;
pub mod proof;
pub mod retry;
pub mod room;
pub mod size;
pub mod timestamp;
pub mod topology;
pub mod volume;

pub use clock_offset::ClockOffset;
pub use grpc_code::GrpcCode;
pub use id::{
    AllocId, AttemptId, ClassId, JobId, Namespace, NodeId, OwnerId, PluginId, SecretsId,
    SnapshotId, VolumeId, VolumeKey, WorkerId,
};
pub use interned::{Blank, Interned};
pub use timestamp::Timestamp;
