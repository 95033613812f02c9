//! Streams: made when missing, and compared with the expected settings when present.
//!
//! **Owns** the creation, safe when many services start at once and while a cluster still forms,
//! and the comparison: another tool may have dropped a setting (`nats kv edit` drops two).
//!
//! **Never** changes a stream that exists, except for its words ([`crate::stream::correction`]),
//! and never makes one for an agent: an agent waits until a service has made it.

use std::fmt;
use std::time::Duration;

use berth_contract::actor::Actor;
use berth_contract::bucket::BUCKETS;
use berth_contract::code::Code;
use berth_contract::stream::stream_owner;
use berth_domain::Timestamp;
use berth_host::BootTime;
use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::time::Instant;

use crate::cause::Cause;
use crate::connection::exchange::{ApiError, pause};
use crate::connection::handle::Bus;
use crate::connection::version::{API_LEVEL, OLDEST, Version};
use crate::incarnation::loss::BucketLoss;
use crate::incarnation::{Incarnation, Origin};
use crate::stream::copies::SizeRefusal::{self, TooMany};
use crate::stream::copies::{Copies, next_try};
use crate::stream::correction::{comparable, find_correction};

/// The server's error codes that are handled.
pub(crate) const NOT_FOUND: u64 = 10059;
const NAME_IN_USE: u64 = 10058;
const NO_SUITABLE_PEERS: u64 = 10005;
/// Another process is making the same stream at this moment.
const NO_STORE: u64 = 10049;

const REPLICAS_NEED_CLUSTER: u64 = 10074;
const NO_TIER: u64 = 10120;
/// The setting of a stream that says how many copies it has.
pub(crate) const REPLICAS: &str = "num_replicas";

/// The expected settings of a stream.
pub(crate) trait Settings: Sync {
    /// The settings with so many copies, on a server that is in a cluster or runs alone.
    fn settings(&self, copies: u8, is_clustered: bool) -> Map<String, Value>;
}

/// A numeric setting; `None` if the server has no bound there.
pub(crate) fn number(config: &Map<String, Value>, setting: &str) -> Option<u64> {
    config.get(setting)?.as_u64().filter(|number| *number > 0)
}

/// Why a bucket or stream cannot be used.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The server did not answer, or was not ready, within the start timeout.
    #[error(
        "stream {stream} cannot be opened: nats-server was not ready within {within:?}; \
         check that JetStream is on and, on a cluster, that most servers run"
    )]
    Unavailable {
        /// The stream.
        stream: String,
        /// How long the process tried.
        within: Duration,
        /// What the last try ended with.
        #[source]
        source: Cause,
    },
    /// The bucket was deleted. It is made again only if an operator says so.
    #[error(
        "{code}: {loss}. Restore it from a backup (`berth bus restore`), accept it as it is now \
         (`berth bus accept`), or accept that its records are lost: \
         `nats kv put {record} {bucket} begin-anew`, then start the services. See docs/backup.md",
        code = Code::BucketLost.as_str(),
        loss = .0,
        record = BUCKETS.name,
        bucket = .0.bucket
    )]
    Lost(#[from] BucketLoss),
    /// The cluster has not found three servers with JetStream within the start timeout. One copy
    /// would be lost with one server, so it is made only if that is configured.
    #[error(
        "stream {stream} is not made yet: within {within:?} cluster {cluster} did not have three \
         servers with JetStream and room for it. Start the other servers, or accept a bus that \
         ends with one server: set replicas = 1 in [nats]. See docs/failover.md"
    )]
    TooFewServers {
        /// The stream.
        stream: String,
        /// The cluster.
        cluster: String,
        /// How long the process tried.
        within: Duration,
        /// The server's reason.
        #[source]
        source: Cause,
    },
    /// The server refuses to make it.
    #[error("stream {stream} cannot be opened: the server refuses it")]
    Refused {
        /// The stream.
        stream: String,
        /// The server's reason.
        #[source]
        source: Cause,
    },
    /// A server of the cluster lacks what Berth needs.
    #[error(
        "stream {stream} is kept by a server of API level {level}; Berth needs nats-server {oldest}"
    )]
    TooOld {
        /// The stream.
        stream: String,
        /// The server's level.
        level: u64,
        /// The oldest version with what Berth needs.
        oldest: Version,
    },
}

