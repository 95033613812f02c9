//! The repository keeps its own rules.
//!
//! Each module is one matter: a table of what is allowed, and a test that names every breach with
//! its place. To change a rule, change its table, and say why beside the row.

#![expect(clippy::unwrap_used, reason = "what cannot be read fails the test")]

mod arrows;
mod cycles;
mod documents;
mod files;
mod names;
mod safety;
mod setup;
mod words;

/// Fails with all breaches at once.
fn assert_none(breaches: Vec<String>, rule: &str) {
    assert!(breaches.is_empty(), "{rule}\n  {}", breaches.join("\n  "));
}
