//! The output of `berth`: help, tables, errors and exit codes, each compared with a golden file.
//!
//! After an intended change, update the golden files with `INSTA_UPDATE=always cargo test -p
//! berth-cli`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test must stop where its footing fails")]

mod access;
mod alloc_data;
mod berth;
mod bus_copies;
mod data;
mod dev;
mod doctor;
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
mod storage;
mod story;
mod system;
mod tables;
mod trace;
