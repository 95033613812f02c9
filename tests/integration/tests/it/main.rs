//! Flows over real servers, real processes and real mounts. They need root, for the mounts.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test must stop where its footing fails"
)]

mod anydriver;
mod clocks;
mod config;
mod cut_off;
mod enabled;
mod existence;
mod failing;
mod faults;
mod floods;
mod forged;
mod full;
mod gone;
mod hearsay;
mod held;
mod hung_replica;
mod identity;
mod in_use;
mod input;
mod inspect;
mod junk_lease;
mod kills;
mod level;
mod life;
mod line;
mod lists;
mod logs;
mod lost;
mod mounts;
mod names;
mod namespaces;
mod on_node;
mod pairs;
mod reads;
mod refused;
mod register;
mod regranted;
mod restored;
mod rogue;
mod rogue_docker;
mod rogue_reports;
mod rolling;
mod safety;
mod scenarios;
mod schedulers;
mod secrets;
mod shared_id;
mod storage;
mod stuck;
mod systemd;
mod tell;
mod traces;
mod truth;
mod twice;
mod unaccounted;
mod unknown_fields;
mod unreadable;
mod unrecorded;
mod upgrade;
mod why;
#[path = "../../../../shared/contract/tests/it/widened.rs"]
mod widened;
