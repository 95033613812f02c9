//! The real claim service on a real nats-server, beside a registry's records written by hand.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops where its footing fails")]

mod secrets;
mod site;
