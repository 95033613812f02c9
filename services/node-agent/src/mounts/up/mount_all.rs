//! `agent.mount-all`: all volumes of an alloc, or none of them.
//!
//! **Promises**
//! - that claims are taken in the one order of all allocs ([`take_order`]), so that two of them
//!   never wait for each other;
//! - that a refusal gives up, in reverse, the claims that this work has taken, each by its epoch;
//! - that a repeated request joins the work that is under way ([`WholeMounts`]), and that what the
//!   work has reached is kept for as long as a place in line.
//!
//! **Never** gives up a claim that the alloc had before, a volume that was mounted before, or one
//! that another request uses or was told of: the workload may be using it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use berth_bus::Call;
use berth_bus::caller::wait_aside;
use berth_client::{FailedTry, Retry};
use berth_contract::code::Code;
use berth_contract::decode::Fault;
use berth_contract::message::agent::{Mount, MountAll, MountedAll, MountedVolume};
use berth_contract::message::alloc::{AllocQuery, AllocStatus};
use berth_contract::message::claim::{ClaimStatus, Grant, Release};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, NodeAndNamespace, Verb as _};
use berth_domain::alloc::{VolumeRequest, each_volume};
use berth_domain::limits::REQUEST_TIMEOUT;
use berth_domain::volume::deadlock::take_order;
use berth_domain::{VolumeId, VolumeKey};

use super::claims_before::{ClaimEpochs, ClaimsBefore};
use super::mount::VolumeToMount;
use super::requests::MountHandlers;
use super::whole_mount::{Joined, NextRequest, WholeMount, WholeMounts};
use crate::caller::{Caller, RequestContext, check_namespace};
use crate::fleet::gate::GatePass;
use crate::journal::UseState;
use crate::mounts::bind::BindPath;
use crate::mounts::claims::held_until;
use crate::mounts::node_faults::local_problem;

/// How long it is tried to give the claims up, after the caller was refused.
const UNDO_WITHIN: Duration = Duration::from_secs(10);

/// What the alloc had when the work began.
struct HadBefore {
    claims: ClaimEpochs,
    mounted: BTreeSet<VolumeId>,
}

/// Removes the work from the list, also after a defect.
struct Listed(WholeMounts, Arc<WholeMount>);

impl Drop for Listed {
    fn drop(&mut self) {
        self.0.remove(&self.1);
    }
}

impl MountHandlers {
    /// Claims and mounts every volume of the alloc. Returns by the deadline; the work goes on.
    pub async fn mount_all(
        self: Arc<Self>,
        to: NodeAndNamespace,
        request: MountAll,
        caller: Caller,
    ) -> Result<MountedAll, Problem> {
        let waiting = self.mount_whole(&request, caller.by.as_deref(), caller.context);
        check_namespace(&to.namespace, &request.namespace)?;
        // The work has a bound of its own, so a caller that waits for others works on nothing.
        if request.wait { wait_aside(waiting).await.flatten() } else { waiting.await }
    }

    async fn mount_whole(
        self: &Arc<Self>,
        request: &MountAll,
        sender: Option<&str>,
        context: RequestContext,
    ) -> Result<MountedAll, Problem> {
        let node = self.mounting.local.node.clone();
        let locate = |problem: Problem| problem.node(&node);
        let RequestContext { deadline, trace } = context;
        let answer_by = held_until(request.wait, deadline);
        loop {
            self.mounting.gate.check_open().map_err(locate)?;
            let kept_for = self.place_kept;
            match self.whole_mounts.join(request, sender, deadline, kept_for).map_err(locate)? {
                Joined::Begins(work) => {
                    let listed = Listed(self.whole_mounts.clone(), Arc::clone(&work));
                    // It goes on when the caller has gone: what was taken has to be mounted or
                    // given up.
                    tokio::spawn(Arc::clone(self).run_whole(listed, trace));
                    return work.answer_after(0, answer_by).await.map_err(locate);
                }
                Joined::Joins(work, answers) => {
                    return work.answer_after(answers, answer_by).await.map_err(locate);
                }
                Joined::Waits(work) => work.wait_gone(answer_by).await.map_err(locate)?,
            }
        }
    }

