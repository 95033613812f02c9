//! Backups of one stream: two files in a directory, as the stock `nats` CLI writes and reads them.
//!
//! **Owns** the transfer of a snapshot from and to the server (`$JS.API.STREAM.SNAPSHOT` and
//! `.RESTORE`).
//!
//! **Promises** that a backup whose transfer did not end well has no description, and so is none.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::fs::{self, File};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::cause::Cause;
use crate::connection::exchange::refusal;
use crate::connection::handle::Bus;

const DESCRIPTION: &str = "backup.json";
const CONTENT: &str = "stream.tar.s2";
/// Bytes of one message of a transfer.
const CHUNK_BYTES: usize = 128 * 1024;

/// A backup of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Backup {
    dir: PathBuf,
    pub(crate) stream: String,
    pub(crate) config: Map<String, Value>,
    state: Value,
}

#[derive(Deserialize)]
struct SnapshotDescription {
    config: Map<String, Value>,
    state: Value,
}

#[derive(Deserialize)]
struct RestoreStarted {
    deliver_subject: String,
}

impl Backup {
    /// Reads the description of a backup.
    pub(crate) async fn read(dir: &Path) -> Result<Self, Cause> {
        let path = dir.join(DESCRIPTION);
        let at_path =
            |error: &dyn std::fmt::Display| Cause::new(format!("{}: {error}", path.display()));
        let text = fs::read(&path).await.map_err(|error| at_path(&error))?;
        let description: SnapshotDescription =
            serde_json::from_slice(&text).map_err(|error| at_path(&error))?;
        let name = description.config.get("name").and_then(Value::as_str).unwrap_or_default();
        let (stream, dir) = (name.to_owned(), dir.to_owned());
        Ok(Self { dir, stream, config: description.config, state: description.state })
    }

    /// The newest revision in the backup.
    pub(crate) fn last(&self) -> u64 {
        self.state.get("last_seq").and_then(Value::as_u64).unwrap_or(0)
    }
}

impl Bus {
    /// Writes a backup of a stream into a new directory.
    pub(crate) async fn back_up_stream(&self, stream: &str, dir: &Path) -> Result<(), Cause> {
        fs::create_dir_all(dir).await.map_err(Cause::new)?;
        let path = dir.join(DESCRIPTION);
        if fs::try_exists(&path).await.map_err(Cause::new)? {
            return Err(Cause::new(format!("{} is there already", path.display())));
        }
        let inbox = self.client().new_inbox();
        let mut chunks = self.client().subscribe(inbox.clone()).await.map_err(Cause::new)?;
        let request =
            json!({ "deliver_subject": inbox, "no_consumers": true, "chunk_size": CHUNK_BYTES });
        let subject = format!("$JS.API.STREAM.SNAPSHOT.{stream}");
        let described: Map<String, Value> =
            self.api(subject, &request).await.map_err(Cause::new)?;
        let mut content = File::create(dir.join(CONTENT)).await.map_err(Cause::new)?;
        let within = self.config().request_timeout;
        loop {
            let chunk = timeout(within, chunks.next()).await;
            let Ok(Some(chunk)) = chunk else {
                return Err(Cause::new(format!("the server sent nothing more for {within:?}")));
            };
            if chunk.payload.is_empty() {
                match chunk.status.map_or(204, |status| status.as_u16()) {
                    200..300 => break,
                    status => {
                        let why = chunk.description.unwrap_or_default();
                        return Err(Cause::new(format!("the server ended it: {status} {why}")));
                    }
                }
            }
            content.write_all(&chunk.payload).await.map_err(Cause::new)?;
            if let Some(reply) = chunk.reply {
                self.client().publish(reply, Bytes::new()).await.map_err(Cause::new)?;
            }
        }
        content.sync_all().await.map_err(Cause::new)?;
        let described = serde_json::to_vec_pretty(&described).map_err(Cause::new)?;
        fs::write(&path, described).await.map_err(Cause::new)
    }

    /// Restores a backup with these settings. The stream must not exist. It appears at once with
    /// all its messages, or not at all, unless the servers are parted or killed meanwhile.
    pub(crate) async fn restore_stream(
        &self,
        backup: &Backup,
        config: &Map<String, Value>,
    ) -> Result<(), Cause> {
        let subject = format!("$JS.API.STREAM.RESTORE.{}", backup.stream);
        let request = json!({ "config": config, "state": backup.state });
        let started: RestoreStarted = self.api(subject, &request).await.map_err(Cause::new)?;
        let mut content = File::open(backup.dir.join(CONTENT)).await.map_err(Cause::new)?;
        loop {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            let mut part = (&mut content).take(CHUNK_BYTES as u64);
            part.read_to_end(&mut chunk).await.map_err(Cause::new)?;
            let is_end = chunk.is_empty();
            self.send_chunk(&started.deliver_subject, chunk.into()).await?;
            if is_end {
                return Ok(());
            }
        }
    }

    /// Sends one part of a backup; the empty one ends it.
    async fn send_chunk(&self, subject: &str, chunk: Bytes) -> Result<(), Cause> {
        // The server answers the last chunk when it has read everything.
        let within = self.config().start_timeout;
        let headers = async_nats::HeaderMap::new();
        let answer = self.exchange(subject.to_owned(), headers, chunk, within).await;
        let answer = answer.map_err(Cause::new)?;
        let answer_body = serde_json::from_slice::<Value>(&answer.payload).unwrap_or_default();
        match answer_body.get("error") {
            Some(error) => Err(refusal(error).into()),
            None => Ok(()),
        }
    }
}
