//! CSI 1.12: generated types, the client over a plugin's socket, capabilities, error classes, redaction.

pub mod v1;
