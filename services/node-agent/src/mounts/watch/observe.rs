//! Reports to the claim service what this node does with each claim after its grant.
//!
//! **Owns** what was reported last. Each second it is compared with the journal, the work under
//! way, the failures and the health of the mounts.
//!
//! **Promises** that a failing, hung, missing or dead mount is on its claim's record within
//! seconds, that a hung plugin call becomes an event, and that a report is sent again until the
//! claim service answers. A retry reports the state of that moment, so each report is sent with
//! `Client::once`: `Client::persist` would repeat the old state.
//!
//! **Never** delays a mount. A mount that takes less than a second is reported once, when it is
//! done.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_bus::Call;
use berth_contract::event::EventName;
use berth_contract::message::agent::{FailureStatus, MountHealth, WorkStatus};
use berth_contract::message::claim::{Observe, Observed};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::limits::REQUEST_TIMEOUT;
use berth_domain::retry::Schedule;
use berth_domain::volume::{NodeMount, NodeMountState};
use berth_domain::{AllocId, PluginId, Timestamp, VolumeKey};
use berth_service::clock;
use berth_service::shutdown::Shutdown;
use futures_util::{StreamExt as _, stream};
use tokio::time::sleep;

use crate::executor::VolumeExecutor;
use crate::fleet::events::EventPublisher;
use crate::journal::{Journal, JournalledUse, UseState};
use crate::mounts::claims::ClaimService;
use crate::mounts::health::{LastMountHealth, MountHealths};
use crate::mounts::up::Mounting;

/// Interval of the comparisons while the claim service answers.
const INTERVAL: Duration = Duration::from_secs(1);
/// Pauses after reports that were not answered.
const RETRY: Schedule = Schedule { first: INTERVAL, max: Duration::from_secs(30) };
/// A mount that takes less time than this is reported only when it is done.
const SETTLED_AFTER: Duration = Duration::from_secs(1);
/// Interval of reports of one claim in which only the tries and the error changed.
const SAME_STATE_INTERVAL: Duration = Duration::from_secs(15);
/// Largest number of reports under way at once.
const REPORTS_AT_ONCE_MAX: usize = 8;

/// One claim of this node: volume, alloc, epoch.
type ClaimKey = (VolumeKey, AllocId, u64);

/// The mount of a claim, and its plugin if the journal knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Observation {
    mount: NodeMount,
    plugin: Option<PluginId>,
}

/// A report that the claim service has answered.
#[derive(Debug)]
struct ReportedMount {
    mount: NodeMount,
    at: Timestamp,
}

/// Reports the mounts of this node's claims.
pub(super) struct Observer {
    journal: Journal,
    executor: VolumeExecutor,
    healths: MountHealths,
    claims: ClaimService,
    events: EventPublisher,
    reported: BTreeMap<ClaimKey, ReportedMount>,
    /// Hung plugin calls that were published as events, with the time of the call.
    published_hung: BTreeMap<ClaimKey, Timestamp>,
}

impl Observer {
    pub(super) fn new(mounting: &Mounting) -> Self {
        Self {
            journal: mounting.local.journal.clone(),
            executor: mounting.executor.clone(),
            healths: mounting.healths.clone(),
            claims: mounting.claims.clone(),
            events: mounting.events.clone(),
            reported: BTreeMap::new(),
            published_hung: BTreeMap::new(),
        }
    }

    /// Reports until the shutdown.
    pub(super) async fn run(mut self, shutdown: Shutdown) {
        let mut tries = 0;
        loop {
            let pause = match tries {
                0 => INTERVAL,
                tries => RETRY.wait(tries, clock::jitter()),
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = shutdown.requested() => return,
            }
            let unanswered = self.report().await;
            // Logged once: an older claim service answers no report.
            if let Some(why) = unanswered.as_ref().filter(|_| tries == 0) {
                tracing::warn!(why, "the claim service does not take reports of mounts; repeated");
            }
            tries = unanswered.map_or(0, |_| tries + 1);
        }
    }

