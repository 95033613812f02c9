//! The client against a real server, with services that refuse, are away, or answer late.

#![expect(clippy::unwrap_used, reason = "what a test needs to go on is there, or it fails")]

mod retry;
