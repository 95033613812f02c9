//! Explains the state of a volume: by the worst of its claims, or because it has no claim.

use berth_contract::code::Code;
use berth_contract::hint;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::query::RefusedRequest;
use berth_contract::message::volume::{NodePlacement, VolumeStatus};
use berth_contract::problem::Problem;
use berth_contract::service::{CLAIM, PLUGIN_REGISTRY, VOLUMEWATCHER};
use berth_domain::volume::storage::Stage;
use berth_domain::{Timestamp, VolumeId, VolumeKey};

use super::worst::{is_of_claim, last_refusal, not_known, worst};
use crate::cause::{Actor, Cause};
use crate::claim::{self, Case};
use crate::facts::Facts;
use crate::finding::{Diagnosis, Finding};
use crate::record::{is_none, read_record, unreadable_record};
use crate::span::ago;
use crate::{instance, mounted, next, node, plugin, service, storage};

/// Claims of one volume that are listed besides the decisive one, at most.
const ALSO_MAX: usize = 5;

/// The diagnosis of a volume of the names' namespace; none when there is no such volume.
pub fn diagnose(facts: &Facts, id: &VolumeId) -> Option<Diagnosis> {
    let subject = format!("volume {id}");
    // If another thing certainly has the name, that thing is diagnosed instead.
    let unanswered =
        |problem: &_| (!other_names(facts)).then(|| service::away(facts, CLAIM.name, problem));
    let answer = facts.volume(id)?;
    if let Some(problem) =
        answer.as_ref().err().filter(|problem| problem.code == Code::RegistrationLost)
    {
        let diagnosis =
            Diagnosis::new(subject, "not registered", registration_lost(facts, id, problem));
        return Some(diagnosis.in_namespace(&facts.namespace));
    }
    let diagnosis = match read_record(answer, &subject, unanswered) {
        Ok(volume) => Some(of_record(facts, volume, &subject)),
        Err(diagnosis) => diagnosis,
    };
    diagnosis.map(|diagnosis| diagnosis.in_namespace(&facts.namespace))
}

/// There are claims, but no volume is registered under the name.
fn registration_lost(facts: &Facts, id: &VolumeId, problem: &Problem) -> Finding {
    let sentence = "claims of it stand, and it is registered no more: they can be released, and \
                    nothing new is granted, created or registered under the name meanwhile";
    let claims = format!(
        "berth claim status --volume {}{}   # which allocs, and the volume that they are of",
        hint::quoted(id.as_str()),
        hint::namespace_option(&facts.namespace)
    );
    Finding::new(Cause::RegistrationLost, Actor::You, sentence)
        .shown_by([problem.message.clone()])
        .next(claims)
        .next(format!("berth explain {}", problem.code))
}

fn of_record(facts: &Facts, volume: &VolumeStatus, subject: &str) -> Diagnosis {
    let diagnosis = |state: String, finding| Diagnosis::new(subject, state, finding);
    let worst = worst(facts, &volume.claims);
    let of_volume = of_volume(facts, volume, worst.is_some());
    let mut decisive = match (worst, of_volume) {
        (Some((case, of_claim)), of_volume) => {
            let finding =
                of_volume.filter(|finding| finding.cause < of_claim.cause).unwrap_or(of_claim);
            // The record is unreadable now, so the claim's last state may be outdated.
            let state = match finding.cause {
                Cause::RecordUnreadable => "not known".to_owned(),
                _ => claim::state(&case),
            };
            let diagnosed = diagnosis(state, finding);
            let since = Some(case.claim.since);
            let also = also(facts, &volume.claims, case.claim);
            Diagnosis { since, also, not_known: not_known(&case), ..diagnosed }
        }
        (None, Some(finding)) => diagnosis("not claimed".to_owned(), finding),
        (None, None) => {
            let free = "nobody claims it, and it can be claimed; nothing to do";
            let refusal =
                volume.last_refusal.as_ref().map(|RefusedRequest { at, message, .. }| {
                    format!("the last request was refused {} ago: {message}", ago(*at, facts.now))
                });
            let finding = Finding::new(Cause::Nothing, Actor::NOBODY, free).shown_by(refusal);
            diagnosis("free".to_owned(), finding)
        }
    };
    if let Some((word, since)) = storage::state(volume) {
        if volume.claims.is_empty() {
            (decisive.state, decisive.since) = (word, since);
        } else {
            decisive.state = format!("{word}; {}", decisive.state);
        }
    }
    if !volume.claims.is_empty() {
        add_refusal(facts, volume, &mut decisive);
    }
    add_snapshots(facts, volume, &mut decisive);
    if let Some(closing) = &volume.closing {
        decisive.state += ", being deregistered";
        decisive.since = decisive.since.or(Some(closing.since));
        let reason = &closing.reason;
        let also = format!("it takes no new claims, and goes once nothing uses it: {reason}");
        decisive.also.push(also);
    }
    decisive
}

