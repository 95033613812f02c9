//! What every Berth process needs, so that each service's `main` is a few lines.
//!
//! **Owns** the way from a command line to a running service and back: configuration with all its
//! faults at once, logs, the connection, shutdown and drain; and what several services do
//! alike: making a call of the claim protocol ([`call`]), working through keys ([`reconcile`]),
//! sealing secrets ([`seal`]), telling the service manager ([`notify`]), showing operations on the
//! host that hang ([`hung`]), reporting lasting faults ([`fault_report`]), knowing when a command
//! with volumes is over ([`runs`]), telling of refused requests ([`refusals`]), reading and writing
//! records under a guard ([`record_table`]), having what was deleted leave a bucket ([`purge`]),
//! and answering lists page by page ([`page`]) and when there is something newer ([`newer`]).
//!
//! **Promises** exit code 64 for bad configuration, with nothing started; that SIGTERM and SIGINT
//! drain within the configured time.
//!
//! **Never** decides anything about volumes.

pub mod call;
pub mod clock;
pub mod config;
pub mod deadline;
pub mod fault_report;
pub mod hung;
pub mod locks;
pub mod newer;
pub mod notify;
pub mod page;
pub mod process;
pub mod projection;
pub mod purge;
pub mod reconcile;
pub mod record_table;
pub mod refusals;
pub mod runs;
pub mod seal;
pub mod shutdown;
pub mod slots;
pub mod telemetry;

pub use process::Process;
pub use shutdown::Shutdown;
