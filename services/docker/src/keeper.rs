//! What goes on without anybody asking: sessions that nobody uses are closed.
//!
//! **Promises** that a session is closed only when nobody is counted and nobody on this host has
//! its mount; or when everybody who is counted is in doubt, and the host, and where needed the
//! engine, show for a while that no container uses it. What is not known counts as used.
//!
//! **Never** closes by time alone.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use berth_host::{HostOperation, HostPool};
use berth_service::locks::KeyGuard;
use berth_service::process::chain;
use berth_service::shutdown::Shutdown;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::adapter::Adapter;
use super::engine;
use super::holders::{self, Use};
use super::record::{Phase, Session, Trust};

/// How often every session is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long it may take to look at all processes.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time between two looks at one that stays in use.
const LOOK_MAX: Duration = Duration::from_secs(60);
/// How long nobody must be seen after the engine started anew: it starts its containers again.
const QUIET_ENGINE: Duration = Duration::from_secs(5);
/// How long nobody must be seen after this agent was away: the engine may be between a mount that
/// it was answered and the start of the container.
const QUIET_AGENT: Duration = Duration::from_secs(60);

/// Tends to every session until the shutdown.
pub async fn keep(adapter: Adapter, shutdown: Shutdown) {
    let mut at_work = JoinSet::new();
    loop {
        tokio::select! {
            () = adapter.woken() => {}
            () = sleep(LOOK) => {}
            () = shutdown.requested() => return,
        }
        while at_work.try_join_next().is_some() {}
        adapter.sweep();
        for (name, record) in adapter.book().all() {
            if !record.session.is_some_and(|session| adapter.is_due(&name, &session)) {
                continue;
            }
            // Somebody mounts it right now: then there is nothing to close.
            let Some(lane) = adapter.lanes().try_lock(&name) else { continue };
            at_work.spawn(adapter.clone().tend(name, lane));
        }
    }
}

impl Adapter {
    fn is_due(&self, name: &str, session: &Session) -> bool {
        if session.phase == Phase::Closing {
            return true;
        }
        let (memory, now) = (self.memory(name), Instant::now());
        session.trust() != Some(Trust::Sure)
            && memory.linger.is_none_or(|until| now >= until)
            && memory.look.is_none_or(|(at, _)| now >= at)
    }

    async fn tend(self, name: String, lane: KeyGuard<String>) {
        if let Some(session) = self.book().get(&name).session {
            match self.next(&name, &session).await {
                Next::Stay => {}
                Next::Close => self.finish(&name, &session).await,
                Next::LookAgain(why) => {
                    self.remember(&name, |memory| {
                        if memory.problem.as_ref() != Some(&why) {
                            tracing::warn!(name, why, "kept for Docker");
                        }
                        memory.problem = Some(why);
                        let pause = memory.look.map_or(LOOK, |(_, pause)| pause * 2).min(LOOK_MAX);
                        memory.look = Some((Instant::now() + pause, pause));
                    });
                }
            }
        }
        drop(lane);
    }

    /// What a session needs now.
    async fn next(&self, name: &str, session: &Session) -> Next {
        if session.boot_id != self.boot_id() {
            tracing::info!(name, "its containers ended with the host's last life");
            return Next::Close;
        }
        let path = match &session.phase {
            // Nobody was ever told that it is there.
            Phase::Opening | Phase::Closing => return Next::Close,
            Phase::Open { path } => PathBuf::from(path),
        };
        let trust = session.trust();
        if trust == Some(Trust::Sure) {
            return Next::Stay;
        }
        if let Err(why) = self.unused(name, path, trust).await {
            self.remember(name, |memory| memory.quiet = None);
            return Next::LookAgain(why);
        }
        let needed = match trust {
            None | Some(Trust::Sure) => return Next::Close,
            Some(Trust::EngineRestarted) => QUIET_ENGINE,
            Some(Trust::PluginWasAway) => QUIET_AGENT,
        };
        let now = Instant::now();
        let since = self.memory(name).quiet.unwrap_or(now);
        if now.duration_since(since) >= needed {
            tracing::info!(
                name,
                ids = session.ids.len(),
                "no container uses it: references dropped"
            );
            return Next::Close;
        }
        self.remember(name, |memory| {
            memory.quiet = Some(since);
            memory.look = Some((now + LOOK, LOOK));
        });
        Next::Stay
    }

    /// Whether nobody uses what is mounted there; else who does, or why that is not known.
    async fn unused(&self, name: &str, path: PathBuf, trust: Option<Trust>) -> Result<(), String> {
        // Where counts are in doubt the engine is asked first: it knows most, and costs least.
        let engine = match trust {
            None => Ok(()),
            Some(_) => match engine::users(self.engine(), name).await {
                Ok(users) if users.is_empty() => Ok(()),
                Ok(users) => {
                    return Err(format!("in use: by the engine's containers {}", users.join(", ")));
                }
                Err(error) => {
                    Err(format!("whether containers use it is not known: {}", chain(&error)))
                }
            },
        };
        let away = trust == Some(Trust::PluginWasAway);
        let look = HostOperation::new("look for users", "processes", path.clone());
        let pool = HostPool::of_process();
        let shown = pool.run(look, LOOK_TIMEOUT, move || holders::of(&path, away)).await;
        let shown = shown.map_err(io::Error::from).flatten();
        let shown = shown.map_err(|error| format!("who uses it cannot be read: {error}"))?;
        match (shown, trust) {
            (Use::By(holders), _) => Err(format!("in use: {}", holders.join(", "))),
            // An engine that is not there starts nothing, and what runs without it was looked for.
            (Use::Nobody, Some(Trust::EngineRestarted)) => Ok(()),
            (Use::Nobody | Use::NotMounted, _) => engine,
        }
    }

    /// Closes the session, unless somebody was counted meanwhile; that takes the lane, which is
    /// ours.
    async fn finish(&self, name: &str, seen: &Session) {
        let expected = seen.clone();
        let close = self.book().change(name, move |record| match &mut record.session {
            // An unmount may have come; that makes it no less unused.
            Some(now) if now.alloc == expected.alloc => {
                now.close();
                true
            }
            _ => false,
        });
        match close.await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::error!(name, error = chain(&error), "a session could not be closed");
                return;
            }
        }
        if let Err(problem) = self.close(name, seen, Self::work_until()).await {
            let trace = problem.trace.as_deref();
            tracing::warn!(name, trace, %problem, "not released for Docker; it is tried again");
        }
    }
}

/// What a session needs.
enum Next {
    /// Nothing.
    Stay,
    /// To be closed.
    Close,
    /// To be looked at again: somebody uses it, or that is not known.
    LookAgain(String),
}