    /// Reports what has changed. Returns why a report was not answered, if one was not.
    async fn report(&mut self) -> Option<String> {
        let now = clock::now();
        let observed = self.list_observations();
        self.reported.retain(|claim, _| observed.contains_key(claim));
        self.report_hung(&observed);
        let is_due = |(claim, seen): &(ClaimKey, Observation)| {
            is_due(self.reported.get(claim), &seen.mount, now)
        };
        let due = observed.into_iter().filter(is_due).map(|(claim, seen)| (claim, seen.mount));
        let due: Vec<(ClaimKey, NodeMount)> = due.collect();
        let sent = stream::iter(due).map(|(claim, mount)| {
            let claims = self.claims.clone();
            async move {
                let answered = send_observation(&claims, &claim, &mount).await;
                (claim, mount, answered)
            }
        });
        let sent: Vec<_> = sent.buffer_unordered(REPORTS_AT_ONCE_MAX).collect().await;
        let mut unanswered = None;
        for (claim, mount, answered) in sent {
            match answered {
                Ok(()) => drop(self.reported.insert(claim, ReportedMount { mount, at: now })),
                Err(problem) => unanswered = Some(problem.to_string()),
            }
        }
        unanswered
    }

    /// Publishes each hung call once.
    fn report_hung(&mut self, observed: &BTreeMap<ClaimKey, Observation>) {
        let is_hung_call = |seen: &&Observation| {
            seen.mount.state == NodeMountState::Hung && seen.mount.rpc.is_some()
        };
        self.published_hung
            .retain(|claim, _| observed.get(claim).as_ref().is_some_and(is_hung_call));
        for (claim, seen) in observed {
            let Some(rpc) = seen.mount.rpc.as_ref().filter(|_| is_hung_call(&seen)) else {
                continue;
            };
            if self.published_hung.insert(claim.clone(), seen.mount.since) == Some(seen.mount.since)
            {
                continue;
            }
            let (volume, alloc, epoch) = claim;
            let why = format!("{rpc} not answered since {}", seen.mount.since);
            let trace = clock::begin_trace();
            tracing::warn!(
                %volume, %alloc, epoch, why, trace = trace.trace_id(),
                "a mount hangs"
            );
            if let Some(plugin) = &seen.plugin {
                let used = (volume, alloc, plugin);
                let name = EventName::VolumeMountHung;
                self.events.publish_mount_health(name, used, Some(why), trace);
            }
        }
    }

    /// The mount of each claim of this node: the work under way counts before a failure, and a
    /// failure before the journal.
    fn list_observations(&self) -> BTreeMap<ClaimKey, Observation> {
        let mut all = BTreeMap::new();
        for (volume, alloc, entry) in self.journal.uses() {
            let detach = self.journal.volume(&volume).detached.get(&alloc).copied();
            if detach.is_some_and(|detach| detach.epoch >= entry.epoch) {
                continue;
            }
            let seen = self.healths.get_health(&volume, &alloc, entry.epoch);
            let plugin = Some(entry.plugin.clone());
            let mount = mount_from_use(&entry, seen.as_ref());
            all.insert((volume, alloc, entry.epoch), Observation { mount, plugin });
        }
        for failure in self.executor.failures().into_iter().filter(|one| is_mount(&one.step)) {
            let Some(epoch) = failure.epoch else { continue };
            let volume = VolumeKey::new(failure.namespace.clone(), failure.volume.clone());
            let claim = (volume, failure.alloc.clone(), epoch);
            let known = all.get(&claim);
            if known.is_some_and(|known| is_mounted_since(&known.mount, failure.at)) {
                continue;
            }
            let plugin = known.and_then(|known| known.plugin.clone());
            all.insert(claim, Observation { mount: mount_from_failure(failure), plugin });
        }
        for work in self.executor.under_way().into_iter().filter(|one| is_mount(&one.step)) {
            let Some(epoch) = work.epoch else { continue };
            let volume = VolumeKey::new(work.namespace.clone(), work.volume.clone());
            let claim = (volume, work.alloc.clone(), epoch);
            let known = all.get(&claim);
            let plugin = known.and_then(|known| known.plugin.clone());
            let mount = mount_from_work(&work, known.map(|known| &known.mount));
            all.insert(claim, Observation { mount, plugin });
        }
        all
    }
}

