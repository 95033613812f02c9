//! The real watcher and the real claim service on a real nats-server. The test plays the nodes and
//! the controllers: it sees each call, and decides when it is answered.

#![expect(clippy::unwrap_used, reason = "a test stops where its footing fails")]

mod early;
mod executor;
mod gone;
mod isolation;
mod negated;
mod newer;
mod site;
