//! CSI 1.13, seen from the side of the container orchestrator.
//!
//! **Owns** the wire contract ([`v1`]), the client of one plugin's socket ([`client`]), whether an
//! answer is one to its question ([`answer`]), the meaning of a plugin's error ([`outcome`]), the
//! identity of a plugin ([`fingerprint`]), what it says of health ([`health`]), access modes on the
//! wire ([`capability`]), and the redaction of requests ([`redact`]).
//!
//! **Promises** that every call ends by its deadline with an answer or a [`CallError`] that names
//! the call and the socket, and that nothing printed here has a secret of a request.
//!
//! **Never** decides whether to call: order, retries and records belong to the services.

pub mod advertised;
pub mod answer;
pub mod capability;
pub mod client;
pub mod code;
mod connection;
pub mod failure;
pub mod fingerprint;
pub mod health;
pub mod outcome;
pub mod redact;
pub mod rpc;
mod shown;
pub mod v1;

pub use client::Client;
pub use code::Code;
pub use connection::PathConnection;
pub use failure::{CallError, Failure};
pub use fingerprint::{Fingerprint, IdentifyError, identify, probe};
pub use outcome::{CallAnswer, Class, Remedy, classify};
pub use rpc::{Effect, Rpc, Service};
