//! Buckets: opened or made with a configuration of our own, and watched for drift.
//!
//! **Owns** the stream settings that guards, markers and leases need: guards over a subtree, TTL
//! per key, no deletion of messages, and rollup, which an operator's `nats kv purge` uses. Also
//! allows more watches than the server's default of 1000. The stream's configuration says how many
//! values of a key it keeps, and how long markers stay.
//!
//! **Promises** that opening is safe when every service starts at once, also while a cluster still
//! forms. A setting that another tool dropped is reported in [`Bucket::drift`] and the log.
//!
//! **Never** changes the settings of a bucket that exists, but for the words that it carries
//! (`correction`).

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_nats::jetstream;
use berth_contract::bucket::{ALL, BUCKETS, BucketSpec, SETTINGS};
use serde_json::{Map, Value, json};

use crate::cause::Cause;
use crate::connection::fault_source::FaultSource;
use crate::connection::handle::Bus;
use crate::incarnation::Origin;
use crate::incarnation::standing::{BucketStanding, FoundStream};
use crate::store::group::Group;
use crate::store::question::SharedQuestion;
use crate::store::store_health::{StoreFault, StoreHealth};
use crate::stream::copies::Copies;
use crate::stream::correction::{PURGED_AFTER, SETTINGS_KEY};
use crate::stream::names::{nanoseconds, stream_name};
use crate::stream::open::{Drift, OpenError, Opened, REPLICAS, Settings, number};

/// The setting of a stream that says how many values of a key it keeps.
const HISTORY: &str = "max_msgs_per_subject";
/// Most values of a key that a KV bucket keeps. Also assumed if the stream has no bound.
const HISTORY_MAX: u64 = 64;
/// The setting of a stream that says how long markers stay.
const MARKER_TTL: &str = "subject_delete_marker_ttl";

/// How long a failed write keeps the process from being ready.
const WRITE_FAULT_SHOWN: Duration = Duration::from_secs(60);

/// Most watches of one bucket.
const WATCHES_MAX: u32 = 50_000;

/// An open bucket: a cheap handle.
#[derive(Clone)]
pub struct Bucket {
    pub(crate) bus: Bus,
    pub(crate) shape: Arc<Shape>,
}

/// The facts that do not change while the bucket is open.
pub(crate) struct Shape {
    /// The requested settings; the stream's may differ ([`Bucket::drift`]).
    pub(crate) spec: BucketSpec,
    pub(crate) name: String,
    pub(crate) stream: String,
    pub(crate) handle: jetstream::stream::Stream<()>,
    /// How many values of a key the server keeps at most.
    pub(crate) history: u64,
    pub(crate) marker_ttl: Duration,
    pub(crate) purged_after: u64,
    /// Whether several servers kept a copy when the bucket was opened.
    has_copies: bool,
    pub(crate) health: StoreHealth,
    /// What the process knows of the stream, to recognize it.
    pub(crate) standing: Arc<BucketStanding>,
    /// The writes in progress.
    pub(crate) group: Arc<Group>,
    /// How far the bucket is.
    pub(crate) newest_question: SharedQuestion,
    drift: Vec<Drift>,
}

impl FaultSource for Shape {
    fn fault(&self) -> Option<String> {
        let StoreFault { since, reason } = self.health.recent_fault(WRITE_FAULT_SHOWN)?;
        let bucket = &self.name;
        Some(format!("nats-server stores no writes to bucket {bucket} since {since}: {reason}"))
    }

    fn store_fault(&self) -> Option<String> {
        self.fault()
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bucket").field(&self.shape.name).finish()
    }
}

impl Bus {
    /// Opens the bucket; makes it if it does not exist.
    pub(crate) async fn bucket_unrecorded(
        &self,
        spec: &BucketSpec,
        copies: Copies,
    ) -> Result<Bucket, OpenError> {
        let opened =
            self.ensure(&stream_name(spec.name), spec, copies, Some(Origin::First)).await?;
        self.handle(spec, opened).await
    }

