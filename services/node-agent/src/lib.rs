//! wip
pub mod journal;
pub mod mount_table;
pub mod paths;
pub mod plan;
