//! The state of a granted claim on its node, as reported by the agent.

use std::time::Duration;

use berth_contract::message::agent::{MountHealth, MountState, MountStatus, WorkStatus};
use berth_contract::message::claim::ClaimStatus;
use berth_domain::volume::{CallFailure, NodeMountState};
use berth_domain::{GrpcCode, Timestamp};

use super::case::{Case, hangs, not_answered, refused};
use crate::cause::{Actor, Cause};
use crate::finding::Finding;
use crate::next;
use crate::span::ago;

/// Time from the grant until a mount usually begins.
const MOUNT_BEGINS: Duration = Duration::from_secs(5);
/// Time after a temporary error in which the caller of a mount usually asks again.
const RETRY_BEGINS: Duration = Duration::from_secs(120);
/// The text if the agent gives no reason.
const NO_REASON: &str = "no reason is known";

/// The node's operation, as a participle.
pub fn doing(work: &WorkStatus) -> &'static str {
    let rpc = work.rpc.as_deref().unwrap_or_default();
    match (rpc, work.hung) {
        ("NodeStageVolume", true) => "staging hangs",
        ("NodeStageVolume", false) => "staging",
        ("NodePublishVolume", true) => "publishing there hangs",
        ("NodePublishVolume", false) => "publishing there",
        (_, true) => "its mount hangs",
        (_, false) => "being mounted",
    }
}

/// The mount's health, in words.
pub fn word(mount: &MountStatus) -> &'static str {
    match (mount.state, mount.health) {
        (MountState::Leaving, _) => "being unmounted",
        (_, MountHealth::Missing) => "mount missing",
        (_, MountHealth::Dead) => "mount dead",
        (_, MountHealth::Hung) => "mount hangs",
        (MountState::Begun, _) => "mount not finished",
        _ if mount.mounted => "mounted",
        _ => "not mounted",
    }
}

/// The mount is under way, hangs, or failed at the last try.
pub fn work(case: &Case<'_>) -> Option<Finding> {
    let node = &case.claim.node;
    if let Some(work) = case.work() {
        if work.hung {
            return Some(hangs(case, node, work));
        }
        let call = work.rpc.as_deref().unwrap_or(&work.step);
        let since = ago(work.rpc_since.unwrap_or(work.since), case.now());
        let sentence = format!("node {node} is at {call} for {since}");
        return Some(Finding::new(Cause::UnderWay, Actor::NOBODY, sentence));
    }
    if case.mount().is_some_and(|mount| mount.state == MountState::Published) {
        return None;
    }
    let (failure, evidence) = last_failure(case)?;
    if let Some(finding) = refused(case, &failure, Some(node)) {
        let finding = not_repeated(case).unwrap_or(finding);
        return Some(finding.shown_by([evidence]));
    }
    let sentence = format!("node {node} could not mount the volume: {failure}");
    let finding = Finding::new(Cause::MountFails, Actor::You, sentence).shown_by([evidence]);
    let advice = failure.facts.next.as_ref().map(|advice| next::advice(node, advice));
    Some(finding.next_if_known(advice).next(next::node_status(node)))
}

/// The plugin's error was temporary, and no program has asked for the mount again.
fn not_repeated(case: &Case<'_>) -> Option<Finding> {
    let failure = case.failure()?;
    let is_temporary = failure.failure.facts.grpc.is_some_and(GrpcCode::is_temporary);
    if !is_temporary || case.now().since(failure.at) < RETRY_BEGINS {
        return None;
    }
    let ClaimStatus { node, alloc, namespace, .. } = case.claim;
    let sentence = format!(
        "node {node} could not mount the volume {} ago, and was not asked again: the program that \
         runs {alloc} must send the request again, or stop the alloc",
        ago(failure.at, case.now())
    );
    let finding = Finding::new(Cause::NotAskedFor, Actor::You, sentence);
    let finding = finding.shown_by([failure.failure.to_string()]).next(next::node_status(node));
    Some(finding.next(next::stop_alloc(alloc, namespace, "if it does not run")))
}

/// The last failure to mount: from the agent's status, otherwise from its last report on the claim.
fn last_failure(case: &Case<'_>) -> Option<(CallFailure, String)> {
    let node = &case.claim.node;
    if let Some(failure) = case.failure() {
        let (tries, since) = (failure.tries, ago(failure.at, case.now()));
        let evidence = format!(
            "the agent of {node}: {} failed, try {tries} in a row, {since} ago",
            failure.step
        );
        return Some((failure.failure.clone(), evidence));
    }
    let mount = case.claim.mount.as_ref()?;
    let error = mount.error.as_deref().filter(|_| mount.state == NodeMountState::Failing)?;
    let since = ago(mount.since, case.now());
    Some((error.into(), format!("the claim: failing on {node} for {since}, {} tries", mount.tries)))
}

