//! The wire, held by golden files: a change of what is stored or sent shows as a change of a file.
//! After a change that is meant, look at what `INSTA_UPDATE=always cargo test` makes of them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test must stop where its footing fails")]

mod calls;
mod faults;
mod level;
mod messages;
mod names;
mod older;
mod owners;
mod plugins;
mod records;
mod reference;
mod sample;
mod storage;
mod text;
mod views;
mod widened;
