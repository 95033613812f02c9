//! A CSI socket in front of a driver: it logs each call, and plants faults.
//!
//! Owns: the faults that a test plants between a CO and a driver, and the log of the calls, which
//! `berth-judge` reads. The driver may be any: behind a socket (`berth-csi-proxy serve --to`), or
//! services in the same process (how `berth-csi-dev` uses this crate).
//!
//! Promises: without a fault, the bytes of a request and of its answer are passed on unchanged. The
//! proxy waits for the end of each call that it passed on, even if the caller leaves: the driver
//! does not get the caller's deadline. The call's end is in the log before the answer is sent. Of
//! each service, one call at a time is passed on about a volume, a snapshot or a group. No secret
//! is logged.
//!
//! Never: judges, makes calls of its own (except to ask what the driver is, and for wrong answers
//! that need it), or knows what a storage has.
//!
//! ```text
//! cli, serve, socket   the program: settings, start, drain
//! behind               a driver behind another socket: the way to it, and what it is
//! service              the gRPC service: finds the types of a call
//! call                 one call: log, gate, faults, log
//! tap                  what all calls at a socket share
//! outcome              what came of a call: its log entry and its answer
//! caller               whether its caller still waits
//! pass                 the way to the driver, and what its answer says of the call
//! gate                 which calls may be with the driver at the same time
//! sabotage             what planted faults do to a call
//! forgery              wrong answers that need more than the answer
//! causes               an error with all its causes
//! subject              what a call is about
//! faults               the file of faults
//! log                  one line for each beginning and end of a call
//! mute                 servers that are no plugin, at a plugin's socket
//! ```

#![expect(missing_docs, reason = "only programs of tests use this library")]

mod behind;
mod call;
mod caller;
mod causes;
pub mod cli;
pub mod faults;
mod forgery;
mod gate;
pub mod log;
mod mute;
mod outcome;
mod pass;
mod sabotage;
pub mod serve;
mod service;
pub mod socket;
mod subject;
mod tap;

pub use causes::chain;
pub use cli::JudgeArgs;
pub use gate::{Gate, Pass, Refused};
pub use pass::Verdict;
pub use serve::{ServeError, Settings, serve};
pub use tap::{Tap, Tapped};
