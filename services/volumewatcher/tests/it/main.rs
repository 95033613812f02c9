//! The real watcher and the real claim service on a real nats-server. Nodes and controllers are
//! played by the test, which thereby sees each call and says when it is answered.

#![expect(clippy::unwrap_used, reason = "a test stops where its footing fails")]

mod early;
mod executor;
mod gone;
mod isolation;
mod negated;
mod newer;
mod site;
