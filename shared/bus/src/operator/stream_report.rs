//! Reports about the bus for an operator: the server, and each stream of Berth with its copies.
//!
//! **Never** changes or makes a stream.

use berth_contract::bucket::{self, BucketSpec};
use berth_contract::stream::EVENTS;
use berth_domain::{ClockOffset, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::cause::{Cause, chain};
use crate::clock::now;
use crate::connection::exchange::ApiError;
use crate::connection::handle::Bus;
use crate::store::bucket::config;
use crate::stream::correction::comparable;
use crate::stream::names::stream_name;
use crate::stream::open::{Drift, NOT_FOUND, compare};

/// The server that this process is connected to, as it describes itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerReport {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whether JetStream is on.
    pub jetstream: bool,
    /// The name of its cluster, if it is in one.
    pub cluster: Option<String>,
}

/// One stream, as its leader describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamReport {
    /// The stream's name.
    pub name: String,
    /// How many servers should keep a copy.
    pub copies: u64,
    /// The copies that are not current.
    pub behind: Vec<StaleCopy>,
    /// Settings that are not as expected.
    pub drift: Vec<Drift>,
    /// How far this process's clock is ahead of the leader's, in milliseconds.
    pub clock_skew_ms: Option<i64>,
}

/// A server whose copy of a stream is not current.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaleCopy {
    /// The server.
    pub server: String,
    /// How many messages it lacks; none if the server is away.
    pub lag: Option<u64>,
}

#[derive(Deserialize)]
struct StreamInfo {
    config: Map<String, Value>,
    #[serde(default)]
    cluster: Option<ClusterInfo>,
    #[serde(default)]
    ts: String,
}

#[derive(Deserialize)]
struct ClusterInfo {
    #[serde(default)]
    replicas: Vec<PeerInfo>,
}

#[derive(Deserialize)]
struct PeerInfo {
    name: String,
    #[serde(default)]
    current: bool,
    #[serde(default)]
    offline: bool,
    #[serde(default)]
    lag: u64,
}

impl Bus {
    /// The server of the connection.
    pub fn report_server(&self) -> ServerReport {
        let info = self.client().try_server_info().unwrap_or_default();
        ServerReport {
            name: info.server_name,
            version: info.version,
            jetstream: info.jetstream,
            cluster: info.cluster,
        }
    }

    /// Each stream of Berth: every bucket, and the events. `None` is a stream that does not exist.
    pub async fn report_streams(&self) -> Vec<(String, Result<Option<StreamReport>, String>)> {
        let buckets = bucket::ALL.iter().chain([&bucket::BUCKETS]);
        let streams = buckets.map(|spec| (stream_name(spec.name), Some(spec)));
        let streams = streams.chain([(EVENTS.name.to_owned(), None)]);
        let reports = streams.map(async |(stream, spec)| {
            let report = self.report_stream(&stream, spec).await;
            (stream, report.map_err(|error| chain(&error)))
        });
        futures_util::future::join_all(reports).await
    }

    async fn report_stream(
        &self,
        stream: &str,
        spec: Option<&BucketSpec>,
    ) -> Result<Option<StreamReport>, Cause> {
        let (sent, began) = (now(), Instant::now());
        let subject = format!("$JS.API.STREAM.INFO.{stream}");
        let info: StreamInfo = match self.api(subject, &Value::Null).await {
            Err(ApiError::Refused { code: NOT_FOUND, .. }) => return Ok(None),
            info => info?,
        };
        let round_trip = began.elapsed();
        let server = Timestamp::try_from(info.ts).ok();
        let copies = info.config.get("num_replicas").and_then(Value::as_u64).unwrap_or(1);
        let peers = info.cluster.map(|cluster| cluster.replicas).unwrap_or_default();
        let expected = spec.map(|spec| config(spec, u8::try_from(copies).unwrap_or(1)));
        Ok(Some(StreamReport {
            name: stream.to_owned(),
            copies,
            behind: peers.into_iter().filter_map(stale_copy).collect(),
            drift: expected
                .map(|expected| compare(&comparable(&expected, &info.config), &info.config))
                .unwrap_or_default(),
            clock_skew_ms: server
                .map(|server| ClockOffset::from_exchange(sent, server, round_trip).nearest(0)),
        }))
    }
}

/// The copy at a server, unless it is current.
fn stale_copy(peer: PeerInfo) -> Option<StaleCopy> {
    let PeerInfo { name: server, current, offline, lag } = peer;
    (offline || !current).then_some(StaleCopy { server, lag: (!offline).then_some(lag) })
}
