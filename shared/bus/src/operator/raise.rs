//! Raising the revisions of a bucket that was restored or accepted.
//!
//! **Owns** the markers that do it. They are of keys that never have a value, so no reader sees
//! them.
//!
//! **Promises** that afterwards no guard of the time before holds. The newest revision of each
//! guarded subtree ([`BucketSpec::guard_tokens`](berth_contract::bucket::BucketSpec)) is one that
//! was never given out before, also where the subtree is as it was. What such a guard covers was
//! decided by more than the subtree: by the allocs that ran, and by the mounts of nodes. *Found by
//! the model.*
//!
//! **Never** raises what is guarded key by key: a write that is decided on exactly this record may
//! be stored.

use std::collections::{BTreeMap, BTreeSet};

use async_nats::HeaderMap;
use berth_contract::bucket::ALL;
use berth_contract::key;
use bytes::Bytes;
use rand::RngExt as _;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::cause::Cause;
use crate::connection::exchange::pause;
use crate::connection::handle::Bus;
use crate::connection::headers;
use crate::stream::ack::{Ack, read_ack};
use crate::stream::names::stream_name;

/// Most messages of one batch.
const RAISED_AT_ONCE: u64 = 500;
/// The key whose delete markers raise the revisions.
const RAISED_KEY: &str = "=revisions";

/// The subjects of a stream, one page of them.
#[derive(Deserialize)]
struct SubjectPage {
    state: SubjectState,
    #[serde(default)]
    total: u64,
}

#[derive(Deserialize)]
struct SubjectState {
    /// Each with its number of messages.
    #[serde(default)]
    subjects: BTreeMap<String, u64>,
}

impl Bus {
    /// Writes markers until the stream's newest revision is this one or higher.
    pub(crate) async fn raise_revisions(&self, bucket: &str, above: u64) -> Result<(), Cause> {
        let newest = async || -> Result<u64, Cause> {
            Ok(self.describe(&stream_name(bucket)).await?.state.last_seq)
        };
        let mut last = newest().await?;
        while last < above {
            let count = usize::try_from((above - last).min(RAISED_AT_ONCE)).map_err(Cause::new)?;
            self.store_markers(bucket, &vec![RAISED_KEY; count]).await?;
            last = newest().await?;
        }
        Ok(())
    }

    /// Writes a marker below each subtree whose writes are guarded as one.
    pub(crate) async fn raise_heads(&self, bucket: &str) -> Result<(), Cause> {
        let spec = ALL.iter().find(|spec| spec.name == bucket);
        let Some(tokens) = spec.map(|spec| spec.guard_tokens).filter(|tokens| *tokens > 0) else {
            return Ok(());
        };
        let subtrees = self.subtrees(bucket, tokens).await?;
        let keys: Vec<_> =
            subtrees.iter().map(|subtree| format!("{subtree}.{}", key::BARRIER)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        for chunk in keys.chunks(usize::try_from(RAISED_AT_ONCE).map_err(Cause::new)?) {
            self.store_markers(bucket, chunk).await?;
        }
        Ok(())
    }

    /// The subtrees of so many tokens that have messages.
    async fn subtrees(&self, bucket: &str, tokens: usize) -> Result<BTreeSet<String>, Cause> {
        let prefix = format!("$KV.{bucket}.");
        let mut subtrees = BTreeSet::new();
        let mut seen = 0;
        loop {
            let subject = format!("$JS.API.STREAM.INFO.{}", stream_name(bucket));
            let query = json!({ "subjects_filter": format!("{prefix}>"), "offset": seen });
            let page: SubjectPage = self.api(subject, &query).await?;
            let keys = page.state.subjects.keys().filter_map(|key| key.strip_prefix(&prefix));
            // Keys that begin with `=` are not below a subtree.
            for key in keys.filter(|key| !key.starts_with('=')) {
                if let Some((end, _)) = key.match_indices('.').nth(tokens - 1) {
                    subtrees.insert(key[..end].to_owned());
                }
            }
            seen += page.state.subjects.len() as u64;
            if page.state.subjects.is_empty() || seen >= page.total {
                return Ok(subtrees);
            }
        }
    }

    /// Stores delete markers of these keys, at least once each.
    async fn store_markers(&self, bucket: &str, keys: &[&str]) -> Result<(), Cause> {
        let deadline = Instant::now() + self.config().start_timeout;
        let mut tries = 0;
        loop {
            match self.store_marker_batch(bucket, keys).await {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(error) => {
                    tracing::debug!(bucket, %error, "the markers are stored again");
                    tries += 1;
                    pause(tries).await;
                }
            }
        }
    }

    async fn store_marker_batch(&self, bucket: &str, keys: &[&str]) -> Result<(), Cause> {
        let id = format!("{:016x}", rand::rng().random::<u64>());
        for (at, key) in (1..).zip(keys) {
            let subject = format!("$KV.{bucket}.{key}");
            let mut headers = HeaderMap::new();
            headers::set(&mut headers, headers::KV_OPERATION, "DEL");
            headers::set(&mut headers, headers::BATCH_ID, &id);
            headers::set(&mut headers, headers::BATCH_SEQUENCE, at);
            if at < keys.len() {
                let sent = self.client().publish_with_headers(subject, headers, Bytes::new());
                sent.await.map_err(Cause::new)?;
                continue;
            }
            headers::set(&mut headers, headers::BATCH_COMMIT, 1);
            let within = self.config().request_timeout;
            let answer = self.exchange(subject, headers, Bytes::new(), within).await;
            let answer = answer.map_err(Cause::new)?;
            return match read_ack(&answer).map_err(Cause::new)? {
                Ack { error: Some(error), .. } => Err(error.into()),
                Ack { seq: Some(_), .. } => Ok(()),
                _ => Err(Cause::new("an acknowledgement without a revision")),
            };
        }
        Ok(())
    }
}
