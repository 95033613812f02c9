//! A session's way: opened under one alloc, and closed when nobody uses it.
//!
//! **Promises** that the session is on the disk before its alloc is registered, and forgotten after
//! the last claim of its alloc is gone: a kill at any point leaves what says how to go on. One task
//! at a time works on a name (its lane).
//!
//! **Never** goes back: what is closing is closed to the end, and the next use begins anew.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_domain::Namespace;
use berth_domain::VolumeId;
use berth_domain::retry::Schedule;
use berth_service::clock;
use berth_service::process::chain;
use tokio::time::{Instant, sleep};

use super::adapter::Adapter;
use super::ask;
use super::record::{NotCounted, Phase, Session, Target};
use super::store::StoreError;

/// How long a session that nobody may wait for any more is worked on in one go.
const WORK_MAX: Duration = Duration::from_secs(600);
/// When it is tried again.
const AGAIN: Schedule = Schedule { first: Duration::from_millis(100), max: Duration::from_secs(2) };
/// When it is looked again whether a release is through.
const LOOK: Schedule = Schedule { first: Duration::from_millis(50), max: Duration::from_secs(1) };

impl Adapter {
    /// Has the name's volume mounted, and looked at again when it was; where it is then.
    pub async fn open(&self, name: &str) -> Result<String, Problem> {
        let until = Instant::now() + WORK_MAX;
        let mut tries = 0;
        loop {
            let session = match self.book().get(name).session {
                Some(session) if session.phase == Phase::Closing => {
                    self.close(name, &session, until).await?;
                    continue;
                }
                Some(session) => session,
                None => self.begin(name).await?,
            };
            let problem = match self.bring(name, &session).await {
                Ok(path) => {
                    self.opened(name, path.clone()).await?;
                    return Ok(path);
                }
                Err(problem) => problem,
            };
            let again = problem.retryable || has_ended(problem.code);
            if has_ended(problem.code) || (!again && session.phase == Phase::Opening) {
                // What has ended is no use to those who were counted either.
                self.abandon(name, &session, &problem).await?;
            }
            if !again || Instant::now() >= until {
                return Err(problem);
            }
            tries += 1;
            let trace = problem.trace.as_deref();
            tracing::debug!(name, trace, %problem, tries, "not mounted for Docker yet");
            self.note(name, &problem);
            sleep(AGAIN.wait(tries, clock::jitter())).await;
        }
    }

    /// Writes down that a use begins.
    async fn begin(&self, name: &str) -> Result<Session, Problem> {
        let target = match self.book().get(name).definition {
            Some(definition) => definition.target,
            None => own_name(name)?,
        };
        let alloc = ask::alloc_id(name, rand::random());
        let alloc = alloc.ok_or_else(|| Problem::new(Code::BadInput, "the name is no id"))?;
        if !self.book().has_room() {
            let message = "this node remembers as many names of Docker volumes as it can";
            return Err(Problem::new(Code::Overloaded, message));
        }
        let session = Session::begin(target, alloc, self.boot_id().to_owned());
        let begun = session.clone();
        let written = self.book().change(name, move |record| record.session = Some(begun)).await;
        written.map_err(not_kept)?;
        Ok(session)
    }

    /// Registers, claims and mounts; each is nothing when it was done before.
    async fn bring(&self, name: &str, session: &Session) -> Result<String, Problem> {
        if session.phase == Phase::Opening {
            self.asker().register(name, session).await?;
        }
        // Also of what is open already: the node may have counted as gone since.
        Ok(self.asker().mount(session).await?.path)
    }

    async fn opened(&self, name: &str, path: String) -> Result<(), Problem> {
        let open = self.book().change(name, |record| {
            if let Some(session) = &mut record.session {
                session.phase = Phase::Open { path };
            }
        });
        open.await.map_err(not_kept)
    }

    /// Counts one more reference; with the lane held, what was opened is still open.
    pub async fn count(&self, name: &str, id: &str) -> Result<(), Problem> {
        let id = id.to_owned();
        let counted = self.book().change(name, move |record| match &mut record.session {
            Some(session) => session.mount(&id),
            None => Err(NotCounted::NotOpen),
        });
        counted.await.map_err(not_kept)?.map_err(|reason| match reason {
            NotCounted::NotOpen => {
                Problem::new(Code::Releasing, "it was released again meanwhile").retryable()
            }
            NotCounted::Full => {
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
        let alloc = session.alloc.clone();
        let close = self.book().change(name, move |record| {
            if let Some(session) = record.session.as_mut().filter(|now| now.alloc == alloc) {
                session.close();
            }
        });
        close.await.map_err(not_kept)?;
        self.wake();
        Ok(())
    }

    /// Stops the alloc, waits until its claims are gone, and forgets the session.
    pub async fn close(
        &self,
        name: &str,
        session: &Session,
        until: Instant,
    ) -> Result<(), Problem> {
        let (mut tries, mut last) = (0, None);
        while Instant::now() < until {
            match self.end(session).await {
                Ok(true) => {
                    let alloc = session.alloc.clone();
                    let forget = self.book().change(name, move |record| {
                        record.session.take_if(|now| now.alloc == alloc);
                    });
                    forget.await.map_err(not_kept)?;
                    tracing::info!(name, alloc = %session.alloc, "released for Docker");
                    return Ok(());
                }
                Ok(false) => {}
                Err(problem) => {
                    let trace = problem.trace.as_deref();
                    tracing::debug!(name, trace, %problem, "not released for Docker yet");
                    self.note(name, &problem);
                    last = Some(problem);
                }
            }
            tries += 1;
            sleep(LOOK.wait(tries, clock::jitter())).await;
        }
        let message = "its last use on this node is still being released";
        Err(last.unwrap_or_else(|| Problem::new(Code::Releasing, message).retryable()))
    }

    /// Whether nothing is left of the session's alloc; it is stopped first.
    async fn end(&self, session: &Session) -> Result<bool, Problem> {
        let status = match self.asker().status(session).await {
            Ok(status) if !status.state.is_terminal() => self.asker().stop(session).await,
            status => status,
        };
        match status {
            Ok(status) => Ok(status.claims.is_empty()),
            // It never came to be, or is forgotten, which is only done without claims.
            Err(problem) if problem.code == Code::NoSuchAlloc => Ok(true),
            Err(problem) => Err(problem),
        }
    }

    /// When work in the background stops, to be taken up anew.
    pub fn work_until() -> Instant {
        Instant::now() + WORK_MAX
    }
}

/// What a name stands for that nobody created: the volume of that name.
pub fn own_name(name: &str) -> Result<Target, Problem> {
    let volume = VolumeId::new(name)
        .map_err(|fault| Problem::new(Code::BadInput, format!("the volume's name {fault}")))?;
    Ok(Target::of(Namespace::default(), volume))
}

/// Whether the session's alloc is of no use any more, so that another is needed.
fn has_ended(code: Code) -> bool {
    matches!(code, Code::AllocTerminal | Code::NoSuchAlloc | Code::GrantVoid)
}

/// What this node cannot write down, it does not do.
pub fn not_kept(error: StoreError) -> Problem {
    Problem::new(Code::Internal, chain(&error))
        .next("look at the disk below berth-docker's state_dir, and restart berth-docker")
}
