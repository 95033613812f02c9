//! The life of a session: opened under one alloc, and closed when no container uses it.
//!
//! **Promises** that the session is on the disk before its alloc is registered, and is forgotten
//! after the last claim of its alloc is gone: after a kill at any point the record shows the next
//! step. Only one task at a time works on a name ([`Sessions::locks`]).
//!
//! **Never** goes back: a closing session is closed to its end. The next mount starts a new one.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::docker::new_alloc_id;
use berth_contract::problem::Problem;
use berth_domain::retry::Schedule;
use berth_service::clock;
use tokio::time::{Instant, sleep};

use super::delivery::MountReference;
use super::names::NamesError;
use super::record::{CountRefusal, Session, SessionPhase};
use super::sessions::{EXPLAIN_MAX, Sessions};
use super::target::default_target;

/// How long one task works on a session before it leaves it to the next request or check.
pub const WORK_MAX: Duration = Duration::from_secs(600);
const MOUNT_RETRY: Schedule =
    Schedule { first: Duration::from_millis(100), max: Duration::from_secs(2) };
/// Pauses between two questions whether a release has ended.
const RELEASE_POLL: Schedule =
    Schedule { first: Duration::from_millis(50), max: Duration::from_secs(1) };

impl Sessions {
    /// Has the name's volume mounted, and returns the path. The agent checks an existing mount
    /// again.
    pub async fn open(&self, name: &str) -> Result<String, Problem> {
        let deadline = Instant::now() + WORK_MAX;
        let mut tries = 0;
        loop {
            let session = match self.names.get(name).session {
                Some(session) if session.phase == SessionPhase::Closing => {
                    self.close(name, &session, deadline).await?;
                    continue;
                }
                Some(session) => session,
                None => self.start_session(name).await?,
            };
            let problem = match self.claim_and_mount(name, &session).await {
                Ok(path) => {
                    self.mark_open(name, path.clone()).await?;
                    return Ok(path);
                }
                Err(problem) => problem,
            };
            let has_ended = is_alloc_over(problem.code);
            let retries = problem.retryable || has_ended;
            if has_ended || (!retries && session.phase == SessionPhase::Opening) {
                // The containers that are counted cannot use an ended alloc either.
                self.abandon(name, &session, &problem).await?;
            }
            if !retries || Instant::now() >= deadline {
                return Err(problem);
            }
            tries += 1;
            let trace = problem.trace.as_deref();
            tracing::debug!(name, trace, %problem, tries, "not mounted for Docker yet");
            self.remember_problem(name, &problem).await;
            sleep(MOUNT_RETRY.wait(tries, clock::jitter())).await;
        }
    }

    async fn start_session(&self, name: &str) -> Result<Session, Problem> {
        let target = match self.names.get(name).definition {
            Some(definition) => definition.target,
            None => default_target(name)?,
        };
        let alloc = new_alloc_id(name, rand::random());
        let alloc = alloc.ok_or_else(|| Problem::new(Code::BadInput, "the name is no id"))?;
        if !self.names.has_room() {
            let message = "this node remembers as many names of Docker volumes as it can";
            return Err(Problem::new(Code::Overloaded, message));
        }
        let session = Session::new(target, alloc, self.boot_id.clone());
        let started = session.clone();
        let written = self.names.update(name, move |record| record.session = Some(started)).await;
        written.map_err(NamesError::into_problem)?;
        Ok(session)
    }

    /// Registers, claims and mounts. Each step changes nothing if it was done before.
    async fn claim_and_mount(&self, name: &str, session: &Session) -> Result<String, Problem> {
        if session.phase == SessionPhase::Opening {
            self.client.register_alloc(name, session).await?;
        }
        // Also for an open session: the node may have been declared gone since.
        Ok(self.client.mount(session).await?.path)
    }

    async fn mark_open(&self, name: &str, path: String) -> Result<(), Problem> {
        let opened = self.names.update(name, |record| {
            if let Some(session) = &mut record.session {
                session.phase = SessionPhase::Open { path };
            }
        });
        opened.await.map_err(NamesError::into_problem)
    }