/// A setting of a stream that differs from the expected one. Only an operator changes it, with
/// `nats stream edit NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// The setting's name in the stream's configuration.
    pub field: String,
    /// The expected value, as JSON.
    pub expected: String,
    /// The actual value, as JSON.
    pub found: String,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, not {}", self.field, self.found, self.expected)
    }
}

/// How long ago a follower may have been heard, in nanoseconds: it answers its leader each second.
const HEARD_WITHIN_NS: u64 = 2_500_000_000;

/// A stream as the server describes it.
#[derive(Debug, Deserialize)]
pub(crate) struct Description {
    pub(crate) config: Map<String, Value>,
    pub(crate) created: String,
    pub(crate) state: StreamState,
    /// The servers that keep it; none on a server that runs alone.
    #[serde(default)]
    pub(crate) cluster: Option<StreamCluster>,
    /// The leader's time when it answered.
    #[serde(default)]
    pub(crate) ts: String,
}

impl Description {
    /// Whether the leader heard from a majority a moment ago. A leader that is cut off may lack
    /// what the others have stored, and leads until it notices.
    pub(crate) fn has_majority(&self) -> bool {
        let Some(cluster) = &self.cluster else { return true };
        let followers = cluster.replicas.as_deref().unwrap_or_default();
        let heard = followers.iter().filter(|follower| follower.is_heard()).count();
        2 * (heard + 1) > followers.len() + 1
    }

    /// The leader's time of this description.
    pub(crate) fn now(&self) -> Result<Timestamp, Cause> {
        Timestamp::try_from(self.ts.clone()).map_err(Cause::new)
    }
}

/// Which servers of a cluster keep a stream.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct StreamCluster {
    #[serde(default)]
    pub(crate) leader: Option<String>,
    /// The servers that follow the leader.
    #[serde(default)]
    pub(crate) replicas: Option<Vec<StreamFollower>>,
}

/// A server that follows a stream's leader.
#[derive(Debug, Deserialize)]
pub(crate) struct StreamFollower {
    pub(crate) name: String,
    /// Whether it has everything that the leader has.
    #[serde(default)]
    pub(crate) current: bool,
    #[serde(default)]
    pub(crate) offline: bool,
    /// How long ago the leader heard from it, in nanoseconds; 0 if never.
    #[serde(default)]
    active: u64,
}

impl StreamFollower {
    fn is_heard(&self) -> bool {
        !self.offline && (1..=HEARD_WITHIN_NS).contains(&self.active)
    }
}

/// A stream that exists.
#[derive(Default)]
pub(crate) struct Opened {
    /// When the server was asked for the description; none if it was not asked.
    pub(crate) asked: Option<BootTime>,
    pub(crate) created: String,
    pub(crate) last: u64,
    pub(crate) config: Map<String, Value>,
    pub(crate) drift: Vec<Drift>,
}

/// The range of a stream.
#[derive(Debug, Deserialize)]
pub(crate) struct StreamState {
    /// How many messages there are.
    #[serde(default)]
    pub(crate) messages: u64,
    pub(crate) first_seq: u64,
    /// When the first message was stored; a time long ago if there is none.
    #[serde(default)]
    pub(crate) first_ts: String,
    pub(crate) last_seq: u64,
    /// When the last message was stored.
    #[serde(default)]
    pub(crate) last_ts: String,
}

/// The server's answer to a change.
#[derive(Deserialize)]
struct Updated {
    config: Map<String, Value>,
}

impl Bus {
    /// Asks the stream's leader for its description.
    pub(crate) async fn describe(&self, stream: &str) -> Result<Description, ApiError> {
        self.api(format!("$JS.API.STREAM.INFO.{stream}"), &Value::Null).await
    }