/// Adds the change that the storage refused. No claim waits for it, so it decides only if nothing
/// is wrong with the claims.
fn add_refusal(facts: &Facts, volume: &VolumeStatus, diagnosis: &mut Diagnosis) {
    let Some(refusal) = storage::find_refusal(facts, volume) else { return };
    if diagnosis.finding.cause == Cause::Nothing {
        diagnosis.finding = refusal;
    } else {
        diagnosis.also.push(refusal.sentence);
    }
}

/// Adds the snapshots that are not ready. They cause no other fault, so they decide only if the
/// volume itself is well.
fn add_snapshots(facts: &Facts, volume: &VolumeStatus, diagnosis: &mut Diagnosis) {
    let key = VolumeKey::new(volume.namespace.clone(), volume.id.clone());
    let Some(Ok(snapshots)) = facts.snapshots.get(&key) else { return };
    let findings = snapshots.iter().filter_map(|snapshot| storage::find_snapshot(facts, snapshot));
    let mut findings: Vec<Finding> = findings.collect();
    findings.sort_by_key(|finding| finding.cause);
    let mut findings = findings.into_iter();
    if diagnosis.finding.cause == Cause::Nothing
        && let Some(first) = findings.next()
    {
        diagnosis.finding = first;
    }
    diagnosis.also.extend(findings.take(ALSO_MAX).map(|finding| finding.sentence));
}

/// Whether another thing certainly has the name.
fn other_names(facts: &Facts) -> bool {
    let nodes = facts.names.node.as_ref().and_then(|id| facts.nodes.get(id));
    let plugins = facts.names.plugin.as_ref().and_then(|id| facts.plugins.get(id));
    nodes.is_some_and(Result::is_ok) || plugins.is_some_and(Result::is_ok)
}

/// The other claims, one line each.
fn also(facts: &Facts, claims: &[ClaimStatus], decisive: &ClaimStatus) -> Vec<String> {
    let others = claims.iter().filter(|claim| claim.alloc != decisive.alloc);
    let describe = |claim: &ClaimStatus| {
        let case = Case { facts, claim };
        format!("{}: {}", claim::state(&case), claim::find(&case).sentence)
    };
    let mut lines: Vec<String> = others.clone().take(ALSO_MAX).map(describe).collect();
    match others.count().saturating_sub(ALSO_MAX) {
        0 => {}
        more => lines.push(format!("and {more} more claims")),
    }
    lines
}

/// What the volume's own status shows an operator, apart from its claims.
pub fn find_volume(now: Timestamp, volume: &VolumeStatus) -> Option<Finding> {
    let facts = Facts { now, ..Facts::default() };
    let is_created = volume.storage.as_ref().is_none_or(|storage| storage.stage != Stage::Failed);
    kept(&facts, volume)
        .or_else(|| unwell(&facts, volume).filter(|_| is_created))
        .or_else(|| storage::find_change(&facts, volume))
        .or_else(|| storage::find_refusal(&facts, volume))
}

