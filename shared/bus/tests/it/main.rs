//! The bus against real servers: one test for each surprise of NATS and its client.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "what a test needs to go on is there, or it fails; what it measured is for its reader"
)]

mod absence;
mod actor;
mod birth;
mod bucket;
mod cable;
mod cluster;
mod commit;
mod connect;
mod copies;
mod event;
mod frozen;
mod group;
mod lease;
mod list;
mod loss;
mod mirror;
mod newest;
mod purge;
mod renewals;
mod request;
mod restored;
mod serve;
mod spans;
mod support;
mod together;
mod words;
