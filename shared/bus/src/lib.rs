//! The only crate that sees async-nats: guarded transactions, watches, request and serve, leases.
//!
//! **Owns** every way in which NATS and its client can surprise, and answers each once:
//!
//! | surprise | answered in |
//! | --- | --- |
//! | a write whose acknowledgement is lost may be stored, now or later | [`commit`] |
//! | a lost race has two error codes, one of them only on a cluster | [`commit`] |
//! | a write that was refused by a leader that no longer leads is stored by the next | [`commit`] |
//! | a deleted key with history comes back when its marker expires | [`commit`], [`purge`] |
//! | what is sent while disconnected is delivered after its caller gave up | every call here |
//! | a direct read is stale on a cluster | [`read`], [`list`] |
//! | a connection that carries nothing stays open for minutes | `pulse` |
//! | a watch falls silent, starts over, or goes deaf after a restore | [`mirror`] |
//! | a lease over an expired one never expires | [`lease`] |
//! | a stalled replica gets requests for 9 s | `anyone` |
//! | a handler that outlasts its caller looks like a timeout | [`caller`] |
//! | a line break in an error ends an endpoint | [`serve`] |
//! | each write costs a sync of the disk | `group` |
//! | a refused permission looks like an outage | `denial` |
//! | a bucket's settings are dropped by another tool | [`bucket`] |
//! | a cluster that forms looks like a smaller one | [`copies`] |
//! | a deleted bucket looks like one that was never made | `birth`, `fall`, [`loss`] |
//! | a restored stream looks like the lost one | [`incarnation`], `standing` |
//!
//! **Promises** that each call here ends by a deadline, and that its error says whether something
//! may have been done. No type of the client library is visible.
//!
//! **Never** knows a subject, a key or a record of Berth's: those are `contract`.

pub mod bucket;
pub mod caller;
pub mod commit;
pub mod config;
pub mod connect;
pub mod copies;
pub mod credentials;
pub mod event;
pub mod incarnation;
pub mod lease;
pub mod link;
pub mod list;
pub mod loss;
pub mod mirror;
pub mod purge;
pub mod read;
pub mod replication;
pub mod request;
pub mod restore;
pub mod serve;
pub mod version;

mod absence;
mod ack;
mod anyone;
mod backup;
mod batch;
mod birth;
mod cause;
mod certificate;
mod clock;
mod clock_check;
mod compare;
mod copies_watch;
mod correction;
mod denial;
mod exchange;
mod fall;
mod fault_source;
mod feed;
mod filter;
mod group;
mod handle;
mod headers;
mod health;
mod places;
mod pulse;
mod raise;
mod refused_events;
mod resolve;
mod servers;
mod standing;
mod store_health;
mod stream;
mod stream_report;
mod survey;
mod write;

pub use bucket::Bucket;
pub use cause::{Cause, chain};
pub use certificate::{Certificate, read_certificates};
pub use config::{ClientCertificate, Config, Tls};
pub use connect::ConnectError;
pub use copies::Copies;
pub use credentials::{BadCredentials, Credentials, Identity};
pub use event::{EventSender, Events};
pub use handle::Bus;
pub use incarnation::{Incarnation, Origin};
pub use lease::{KeptLease, Lease, LeaseError, LeaseHold};
pub use link::Counts;
pub use list::List;
pub use mirror::{Fold, Mirror, MirrorError, MirrorOptions, NoPicture};
pub use purge::{PurgeError, PurgePosition};
pub use read::{Entry, ReadError};
pub use request::{Call, RequestError};
pub use serve::{EndpointSpec, Listen, Request, Service, ServiceSpec, VerbRequest};
pub use store_health::StoreFault;
pub use stream::{Drift, OpenError};
pub use stream_report::{ServerReport, StaleCopy, StreamReport};
pub use write::{Change, CommitError, Guard, Write};