/// A fault of the volume itself, which affects every claim.
fn of_volume(facts: &Facts, volume: &VolumeStatus, is_claimed: bool) -> Option<Finding> {
    if let Some(finding) = kept(facts, volume).or_else(|| storage::find_change(facts, volume)) {
        return Some(finding);
    }
    if is_claimed {
        return None;
    }
    let services = [CLAIM.name, PLUGIN_REGISTRY.name, VOLUMEWATCHER.name];
    let finding = service::wrong_clock(facts, &services).or_else(|| unwell(facts, volume));
    if finding.is_some() {
        return finding;
    }
    let key = VolumeKey::new(volume.namespace.clone(), volume.id.clone());
    let places = facts.placements.get(&(key, None)).and_then(|places| places.as_ref().ok());
    let everywhere = places.and_then(|places| refused_everywhere(volume, places));
    let of_claim = || {
        let refusal = volume.last_refusal.as_ref()?;
        let lasts = !refusal.code.retryable() || refusal.code.is_of_plugin();
        (lasts && is_of_claim(refusal)).then(|| last_refusal(facts, Some(&volume.plugin), refusal))
    };
    everywhere.or_else(of_claim).or_else(|| storage::find_refusal(facts, volume))
}

/// The volume's plugin is not well.
fn unwell(facts: &Facts, volume: &VolumeStatus) -> Option<Finding> {
    let id = &volume.plugin;
    if volume.health.healthy {
        return None;
    }
    Some(match facts.plugins.get(id) {
        Some(Ok(plugin_status)) => plugin::worst_half(facts, plugin_status),
        Some(Err(problem)) if is_none(problem) => instance::not_known(id),
        // The plugin was not read: the volume's status has its health.
        Some(Err(_)) | None => {
            let sentence = format!("its plugin is not well: {}", volume.health.description);
            Finding::new(Cause::PluginDown, Actor::PluginOperator(id.clone()), sentence)
                .next(next::plugin_status(id))
        }
    })
}

/// What blocks the volume, and every grant for it.
fn kept(facts: &Facts, volume: &VolumeStatus) -> Option<Finding> {
    let id = &volume.id;
    if let Some(record) = volume.unreadable.first() {
        return Some(unreadable_record(&record.problem()));
    }
    if !volume.registered_twice.is_empty() {
        let other_names = volume.registered_twice.join(" and ");
        let finding = Finding::new(
            Cause::RegisteredTwice,
            Actor::You,
            format!("it is the same volume of its plugin as {other_names}, so neither is granted"),
        );
        let finding = finding.shown_by(
            volume
                .external_id
                .iter()
                .map(|external_id| format!("{}: {external_id}", volume.plugin)),
        );
        return Some(finding.next(format!(
            "berth volume deregister {}{}   # or the other one, once its allocs are stopped",
            hint::quoted(id.as_str()),
            hint::namespace_option(&volume.namespace)
        )));
    }
    mounted::find(facts, volume)
}

/// No node may host the volume.
fn refused_everywhere(volume: &VolumeStatus, places: &[NodePlacement]) -> Option<Finding> {
    if places.iter().any(|place| place.fits) {
        return None;
    }
    let down = |node: &NodePlacement| {
        node.obstacles.iter().any(|obstacle| node::is_of_node(obstacle.code))
    };
    let sentence = match places.len() {
        0 => "no node is known, so it can be claimed nowhere".to_owned(),
        _ if places.iter().all(down) => "no node is there to host it".to_owned(),
        many => format!("each of {many} nodes refuses it"),
    };
    let evidence = places.iter().take(ALSO_MAX).filter_map(|place| {
        let first = place.obstacles.first();
        first.map(|obstacle| format!("{}: {} ({})", place.node, obstacle.message, obstacle.code))
    });
    let finding = Finding::new(Cause::PlacementRefuses, Actor::You, sentence).shown_by(evidence);
    let codes: Vec<_> =
        places.iter().flat_map(|place| &place.obstacles).map(|obstacle| obstacle.code).collect();
    let finding = finding.next(format!(
        "berth volume placement {}",
        hint::volume_source(&VolumeKey::new(volume.namespace.clone(), volume.id.clone()))
    ));
    Some(match codes.first() {
        Some(code) => finding.next(format!("berth explain {code}")),
        None => finding.next("berth node status"),
    })
}
