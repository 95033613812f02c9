//! The real service on a real nats-server.

#![expect(clippy::unwrap_used, reason = "a test stops where its footing fails")]

mod absence;
mod hints;
mod history;
mod level;
mod secrets;
mod secrets_site;
mod site;
