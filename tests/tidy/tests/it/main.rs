//! The repository keeps its own rules.
//!
//! Each module has one subject: a table of what is allowed, and a test that lists every breach with
//! its place. To change a rule, change its table, and give the reason beside the row.

#![expect(clippy::unwrap_used, reason = "what cannot be read fails the test")]

mod arrows;
mod cycles;
mod documents;
mod files;
mod names;
mod safety;
mod setup;
mod texts;
mod version;
mod words;

/// Fails with a list of all breaches.
fn assert_none(breaches: Vec<String>, rule: &str) {
    assert!(breaches.is_empty(), "{rule}\n  {}", breaches.join("\n  "));
}
