//! Restores buckets from a backup, and accepts a bucket as it was found.
//!
//! **Owns** both acts of a person that begin a new [incarnation](crate::incarnation) of a bucket
//! with records, and backing up.
//!
//! **Promises**
//! - No service answers from a bucket or writes to it from the first step to the last: its stream
//!   is missing, or says that it is unfinished. A command that was killed is repeated, and
//!   finishes. A stream that it left without its records is restored again.
//! - The stream is away for longer than a comparison of a process is good for
//!   ([`CHECKED_FOR`]).
//! - **Revisions go on above every revision that was given out before**
//!   ([`raise`](crate::operator::raise)). So no revision means two things: epochs, ages of calls
//!   and guards of the time before are never those of another write. The revisions are known from
//!   the stream that is replaced, and from the processes that remember it; where neither is there,
//!   [`UNKNOWN_GAP`] is added.
//!
//! **Never** is called by a service.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_contract::bucket::{ALL, BUCKETS};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::fs;
use tokio::time::{Instant, sleep};

use crate::cause::Cause;
use crate::connection::exchange::{ApiError, pause};
use crate::connection::handle::Bus;
use crate::incarnation::standing::CHECKED_FOR;
use crate::incarnation::{Incarnation, Origin, unfinished_above};
use crate::operator::backup::Backup;
use crate::stream::names::stream_name;
use crate::stream::open::{Description, NOT_FOUND, may_pass};

/// How long a restored bucket is away, at least.
const AWAY_FOR: Duration = CHECKED_FOR.saturating_add(Duration::from_secs(1));
/// Added to the known revisions, because writes may be stored until the stream is removed.
const REVISION_SLACK: u64 = 4096;
/// Added if neither the stream nor a process that knew it exists.
const UNKNOWN_GAP: u64 = 100_000;
/// How long processes may take to answer what they remember.
const SURVEY_MAX: Duration = Duration::from_secs(2);
/// The file in the backup's directory that keeps the known revisions over an interruption.
const PROGRESS_FILE: &str = "restoring.json";

/// A step of a command, for people who watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreStep {
    /// The bucket's stream is removed.
    Removed(String),
    /// All buckets are kept away for a moment.
    Waiting(Duration),
    /// The bucket has its records again.
    Restored(String),
    /// The bucket is served.
    Finished(String),
}

/// The state of a bucket after the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BegunIncarnation {
    /// The bucket.
    pub bucket: String,
    /// The incarnation that began.
    pub incarnation: u64,
    /// The newest revision of its records.
    pub restored: u64,
    /// The revision above which new writes are.
    pub above: u64,
}

/// Why a bucket was not restored or accepted.
#[derive(Debug, Error)]
#[error("bucket {bucket}: {what}")]
pub struct RestoreError {
    /// The bucket.
    pub bucket: String,
    /// The step that failed.
    pub what: &'static str,
    /// Why.
    #[source]
    pub source: Cause,
}

/// Whether the stream got the messages of the backup. Servers that are parted or killed during a
/// restore leave a stream with its settings and no messages (seen with three servers).
fn has_records(stream: &Description, backup: &Backup) -> bool {
    stream.state.last_seq >= backup.last()
}

fn failed(bucket: &str, what: &'static str) -> impl Fn(Cause) -> RestoreError {
    let bucket = bucket.to_owned();
    move |source| RestoreError { bucket: bucket.clone(), what, source }
}

/// The backups of a directory.
#[derive(Debug)]
pub struct Backups {
    dir: PathBuf,
    found: BTreeMap<String, Backup>,
}

impl Backups {
    /// Reads what is in the directory: one directory for each bucket.
    pub async fn read(dir: &Path) -> Result<Self, RestoreError> {
        let dir_name = dir.display().to_string();
        let fault = |error: std::io::Error| {
            failed(&dir_name, "the backup cannot be read")(Cause::new(error))
        };
        let mut backups = BTreeMap::new();
        let mut entries = fs::read_dir(dir).await.map_err(fault)?;
        while let Some(entry) = entries.next_entry().await.map_err(fault)? {
            let path = entry.path();
            if !path.is_dir() {
                continue;
            }
            let name = path.display().to_string();
            let backup =
                Backup::read(&path).await.map_err(failed(&name, "the backup cannot be read"))?;
            let specs = ALL.iter().chain([&BUCKETS]);
            if let Some(spec) = specs.into_iter().find(|one| stream_name(one.name) == backup.stream)
            {
                backups.insert(spec.name.to_owned(), backup);
            }
        }
        Ok(Self { dir: dir.to_owned(), found: backups })
    }

