//! Flows over real servers, real processes and real mounts. They need root, for the mounts.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test must stop where its footing fails"
)]

mod access_enabled;
mod anydriver;
mod budgets;
mod clocks;
mod config;
mod cut_off;
mod events_and_trace;
mod examples;
mod existence;
mod failing;
mod faults;
mod floods;
mod forged;
mod full_disk;
mod gone_nodes;
mod held;
mod hung_replica;
mod identity;
mod in_use;
mod input;
mod inspect;
mod junk_lease;
mod kills;
mod level;
mod lists;
mod logs;
mod long_line;
mod long_queue;
mod lost_bucket;
mod many_volumes;
mod mounts;
mod names;
mod namespaces;
mod node_status;
mod on_node;
mod other_mode;
mod pairs;
mod reads;
mod refused;
mod register;
mod regranted;
mod restored;
mod restored_indexes;
mod rogue;
mod rogue_docker;
mod rogue_reports;
mod rolling;
mod safety;
mod scenarios;
mod schedulers;
mod search;
mod secrets;
mod shared_id;
mod storage;
mod stuck_claims;
mod systemd;
mod traces;
mod twice;
mod unaccounted;
mod unknown_fields;
mod unreadable;
mod unrecorded;
mod unrequested_volumes;
mod upgrade;
mod volume_life;
mod why;
#[path = "../../../../shared/contract/tests/it/widened.rs"]
mod widened;
