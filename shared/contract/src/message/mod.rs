//! Requests and replies.
//!
//! **Owns** the JSON of every message, one file per noun. A request is read with
//! [`decode::message`](crate::decode::message), which reports all its faults; a reply by serde.
//! Replies that combine records are types of their own, so that a combination cannot be stored.
//!
//! **Never** carries a secret in a reply, but for `secret.open`, whose secrets are sealed.

pub mod access;
pub mod agent;
pub mod alloc;
pub mod call;
pub mod claim;
pub mod class;
pub mod collect;
pub mod digest;
pub mod history;
pub mod level;
pub mod many;
pub mod node;
pub mod owner;
pub mod paged;
pub mod plugin;
pub mod query;
mod registration;
pub mod registry;
pub mod secret;
pub mod snapshot;
pub mod storage;
pub mod storage_call;
mod storage_wait;
pub mod volume;
pub mod work;
