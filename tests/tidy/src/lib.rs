//! Reads the repository for the tidy tests.
//!
//! Owns: which files count ([`repository::files`]) and the little parsing that the rules need
//! ([`source`], [`paths`], [`imports`], [`markdown`], [`inventory`]). Promises: it reads the files
//! on disk, so a rule holds before a commit, too. Never: contains a rule; rules are tables in
//! `tests/it`, one module per subject.

#![expect(clippy::expect_used, clippy::panic, reason = "a file that cannot be read fails the test")]

pub mod imports;
pub mod inventory;
pub mod markdown;
pub mod paths;
pub mod repository;
pub mod source;
