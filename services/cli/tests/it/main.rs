//! `berth` as its users see it: help, tables, errors and exit codes, each held by a golden file.
//!
//! A golden that changed on purpose is taken over with `INSTA_UPDATE=always cargo test -p
//! berth-cli`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test must stop where its footing fails")]

mod berth;
mod data;
mod dev;
mod documents;
mod events;
mod exit_codes;
mod failures;
mod help;
mod hints;
mod inspect;
mod lists;
mod run;
mod run_ends;
mod samples;
mod story;
mod system;
mod tables;
mod trace;
