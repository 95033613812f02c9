//! The development CSI driver: a whole plugin with real mounts.
//!
//! Owns: a CSI 1.12 plugin for trying out and testing a CO. Several instances, one per node, share
//! one backend directory. Promises: all of the protocol but changed blocks of snapshots, as much of
//! it as is not switched off; real mounts and devices, the protocol's own error codes, a log of
//! every call; it survives SIGKILL at any point; what a CO must never do is refused and recorded.
//! Never: is fit for data that matters.
//!
//! ```text
//! cli, serve, socket      the binary: settings, start, drain
//! driver                  the calls, one file per pair that undo each other
//! backend                 the shared directory: volumes, their state, who is working on them
//! mute                    what may sit at the socket instead
//! mounts, loops           mounts and loop devices, as the kernel has them
//! tool, lock              the system's programs, and what they keep locked as long as they work
//! ability                 what the plugin can do, and how much of that is switched off
//! capability, topology    what a CO asks of a volume: how it is accessed, and from where
//! faults                  what a test plants
//! log                     one line per beginning and end of a call
//! rules                   what a CO must never do, as the driver refuses it
//! ```

pub mod ability;
pub mod backend;
pub mod backing;
pub mod capability;
pub mod cli;
pub mod driver;
pub mod faults;
pub mod lock;
pub mod log;
pub mod loops;
pub mod mounts;
pub mod mute;
pub mod rules;
pub mod serve;
pub mod socket;
pub mod tool;
pub mod topology;