    /// Works for all requests of the alloc, until one is answered with success or with a refusal,
    /// or none comes any more.
    async fn run_whole(self: Arc<Self>, listed: Listed, trace: TraceContext) {
        let work = &listed.1;
        let MountAll { namespace, alloc, wait, .. } = &work.request;
        let note = ClaimsBefore::of_alloc(&self.state_dir, namespace, alloc);
        let mut before = None;
        loop {
            let done = Box::pin(self.try_whole(work, &note, &mut before, trace)).await;
            match done {
                Err(problem) if keeps_progress(&problem, *wait) => work.answer(Err(problem)),
                Err(problem) => {
                    work.close();
                    let undone = match &before {
                        Some(before) => self.undo(work, before, problem.code, trace).await,
                        None => Ok(()),
                    };
                    note.end().await;
                    let problem = match undone {
                        Ok(()) => problem,
                        Err(left) => add_left(&problem, &left),
                    };
                    work.answer(Err(problem));
                    return;
                }
                Ok(mounted) => {
                    note.end().await;
                    work.close();
                    work.answer(Ok(mounted));
                    return;
                }
            }
            match work.await_request().await {
                NextRequest::Repeated => {}
                // It finds the note, and so knows what was taken.
                NextRequest::OfOther => return,
                NextRequest::None => {
                    tracing::info!(%namespace, %alloc, "its mount is not asked for any more");
                    if let Some(before) = &before
                        && let Err(left) = self.undo(work, before, Code::Late, trace).await
                    {
                        let trace = trace.trace_id();
                        tracing::warn!(%namespace, %alloc, trace, left, "claims are left");
                    }
                    note.end().await;
                    return;
                }
            }
        }
    }

    async fn try_whole(
        &self,
        work: &WholeMount,
        note: &ClaimsBefore,
        before: &mut Option<HadBefore>,
        trace: TraceContext,
    ) -> Result<MountedAll, Problem> {
        let request = &work.request;
        let pass = self.mounting.gate.check_open()?;
        let context = RequestContext { deadline: work.reach(), trace };
        let alloc =
            self.mounting.claims.live_alloc(&request.namespace, &request.alloc, context).await?;
        let wanted: Vec<VolumeId> = each_volume(&alloc.volumes, alloc.index)
            .into_iter()
            .map(|(volume, _)| volume)
            .collect();
        let wanted = take_order(wanted);
        let mut spots = self.check_paths(request, &alloc).await?;
        if before.is_none() {
            let now = alloc.claims.iter().map(|claim| (claim.volume.clone(), claim.epoch));
            let claims = note.begin(now.collect()).await;
            let claims = claims.map_err(local_problem(Code::MountFailed))?;
            let mounted = self.mounted_before(request, &wanted);
            *before = Some(HadBefore { claims, mounted });
        }
        let context = RequestContext { deadline: work.held(), ..context };
        let grants = self.take_all(work, &wanted, context).await?;
        self.mount_granted_all(work, &alloc, grants, &mut spots, (pass, trace)).await
    }

    /// The paths of the caller's choice, each of which may be used.
    async fn check_paths(
        &self,
        request: &MountAll,
        alloc: &AllocStatus,
    ) -> Result<BTreeMap<String, BindPath>, Problem> {
        let is_known = |name: &str| alloc.volumes.iter().any(|one| one.name() == name);
        let unknown = request.paths.keys().filter(|name| !is_known(name));
        let faults: Vec<Fault> = unknown
            .map(|name| Fault {
                path: format!("paths.{name}"),
                problem: format!("alloc {} has no volume by this name", request.alloc),
                line: None,
            })
            .collect();
        if !faults.is_empty() {
            return Err(Problem::bad_input(faults).node(&alloc.node));
        }
        let mut spots = BTreeMap::new();
        for (name, path) in &request.paths {
            let spot = self.mounting.local.binds.check_path(path).await;
            spots.insert(name.clone(), spot.map_err(|problem| problem.node(&alloc.node))?);
        }
        Ok(spots)
    }

