//! Volumes at their storage: created, grown, copied, snapshotted, deleted.

mod bound;
mod classes;
mod creation_to_deletion;
mod expansion;
mod late_answers;
mod listed;
mod places;
mod plugin_returns;
mod refusals;
mod scratch;
mod snapshots;
mod wrong_answers;
