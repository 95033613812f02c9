//! What every Berth process needs, so that each service's `main` is a few lines.
//!
//! **Owns** the way from a command line to a running service and back: configuration with all its
//! faults at once, logs, the connection, shutdown and drain. Also owns what several services need:
//! - calls of the claim protocol ([`call`]) and refusing late requests ([`deadline`]);
//! - working through keys ([`reconcile`]) with locks and bounded lanes ([`locks`], [`slots`]);
//! - records written under a guard ([`record_table`]), their projections ([`projection`]), and
//!   purging deleted keys ([`purge`]);
//! - lists page by page ([`page`]), and reads that wait for something newer ([`newer`]);
//! - sealed secrets ([`seal`]);
//! - whether an identity has the rights that its program needs ([`access_check`]);
//! - reports: to the service manager ([`notify`]), to programs that probe the process
//!   ([`readiness`]), of hung host operations ([`hung`]), of lasting faults ([`fault_report`]), of
//!   refused requests ([`refusals`]);
//! - detecting that a command with volumes has ended ([`runs`]).
//!
//! **Promises** exit code 64 for bad configuration, before anything starts. SIGTERM and SIGINT
//! drain the service within the configured time.
//!
//! **Never** decides anything about volumes.

pub mod access_check;
pub mod call;
pub mod clock;
pub mod config;
pub mod connection;
pub mod deadline;
pub mod fault_report;
pub mod first_seen;
pub mod hung;
mod kept_events;
pub mod locks;
pub mod newer;
mod notify;
pub mod page;
pub mod process;
pub mod projection;
pub mod purge;
pub mod rate;
pub mod readiness;
pub mod reconcile;
pub mod record_table;
pub mod refusals;
pub mod registry_status;
pub mod runs;
pub mod seal;
pub mod shutdown;
pub mod slots;
pub mod telemetry;

pub use process::Process;
pub use shutdown::Shutdown;
