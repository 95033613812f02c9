//! The messages and services of `csi.v1`, generated from `proto/csi/v1/csi.proto`.
//!
//! **Owns** nothing written by hand.
//!
//! **Promises** the names and numbers of CSI 1.13, and ordered maps, so that equal messages have
//! equal bytes; neither `Debug` nor the JSON of a message shows a secret ([`crate::redact`]).
//!
//! **Never** decides anything: a server's call that is not written answers `UNIMPLEMENTED`.

#![allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code is written for the compiler"
)]

tonic::include_proto!("csi.v1");