    /// The volumes that the alloc has mounted.
    fn mounted_before(&self, request: &MountAll, wanted: &[VolumeId]) -> BTreeSet<VolumeId> {
        let is_mounted = |volume: &&VolumeId| {
            let key = VolumeKey::new(request.namespace.clone(), (*volume).clone());
            let journal = self.mounting.local.journal.volume(&key);
            journal.uses.get(&request.alloc).is_some_and(|one| one.state == UseState::Published)
        };
        wanted.iter().filter(is_mounted).cloned().collect()
    }

    /// Takes every claim before the first volume is mounted.
    async fn take_all(
        &self,
        work: &WholeMount,
        wanted: &[VolumeId],
        context: RequestContext,
    ) -> Result<Vec<Grant>, Problem> {
        let request = &work.request;
        let mut grants: Vec<Grant> = Vec::new();
        for volume in wanted {
            let mount = request_for(request, volume, None);
            let key = VolumeKey::new(request.namespace.clone(), volume.clone());
            work.show(&key, None);
            let taken = self.mounting.claims.take_claim(&mount, context).await;
            let located = |problem| {
                self.mounting.follow_refusal(&problem);
                self.mounting.local.locate_problem(problem, &key)
            };
            grants.push(taken.map_err(located)?);
        }
        Ok(grants)
    }

    /// Mounts what was granted, also after the deadline of the last request.
    async fn mount_granted_all(
        &self,
        work: &WholeMount,
        alloc: &AllocStatus,
        grants: Vec<Grant>,
        spots: &mut BTreeMap<String, BindPath>,
        (pass, trace): (GatePass, TraceContext),
    ) -> Result<MountedAll, Problem> {
        let request = &work.request;
        let base = each_volume(&alloc.volumes, alloc.index);
        let mut volumes: Vec<Option<MountedVolume>> = vec![None; alloc.volumes.len()];
        for grant in grants {
            let is_of_it =
                |request: &VolumeRequest| request.volume(alloc.index).as_ref() == Ok(&grant.volume);
            let decides = base.iter().find(|(volume, _)| *volume == grant.volume);
            let volume = grant.volume.clone();
            let key = VolumeKey::new(request.namespace.clone(), volume.clone());
            work.show(&key, Some(&grant.plugin));
            let mut first = Some(grant.clone());
            // The request that the claim rests on comes first: the others are views of it.
            let mut places: Vec<usize> =
                (0..alloc.volumes.len()).filter(|at| is_of_it(&alloc.volumes[*at])).collect();
            places.sort_by_key(|at| {
                !decides.is_some_and(|(_, base)| std::ptr::eq(*base, &raw const alloc.volumes[*at]))
            });
            for at in places {
                let name = alloc.volumes[at].name().to_owned();
                let mount = request_for(request, &volume, Some(name.clone()));
                let spot = spots.remove(&name);
                let context = RequestContext { deadline: work.kept_until(), trace };
                let asked = VolumeToMount { mount, spot, pass, context };
                let mounted = match first.take() {
                    Some(grant) => Arc::clone(&self.mounting).mount_with(asked, grant).await,
                    None => Arc::clone(&self.mounting).claim_and_mount(asked).await,
                };
                let mounted = mounted.map_err(|problem| problem.at_step(verb::AgentMount::STEP))?;
                volumes[at] = Some(MountedVolume {
                    name,
                    volume: volume.clone(),
                    path: mounted.path,
                    read_only: mounted.read_only,
                    epoch: mounted.epoch,
                });
            }
        }
        Ok(MountedAll { volumes: volumes.into_iter().flatten().collect() })
    }

    /// Gives up, in reverse, the claims that the alloc has and did not have before. Fails with what
    /// could not be given up.
    async fn undo(
        &self,
        work: &WholeMount,
        before: &HadBefore,
        code: Code,
        trace: TraceContext,
    ) -> Result<(), String> {
        let request = &work.request;
        let client = self.mounting.claims.client();
        let call = Call::within(trace, UNDO_WITHIN);
        let retry = Retry::each(REQUEST_TIMEOUT);
        let again = |failed: &FailedTry<'_>| failed.problem.retryable;
        let status = AllocQuery::current(request.alloc.clone());
        let read =
            client.persist::<verb::AllocStatus>(&request.namespace, &status, &call, retry, again);
        let alloc = match read.await {
            // Whatever it had is released.
            Err(gone) if gone.code == Code::NoSuchAlloc => return Ok(()),
            Ok(alloc) if alloc.state.is_terminal() => return Ok(()),
            Ok(alloc) => alloc,
            Err(problem) => return Err(format!("the alloc's claims ({problem})")),
        };
        let claims: BTreeMap<VolumeId, ClaimStatus> =
            alloc.claims.into_iter().map(|claim| (claim.volume.clone(), claim)).collect();
        let order = take_order(claims.keys().cloned().collect());
        let mut left: Vec<String> = Vec::new();
        for claim in order.iter().rev().filter_map(|volume| claims.get(volume)) {
            if before.claims.get(&claim.volume) == Some(&claim.epoch) {
                continue;
            }
            if let Err(error) = self.give_up(work, before, claim, code, trace).await {
                left.push(format!("{} ({error})", claim.volume));
            }
        }
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    }