    /// Makes the stream if it is missing and `make` says why it may be made. Returns its
    /// description and how that differs from the expected settings.
    pub(crate) async fn ensure(
        &self,
        stream: &str,
        expected: &impl Settings,
        copies: Copies,
        make: Option<Origin>,
    ) -> Result<Opened, OpenError> {
        let within = self.config().start_timeout;
        let deadline = Instant::now() + within;
        let makes = self.makes_streams();
        let mut tries = 0;
        loop {
            let asked_at = BootTime::now();
            let description = match self.describe(stream).await {
                Err(error @ ApiError::Refused { code: NOT_FOUND, .. }) => match make {
                    Some(origin) if makes => {
                        self.create(stream, expected, copies, Incarnation::next(0, origin)).await
                    }
                    _ => Err(error),
                },
                description => description,
            };
            let error = match description {
                Ok(description) => {
                    self.record_opened(stream);
                    let opened = self.accept(stream, expected, copies, description).await?;
                    return Ok(Opened { asked: Some(asked_at), ..opened });
                }
                Err(error) => error,
            };
            let will_be_made = make.is_some()
                && !makes
                && matches!(error, ApiError::Refused { code: NOT_FOUND, .. });
            if !may_pass(&error) && !will_be_made {
                return Err(OpenError::Refused { stream: stream.to_owned(), source: error.into() });
            }
            if Instant::now() >= deadline {
                let is_small = copies == Copies::ByCluster && size_refusal(&error) == Some(TooMany);
                let (stream, source) = (stream.to_owned(), error.into());
                return Err(match self.cluster().filter(|_| is_small) {
                    Some(cluster) => OpenError::TooFewServers { stream, cluster, within, source },
                    None => OpenError::Unavailable { stream, within, source },
                });
            }
            tracing::debug!(stream, %error, "the stream cannot be opened yet");
            tries += 1;
            pause(tries).await;
        }
    }

    /// Whether this process makes missing streams. An agent waits until a service has made them,
    /// because it may write its own keys only.
    pub(crate) fn makes_streams(&self) -> bool {
        self.config().actor.node().is_none()
    }

    /// Makes the stream: by the cluster's size, with the largest number of copies that the server
    /// does not refuse. The server knows the size for certain, and needs no further permission to
    /// say so.
    async fn create(
        &self,
        stream: &str,
        expected: &impl Settings,
        copies: Copies,
        incarnation: Incarnation,
    ) -> Result<Description, ApiError> {
        let is_clustered = self.cluster().is_some();
        let mut number = copies.first_try(is_clustered);
        loop {
            let mut settings = expected.settings(number, is_clustered);
            incarnation.write(&mut settings, None);
            let settings = Value::Object(settings);
            let made = self.api(format!("$JS.API.STREAM.CREATE.{stream}"), &settings).await;
            let Err(error) = made else {
                tracing::info!(stream, copies = number, "made a stream");
                return made;
            };
            let next = size_refusal(&error).filter(|_| copies == Copies::ByCluster);
            match next.and_then(|refusal| next_try(number, refusal)) {
                Some(smaller) => number = smaller,
                None => return Err(error),
            }
        }
    }

    /// Corrects the words of a stream that this process owns. Other processes report the words as
    /// drift.
    async fn correct_words(
        &self,
        stream: &str,
        expected: &Map<String, Value>,
        found: &mut Description,
    ) {
        let owner = stream_owner(stream).map(Actor::service);
        if owner.as_ref() != Some(self.actor()) {
            return;
        }
        let Some(config) = find_correction(expected, &found.config) else { return };
        let subject = format!("$JS.API.STREAM.UPDATE.{stream}");
        let updated: Result<Updated, ApiError> = self.api(subject, &Value::Object(config)).await;
        match updated {
            Ok(updated) => {
                tracing::info!(stream, "corrected the description and metadata of a stream");
                found.config = updated.config;
            }
            Err(error) => tracing::warn!(stream, %error, "the words of a stream stay outdated"),
        }
    }

