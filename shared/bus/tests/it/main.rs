//! The bus against real servers: one test per surprise that NATS and its client hold for us.

mod bucket;
mod cable;
mod cluster;
mod commit;
mod connect;
mod event;
mod lease;
mod list;
mod loss;
mod mirror;
mod request;
mod serve;
mod support;