/// The mount is gone, or does not answer, or the plugin reports the volume as abnormal.
pub fn trouble(case: &Case<'_>) -> Option<Finding> {
    let node = &case.claim.node;
    let Some(mount) = case.mount() else { return reported_trouble(case) };
    let since = mount.health_since;
    if mount.health == MountHealth::Well {
        let trouble = mount.trouble.as_ref()?;
        let finding = Finding::new(Cause::VolumeUnwell, case.plugin_operator(), trouble.clone());
        return Some(finding.next(next::node_status(node)));
    }
    let trouble = mount.trouble.as_deref().unwrap_or(NO_REASON);
    let finding = ill(case, mount.health, since, trouble)?;
    Some(finding.shown_by([format!("the agent of {node}, {}: {trouble}", mount.path)]))
}

/// The same, from the agent's last report on the claim, if the agent was not asked.
fn reported_trouble(case: &Case<'_>) -> Option<Finding> {
    if case.agent_known().is_some() {
        return None;
    }
    let (node, mount) = (&case.claim.node, case.claim.mount.as_ref()?);
    let trouble = mount.error.as_deref().unwrap_or(NO_REASON);
    let evidence = format!("its agent reported last: {}, since {}", mount.state, mount.since);
    let health = match (mount.state, &mount.rpc) {
        (NodeMountState::Hung, Some(rpc)) => {
            return Some(not_answered(case, node, rpc, mount.since, evidence));
        }
        (NodeMountState::Hung, None) => MountHealth::Hung,
        (NodeMountState::Missing, _) => MountHealth::Missing,
        (NodeMountState::Dead, _) => MountHealth::Dead,
        _ => return None,
    };
    Some(ill(case, health, Some(mount.since), trouble)?.shown_by([evidence]))
}

/// A mount that no workload can use, and since when.
fn ill(
    case: &Case<'_>,
    health: MountHealth,
    since: Option<Timestamp>,
    trouble: &str,
) -> Option<Finding> {
    let claim = case.claim;
    let node = &claim.node;
    let since = since.map(|since| format!(" for {}", ago(since, case.now()))).unwrap_or_default();
    let (kind, who, sentence) = match health {
        MountHealth::Missing => (
            Cause::MountMissing,
            Actor::You,
            format!("the mount of {} on node {node} is gone{since}", claim.alloc),
        ),
        MountHealth::Dead => (
            Cause::MountDead,
            Actor::You,
            format!("the mount on node {node} is dead{since}: {trouble}"),
        ),
        MountHealth::Hung => (
            Cause::MountHangs,
            case.plugin_operator(),
            format!("the mount on node {node} does not answer{since}: look at its storage"),
        ),
        MountHealth::Well | MountHealth::Unknown => return None,
    };
    let finding = Finding::new(kind, who, sentence);
    Some(match kind {
        Cause::MountHangs => finding.next(next::node_status(node)),
        _ => finding.next(next::republish(&claim.volume, node, &claim.alloc, &claim.namespace)),
    })
}

/// The claim was granted, and nothing is mounted.
pub fn absent(case: &Case<'_>) -> Option<Finding> {
    let claim = case.claim;
    case.agent()?.as_ref().ok()?;
    if case.mount().is_some_and(|mount| mount.state != MountState::Begun) {
        return None;
    }
    let node = &claim.node;
    if case.now().since(claim.since) < MOUNT_BEGINS {
        let sentence = format!("it was granted just now, and node {node} mounts it next");
        return Some(Finding::new(Cause::UnderWay, Actor::NOBODY, sentence));
    }
    let sentence = format!(
        "it is granted, and no request to mount it reaches node {node}: the program that runs {} \
         must send it again, or stop the alloc",
        claim.alloc
    );
    let finding = Finding::new(Cause::NotAskedFor, Actor::You, sentence);
    let finding = finding
        .shown_by([format!("the agent of {node} has no mount of it, and is at none")])
        .next(next::node_status(node));
    Some(finding.next(next::stop_alloc(&claim.alloc, &claim.namespace, "if it does not run")))
}
