//! Properties and rules of the volume's step, seen from outside.

#![expect(clippy::unwrap_used, reason = "a test must stop where its footing fails")]

mod anything;
mod capability;
mod external;
mod fixture;
mod history;
mod left_out;
mod line;
mod proofs;
mod round_trip;
mod rules;
mod summed;
mod table;
mod total;
mod world;
