//! The servers of the cluster that have JetStream.
//!
//! **Owns** the count. Every server answers `$SYS.REQ.ACCOUNT.PING.STATZ` for the account of the
//! user who sends it, and says its name, its cluster and whether it has JetStream. No system
//! account is needed, only the permission to publish to that subject.
//!
//! **Never** counts by the addresses that the server tells clients (`connect_urls`): they are
//! absent where `no_advertise` is set, a server may have several, and some have no JetStream.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use crate::connection::handle::Bus;

/// The request that every server of the cluster answers.
const PING: &str = "$SYS.REQ.ACCOUNT.PING.STATZ";
/// Without this body, a server without a connection of the account does not answer.
const BODY: &[u8] = br#"{"include_unused":true}"#;
/// How long the next answer may take after the last one.
const QUIET_MAX: Duration = Duration::from_millis(750);
/// Most servers that are counted.
const SERVERS_MAX: usize = 64;

#[derive(Deserialize)]
struct PingAnswer {
    server: AnsweringServer,
}

#[derive(Deserialize)]
struct AnsweringServer {
    name: String,
    #[serde(default)]
    cluster: Option<String>,
    #[serde(default)]
    jetstream: bool,
}

impl Bus {
    /// The cluster of the connected server; `None` if that server runs alone.
    pub(crate) fn cluster(&self) -> Option<String> {
        let info = self.client().try_server_info()?;
        info.cluster.filter(|cluster| !cluster.is_empty())
    }

    /// Asks all servers of the cluster for their names. Empty if none answers: the user may lack
    /// the permission.
    pub(crate) async fn answering_servers(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let cluster = self.cluster();
        let inbox = self.client().new_inbox();
        let end = Instant::now() + self.config().request_timeout;
        let collecting = timeout_at(end, async {
            let answers = self.client().subscribe(inbox.clone()).await.ok()?;
            let body = Bytes::from_static(BODY);
            self.client().publish_with_reply(PING, inbox, body).await.ok()?;
            Some(answers)
        });
        let Ok(Some(mut answers)) = collecting.await else { return names };
        let mut until = end;
        while names.len() < SERVERS_MAX {
            let Ok(Some(message)) = timeout_at(until, answers.next()).await else { break };
            // A message without a body says that no server answers the request.
            if message.payload.is_empty() {
                break;
            }
            until = end.min(Instant::now() + QUIET_MAX);
            // Servers of other clusters, behind gateways, answer too.
            match serde_json::from_slice::<PingAnswer>(&message.payload) {
                Ok(PingAnswer { server }) if server.jetstream && server.cluster == cluster => {
                    names.insert(server.name);
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "a server's answer cannot be read"),
            }
        }
        names
    }
}
