//! Properties and rules of the volume's step, seen from outside.

#![expect(clippy::unwrap_used, reason = "a test must stop where its footing fails")]

mod any_storage;
mod anything;
mod capability;
mod crashes;
mod external;
mod fixture;
mod history;
mod ledger;
mod left_out;
mod line;
mod lost;
mod other_mode;
mod proofs;
mod round_trip;
mod rules;
mod storage;
mod storage_event;
mod summed;
mod table;
mod total;
mod total_storage;
mod world;