    /// A handle to an existing bucket.
    pub(crate) async fn handle(
        &self,
        spec: &BucketSpec,
        opened: Opened,
    ) -> Result<Bucket, OpenError> {
        let stream = stream_name(spec.name);
        let handle = self.jetstream().get_stream_no_info(&stream).await.map_err(|error| {
            OpenError::Refused { stream: stream.clone(), source: Cause::new(error) }
        })?;
        // The record of buckets is read at the leader for each decision; nothing is answered from
        // memory.
        let is_record = spec.name == BUCKETS.name;
        let standing =
            if is_record { Arc::default() } else { self.standings().of_bucket(spec.name) };
        if let Some(asked) = opened.asked {
            let Opened { config, created, last, .. } = &opened;
            let (last, has_majority) = (*last, true);
            standing.record_opening(asked, FoundStream { config, created, last, has_majority });
        }
        let shape = Shape {
            spec: *spec,
            name: spec.name.to_owned(),
            stream,
            handle,
            history: number(&opened.config, HISTORY)
                .map_or(HISTORY_MAX, |history| history.min(HISTORY_MAX)),
            marker_ttl: number(&opened.config, MARKER_TTL)
                .map_or(spec.marker_ttl, Duration::from_nanos),
            purged_after: purged_after(&opened.config).unwrap_or(spec.purged_after),
            health: StoreHealth::default(),
            standing,
            has_copies: number(&opened.config, REPLICAS).is_some_and(|replicas| replicas > 1),
            group: Group::new(self.clone(), spec.name),
            newest_question: SharedQuestion::default(),
            drift: opened.drift,
        };
        let shape = Arc::new(shape);
        let source: Weak<Shape> = Arc::downgrade(&shape);
        self.fault_sources().add(source);
        Ok(Bucket { bus: self.clone(), shape })
    }
}

impl Bucket {
    /// The bucket's name.
    pub fn name(&self) -> &str {
        &self.shape.name
    }

    /// Why writes of this process are not stored; none while they are.
    pub fn store_fault(&self) -> Option<StoreFault> {
        self.shape.health.fault()
    }

    /// How long the delete marker of a key stays.
    pub fn marker_ttl(&self) -> Duration {
        self.shape.marker_ttl
    }

    /// The settings that differed from the expected ones when the bucket was opened.
    pub fn drift(&self) -> &[Drift] {
        &self.shape.drift
    }

    /// Whether another server may become the leader of the bucket. On a cluster, copies may be
    /// added while the bucket is open, so there every bucket may change its leader.
    pub(crate) fn may_change_leader(&self) -> bool {
        self.shape.has_copies || self.bus.cluster().is_some()
    }

    /// The subject of a key or filter.
    pub(crate) fn subject(&self, key: &str) -> String {
        format!("$KV.{}.{key}", self.shape.name)
    }

    /// The key of a subject of this bucket.
    pub(crate) fn key<'a>(&self, subject: &'a str) -> Option<&'a str> {
        subject.strip_prefix("$KV.")?.strip_prefix(self.shape.name.as_str())?.strip_prefix('.')
    }
}

/// Whether the record of buckets covers this bucket.
pub(crate) fn is_recorded(name: &str) -> bool {
    ALL.iter().any(|spec| spec.name == name)
}

impl Settings for BucketSpec {
    fn settings(&self, copies: u8, _is_clustered: bool) -> Map<String, Value> {
        config(self, copies)
    }
}

/// The configuration of a bucket's stream.
pub(crate) fn config(spec: &BucketSpec, replicas: u8) -> Map<String, Value> {
    let config = json!({
        "name": stream_name(spec.name),
        "description": spec.description,
        "metadata": {
            "berth.writer": spec.writer,
            "berth.schema": "1",
            (SETTINGS_KEY): SETTINGS.to_string(),
            (PURGED_AFTER): spec.purged_after.to_string(),
        },
        "subjects": [format!("$KV.{}.>", spec.name)],
        "retention": "limits",
        "storage": "file",
        (REPLICAS): replicas,
        (HISTORY): spec.history,
        "max_consumers": WATCHES_MAX,
        "max_age": 0,
        "max_bytes": -1,
        "max_msgs": -1,
        "discard": "new",
        "deny_delete": true,
        "allow_rollup_hdrs": true,
        "allow_direct": true,
        "allow_atomic": true,
        "allow_msg_ttl": true,
        (MARKER_TTL): nanoseconds(spec.marker_ttl),
    });
    match config {
        Value::Object(config) => config,
        _ => Map::new(),
    }
}

/// How many writes must follow a delete before its marker may be purged, if the stream says so.
fn purged_after(config: &Map<String, Value>) -> Option<u64> {
    config.get("metadata")?.get(PURGED_AFTER)?.as_str()?.parse().ok()
}
