//! The adapter's parts together, and the two requests that count: mount and unmount.
//!
//! **Promises** an answer to a mount within the time that the engine waits. An attachment that
//! takes longer goes on behind it, without a reference, for whoever asks again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_contract::problem::Problem;
use berth_domain::AllocId;
use berth_service::locks::KeyedLocks;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use super::ask::Asker;
use super::book::Book;
use super::delivery::{Delivery, Reference};
use super::engine;
use super::session::not_kept;

/// How long an unmount waits for the release that follows it, so that whoever stops a container
/// here and starts it elsewhere finds the volume free. The release goes on all the same.
const RELEASE: Duration = Duration::from_secs(10);
/// How long what was mounted for nobody is kept for whoever asks again: Docker itself does for half
/// a minute, and people do.
const LINGER: Duration = Duration::from_secs(60);
/// How long a volume is kept that Docker mounted for its own copy into it: the container that the
/// copy was for mounts it next, and finds the same claim.
const KEPT_AFTER_COPY: Duration = Duration::from_secs(2);

/// The volume plugin behind the socket. Cheap to clone.
#[derive(Clone)]
pub struct Adapter {
    inner: Arc<Inner>,
}

/// What an [`Adapter`] works with.
pub struct Parts {
    /// What is known of names.
    pub book: Book,
    /// Who is asked for claims and mounts.
    pub asker: Asker,
    /// Which life of the host this is.
    pub boot_id: String,
    /// Where the engine is asked.
    pub engine: PathBuf,
    /// How long a mount may keep the engine waiting.
    pub mount_timeout: Duration,
}

struct Inner {
    parts: Parts,
    lanes: KeyedLocks<String>,
    memory: Mutex<HashMap<String, Memory>>,
    wake: Notify,
}

/// What is known of a name's session only while this process lives.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Until when it is kept though nobody is counted.
    pub linger: Option<Instant>,
    /// Whether it is kept for the container that Docker's copy was for.
    pub is_kept: bool,
    /// What kept it from going on, last.
    pub problem: Option<String>,
    /// Since when nobody was seen to use it.
    pub quiet: Option<Instant>,
    /// When it is looked at again, and how long after the last time.
    pub look: Option<(Instant, Duration)>,
}

