//! The sessions of all names, and the two requests that count references: mount and unmount.
//!
//! **Promises** a response to a mount within the time that the engine waits. A longer mount
//! continues without a reference, and the engine's retry joins it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_contract::problem::Problem;
use berth_domain::AllocId;
use berth_explain::{Facts, find_unusable, is_of_holders};
use berth_service::clock;
use berth_service::locks::KeyedLocks;
use berth_service::process::chain;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::client::BerthClient;
use super::config::Config;
use super::delivery::{MountReference, ResponseDelivery};
use super::engine;
use super::names::NameTable;
use super::target::default_target;

/// How long an unmount waits for the release that follows it, so that a container that moves to
/// another host finds the volume free. A longer release continues.
const RELEASE_WAIT: Duration = Duration::from_secs(10);
/// How long it may take to read why a volume is not mounted.
pub const EXPLAIN_MAX: Duration = Duration::from_secs(1);
/// How long an unused session is kept after a mount whose response was lost. The engine retries for
/// half a minute, and users retry about as long.
const KEPT_FOR_RETRY: Duration = Duration::from_secs(60);
/// How long an unused session is kept after Docker's copy into the volume (copy-up): the container
/// that the copy was for mounts the volume next, under the same claim.
const KEPT_AFTER_COPY: Duration = Duration::from_secs(2);

/// The sessions of all names.
pub struct Sessions {
    pub names: NameTable,
    pub client: BerthClient,
    /// The boot of the host that this process runs in.
    pub boot_id: String,
    /// The socket of Docker's engine.
    pub engine: PathBuf,
    /// How long the engine may have to wait for a mount.
    mount_timeout: Duration,
    /// Only one task at a time works on a name.
    pub locks: KeyedLocks<String>,
    memory: Mutex<HashMap<String, SessionMemory>>,
    /// Wakes the keeper to check all sessions at once.
    pub wake: Notify,
}

/// What this process remembers of a session only in memory.
#[derive(Debug, Clone, Default)]
pub struct SessionMemory {
    /// The session is kept until then, even without a reference.
    pub kept_until: Option<Instant>,
    /// Whether it is kept for the container that Docker's copy (copy-up) was for.
    pub is_kept_after_copy: bool,
    /// The error of the last attempt.
    pub problem: Option<String>,
    /// Since when no user of the volume was found.
    pub unused_since: Option<Instant>,
    /// When the keeper checks for users next, and how long that is after the last check.
    pub next_look: Option<(Instant, Duration)>,
}

impl Sessions {
    /// Sessions that an earlier process left open are kept for a while: the engine retries a
    /// request whose response was lost.
    pub fn new(config: &Config, boot_id: String, names: NameTable, client: BerthClient) -> Self {
        let kept_until = Some(Instant::now() + KEPT_FOR_RETRY);
        let memory = SessionMemory { kept_until, ..SessionMemory::default() };
        let records = names.list().into_iter();
        let open = records.filter(|(_, record)| record.session.is_some());
        let memory = open.map(|(name, _)| (name, memory.clone())).collect();
        Self {
            names,
            client,
            boot_id,
            engine: config.engine.clone(),
            mount_timeout: config.mount_timeout,
            locks: KeyedLocks::default(),
            memory: Mutex::new(memory),
            wake: Notify::new(),
        }
    }

    /// When a request that begins now must be answered: soon after, the engine stops waiting.
    pub fn request_deadline(&self, within: Duration) -> Instant {
        Instant::now() + self.mount_timeout.min(within)
    }

    /// Mounts the name's volume for an ID, and counts the reference.
    pub async fn mount(
        self: &Arc<Self>,
        reference: MountReference,
        delivery: Arc<ResponseDelivery>,
    ) -> Result<String, String> {
        let deadline = self.request_deadline(self.mount_timeout);
        let name = reference.name.clone();
        let Ok(lock) = timeout_at(deadline, self.locks.lock(&name)).await else {
            return Err(self.still_attaching(&name));
        };
        let (sender, mounted) = oneshot::channel();
        let (sessions, task_delivery) = (Arc::clone(self), Arc::clone(&delivery));
        // The task outlives this request, and holds the lock until it ends.
        tokio::spawn(async move {
            let name = reference.name.clone();
            let mounted = match sessions.open(&name).await {
                Ok(path) if task_delivery.is_awaited() => {
                    sessions.count(reference, &task_delivery).await.map(|()| path)
                }
                opened => {
                    sessions.keep_for(&name, KEPT_FOR_RETRY);
                    opened
                }
            };
            drop(lock);
            sessions.wake.notify_one();
            let _ = sender.send(mounted);
        });
        match timeout_at(deadline, mounted).await {
            Ok(Ok(Ok(path))) => Ok(path),
            // The problem is explained even if the deadline leaves no time to read the claims.
            Ok(Ok(Err(problem))) => Err(self.explain(&name, &problem, deadline).await),
            Ok(Err(_)) => Err("the mount was given up: berth-docker is ending".to_owned()),
            Err(_) => {
                if let Some(reference) = delivery.end(false) {
                    self.drop_undelivered(reference).await;
                }
                Err(self.still_attaching(&name))
            }
        }
    }

    async fn count(
        &self,
        reference: MountReference,
        delivery: &ResponseDelivery,
    ) -> Result<(), Problem> {
        // Written to the disk first: what the engine was answered must survive this process.
        self.add_reference(&reference).await?;
        self.forget(&reference.name);
        if let Err(reference) = delivery.add_reference(reference) {
            self.drop_undelivered(reference).await;
        }
        Ok(())
    }

