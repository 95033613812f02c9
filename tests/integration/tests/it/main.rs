//! Flows over real servers, real processes and real mounts. They need root, for the mounts.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test must stop where its footing fails"
)]

mod chaos;
mod config;
mod input;
mod inspect;
mod kills;
mod life;
mod names;
mod safety;
mod secrets;
mod tell;
mod traces;