    /// The buckets, with the newest revision that each backup has.
    pub fn buckets(&self) -> impl Iterator<Item = (&str, u64)> {
        self.found.iter().map(|(bucket, backup)| (bucket.as_str(), backup.last()))
    }

    /// Leaves out all buckets but these.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.found.retain(|bucket, _| keep(bucket));
    }
}

/// What is known of a bucket before a command changes it.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct KnownBefore {
    incarnation: u64,
    /// The highest revision; none if neither a stream nor a process has one.
    highest: Option<u64>,
    /// The incarnation that the command begins; 0 until it is decided.
    #[serde(default)]
    target: u64,
}

impl KnownBefore {
    fn add(&mut self, incarnation: u64, highest: Option<u64>) {
        self.incarnation = self.incarnation.max(incarnation);
        self.highest = self.highest.max(highest);
    }

    fn target(&self) -> Incarnation {
        Incarnation { number: self.target, origin: Origin::Restored }
    }

    /// The revision above which new writes must be, if the stream ends at `last`.
    fn above(&self, last: u64) -> u64 {
        match self.highest {
            Some(highest) => highest.max(last) + REVISION_SLACK,
            None => last + UNKNOWN_GAP,
        }
    }
}

/// The facts of a process in `$SRV.STATS`.
#[derive(Deserialize)]
struct ProcessStats {
    #[serde(default)]
    buckets: BTreeMap<String, RememberedBucket>,
}

#[derive(Deserialize)]
struct RememberedBucket {
    incarnation: u64,
    highest: u64,
}

impl Bus {
    /// Backs up each bucket into a directory of its name below `dir`.
    pub async fn back_up(
        &self,
        dir: &Path,
        mut progress: impl FnMut(&str),
    ) -> Result<Vec<String>, RestoreError> {
        let mut backed_up = Vec::new();
        for spec in ALL.iter().chain([&BUCKETS]) {
            let short = spec.name.trim_start_matches("berth-");
            let backed = self.back_up_stream(&stream_name(spec.name), &dir.join(short)).await;
            backed.map_err(failed(spec.name, "it could not be backed up"))?;
            progress(spec.name);
            backed_up.push(spec.name.to_owned());
        }
        Ok(backed_up)
    }

    /// Replaces buckets by their backups.
    pub async fn restore_buckets(
        &self,
        backups: &Backups,
        mut progress: impl FnMut(RestoreStep),
    ) -> Result<Vec<BegunIncarnation>, RestoreError> {
        let known_buckets = self.collect_known(backups).await?;
        let mut begun = Vec::new();
        if let Some(backup) = backups.found.get(BUCKETS.name) {
            self.ensure_record(backup, &known_buckets[BUCKETS.name]).await?;
        }
        let others = || backups.found.iter().filter(|(bucket, _)| *bucket != BUCKETS.name);
        let mut due = Vec::new();
        for (bucket, backup) in others() {
            if !self.is_restored(bucket, backup, &known_buckets[bucket]).await? {
                self.mark_unfinished(bucket, known_buckets[bucket].above(0)).await?;
                due.push((bucket, backup));
            }
        }
        for (bucket, _) in &due {
            self.remove(bucket).await.map_err(failed(bucket, "it could not be removed"))?;
            progress(RestoreStep::Removed((*bucket).clone()));
        }
        progress(RestoreStep::Waiting(AWAY_FOR));
        sleep(AWAY_FOR).await;
        for (bucket, backup) in due {
            let mut config = backup.config.clone();
            known_buckets[bucket]
                .target()
                .write(&mut config, Some(known_buckets[bucket].above(backup.last())));
            let restored = self.restore_stream(backup, &config).await;
            restored.map_err(failed(bucket, "it could not be restored"))?;
            progress(RestoreStep::Restored(bucket.clone()));
        }
        for (bucket, backup) in others() {
            if !self.is_restored(bucket, backup, &known_buckets[bucket]).await? {
                let lacking = failed(bucket, "it lacks records of the backup");
                return Err(lacking(Cause::new("the servers lost them while it was restored")));
            }
            let above = known_buckets[bucket].above(backup.last());
            self.finish(bucket, known_buckets[bucket].target(), above).await?;
            progress(RestoreStep::Finished(bucket.clone()));
            let (bucket, incarnation) = (bucket.clone(), known_buckets[bucket].target);
            begun.push(BegunIncarnation { bucket, incarnation, restored: backup.last(), above });
        }
        let progress_file = backups.dir.join(PROGRESS_FILE);
        let removed = fs::remove_file(&progress_file).await.map_err(Cause::new);
        removed.map_err(failed(PROGRESS_FILE, "it could not be removed"))?;
        Ok(begun)
    }

