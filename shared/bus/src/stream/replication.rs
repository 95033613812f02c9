//! How many copies each of Berth's buckets and streams has, and raising that number.
//!
//! **Owns** [`Bus::copies`], which reads it, and [`Bus::raise_copies`], which changes it.
//!
//! **Promises** that a raise changes nothing of a stream but its number of copies (and, for events,
//! that they may be sent together), and that it ends by its deadline. Copies become fewer only if a
//! number is given.
//!
//! **Never** makes a stream.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_contract::bucket::{ALL, BUCKETS};
use berth_contract::stream::EVENTS;
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;
use tokio::time::{Instant, sleep};

use crate::connection::exchange::ApiError;
use crate::connection::handle::Bus;
use crate::stream::copies::Copies;
use crate::stream::names::stream_name;
use crate::stream::open::{Description, NOT_FOUND, REPLICAS, StreamCluster, may_pass, number};

/// Interval at which the servers are asked how far the new copies are.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// The setting that says whether a stream's writes are synced later.
const PERSIST_MODE: &str = "persist_mode";

/// The copies of all buckets and streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CopiesReport {
    /// The cluster; `None` on a server that runs alone.
    pub cluster: Option<String>,
    /// The servers with JetStream: those that answer, and those that keep a stream.
    pub servers: Vec<ClusterServer>,
    /// The buckets and streams that exist, by name.
    pub streams: Vec<StreamCopies>,
}

/// A server of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterServer {
    /// Its name.
    pub name: String,
    /// Whether it answered.
    pub answers: bool,
}

/// The copies of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamCopies {
    /// The stream; `KV_<name>` for a bucket.
    pub stream: String,
    /// How many copies it has; `None` if the server did not say.
    pub copies: Option<u8>,
    /// How many copies it should have.
    pub wanted: u8,
    /// The server that leads it; `None` during an election, and on a server that runs alone.
    pub leader: Option<String>,
    /// How many copies have everything that was acknowledged.
    pub in_sync: u8,
    /// Why the copies are not known, or cannot be changed.
    pub problem: Option<String>,
}

impl StreamCopies {
    /// Whether it has fewer copies than are wanted. Also if the number is not known.
    pub fn is_short(&self) -> bool {
        self.copies.is_none_or(|copies| copies < self.wanted)
    }

    /// Whether it has the wanted copies, and all have everything.
    pub fn is_settled(&self) -> bool {
        self.copies.is_some_and(|copies| copies >= self.wanted && self.in_sync >= copies)
    }
}

impl CopiesReport {
    /// The streams with fewer copies than are wanted.
    pub fn short(&self) -> impl Iterator<Item = &StreamCopies> {
        self.streams.iter().filter(|stream| stream.is_short())
    }
}

/// A stream as its leader described it; none if it does not exist.
type Described = (String, Result<Description, ApiError>);

/// The streams of all buckets, and the stream of events.
fn all_streams() -> BTreeSet<String> {
    let buckets = ALL.iter().chain([&BUCKETS]).map(|spec| stream_name(spec.name));
    buckets.chain([EVENTS.name.to_owned()]).collect()
}

impl Bus {
    /// The copies of all of Berth's buckets and streams that exist.
    pub async fn copies(&self, wanted: impl Into<Copies>) -> CopiesReport {
        self.copies_of(all_streams(), wanted.into()).await
    }

    /// The copies of these streams.
    pub(crate) async fn copies_of(
        &self,
        streams: BTreeSet<String>,
        wanted: Copies,
    ) -> CopiesReport {
        let cluster = self.cluster();
        let is_clustered = cluster.is_some();
        let answering = async {
            if is_clustered { self.answering_servers().await } else { self.only_server() }
        };
        let (described, answering) = tokio::join!(self.describe_all(streams), answering);
        report(cluster, described, &answering, wanted)
    }

