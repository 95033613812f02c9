//! `agent.mount-all`: all volumes of an alloc, or none of them.
//!
//! **Promises** that claims are taken in the one order of all allocs ([`take_order`]), so that two
//! of them never wait for each other, and that a refusal gives up, in reverse, what this alloc has
//! claimed and not mounted.
//!
//! **Never** gives up what was mounted before: the workload may be using it. A caller in line keeps
//! what it has: it asks again.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_bus::Call;
use berth_client::{Client, FailedTry, Retry};
use berth_contract::code::Code;
use berth_contract::decode::Fault;
use berth_contract::message::agent::{Mount, MountAll, MountedAll, MountedVolume};
use berth_contract::message::alloc::AllocStatus;
use berth_contract::message::claim::{Grant, Release};
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::alloc::{VolumeRequest, each_volume};
use berth_domain::limits::REQUEST_TIMEOUT;
use berth_domain::volume::deadlock::take_order;
use berth_domain::{Namespace, VolumeId, VolumeKey};

use super::bind::BindPath;
use super::endpoints::RequestContext;
use super::mount::MountRequest;
use super::{Mounter, check_namespace, grant};
use crate::gate::GatePass;
use crate::journal::UseState;

const STEP: &str = "agent.mount-all";
/// How long it is tried to give one claim up, after the caller was refused.
const UNDO_WITHIN: Duration = Duration::from_secs(10);

impl Mounter {
    /// Claims and mounts every volume of the alloc.
    pub(super) async fn mount_all(
        self,
        asked_of: Namespace,
        request: MountAll,
        context: RequestContext,
    ) -> Result<MountedAll, Problem> {
        check_namespace(&asked_of, &request.namespace)?;
        let node = self.shared.host.node.clone();
        let pass = self.shared.gate.check_open().map_err(|problem| problem.node(&node))?;
        // A repeated request waits for the one before it: what one undoes, the other may have got.
        let key = (request.namespace.clone(), request.alloc.clone());
        let turn = self.alloc_locks.lock(&key).await;
        let alloc = self.live_alloc(&request.namespace, &request.alloc, context).await?;
        let wanted: Vec<VolumeId> = each_volume(&alloc.volumes, alloc.index)
            .into_iter()
            .map(|(volume, _)| volume)
            .collect();
        let wanted = take_order(wanted);
        let mut spots = self.check_paths(&request, &alloc).await?;
        let mounted = self.mounted_before(&request, &wanted);
        // It goes on when the caller has gone: what was taken has to be mounted or given up.
        let work = tokio::spawn(async move {
            let _turn = turn;
            let done =
                self.take_and_mount(&request, &alloc, &wanted, &mut spots, pass, context).await;
            match done {
                Err(problem) if !(request.wait && problem.retryable) => {
                    let undone = self.undo(&request, &wanted, &mounted, &problem, context).await;
                    Err(undone.unwrap_or(problem))
                }
                done => done,
            }
        });
        work.await.unwrap_or_else(|defect| Err(Problem::new(Code::Internal, defect)))
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
            return Err(Problem::bad_input(STEP, faults).node(&alloc.node));
        }
        let mut spots = BTreeMap::new();
        for (name, path) in &request.paths {
            let spot = self.shared.binds.check_path(path).await;
            spots.insert(name.clone(), spot.map_err(|problem| problem.node(&alloc.node))?);
        }
        Ok(spots)
    }

    /// The volumes that the alloc has mounted.
    fn mounted_before(&self, request: &MountAll, wanted: &[VolumeId]) -> Vec<VolumeId> {
        let is_mounted = |volume: &&VolumeId| {
            let key = VolumeKey::new(request.namespace.clone(), (*volume).clone());
            let journal = self.shared.journal.volume(&key);
            journal.uses.get(&request.alloc).is_some_and(|one| one.state == UseState::Published)
        };
        wanted.iter().filter(is_mounted).cloned().collect()
    }

    /// Takes every claim before the first volume is mounted.
    async fn take_and_mount(
        &self,
        request: &MountAll,
        alloc: &AllocStatus,
        wanted: &[VolumeId],
        spots: &mut BTreeMap<String, BindPath>,
        pass: GatePass,
        context: RequestContext,
    ) -> Result<MountedAll, Problem> {
        let mut grants: Vec<Grant> = Vec::new();
        for volume in wanted {
            let mount = request_for(request, volume, None);
            let key = VolumeKey::new(request.namespace.clone(), volume.clone());
            let taken = grant::take_claim(&self.shared.bus, &alloc.node, &mount, context).await;
            let located = |problem| self.locate_problem(problem, &key).at_step(STEP);
            grants.push(taken.map_err(located)?);
        }
        let base = each_volume(&alloc.volumes, alloc.index);
        let mut volumes: Vec<Option<MountedVolume>> = vec![None; alloc.volumes.len()];
        for grant in grants {
            let is_of_it =
                |request: &VolumeRequest| request.volume(alloc.index).as_ref() == Ok(&grant.volume);
            let decides = base.iter().find(|(volume, _)| *volume == grant.volume);
            let volume = grant.volume.clone();
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
                let asked = MountRequest { mount, spot, pass, context };
                let mounted = match first.take() {
                    Some(grant) => self.clone().mount_with(asked, grant).await,
                    None => self.clone().claim_and_mount(asked).await,
                };
                let mounted = mounted.map_err(|problem| problem.at_step(STEP))?;
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

    /// Gives up what this alloc has and did not have before, in reverse. Returns the problem again
    /// with what could not be given up, if there is any.
    async fn undo(
        &self,
        request: &MountAll,
        wanted: &[VolumeId],
        mounted: &[VolumeId],
        problem: &Problem,
        context: RequestContext,
    ) -> Option<Problem> {
        let mut left: Vec<String> = Vec::new();
        for volume in wanted.iter().rev().filter(|volume| !mounted.contains(volume)) {
            if let Err(error) = self.give_up(request, volume, problem, context).await {
                left.push(format!("{volume} ({error})"));
            }
        }
        (!left.is_empty()).then(|| {
            let left = left.join(", ");
            let alloc = &request.alloc;
            let message =
                format!("{}; the claims on {left} could not be given up", problem.message);
            let next = format!("stop alloc {alloc}, which gives everything up; or ask again");
            Problem { message, ..problem.clone() }.next(next)
        })
    }

    async fn give_up(
        &self,
        request: &MountAll,
        volume: &VolumeId,
        problem: &Problem,
        context: RequestContext,
    ) -> Result<(), Problem> {
        let release = Release {
            alloc: request.alloc.clone(),
            volume: volume.clone(),
            epoch: None,
            reason: format!("another volume of the alloc was refused ({})", problem.code),
        };
        let client = Client::new(self.shared.bus.clone());
        let call = Call::within(context.trace, UNDO_WITHIN);
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