    async fn accept(
        &self,
        stream: &str,
        expected: &impl Settings,
        copies: Copies,
        mut description: Description,
    ) -> Result<Opened, OpenError> {
        let number = match copies {
            Copies::Exactly(number) => number,
            // `copies_watch` reports whether an existing stream has enough copies.
            Copies::ByCluster => number(&description.config, REPLICAS)
                .and_then(|number| u8::try_from(number).ok())
                .unwrap_or(1),
        };
        let expected = expected.settings(number, self.cluster().is_some());
        self.correct_words(stream, &expected, &mut description).await;
        accept(stream, &expected, description)
    }
}

/// What a refusal says about the number of copies; `None` if it is about something else.
fn size_refusal(error: &ApiError) -> Option<SizeRefusal> {
    match error {
        ApiError::Refused { code: REPLICAS_NEED_CLUSTER, .. } => Some(SizeRefusal::NoCluster),
        ApiError::Refused { code: NO_SUITABLE_PEERS | NO_TIER, .. } => Some(TooMany),
        _ => None,
    }
}

/// Whether a retry of opening or changing a stream may help.
pub(crate) fn may_pass(error: &ApiError) -> bool {
    // Another service may have made the stream first, with other settings: the next try describes
    // that stream. And a cluster that forms has too few servers at first.
    error.passes()
        || matches!(
            error,
            ApiError::Refused { code: NAME_IN_USE | NO_SUITABLE_PEERS | NO_STORE, .. }
        )
}

fn accept(
    stream: &str,
    expected: &Map<String, Value>,
    description: Description,
) -> Result<Opened, OpenError> {
    let config = description.config;
    let level = config.get("metadata").and_then(|all| all.get("_nats.level")?.as_str());
    let level = level.and_then(|level| level.parse().ok()).unwrap_or(API_LEVEL);
    if level < API_LEVEL {
        return Err(OpenError::TooOld { stream: stream.to_owned(), level, oldest: OLDEST });
    }
    let drift = compare(&comparable(expected, &config), &config);
    for drift in &drift {
        tracing::warn!(
            stream,
            %drift,
            "a stream differs from what is expected; correct it with `nats stream edit {stream}`"
        );
    }
    let last = description.state.last_seq;
    Ok(Opened { asked: None, created: description.created, last, config, drift })
}

/// The settings of `found` that differ from `expected`. Settings that `expected` leaves out may
/// have any value.
pub(crate) fn compare(expected: &Map<String, Value>, present: &Map<String, Value>) -> Vec<Drift> {
    let mut drift = Vec::new();
    for (field, expected) in expected {
        let present = present.get(field).unwrap_or(&Value::Null);
        if let (Value::Object(expected), Value::Object(present)) = (expected, present) {
            // The server adds metadata of its own.
            drift.extend(
                compare(expected, present)
                    .into_iter()
                    .map(|inner| Drift { field: format!("{field}.{}", inner.field), ..inner }),
            );
        } else if expected != present && !(is_default(expected) && is_default(present)) {
            drift.push(Drift {
                field: field.clone(),
                expected: expected.to_string(),
                found: present.to_string(),
            });
        }
    }
    drift
}

/// Whether the value is a default, which the server may leave out.
fn is_default(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_i64() == Some(0),
        Value::String(value) => value.is_empty(),
        Value::Array(value) => value.is_empty(),
        Value::Object(value) => value.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(expected: Value, present: Value) -> Vec<String> {
        let object = |value: Value| value.as_object().unwrap().clone();
        compare(&object(expected), &object(present)).into_iter().map(|drift| drift.field).collect()
    }

    #[test]
    fn only_what_is_expected_is_compared() {
        let expected = json!({"a": true, "b": 3, "metadata": {"writer": "claim"}, "off": false});
        let as_it_should =
            json!({"a": true, "b": 3, "metadata": {"writer": "claim", "_nats.ver": "x"}, "c": 9});
        assert!(fields(expected.clone(), as_it_should).is_empty());
        let drifted = json!({"b": 4, "metadata": {}, "off": true});
        assert_eq!(fields(expected, drifted), ["a", "b", "metadata.writer", "off"]);
    }
}