    /// The connected server, which runs alone.
    fn only_server(&self) -> BTreeSet<String> {
        let info = self.client().try_server_info();
        info.map(|info| info.server_name).filter(|name| !name.is_empty()).into_iter().collect()
    }

    async fn describe_all(&self, streams: BTreeSet<String>) -> Vec<Described> {
        join_all(streams.into_iter().map(async |stream| {
            let description = self.describe(&stream).await;
            (stream, description)
        }))
        .await
    }

    /// Gives every bucket and stream as many copies as the cluster holds, or exactly `to`, and
    /// waits until all copies have everything, or `within` has passed. `progress` is called with
    /// each report that differs from the one before.
    pub async fn raise_copies(
        &self,
        to: Option<u8>,
        within: Duration,
        mut progress: impl FnMut(&CopiesReport),
    ) -> CopiesReport {
        let deadline = Instant::now() + within;
        let wanted = to.map_or(Copies::ByCluster, Copies::Exactly);
        let mut last = None;
        loop {
            let mut report = self.copies(wanted).await;
            let (mut is_changing, mut may_change) = (false, false);
            for stream in &mut report.streams {
                let Some(copies) = stream.copies else { continue };
                if copies < stream.wanted || to.is_some_and(|to| copies > to) {
                    match self.set_copies(&stream.stream, stream.wanted).await {
                        Ok(()) => is_changing = true,
                        Err(error) => {
                            may_change |= error.may_pass();
                            stream.problem = Some(error.to_string());
                        }
                    }
                }
            }
            // A stream that is settled, or that cannot settle, is not waited for.
            let is_waiting = report.streams.iter().any(|stream| {
                let is_refused = stream.copies.is_some() && stream.problem.is_some();
                !is_refused && !stream.is_settled()
            });
            let is_due = Instant::now() + POLL_EVERY >= deadline;
            if last.as_ref() != Some(&report) {
                progress(&report);
            }
            if is_due || !(is_changing || may_change || is_waiting) {
                return report;
            }
            last = Some(report);
            sleep(POLL_EVERY).await;
        }
    }

    /// Changes the number of copies, and nothing else that an operator may have set.
    async fn set_copies(&self, stream: &str, copies: u8) -> Result<(), RaiseError> {
        let mut config = self.describe(stream).await?.config;
        let is_asynchronous = config.get(PERSIST_MODE).and_then(Value::as_str) == Some("async");
        if is_asynchronous && copies > 1 {
            return Err(RaiseError::Asynchronous);
        }
        config.insert(REPLICAS.to_owned(), copies.into());
        if stream == EVENTS.name && copies > 1 {
            config.insert("allow_atomic".to_owned(), true.into());
        }
        let subject = format!("$JS.API.STREAM.UPDATE.{stream}");
        let _: Value = self.api(subject, &Value::Object(config)).await?;
        Ok(())
    }
}

/// Why a stream's number of copies is not changed.
#[derive(Debug, Error)]
enum RaiseError {
    #[error(
        "it was made by a server that ran alone, with persist_mode async, which nats-server never \
         changes; `nats stream rm {stream}` drops the stored events, and the next service that \
         starts makes it again",
        stream = EVENTS.name
    )]
    Asynchronous,
    #[error(transparent)]
    Refused(#[from] ApiError),
}

impl RaiseError {
    /// Whether a retry may help: servers are still starting.
    fn may_pass(&self) -> bool {
        match self {
            Self::Asynchronous => false,
            Self::Refused(error) => may_pass(error),
        }
    }
}