    /// Restores the record of buckets if it is lost. Otherwise it stays, and each restored bucket
    /// is written to it. Without the record, a service that starts would take the bus for a new
    /// one, and make empty buckets.
    async fn ensure_record(
        &self,
        backup: &Backup,
        known: &KnownBefore,
    ) -> Result<(), RestoreError> {
        let record = BUCKETS.name;
        let above = known.above(backup.last());
        let found = self.find_stream(record).await;
        match found.map_err(failed(record, "its stream could not be read"))? {
            Some(stream) if unfinished_above(&stream.config).is_none() => return Ok(()),
            Some(stream) if has_records(&stream, backup) => {}
            _ => {
                let removed = self.remove(record).await;
                removed.map_err(failed(record, "it could not be removed"))?;
                let mut config = backup.config.clone();
                known.target().write(&mut config, Some(above));
                let restored = self.restore_stream(backup, &config).await;
                restored.map_err(failed(record, "it could not be restored"))?;
            }
        }
        self.finish(record, known.target(), above).await
    }

    /// Whether an interrupted command has restored the bucket already. Writes since then must stay.
    async fn is_restored(
        &self,
        bucket: &str,
        backup: &Backup,
        known: &KnownBefore,
    ) -> Result<bool, RestoreError> {
        let stream = self.find_stream(bucket).await;
        let stream = stream.map_err(failed(bucket, "its stream could not be read"))?;
        Ok(stream.is_some_and(|stream| {
            Incarnation::read(&stream.config) == known.target() && has_records(&stream, backup)
        }))
    }

    /// Accepts a bucket as it is now: it was restored, or set back, by another tool.
    pub async fn accept_bucket(&self, bucket: &str) -> Result<BegunIncarnation, RestoreError> {
        let mut known = self.survey_known().await.remove(bucket).unwrap_or_default();
        let unread = failed(bucket, "it could not be read");
        let stream = self.describe(&stream_name(bucket)).await;
        let stream = stream.map_err(|error| unread(error.into()))?;
        known.add(self.recorded_incarnation(bucket).await.map_err(&unread)?, None);
        known.add(Incarnation::read(&stream.config).number, unfinished_above(&stream.config));
        let last = stream.state.last_seq;
        let above = known.above(last);
        let incarnation = Incarnation::next(known.incarnation, Origin::Accepted);
        self.mark_unfinished(bucket, above).await?;
        self.finish(bucket, incarnation, above).await?;
        let (bucket, incarnation) = (bucket.to_owned(), incarnation.number);
        Ok(BegunIncarnation { bucket, incarnation, restored: last, above })
    }

    /// What is known of each bucket: by its stream, by running processes, and by an interrupted
    /// command. It is kept in the backup's directory until the command has ended.
    async fn collect_known(
        &self,
        backups: &Backups,
    ) -> Result<BTreeMap<String, KnownBefore>, RestoreError> {
        let progress_file = backups.dir.join(PROGRESS_FILE);
        let stored_progress = fs::read(&progress_file).await.ok();
        let mut known_buckets: BTreeMap<String, KnownBefore> =
            stored_progress.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        for (bucket, found) in self.survey_known().await {
            known_buckets.entry(bucket).or_default().add(found.incarnation, found.highest);
        }
        for (bucket, backup) in &backups.found {
            let unread = failed(bucket, "its stream could not be read");
            let entry = known_buckets.entry(bucket.clone()).or_default();
            if let Some(stream) = self.find_stream(bucket).await.map_err(&unread)? {
                let highest = unfinished_above(&stream.config).max(Some(stream.state.last_seq));
                entry.add(Incarnation::read(&stream.config).number, highest);
            }
            if bucket != BUCKETS.name {
                entry.add(self.recorded_incarnation(bucket).await.unwrap_or(0), None);
            }
            if entry.target == 0 {
                let before = entry.incarnation.max(Incarnation::read(&backup.config).number);
                entry.target = Incarnation::next(before, Origin::Restored).number;
            }
        }
        let stored_progress = serde_json::to_vec(&known_buckets).map_err(Cause::new);
        let written = match stored_progress {
            Ok(stored_progress) => {
                fs::write(&progress_file, stored_progress).await.map_err(Cause::new)
            }
            Err(error) => Err(error),
        };
        let progress_file = progress_file.display().to_string();
        written.map_err(failed(&progress_file, "it could not be written"))?;
        Ok(known_buckets)
    }

