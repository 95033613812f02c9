//! The only crate that sees async-nats: guarded transactions, watches, request and serve, leases.
//!
//! **Owns** every way in which NATS and its client can surprise, and answers each once:
//!
//! | surprise | answered in |
//! | --- | --- |
//! | a write whose acknowledgement is lost may be stored, now or later | `store::commit` |
//! | a lost race has two error codes, one of them only on a cluster | `store::commit` |
//! | a write that a deposed leader refused is stored by the next leader | `store::commit` |
//! | a deleted key comes back when its marker expires | `store::commit`, `store::purge` |
//! | what is sent while disconnected is delivered after its caller gave up | each call |
//! | a direct read is stale on a cluster | `store::read`, `store::list` |
//! | a connection that carries nothing stays open for minutes | `connection::pulse` |
//! | a watch falls silent, starts over, or goes deaf after a restore | `store::mirror` |
//! | a lease over an expired one never expires | `store::lease` |
//! | a stalled replica gets requests for 9 s | `rpc::hedge` |
//! | a handler that outlasts its caller looks like a timeout | `rpc::caller` |
//! | a line break in an error ends an endpoint | `rpc::serve` |
//! | each write costs a sync of the disk | `store::group` |
//! | a refused permission looks like an outage | `connection::denial` |
//! | a bucket's settings are dropped by another tool | `store::bucket` |
//! | a cluster that forms looks like a smaller one | `stream::copies` |
//! | a deleted bucket looks like one that was never made | `store::birth`, `incarnation::loss` |
//! | a restored stream looks like the lost one | `incarnation`, `incarnation::standing` |
//!
//! | shelf | what stands there; each uses only those above it |
//! | --- | --- |
//! | `incarnation` | which stream a bucket is, and whether it is lost |
//! | `connection` | the connection, and one exchange over it |
//! | `rpc` | requests between services: sent, served and counted |
//! | `stream` | streams: made with our settings, described, read as they come |
//! | `store` | buckets: guarded writes, reads, lists, mirrors and leases |
//! | `event` | events: published, kept when refused, and read |
//! | `operator` | what a person does to the bus: backups, and buckets that are restored |
//!
//! **Promises** that each call here ends by a deadline, and that its error says whether something
//! may have been done. No type of the client library is visible.
//!
//! **Never** knows a subject, a key or a record of Berth's: those are `contract`.

mod cause;
mod clock;
mod connection;
pub mod event;
mod incarnation;
mod operator;
mod rpc;
mod store;
mod stream;

pub use cause::{Cause, chain};
pub use connection::config::{ClientCertificate, Config, Tls};
pub use connection::connect::ConnectError;
pub use connection::credentials::{BadCredentials, Credentials, Identity};
pub use connection::handle::Bus;
pub use connection::link::Counts;
pub use connection::version;
pub use event::{EventSender, Events};
pub use incarnation::{Incarnation, Origin};
pub use operator::restore;
pub use operator::stream_report::{ServerReport, StaleCopy, StreamReport};
pub use rpc::request::{Call, RequestError};
pub use rpc::serve::{EndpointSpec, Listen, Request, Service, ServiceSpec, VerbRequest};
pub use rpc::{caller, serve};
pub use store::bucket::Bucket;
pub use store::lease;
pub use store::lease::{KeptLease, Lease, LeaseError, LeaseHold};
pub use store::list::List;
pub use store::mirror::{Fold, Mirror, MirrorError, MirrorOptions, NoPicture};
pub use store::newest_together::Ask;
pub use store::purge::{PurgeError, PurgePosition};
pub use store::read::{Entry, ReadError};
pub use store::store_health::StoreFault;
pub use store::write::{Change, CommitError, Guard, Write};
pub use stream::copies::Copies;
pub use stream::open::{Drift, OpenError};
pub use stream::{copies, replication};
