//! The real service on a real nats-server, beside the real claim service where it is asked.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops where its footing fails")]

mod collect;
mod leader;
mod pages;
mod process;
mod records;
mod site;