impl Adapter {
    /// One that works with these. What an earlier process left open is kept a while: the engine
    /// asks again for what it was not answered.
    pub fn new(parts: Parts) -> Self {
        let linger = || Memory { linger: Some(Instant::now() + LINGER), ..Memory::default() };
        let known = parts.book.all().into_iter();
        let open = known.filter(|(_, record)| record.session.is_some());
        let memory = open.map(|(name, _)| (name, linger())).collect();
        let inner = Inner {
            parts,
            lanes: KeyedLocks::default(),
            memory: Mutex::new(memory),
            wake: Notify::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Mounts the name's volume for an ID, and counts it.
    pub async fn mount(
        &self,
        reference: Reference,
        delivery: Arc<Delivery>,
    ) -> Result<String, String> {
        let until = Instant::now() + self.inner.parts.mount_timeout;
        let name = reference.name.clone();
        let Ok(lane) = timeout_at(until, self.inner.lanes.lock(&name)).await else {
            return Err(self.not_yet(&name));
        };
        let (answer, answered) = oneshot::channel();
        let (work, adapter, for_whom) = (name.clone(), self.clone(), Arc::clone(&delivery));
        // It goes on when nobody waits any more, and holds the lane as long.
        tokio::spawn(async move {
            let mounted = match adapter.open(&work).await {
                Ok(path) if for_whom.is_awaited() => {
                    adapter.count_for(reference, &for_whom).await.map(|()| path)
                }
                opened => {
                    adapter.remember(&work, |memory| memory.linger = Some(Instant::now() + LINGER));
                    opened
                }
            };
            drop(lane);
            adapter.wake();
            let _ = answer.send(mounted);
        });
        match timeout_at(until, answered).await {
            Ok(Ok(mounted)) => mounted.map_err(|problem| in_words(&problem)),
            Ok(Err(_)) => Err("the mount was given up: berth-docker is ending".to_owned()),
            Err(_) => {
                if let Some(reference) = delivery.end(false) {
                    self.undelivered(reference).await;
                }
                Err(self.not_yet(&name))
            }
        }
    }

    async fn count_for(&self, reference: Reference, delivery: &Delivery) -> Result<(), Problem> {
        self.count(&reference.name, &reference.id).await?;
        // On the disk first: what the engine is told must outlive this process.
        self.forget(&reference.name);
        if let Err(reference) = delivery.count(reference) {
            self.undelivered(reference).await;
        }
        Ok(())
    }

    /// Takes one reference back that the engine never learned of.
    pub async fn undelivered(&self, reference: Reference) {
        let Reference { name, id } = reference;
        tracing::warn!(name, id, "the engine was not told of a mount; it counts as not made");
        self.remember(&name, |memory| memory.linger = Some(Instant::now() + LINGER));
        let drop = self.book().change(&name, move |record| {
            record.session.as_mut().is_some_and(|session| session.unmount(&id))
        });
        if let Err(error) = drop.await {
            // It stays counted, and is in doubt after the restart that this needs.
            tracing::error!(name, error = %not_kept(error), "a reference could not be dropped");
        }
        self.wake();
    }

    /// Drops one reference; the last one ends the session.
    pub async fn unmount(&self, name: &str, id: &str) -> Result<(), String> {
        let mut changes = self.book().changes();
        // Nothing is closed while the engine is asked whether this was its copy.
        self.remember(name, |memory| memory.linger = Some(Instant::now() + KEPT_AFTER_COPY));
        let counted = id.to_owned();
        let drop = self.book().change(name, move |record| {
            let session = record.session.as_mut()?;
            let known = session.unmount(&counted);
            Some((session.alloc.clone(), known, session.ids.len()))
        });
        let dropped = drop.await.map_err(|error| in_words(&not_kept(error)))?;
        let Some((alloc, known, left)) = dropped else {
            tracing::info!(name, id, "unmounted by Docker, and was not mounted for it");
            return Ok(());
        };
        tracing::info!(name, id, known, left, "unmounted by Docker");
        if left > 0 {
            return Ok(());
        }
        if known && self.is_copy(name).await {
            self.keep_after_copy(name, &alloc);
            return Ok(());
        }
        self.forget(name);
        self.wake();
        let over = async {
            let is_over = || {
                let session = self.book().get(name).session;
                session.is_none_or(|now| now.alloc != alloc || !now.ids.is_empty())
            };
            while !is_over() && changes.changed().await.is_ok() {}
        };
        if timeout_at(Instant::now() + RELEASE, over).await.is_err() {
            tracing::warn!(name, %alloc, "unmounted by Docker, and not released yet; it goes on");
        }
        Ok(())
    }

    /// Whether Docker had it for its own copy into the volume (copy-up), with which it makes a
    /// container. Where the engine does not say so, a container had it.
    async fn is_copy(&self, name: &str) -> bool {
        engine::makes_container(self.engine(), name).await.unwrap_or(false)
    }

    /// Keeps a volume that nobody is counted for, for a moment, unless it was mounted again
    /// already. A kill of this process ends that: what is open then is kept as after any restart.
    fn keep_after_copy(&self, name: &str, alloc: &AllocId) {
        let session = self.book().get(name).session;
        if session.is_some_and(|now| now.alloc == *alloc && now.ids.is_empty()) {
            tracing::info!(name, %alloc, "kept for the container that Docker's copy was for");
            self.remember(name, |memory| {
                memory.linger = Some(Instant::now() + KEPT_AFTER_COPY);
                memory.is_kept = true;
            });
            let adapter = self.clone();
            tokio::spawn(async move {
                sleep(KEPT_AFTER_COPY).await;
                adapter.wake();
            });
        }
        self.wake();
    }

    /// What a caller is told who cannot be kept waiting any longer.
    fn not_yet(&self, name: &str) -> String {
        let last = self.memory(name).problem;
        let last = last.map(|problem| format!(" (last: {problem})")).unwrap_or_default();
        format!("volume {name} is still attaching, try again{last}")
    }

    pub fn book(&self) -> &Book {
        &self.inner.parts.book
    }

    pub fn asker(&self) -> &Asker {
        &self.inner.parts.asker
    }

    pub fn boot_id(&self) -> &str {
        &self.inner.parts.boot_id
    }

    pub fn engine(&self) -> &Path {
        &self.inner.parts.engine
    }

    pub fn lanes(&self) -> &KeyedLocks<String> {
        &self.inner.lanes
    }

    /// Has the keeper look at once.
    pub fn wake(&self) {
        self.inner.wake.notify_one();
    }

    /// Waits until somebody wakes the keeper.
    pub async fn woken(&self) {
        self.inner.wake.notified().await;
    }

    /// What is remembered of a name.
    pub fn memory(&self, name: &str) -> Memory {
        let memory = self.inner.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.get(name).cloned().unwrap_or_default()
    }

    /// Changes what is remembered of a name.
    pub fn remember(&self, name: &str, change: impl FnOnce(&mut Memory)) {
        let mut memory = self.inner.memory.lock().unwrap_or_else(PoisonError::into_inner);
        change(memory.entry(name.to_owned()).or_default());
    }

    /// Nothing of what was remembered of a name counts any more.
    pub fn forget(&self, name: &str) {
        self.inner.memory.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Forgets what is remembered of names without a session.
    pub fn sweep(&self) {
        let mut memory = self.inner.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.retain(|name, _| self.book().get(name).session.is_some());
    }

    /// Remembers what keeps a session from going on.
    pub fn note(&self, name: &str, problem: &Problem) {
        self.remember(name, |memory| memory.problem = Some(problem.to_string()));
    }
}

/// A problem as Docker's user reads it.
pub fn in_words(problem: &Problem) -> String {
    if problem.next.is_empty() {
        return problem.to_string();
    }
    format!("{problem}; next: {}", problem.next)
}
