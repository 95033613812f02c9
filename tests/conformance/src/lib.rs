//! The conformance kit: plays faults against a scheduler, and reports its mistakes.
//!
//! **Owns** the scenes ([`scene`]), the jobs that the scheduler is given ([`job`]), what was seen
//! of them from outside ([`seen`]), and what of that is a mistake ([`mistakes`]).
//!
//! **Promises** that a mistake is told with the moments that prove it: by the jobs' own logs, and
//! by the events of the services. The scheduler is a program of any language.
//!
//! **Never** looks into the scheduler, and never forgives one mistake for another.

#![expect(clippy::expect_used, reason = "a kit of tests stops where its footing fails")]

pub mod job;
pub mod mistakes;
pub mod scene;
mod scheduler;
pub mod seen;
pub mod storm;
