//! Identities on the bus, made offline: keys, tokens, certificates, the servers' configuration.
//!
//! **Owns** the operator's directory ([`directory`]), the form of NATS tokens ([`jwt`]) and
//! `.creds` files ([`creds`]), the TLS authority ([`tls`]), the configuration that makes a
//! nats-server accept all of these ([`servers`]), their way onto a host ([`install`]), and a fleet
//! of one machine for tests and `berth dev` ([`local`]).
//!
//! **Promises** that a key is never overwritten unless the caller says so, that files with keys are
//! readable by their owner only, and that a key is on record before its `.creds` file exists: each
//! key that was handed out can be revoked.
//!
//! **Never** connects to a server, or shows a seed: neither in an error nor in a `Debug` text. Only
//! [`local`] reads the clock.

pub mod creds;
pub mod directory;
mod error;
mod files;
pub mod host;
pub mod install;
pub mod jwt;
pub mod key;
pub mod local;
pub mod record;
pub mod servers;
pub mod tls;

pub use berth_contract::permissions::{Permissions, derive_permissions};
pub use berth_contract::role::{Grants, Role};
pub use creds::inbox_prefix;
pub use directory::Directory;
pub use error::AccessError;
pub use local::LocalFleet;
