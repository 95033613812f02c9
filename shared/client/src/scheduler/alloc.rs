//! One alloc of a scheduler.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::agent::{AgentQuery, Guard, MountAll, MountedVolume, SetGuard};
use berth_contract::message::alloc::{AllocStatus, AllocStub, StopAlloc, Wait, WaitUntil, Waited};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, NodeAndNamespace};
use berth_domain::alloc::AllocState;
use berth_domain::volume::{NodeMountState, State as ClaimState};
use berth_domain::{AllocId, NodeId, OwnerId, VolumeId};
use tokio::time::{Instant, timeout};

use super::asker::{BRIEF, Deadlines};
use super::refusal::Refusal;
use super::running::RunningScheduler;
use super::watch::SeenAlloc;

/// Longest wait of one request.
const WAIT_REQUEST_MAX: Duration = Duration::from_secs(30);
/// How long after its own wait a request times out.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// An alloc of this scheduler. Dropping it changes nothing: its workload goes on.
#[derive(Debug, Clone)]
pub struct Alloc {
    scheduler: Arc<RunningScheduler>,
    stub: AllocStub,
}

/// Why an alloc's workload has to end, although its scheduler did not stop it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LossReason {
    /// The alloc has ended: its node is gone, its guard has ended, or an operator stopped it.
    Ended {
        /// The state in which it ended.
        state: AllocState,
        /// The note on its record.
        note: Option<String>,
    },
    /// It belongs to another owner.
    Adopted {
        /// Its owner now.
        by: Option<OwnerId>,
    },
    /// A claim is being released, or is gone.
    Released {
        /// Its volume.
        volume: VolumeId,
    },
    /// A mount does not work any more.
    Mount {
        /// Its volume.
        volume: VolumeId,
        /// The state of the mount.
        state: NodeMountState,
    },
}

impl Alloc {
    pub(super) const fn new(scheduler: Arc<RunningScheduler>, stub: AllocStub) -> Self {
        Self { scheduler, stub }
    }

    /// Its id.
    pub const fn id(&self) -> &AllocId {
        &self.stub.id
    }

    /// The node on which it is placed.
    pub const fn node(&self) -> &NodeId {
        &self.stub.node
    }

    /// The alloc's status when this value was made.
    pub const fn stub(&self) -> &AllocStub {
        &self.stub
    }

    /// Claims and mounts all its volumes, or none of them. With `wait` it gets in line, and keeps
    /// its position until the overall deadline.
    pub async fn mount(
        &self,
        wait: bool,
        deadlines: Deadlines,
    ) -> Result<Vec<MountedVolume>, Refusal> {
        self.mount_at(BTreeMap::new(), wait, deadlines).await
    }

    /// The same, with volumes at paths of the caller's choice, by the workload's names for them.
    pub async fn mount_at(
        &self,
        paths: BTreeMap<String, String>,
        wait: bool,
        deadlines: Deadlines,
    ) -> Result<Vec<MountedVolume>, Refusal> {
        let (namespace, alloc) = (self.stub.namespace.clone(), self.id().clone());
        let request = MountAll { namespace, alloc, wait, paths };
        let asker = &self.scheduler.asker;
        let mounted = asker.send::<verb::AgentMountAll>(&self.agent(), &request, deadlines).await?;
        Ok(mounted.volumes)
    }

    /// Names the guard of its workload to the node's agent: its volumes stay while the guard lives,
    /// and the agent reports its end.
    pub async fn guard(&self, guard: Guard) -> Result<(), Refusal> {
        let request = SetGuard {
            namespace: self.stub.namespace.clone(),
            alloc: self.id().clone(),
            owner: Some(self.scheduler.owner.clone()),
            guard,
        };
        let asker = &self.scheduler.asker;
        let deadlines = Deadlines { attempt: Duration::from_secs(5), overall: BRIEF };
        asker.send::<verb::AgentGuard>(&self.agent(), &request, deadlines).await?;
        Ok(())
    }

    /// Guards it by a lock, for a workload that is started on this host. The returned file must be
    /// the workload's standard input: it is empty, and the lock lives as long as the workload or
    /// this file does. So the workload never runs without a guard, and a scheduler that was killed
    /// can check ([`Alloc::is_guarded`]) whether it had started the workload.
    pub async fn lock(&self) -> Result<File, Refusal> {
        let asker = &self.scheduler.asker;
        let deadlines = Deadlines { attempt: Duration::from_secs(5), overall: BRIEF };
        let status =
            asker.send::<verb::AgentStatus>(&self.agent(), &AgentQuery {}, deadlines).await?;
        let name = format!("{:016x}.lock", rand::random::<u64>());
        let file = status.runs.map(|dir| new_lock(&Path::new(&dir).join(&name)));
        let file = file.unwrap_or_else(|| Err(io::ErrorKind::Unsupported.into()));
        let file = file.map_err(|error| {
            let message = format!("alloc {} cannot be guarded by a lock: {error}", self.id());
            Problem::new(Code::GuardRefused, message)
                .node(self.node())
                .next("run the scheduler as root on the host of the alloc's node")
        })?;
        self.guard(Guard { lock: Some(name), ..Guard::default() }).await?;
        Ok(file)
    }

    /// Whether it has a guard: its workload was started, or was about to be.
    pub async fn is_guarded(&self) -> Result<bool, Refusal> {
        let asker = &self.scheduler.asker;
        let deadlines = Deadlines { attempt: Duration::from_secs(5), overall: BRIEF };
        let status =
            asker.send::<verb::AgentStatus>(&self.agent(), &AgentQuery {}, deadlines).await?;
        let mut guards = status.guards.iter();
        Ok(guards.any(|guard_status| {
            guard_status.namespace == self.stub.namespace && guard_status.alloc == *self.id()
        }))
    }

