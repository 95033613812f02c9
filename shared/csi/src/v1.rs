//! The messages and services of `csi.v1`, generated from `proto/csi/v1/csi.proto`.
//!
//! Owns: nothing written by hand. Promises: names and numbers of CSI 1.12; maps are ordered, so equal messages
//! have equal bytes. Never does: decide anything.

#![allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code is written for the compiler"
)]

tonic::include_proto!("csi.v1");