async fn send_observation(
    claims: &ClaimService,
    claim: &ClaimKey,
    mount: &NodeMount,
) -> Result<(), Problem> {
    let (volume, alloc, epoch) = claim;
    let request = Observe {
        alloc: alloc.clone(),
        volume: volume.volume.clone(),
        epoch: *epoch,
        mount: mount.clone(),
    };
    let trace = clock::begin_trace();
    let call = Call::within(trace, REQUEST_TIMEOUT);
    let client = claims.client();
    let Observed { recorded } =
        client.once::<verb::ClaimObserve>(&volume.namespace, &request, &call).await?;
    let (state, trace) = (mount.state, trace.trace_id());
    tracing::debug!(%volume, %alloc, %state, recorded, trace, "reported");
    Ok(())
}

/// Whether the step mounts a volume for a claim.
fn is_mount(step: &str) -> bool {
    step == verb::AgentMount::STEP || step == verb::AgentRepublish::STEP
}

fn is_mounted_since(mount: &NodeMount, failed_at: Timestamp) -> bool {
    mount.state == NodeMountState::Mounted && mount.since > failed_at
}

/// The mount of a use by its journal entry and its last known health.
fn mount_from_use(entry: &JournalledUse, seen: Option<&LastMountHealth>) -> NodeMount {
    let is = |state, since| NodeMount { state, since, rpc: None, tries: 0, error: None };
    if entry.state == UseState::Intent {
        let error = "the mount was begun and not finished; it goes on when its caller asks again";
        return NodeMount {
            error: Some(error.to_owned()),
            ..is(NodeMountState::Failing, entry.since)
        };
    }
    let bad = seen.and_then(|seen| match seen.health {
        MountHealth::Missing => Some((NodeMountState::Missing, seen)),
        MountHealth::Dead => Some((NodeMountState::Dead, seen)),
        MountHealth::Hung => Some((NodeMountState::Hung, seen)),
        MountHealth::Well | MountHealth::Unknown => None,
    });
    let known = seen.filter(|seen| seen.health != MountHealth::Unknown);
    let trouble = known.and_then(|seen| seen.trouble.clone());
    let (state, since) = match bad {
        Some((state, seen)) => (state, seen.since),
        None => (NodeMountState::Mounted, entry.since),
    };
    // A volume that is mounted has the trouble that its plugin tells.
    NodeMount { error: trouble, ..is(state, since) }
}

fn mount_from_failure(failure: FailureStatus) -> NodeMount {
    NodeMount {
        state: NodeMountState::Failing,
        since: failure.since,
        rpc: None,
        tries: failure.tries,
        error: Some(failure.failure.message),
    }
}

/// The mount of work under way. The tries before it stay visible.
fn mount_from_work(work: &WorkStatus, before: Option<&NodeMount>) -> NodeMount {
    let failed = before.filter(|before| before.tries > 0);
    let state = match work.rpc.as_deref() {
        _ if work.hung => NodeMountState::Hung,
        Some("NodePublishVolume") => NodeMountState::Publishing,
        _ => NodeMountState::Staging,
    };
    NodeMount {
        state,
        since: work.rpc_since.unwrap_or(work.since),
        rpc: work.rpc.clone(),
        tries: failed.map_or(0, |failed| failed.tries),
        error: failed.and_then(|failed| failed.error.clone()),
    }
}

/// Whether the mount is to be reported now.
fn is_due(reported: Option<&ReportedMount>, mount: &NodeMount, now: Timestamp) -> bool {
    let is_settled = now.since(mount.since) >= SETTLED_AFTER;
    match reported {
        Some(last) if last.mount == *mount => false,
        // While a call hangs, other tries fail and change the tries and the error only.
        Some(last) if last.mount.state == mount.state && last.mount.rpc == mount.rpc => {
            now.since(last.at) >= SAME_STATE_INTERVAL
        }
        _ if mount.state.is_trouble() => true,
        Some(_) if mount.state == NodeMountState::Mounted => true,
        _ => is_settled,
    }
}

#[cfg(test)]
mod tests;
