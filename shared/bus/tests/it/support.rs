//! Shared by the tests of this crate: buses, buckets, writes, and a plain client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::stream::RawMessageErrorKind;
use berth_bus::{
    Bucket, Bus, Change, CommitError, Config, Entry, Fold, Guard, Mirror, MirrorOptions, Write,
};
use berth_contract::bucket::BucketSpec;
use berth_contract::trace::TraceContext;
use berth_harness::nats::Server;
use berth_harness::wait;
use bytes::Bytes;
use futures_util::StreamExt as _;

/// The deadline of each wait, which only a failing test reaches.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A bucket with history, like that of volumes.
pub const STATE: BucketSpec = BucketSpec {
    name: "state",
    description: "a bucket of a test",
    writer: "test",
    history: 8,
    marker_ttl: Duration::from_secs(3600),
    guard_tokens: 0,
    purged_after: 0,
};

/// A bucket whose markers expire quickly.
pub const FLEETING: BucketSpec =
    BucketSpec { name: "fleeting", history: 1, marker_ttl: Duration::from_secs(1), ..STATE };

/// A bucket for leases.
pub const LEASES: BucketSpec =
    BucketSpec { name: "leases", history: 1, marker_ttl: Duration::from_secs(60), ..STATE };

/// Subscribes to the requests of every actor on a subject, and sends no reply.
pub async fn silent_subscriber(server: &Server, subject: &str) -> async_nats::Subscriber {
    let client = async_nats::connect(&server.url()).await.unwrap();
    let mut requests = client.subscribe(format!("{subject}.*.*")).await.unwrap();
    // Its own message comes back, which shows that the server has the subscription.
    client.publish(format!("{subject}.user.test"), Bytes::new()).await.unwrap();
    requests.next().await.unwrap();
    requests
}

pub async fn one() -> (Server, Bus) {
    let server = Server::start().await;
    let bus = connect(&server.url()).await;
    (server, bus)
}

pub async fn one_bucket(spec: &BucketSpec) -> (Server, Bus, Bucket) {
    let (server, bus) = one().await;
    let bucket = bus.bucket(spec, 1).await.unwrap();
    (server, bus, bucket)
}

pub async fn connect(url: &str) -> Bus {
    Bus::connect(config(url)).await.unwrap()
}

/// Settings with long timeouts: a disk that is shared by many may stall for seconds.
pub fn config(url: &str) -> Config {
    Config { request_timeout: PATIENCE, ..Config::new([url], "test/host/1").insecure() }
}

pub fn trace() -> TraceContext {
    TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap()
}

/// A write of `value` under a guard.
pub fn put<'a>(key: &'a str, value: &str, filter: &'a str, revision: u64) -> Write<'a> {
    let change = Change::Put(Bytes::copy_from_slice(value.as_bytes()));
    Write { key, change, guard: Guard { filter, revision }, operation: "op", trace: trace() }
}

pub fn delete<'a>(key: &'a str, filter: &'a str, revision: u64) -> Write<'a> {
    Write { change: Change::Delete, ..put(key, "", filter, revision) }
}

/// Writes a key over any value; only for keys that no other task writes.
pub async fn set(bucket: &Bucket, key: &str, value: &str) -> u64 {
    let revision = bucket.head(key).await.unwrap();
    bucket.commit(put(key, value, key, revision)).await.unwrap()
}

/// Deletes a key with any value; only for keys that no other task writes.
pub async fn unset(bucket: &Bucket, key: &str) -> u64 {
    let revision = bucket.head(key).await.unwrap();
    bucket.commit(delete(key, key, revision)).await.unwrap()
}

pub fn text(entry: &Entry) -> &str {
    std::str::from_utf8(entry.value.as_deref().unwrap_or(b"(marker)")).unwrap()
}

pub fn is_conflict<T>(result: &Result<T, CommitError>) -> bool {
    matches!(result, Err(CommitError::Conflict { .. }))
}

/// A plain client, without any code of this crate.
pub async fn plain(url: &str) -> jetstream::Context {
    let servers: Vec<&str> = url.split(',').collect();
    jetstream::new(async_nats::connect(servers).await.unwrap())
}

/// All messages in a bucket's stream, oldest first: the sequence and the key.
pub async fn messages(url: &str, bucket: &str) -> Vec<(u64, String)> {
    let stream = plain(url).await.get_stream(format!("KV_{bucket}")).await.unwrap();
    let state = stream.cached_info().state.clone();
    let prefix = format!("$KV.{bucket}.");
    let mut messages = Vec::new();
    for sequence in state.first_sequence..=state.last_sequence {
        let message = wait::until("the leader answers", PATIENCE, async || {
            match stream.get_raw_message(sequence).await {
                Err(error) if error.kind() != RawMessageErrorKind::NoMessageFound => Err(error),
                messages => Ok(messages.ok()),
            }
        })
        .await;
        if let Some(message) = message {
            messages.push((sequence, message.subject.strip_prefix(&prefix).unwrap().to_owned()));
        }
    }
    messages
}

/// A fold that keeps every entry.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Keys(pub BTreeMap<String, (u64, String)>);

impl Fold for Keys {
    fn put(&mut self, key: &str, revision: u64, value: &[u8]) {
        let value = String::from_utf8(value.to_vec()).unwrap();
        self.0.insert(key.to_owned(), (revision, value));
    }
    fn delete(&mut self, key: &str, _revision: u64) {
        self.0.remove(key);
    }
}

/// Options of a mirror that notices everything soon.
pub fn hurried() -> MirrorOptions {
    MirrorOptions {
        heartbeat: Duration::from_millis(200),
        probe_every: Duration::from_secs(1),
        ..MirrorOptions::default()
    }
}

pub async fn mirror(bucket: &Bucket, filter: &str) -> Mirror<Keys> {
    Mirror::start(bucket, filter, Keys::default(), hurried()).await.unwrap()
}

/// The leader's list, as a fold.
pub async fn listed(bucket: &Bucket, filter: &str) -> Keys {
    let list = bucket.list(filter).await.unwrap();
    assert!(list.settled, "the list of a bucket that nobody writes is settled");
    let keys = list.entries.iter();
    Keys(keys.map(|entry| (entry.key.clone(), (entry.revision, text(entry).to_owned()))).collect())
}

/// Waits until the mirror holds exactly what the leader lists, and is current.
pub async fn agrees(mirror: &Mirror<Keys>, bucket: &Bucket, filter: &str) {
    let expected = listed(bucket, filter).await;
    wait::until("the mirror equals the leader's list", PATIENCE, async || {
        let held = mirror.read(Keys::clone);
        match mirror.stale_since() {
            None if held == expected => Ok(()),
            stale => Err(format!("stale since {stale:?}\n{held:?}\n  instead of\n{expected:?}")),
        }
    })
    .await;
}

/// A flag that stops tasks of a test.
pub type Flag = Arc<std::sync::atomic::AtomicBool>;
