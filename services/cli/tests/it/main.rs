//! `berth` as its users see it: help, tables, errors and exit codes, each held by a golden file.
//!
//! A golden that changed on purpose is taken over with `INSTA_UPDATE=always cargo test -p berth-cli`.

mod berth;
mod data;
mod documents;
mod exit_codes;
mod failures;
mod help;
mod tables;