fn report(
    cluster: Option<String>,
    described: Vec<Described>,
    answering: &BTreeSet<String>,
    wanted: Copies,
) -> CopiesReport {
    let mut names = answering.clone();
    // A server that is down still counts: it keeps streams, and comes back.
    for (_, description) in &described {
        let Ok(Description { cluster: Some(keepers), .. }) = description else { continue };
        names.extend(keepers.leader.clone().filter(|leader| !leader.is_empty()));
        names.extend(keepers.replicas.iter().flatten().map(|follower| follower.name.clone()));
    }
    let wanted = wanted.wanted(names.len());
    let streams = described.into_iter().filter_map(|(stream, found)| match found {
        Ok(description) => Some(describe_copies(stream, &description, wanted)),
        Err(ApiError::Refused { code: NOT_FOUND, .. }) => None,
        Err(error) => Some(StreamCopies {
            stream,
            copies: None,
            wanted,
            leader: None,
            in_sync: 0,
            problem: Some(error.to_string()),
        }),
    });
    let streams = streams.collect();
    let servers = names.into_iter().map(|name| {
        let answers = answering.contains(&name);
        ClusterServer { name, answers }
    });
    CopiesReport { cluster, servers: servers.collect(), streams }
}

fn describe_copies(stream: String, description: &Description, wanted: u8) -> StreamCopies {
    let copies = number(&description.config, REPLICAS).and_then(|copies| u8::try_from(copies).ok());
    let alone = StreamCluster::default();
    let keepers = description.cluster.as_ref().unwrap_or(&alone);
    let followers = keepers.replicas.iter().flatten();
    let current = followers.filter(|follower| follower.current && !follower.offline).count();
    StreamCopies {
        stream,
        copies,
        wanted,
        leader: keepers.leader.clone().filter(|leader| !leader.is_empty()),
        // The leader, which answered, has everything, so it counts as one.
        in_sync: u8::try_from(current + 1).unwrap_or(u8::MAX),
        problem: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn described(stream: &str, copies: u8, followers: &[(&str, bool, bool)]) -> Described {
        let followers: Vec<Value> = followers
            .iter()
            .map(|(name, current, offline)| {
                json!({"name": name, "current": current, "offline": offline})
            })
            .collect();
        let description = serde_json::from_value(json!({
            "config": {"num_replicas": copies}, "created": "", "ts": "",
            "state": {"first_seq": 0, "last_seq": 0},
            "cluster": {"name": "c", "leader": "n1", "replicas": followers},
        }));
        (stream.to_owned(), Ok(description.unwrap()))
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_server_that_is_down_still_counts() {
        let streams = vec![
            described("A", 3, &[("n2", true, false), ("n3", true, true)]),
            described("B", 1, &[]),
        ];
        let copies_report =
            report(Some("c".to_owned()), streams, &names(&["n1", "n2"]), Copies::ByCluster);
        let servers: Vec<(&str, bool)> = copies_report
            .servers
            .iter()
            .map(|server| (server.name.as_str(), server.answers))
            .collect();
        assert_eq!(servers, [("n1", true), ("n2", true), ("n3", false)]);
        let short: Vec<&str> = copies_report.short().map(|stream| stream.stream.as_str()).collect();
        assert_eq!(short, ["B"]);
        assert_eq!((copies_report.streams[0].in_sync, copies_report.streams[0].wanted), (2, 3));
        assert!(!copies_report.streams[0].is_settled());
    }

    #[test]
    fn a_stream_that_is_not_there_is_left_out_and_one_that_does_not_answer_is_short() {
        let refused = |code| ApiError::Refused { status: 404, code, description: String::new() };
        let streams =
            vec![("A".to_owned(), Err(refused(NOT_FOUND))), ("B".to_owned(), Err(refused(10008)))];
        let copies_report = report(None, streams, &names(&[]), Copies::ByCluster);
        assert_eq!(copies_report.streams.len(), 1);
        assert!(copies_report.streams[0].is_short() && copies_report.streams[0].problem.is_some());
    }

    #[test]
    fn a_configured_number_is_what_is_wanted() {
        let streams = vec![described("A", 1, &[])];
        let copies_report = report(None, streams, &names(&["n1", "n2", "n3"]), Copies::Exactly(1));
        assert_eq!(copies_report.short().count(), 0);
    }
}
