//! The development CSI driver: a whole plugin with real mounts.
//!
//! Owns: a CSI 1.13 plugin for developing and testing a CO. Several instances, one per node, share
//! one backend directory.
//!
//! Promises: the RPCs of `driver::services`, each unless it is switched off; real mounts and
//! devices; CSI's own error codes. An instance may be killed at any point. Calls that a CO must
//! never make are refused. It does not offer the changed blocks of snapshots.
//!
//! Never: is fit for data that matters. It logs no calls and plants no faults: `berth-csi-proxy`
//! does both, in front of the driver and in the same process.
//!
//! ```text
//! cli, serve              the binary: settings, start, the proxy in front
//! driver                  the calls, one file per pair of calls that undo each other
//! backend                 the shared directory: volumes, their use, calls in flight
//! mounts, loops           mounts and loop devices, as the kernel has them
//! tool, lock              programs of the system, and file locks that they keep while they run
//! ability                 the optional abilities, which can be switched off
//! capability, topology    how and from where a CO wants to access a volume
//! backing                 directory or image, and file systems
//! rules                   the order of calls that the driver insists on
//! ```

#![expect(missing_docs, reason = "only the program and its own tests use this library")]

pub mod ability;
pub mod backend;
pub mod backing;
pub mod capability;
pub mod cli;
pub mod driver;
pub mod lock;
pub mod loops;
pub mod mounts;
pub mod rules;
pub mod serve;
pub mod tool;
pub mod topology;