    /// Counts a reference. The caller holds the name's lock, so a session that was opened is still
    /// open.
    pub async fn add_reference(&self, reference: &MountReference) -> Result<(), Problem> {
        let id = reference.id.clone();
        let counted = self.names.update(&reference.name, move |record| match &mut record.session {
            Some(session) => session.add_reference(&id),
            None => Err(CountRefusal::NotOpen),
        });
        counted.await.map_err(NamesError::into_problem)?.map_err(|refusal| match refusal {
            CountRefusal::NotOpen => {
                Problem::new(Code::Releasing, "it was released again meanwhile").retryable()
            }
            CountRefusal::Full => {
                Problem::new(Code::Overloaded, "as many containers use it here as may at once")
            }
        })
    }

    async fn abandon(
        &self,
        name: &str,
        session: &Session,
        problem: &Problem,
    ) -> Result<(), Problem> {
        if !session.ids.is_empty() {
            let ids = session.ids.len();
            let trace = problem.trace.as_deref();
            tracing::error!(name, trace, %problem, ids, "a volume was taken from its containers");
        }
        self.mark_closing(name, session).await.map_err(NamesError::into_problem)?;
        self.wake.notify_one();
        Ok(())
    }

    /// Writes that the session is closing. `false` if the name has another session by now.
    pub async fn mark_closing(&self, name: &str, session: &Session) -> Result<bool, NamesError> {
        let alloc = session.alloc.clone();
        let close = self.names.update(name, move |record| {
            let current = record.session.as_mut().filter(|now| now.alloc == alloc);
            current.map(Session::close).is_some()
        });
        close.await
    }

    /// Stops the alloc, waits until its claims are gone, and forgets the session.
    pub async fn close(
        &self,
        name: &str,
        session: &Session,
        deadline: Instant,
    ) -> Result<(), Problem> {
        let (mut tries, mut last) = (0, None);
        while Instant::now() < deadline {
            match self.stop_alloc(session).await {
                Ok(true) => {
                    let alloc = session.alloc.clone();
                    let forget = self.names.update(name, move |record| {
                        record.session.take_if(|now| now.alloc == alloc);
                    });
                    forget.await.map_err(NamesError::into_problem)?;
                    tracing::info!(name, alloc = %session.alloc, "released for Docker");
                    return Ok(());
                }
                Ok(false) => {}
                Err(problem) => {
                    let trace = problem.trace.as_deref();
                    tracing::debug!(name, trace, %problem, "not released for Docker yet");
                    self.remember_problem(name, &problem).await;
                    last = Some(problem);
                }
            }
            tries += 1;
            sleep(RELEASE_POLL.wait(tries, clock::jitter())).await;
        }
        let message = "its last use on this node is still being released";
        Err(last.unwrap_or_else(|| Problem::new(Code::Releasing, message).retryable()))
    }

    /// Stops the session's alloc. Returns whether it has no claim left.
    async fn stop_alloc(&self, session: &Session) -> Result<bool, Problem> {
        let status = match self.client.alloc_status(session).await {
            Ok(status) if !status.state.is_terminal() => self.client.stop_alloc(session).await,
            status => status,
        };
        match status {
            Ok(status) => Ok(status.claims.is_empty()),
            // The alloc was never registered, or was forgotten, which happens only without claims.
            Err(problem) if problem.code == Code::NoSuchAlloc => Ok(true),
            Err(problem) => Err(problem),
        }
    }

    async fn remember_problem(&self, name: &str, problem: &Problem) {
        let reason = self.explain(name, problem, Instant::now() + EXPLAIN_MAX).await;
        self.remember(name, |memory| memory.problem = Some(reason));
    }
}

/// Whether the session's alloc can no longer be used, so that the next attempt needs a new one.
fn is_alloc_over(code: Code) -> bool {
    matches!(code, Code::AllocTerminal | Code::NoSuchAlloc | Code::GrantVoid)
}