    /// Drops a reference whose response did not reach the engine.
    pub async fn drop_undelivered(&self, reference: MountReference) {
        let MountReference { name, id } = reference;
        tracing::warn!(name, id, "the engine was not told of a mount; it counts as not made");
        self.keep_for(&name, KEPT_FOR_RETRY);
        let dropped = self.names.update(&name, move |record| {
            record.session.as_mut().is_some_and(|session| session.drop_reference(&id))
        });
        if let Err(error) = dropped.await {
            // It stays counted. The failed disk needs a restart, which puts the reference in doubt.
            tracing::error!(name, error = chain(&error), "a reference could not be dropped");
        }
        self.wake.notify_one();
    }

    /// Drops one reference. Dropping the last one ends the session.
    pub async fn unmount(self: &Arc<Self>, name: &str, id: &str) -> Result<(), String> {
        let mut changes = self.names.subscribe();
        // The session stays open while the engine is asked whether the mount was for its copy.
        self.keep_for(name, KEPT_AFTER_COPY);
        let counted = id.to_owned();
        let dropped = self.names.update(name, move |record| {
            let session = record.session.as_mut()?;
            let was_counted = session.drop_reference(&counted);
            Some((session.alloc.clone(), was_counted, session.ids.len()))
        });
        let dropped = dropped.await.map_err(|error| describe(&error.into_problem()))?;
        let Some((alloc, was_counted, left)) = dropped else {
            tracing::info!(name, id, "unmounted by Docker, and was not mounted for it");
            return Ok(());
        };
        tracing::info!(name, id, was_counted, left, "unmounted by Docker");
        if left > 0 {
            return Ok(());
        }
        if was_counted && self.is_copy(name).await {
            self.keep_after_copy(name, &alloc);
            return Ok(());
        }
        self.forget(name);
        self.wake.notify_one();
        let released = async {
            let is_over = || {
                let session = self.names.get(name).session;
                session.is_none_or(|now| now.alloc != alloc || !now.ids.is_empty())
            };
            while !is_over() && changes.changed().await.is_ok() {}
        };
        if timeout(RELEASE_WAIT, released).await.is_err() {
            tracing::warn!(name, %alloc, "unmounted by Docker, and not released yet; it goes on");
        }
        Ok(())
    }

    /// Whether Docker mounted the volume for its own copy into it (copy-up), while it makes a
    /// container. If the engine does not answer, the user counts as a container.
    async fn is_copy(&self, name: &str) -> bool {
        engine::makes_container(&self.engine, name).await.unwrap_or(false)
    }

    /// Keeps a session without references for a moment, unless it gets one. After a restart of this
    /// process it is kept longer, like every open session.
    fn keep_after_copy(self: &Arc<Self>, name: &str, alloc: &AllocId) {
        let session = self.names.get(name).session;
        if session.is_some_and(|now| now.alloc == *alloc && now.ids.is_empty()) {
            tracing::info!(name, %alloc, "kept for the container that Docker's copy was for");
            self.keep_for(name, KEPT_AFTER_COPY);
            self.remember(name, |memory| memory.is_kept_after_copy = true);
            let sessions = Arc::clone(self);
            tokio::spawn(async move {
                sleep(KEPT_AFTER_COPY).await;
                sessions.wake.notify_one();
            });
        }
        self.wake.notify_one();
    }

    /// Why the name's volume is not mounted, in the words for Docker's user. The volume's claims
    /// are read if they are the reason.
    pub async fn explain(&self, name: &str, problem: &Problem, deadline: Instant) -> String {
        let target = self.names.get(name).target().cloned();
        let Some(target) = target.or_else(|| default_target(name).ok()) else {
            return describe(problem);
        };
        let key = target.key();
        let mut facts = Facts { now: clock::now(), ..Facts::default() };
        if is_of_holders(problem.code) {
            let until = deadline.min(Instant::now() + EXPLAIN_MAX);
            let read = timeout_at(until, self.client.volume_status(&key)).await;
            facts.volumes.extend(read.ok().map(|volume| (key.clone(), volume)));
        }
        find_unusable(&facts, &key, (self.client.node(), target.mode), problem).line()
    }

    fn still_attaching(&self, name: &str) -> String {
        let last = self.memory(name).problem;
        let last = last.map(|problem| format!(" (last: {problem})")).unwrap_or_default();
        format!("volume {name} is still attaching, try again{last}")
    }

    pub fn memory(&self, name: &str) -> SessionMemory {
        self.memories().get(name).cloned().unwrap_or_default()
    }

    pub fn remember(&self, name: &str, change: impl FnOnce(&mut SessionMemory)) {
        change(self.memories().entry(name.to_owned()).or_default());
    }

    fn keep_for(&self, name: &str, span: Duration) {
        self.remember(name, |memory| memory.kept_until = Some(Instant::now() + span));
    }

    fn forget(&self, name: &str) {
        self.memories().remove(name);
    }

    /// Drops the memory of names without a session.
    pub fn forget_ended(&self) {
        self.memories().retain(|name, _| self.names.get(name).session.is_some());
    }

    fn memories(&self) -> MutexGuard<'_, HashMap<String, SessionMemory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A problem in the words for Docker's user: what it is, who acts, and what to try.
pub fn describe(problem: &Problem) -> String {
    berth_explain::find_problem(problem).line()
}
