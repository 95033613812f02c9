//! Closes the sessions that no container uses.
//!
//! **Promises** that a session is closed only when
//! - it has no reference and no process of this host has its mount; or
//! - all of its references are in doubt, and the host (and where needed the engine) shows for a
//!   while that no container uses the volume.
//!
//! A volume whose use is not known counts as used.
//!
//! **Never** closes a session because of its age alone.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use berth_host::{HostOperation, HostPool};
use berth_service::locks::KeyGuard;
use berth_service::process::chain;
use berth_service::shutdown::Shutdown;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::engine;
use super::holders::{VolumeUse, find_users};
use super::lifecycle::WORK_MAX;
use super::record::{CountTrust, Session, SessionPhase};
use super::sessions::Sessions;

/// Interval at which every session is checked.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Longest interval between two checks of a session that stays in use.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// How long it may take to read all processes.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long no user may be found after the engine restarted: it starts its containers again.
const UNUSED_AFTER_ENGINE: Duration = Duration::from_secs(5);
/// How long no user may be found after this process was away: the engine may be between the
/// response to a mount and the start of the container.
const UNUSED_AFTER_PLUGIN: Duration = Duration::from_secs(60);

/// Keeps every session until the shutdown.
pub async fn keep_sessions(sessions: Arc<Sessions>, shutdown: Shutdown) {
    let mut looks = JoinSet::new();
    loop {
        tokio::select! {
            () = sessions.wake.notified() => {}
            () = sleep(LOOK_INTERVAL) => {}
            () = shutdown.requested() => return,
        }
        while looks.try_join_next().is_some() {}
        sessions.forget_ended();
        for (name, record) in sessions.names.list() {
            if !record.session.is_some_and(|session| sessions.is_due(&name, &session)) {
                continue;
            }
            // A name whose lock is held is being mounted or checked.
            let Some(lock) = sessions.locks.try_lock(&name) else { continue };
            looks.spawn(Arc::clone(&sessions).look_after(name, lock));
        }
    }
}

/// The next step for a session.
enum SessionStep {
    Stay,
    Close,
    /// A container uses it, or whether one does is unknown, for this reason.
    LookAgain(String),
}

impl Sessions {
    fn is_due(&self, name: &str, session: &Session) -> bool {
        if session.phase == SessionPhase::Closing {
            return true;
        }
        let (memory, now) = (self.memory(name), Instant::now());
        session.trust() != Some(CountTrust::Sure)
            && memory.kept_until.is_none_or(|until| now >= until)
            && memory.next_look.is_none_or(|(at, _)| now >= at)
    }

    async fn look_after(self: Arc<Self>, name: String, lock: KeyGuard<String>) {
        if let Some(session) = self.names.get(&name).session {
            match self.decide_step(&name, &session).await {
                SessionStep::Stay => {}
                SessionStep::Close => self.close_unused(&name, &session).await,
                SessionStep::LookAgain(reason) => self.remember(&name, |memory| {
                    if memory.problem.as_ref() != Some(&reason) {
                        tracing::warn!(name, reason, "kept for Docker");
                    }
                    memory.problem = Some(reason);
                    let interval = memory.next_look.map_or(LOOK_INTERVAL, |(_, last)| last * 2);
                    let interval = interval.min(LOOK_INTERVAL_MAX);
                    memory.next_look = Some((Instant::now() + interval, interval));
                }),
            }
        }
        drop(lock);
    }

    async fn decide_step(&self, name: &str, session: &Session) -> SessionStep {
        if session.boot_id != self.boot_id {
            tracing::info!(name, "the host was booted since: no container uses it");
            return SessionStep::Close;
        }
        let path = match &session.phase {
            // The engine did not get a response to the mount.
            SessionPhase::Opening | SessionPhase::Closing => return SessionStep::Close,
            SessionPhase::Open { path } => PathBuf::from(path),
        };
        let trust = session.trust();
        if trust == Some(CountTrust::Sure) {
            return SessionStep::Stay;
        }
        if let Err(reason) = self.check_unused(name, path, trust).await {
            self.remember(name, |memory| memory.unused_since = None);
            return SessionStep::LookAgain(reason);
        }
        let needed = match trust {
            None | Some(CountTrust::Sure) => return SessionStep::Close,
            Some(CountTrust::EngineRestarted) => UNUSED_AFTER_ENGINE,
            Some(CountTrust::PluginWasAway) => UNUSED_AFTER_PLUGIN,
        };
        let now = Instant::now();
        let since = self.memory(name).unused_since.unwrap_or(now);
        if now.duration_since(since) >= needed {
            let ids = session.ids.len();
            tracing::info!(name, ids, "no container uses it: references dropped");
            return SessionStep::Close;
        }
        self.remember(name, |memory| {
            memory.unused_since = Some(since);
            memory.next_look = Some((now + LOOK_INTERVAL, LOOK_INTERVAL));
        });
        SessionStep::Stay
    }

    /// Checks that no process uses the mount at `path`. The error names the users, or says why they
    /// are unknown.
    async fn check_unused(
        &self,
        name: &str,
        path: PathBuf,
        trust: Option<CountTrust>,
    ) -> Result<(), String> {
        // The engine is asked only if a count is in doubt, and first, because its answer is the
        // cheapest.
        let engine = match trust {
            None => Ok(()),
            Some(_) => match engine::list_users(&self.engine, name).await {
                Ok(users) if users.is_empty() => Ok(()),
                Ok(users) => {
                    return Err(format!("in use: by the engine's containers {}", users.join(", ")));
                }
                Err(error) => {
                    Err(format!("whether containers use it is not known: {}", chain(&error)))
                }
            },
        };
        let with_open_files = trust == Some(CountTrust::PluginWasAway);
        let search = HostOperation::new("look for users", "processes", path.clone());
        let pool = HostPool::of_process();
        let users =
            pool.run(search, LOOK_TIMEOUT, move || find_users(&path, with_open_files)).await;
        let users = users.map_err(io::Error::from).flatten();
        let users = users.map_err(|error| format!("who uses it cannot be read: {error}"))?;
        match (users, trust) {
            (VolumeUse::By(users), _) => Err(format!("in use: {}", users.join(", "))),
            // An engine that does not answer starts no container; running ones were searched for
            // without it.
            (VolumeUse::Nobody, Some(CountTrust::EngineRestarted)) => Ok(()),
            (VolumeUse::Nobody | VolumeUse::NotMounted, _) => engine,
        }
    }

    /// Closes a session without users. The caller holds the name's lock, which a mount would need.
    async fn close_unused(&self, name: &str, session: &Session) {
        match self.mark_closing(name, session).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::error!(name, error = chain(&error), "a session could not be closed");
                return;
            }
        }
        if let Err(problem) = self.close(name, session, Instant::now() + WORK_MAX).await {
            let trace = problem.trace.as_deref();
            tracing::warn!(name, trace, %problem, "not released for Docker; it is tried again");
        }
    }
}
