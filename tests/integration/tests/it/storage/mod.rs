//! Volumes at their storage: created, grown, copied, snapshotted, deleted.

mod bound;
mod classes;
mod expansion;
mod late;
mod life;
mod listed;
mod refusals;
mod returning;
mod scratch;
mod snapshots;
mod wrong;