    /// Asks the running processes what they remember of each bucket.
    async fn survey_known(&self) -> BTreeMap<String, KnownBefore> {
        let processes = self.survey::<ProcessStats>("$SRV.STATS", SURVEY_MAX).await;
        let mut known_buckets: BTreeMap<String, KnownBefore> = BTreeMap::new();
        for process in processes.unwrap_or_default() {
            for (bucket, one) in process.buckets {
                known_buckets.entry(bucket).or_default().add(one.incarnation, Some(one.highest));
            }
        }
        known_buckets
    }

    async fn find_stream(&self, bucket: &str) -> Result<Option<Description>, Cause> {
        match self.describe(&stream_name(bucket)).await {
            Ok(stream) => Ok(Some(stream)),
            Err(ApiError::Refused { code: NOT_FOUND, .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Marks the stream as unfinished, if it exists.
    async fn mark_unfinished(&self, bucket: &str, above: u64) -> Result<(), RestoreError> {
        let unmarked = failed(bucket, "it could not be marked as unfinished");
        let Some(stream) = self.find_stream(bucket).await.map_err(&unmarked)? else {
            return Ok(());
        };
        let mut config = stream.config;
        let above = unfinished_above(&config).unwrap_or(0).max(above);
        Incarnation::read(&config).write(&mut config, Some(above));
        self.update(bucket, config).await.map_err(&unmarked)
    }

    /// Raises the revisions, puts the stream on the record, and lets services use it.
    async fn finish(
        &self,
        bucket: &str,
        incarnation: Incarnation,
        above: u64,
    ) -> Result<(), RestoreError> {
        let raised = self.raise_revisions(bucket, above).await;
        raised.map_err(failed(bucket, "its revisions could not be raised"))?;
        let heads = self.raise_heads(bucket).await;
        heads.map_err(failed(bucket, "the guards of its subtrees could not be raised"))?;
        let unfinished = failed(bucket, "it could not be finished");
        let found = self.find_stream(bucket).await.map_err(&unfinished)?;
        let mut stream = found.ok_or_else(|| unfinished(Cause::new("it was removed again")))?;
        incarnation.write(&mut stream.config, None);
        if bucket != BUCKETS.name {
            self.record_birth(bucket, &stream).await.map_err(&unfinished)?;
        }
        self.update(bucket, stream.config).await.map_err(&unfinished)
    }

    async fn update(&self, bucket: &str, config: Map<String, Value>) -> Result<(), Cause> {
        let subject = format!("$JS.API.STREAM.UPDATE.{}", stream_name(bucket));
        self.change(subject, &Value::Object(config)).await
    }

    async fn remove(&self, bucket: &str) -> Result<(), Cause> {
        let subject = format!("$JS.API.STREAM.DELETE.{}", stream_name(bucket));
        match self.find_stream(bucket).await? {
            Some(_) => self.change(subject, &Value::Null).await,
            None => Ok(()),
        }
    }

    /// Asks the server to change a stream, until it answers.
    async fn change(&self, subject: String, settings: &Value) -> Result<(), Cause> {
        let deadline = Instant::now() + self.config().start_timeout;
        let mut tries = 0;
        loop {
            match self.api::<Value>(subject.clone(), settings).await {
                Ok(_) => return Ok(()),
                Err(ApiError::Refused { code: NOT_FOUND, .. })
                    if tries > 0 && settings.is_null() =>
                {
                    return Ok(());
                }
                Err(error) if !may_pass(&error) || Instant::now() >= deadline => {
                    return Err(error.into());
                }
                Err(_) => {}
            }
            tries += 1;
            pause(tries).await;
        }
    }
}
