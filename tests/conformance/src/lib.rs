//! The conformance kit: plays faults against a scheduler, and reports its mistakes.
//!
//! **Owns** the scenes ([`scene`]), the jobs that the scheduler is given ([`job`]), the
//! observations from outside ([`event_log`]), and the definition of a mistake ([`mistakes`]).
//!
//! **Promises** that a mistake is reported with the moments that prove it, from the jobs' own logs
//! and the events of the services. The scheduler is a program of any language.
//!
//! **Never** looks into the scheduler, and never lets one mistake excuse another.

#![expect(clippy::expect_used, reason = "a kit of tests stops where its footing fails")]

pub mod event_log;
pub mod job;
pub mod mistakes;
pub mod scene;
mod scheduler;
pub mod storm;