    async fn give_up(
        &self,
        work: &WholeMount,
        before: &HadBefore,
        claim: &ClaimStatus,
        code: Code,
        trace: TraceContext,
    ) -> Result<(), Problem> {
        let request = &work.request;
        let volume = &claim.volume;
        let key =
            (VolumeKey::new(request.namespace.clone(), volume.clone()), request.alloc.clone());
        // Held until the release is on record: a request that comes meanwhile takes a new claim.
        let Some(_unused) = self.claim_users.lock_unused(&key).await else { return Ok(()) };
        if before.mounted.contains(volume) || work.acknowledged().contains(volume) {
            return Ok(());
        }
        let release = Release {
            alloc: request.alloc.clone(),
            volume: volume.clone(),
            epoch: Some(claim.epoch),
            reason: format!("not all volumes of the alloc were mounted ({code})"),
        };
        let client = self.mounting.claims.client();
        let call = Call::within(trace, UNDO_WITHIN);
        let retry = Retry::each(REQUEST_TIMEOUT);
        let again = |failed: &FailedTry<'_>| failed.problem.retryable;
        let asked =
            client.persist::<verb::ClaimRelease>(&request.namespace, &release, &call, retry, again);
        match asked.await {
            Err(gone) if gone.code == Code::NoSuchVolume => Ok(()),
            done => done.map(drop),
        }
    }
}

/// Whether the alloc keeps what it has, because the same request may succeed when it is repeated:
/// something was not done in time, or failed and is tried again. What only others can change ends a
/// request that does not wait.
fn keeps_progress(problem: &Problem, wait: bool) -> bool {
    let is_of_time = matches!(
        problem.code,
        Code::Late
            | Code::NoResponder
            | Code::NoAnswer
            | Code::BusUnavailable
            | Code::Overloaded
            | Code::Busy
            | Code::Releasing
            | Code::Waiting
            | Code::StillBusy
            | Code::VolumeNotReady
            | Code::PluginFailed
            | Code::PluginUnable
            | Code::PluginUnhealthy
            | Code::MountFailed
            | Code::NodeReturning
            | Code::SealingKeyUnknown
    );
    problem.retryable && (wait || is_of_time)
}

/// The problem with what could not be given up.
fn add_left(problem: &Problem, left: &str) -> Problem {
    let message = format!("{}; the claims on {left} could not be given up", problem.message);
    let next = "stop the alloc, which gives everything up; or ask again";
    Problem { message, ..problem.clone() }.next(next)
}

fn request_for(request: &MountAll, volume: &VolumeId, alias: Option<String>) -> Mount {
    Mount {
        namespace: request.namespace.clone(),
        alloc: request.alloc.clone(),
        volume: volume.clone(),
        wait: request.wait,
        alias,
        path: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_does_not_wait_gives_up_when_only_others_can_change_the_answer() {
        let keeps = |code, wait| keeps_progress(&Problem::new(code, "x").retryable(), wait);
        for code in [Code::NoAnswer, Code::Busy, Code::PluginFailed, Code::MountFailed] {
            assert!(keeps(code, false) && keeps(code, true), "{code}");
        }
        for code in [Code::PluginExhausted, Code::NodeFull, Code::MountUnaccounted] {
            assert!(!keeps(code, false) && keeps(code, true), "{code}");
        }
        assert!(!keeps_progress(&Problem::new(Code::Held, "x"), true));
    }
}