    /// Waits until its workload has to end. Returns only then: run it beside the workload.
    pub async fn lost(&self) -> LossReason {
        let mut seen = self.scheduler.watch.follow(self.id()).await;
        loop {
            // The sender lives as long as the scheduler.
            let _: Result<(), _> = seen.changed().await;
            let now = seen.borrow_and_update().clone();
            let lost = match now {
                SeenAlloc::NotYet => None,
                SeenAlloc::Gone => {
                    Some(LossReason::Ended { state: AllocState::Stopped, note: None })
                }
                SeenAlloc::As(alloc) => self.why_lost(&alloc),
            };
            if let Some(lost) = lost {
                return lost;
            }
        }
    }

    fn why_lost(&self, alloc: &AllocStatus) -> Option<LossReason> {
        if alloc.state.is_terminal() {
            return Some(LossReason::Ended { state: alloc.state, note: alloc.note.clone() });
        }
        if alloc.owner.as_ref() != Some(&self.scheduler.owner) {
            return Some(LossReason::Adopted { by: alloc.owner.clone() });
        }
        alloc.claims.iter().find_map(|claim| {
            let volume = claim.volume.clone();
            if matches!(claim.state, ClaimState::Unpublishing | ClaimState::NodeDetached) {
                return Some(LossReason::Released { volume });
            }
            let state = claim.mount.as_ref()?.state;
            let is_lost = matches!(state, NodeMountState::Missing | NodeMountState::Dead);
            is_lost.then_some(LossReason::Mount { volume, state })
        })
    }

    /// Reports that its workload has ended, so that its volumes are released. A repetition has no
    /// effect.
    pub async fn stop(&self, state: AllocState, note: &str) -> Result<(), Refusal> {
        let stop = StopAlloc {
            owner: Some(self.scheduler.owner.clone()),
            ..StopAlloc::new(self.id().clone(), state, Some(note.to_owned()))
        };
        // Its volumes may be free before the answer arrives.
        let expected = self.scheduler.watch.expect(self.id());
        let stopped = self.scheduler.asker.send_brief::<verb::AllocStop>(&stop).await;
        match stopped {
            // Its record was removed after it had ended.
            Err(problem) if problem.code == Code::NoSuchAlloc => return Ok(()),
            stopped => self.scheduler.watch.put(stopped?),
        }
        drop(expected);
        Ok(())
    }

    /// Waits until it is mounted, has ended, or is free. An alloc that has ended is never mounted.
    pub async fn wait(&self, until: WaitUntil, overall: Duration) -> Result<(), Refusal> {
        if until == WaitUntil::Mounted {
            return self.wait_mounted(overall).await;
        }
        let mut seen = self.scheduler.watch.follow(self.id()).await;
        let reached = async {
            loop {
                let _: Result<(), _> = seen.changed().await;
                let now = seen.borrow_and_update().clone();
                let is_reached = match now {
                    SeenAlloc::NotYet => false,
                    SeenAlloc::Gone => true,
                    SeenAlloc::As(alloc) => {
                        let has_claims = !alloc.claims.is_empty() || !alloc.unreadable.is_empty();
                        let is_free = until == WaitUntil::Ended || !has_claims;
                        alloc.state.is_terminal() && is_free
                    }
                };
                if is_reached {
                    return;
                }
            }
        };
        timeout(overall, reached).await.map_err(|_| self.is_late())
    }

    /// Waits at the service, because the record of a mount is written after its event.
    async fn wait_mounted(&self, overall: Duration) -> Result<(), Refusal> {
        let end = Instant::now() + overall;
        loop {
            let remaining = end.saturating_duration_since(Instant::now()).min(WAIT_REQUEST_MAX);
            let wait_ms = u64::try_from(remaining.as_millis()).ok();
            let request = Wait { id: self.id().clone(), until: WaitUntil::Mounted, wait_ms };
            let deadlines =
                Deadlines { attempt: remaining + ANSWER_MAX, overall: remaining + ANSWER_MAX };
            let asker = &self.scheduler.asker;
            let to = &self.stub.namespace;
            match asker.send::<verb::AllocWait>(to, &request, deadlines).await? {
                Waited { reached: true, .. } => return Ok(()),
                Waited { alloc: None, .. } => return Err(self.has_ended("ended")),
                Waited { alloc: Some(alloc), .. } if alloc.state.is_terminal() => {
                    return Err(self.has_ended(alloc.state.as_str()));
                }
                Waited { .. } if Instant::now() >= end => return Err(self.is_late()),
                Waited { .. } => {}
            }
        }
    }

    fn is_late(&self) -> Refusal {
        let message = format!("alloc {} is not as far as that", self.id());
        let problem = Problem::new(Code::Busy, message).retryable();
        problem.next(format!("see with `berth why {}` what it waits for", self.id())).into()
    }

    fn has_ended(&self, state: &str) -> Refusal {
        let message = format!("alloc {} is {state}", self.id());
        Problem::new(Code::AllocTerminal, message).into()
    }

    fn agent(&self) -> NodeAndNamespace {
        NodeAndNamespace { node: self.node().clone(), namespace: self.stub.namespace.clone() }
    }
}

/// A new, empty file that this process has locked.
fn new_lock(path: &Path) -> io::Result<File> {
    File::create_new(path)?;
    // The standard input is open for reading only.
    let file = File::open(path)?;
    file.try_lock()?;
    Ok(file)
}
