//! What the tidy tests read the repository with.
//!
//! Owns: which files count ([`repository::files`]) and the little parsing that the rules need
//! ([`source`], [`imports`], [`markdown`], [`inventory`]). Promises: it reads what is on disk, so a
//! rule holds before a commit as it does after. Never: knows a rule; those are tables in
//! `tests/it`, one module per matter.

#![expect(clippy::expect_used, clippy::panic, reason = "a file that cannot be read fails the test")]

pub mod imports;
pub mod inventory;
pub mod markdown;
pub mod repository;
pub mod source;
