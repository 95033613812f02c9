//! Explains whether an alloc has its volumes.

use berth_contract::code::Code;
use berth_contract::hint;
use berth_contract::message::alloc::AllocStatus;
use berth_contract::message::volume::Obstacle;
use berth_contract::problem::Problem;
use berth_contract::service::{CLAIM, PLUGIN_REGISTRY};
use berth_domain::access::Mode;
use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_domain::{AllocId, VolumeId, VolumeKey};

use super::worst::{is_of_claim, last_refusal, not_known, worst};
use crate::cause::{Actor, Cause};
use crate::claim::{self, Case, Waiter};
use crate::facts::Facts;
use crate::finding::{Diagnosis, Finding};
use crate::instance::instance_down;
use crate::record::{is_none, is_unreadable, read_record, unreadable_record};
use crate::span::ago;
use crate::{next, node, service};

/// The diagnosis of an alloc of the names' namespace; none when there is no such alloc.
pub fn diagnose(facts: &Facts, id: &AllocId) -> Option<Diagnosis> {
    let subject = format!("alloc {id}");
    let alloc = read_record(facts.alloc(id)?, &subject, |problem| not_answered(facts, problem));
    let diagnosis = match alloc {
        Ok(alloc) => Some(of_record(facts, alloc, &subject)),
        Err(diagnosis) => diagnosis,
    };
    diagnosis.map(|diagnosis| diagnosis.in_namespace(&facts.namespace))
}

fn of_record(facts: &Facts, alloc: &AllocStatus, subject: &str) -> Diagnosis {
    let diagnosis = |state: String, finding| Diagnosis::new(subject, state, finding);
    let since = Some(alloc.since);
    let claimed = worst(facts, &alloc.claims);
    // The unreadable record may be a claim of the alloc.
    let unreadable = alloc.unreadable.first().map(|record| unreadable_record(&record.problem()));
    let lacking = unreadable.or_else(|| lacking(facts, alloc));
    let decisive = match (claimed, lacking) {
        (Some((case, finding)), lacking) => {
            let also = others(facts, alloc, &case);
            let state = format!("{}; {}", alloc.state, of_claim(&case));
            let finding = match lacking {
                Some(lacking) if lacking.cause < finding.cause => lacking,
                _ => finding,
            };
            Diagnosis { also, not_known: not_known(&case), ..diagnosis(state, finding) }
        }
        (None, Some(finding)) if finding.cause == Cause::RecordUnreadable => {
            diagnosis(format!("{}; its volumes are not known", alloc.state), finding)
        }
        (None, Some(finding)) => {
            diagnosis(format!("{} on {}, without its volumes", alloc.state, alloc.node), finding)
        }
        (None, None) if alloc.state == AllocState::Failed => {
            diagnosis(alloc.state.to_string(), failed(facts, alloc))
        }
        (None, None) => {
            let sentence = match alloc.state {
                AllocState::Live => "it asks for no volume; nothing to do",
                _ => "it has ended and all its volumes are free; nothing to do",
            };
            let finding = Finding::new(Cause::Nothing, Actor::NOBODY, sentence);
            diagnosis(alloc.state.to_string(), finding.shown_by(alloc.note.clone()))
        }
    };
    let mut also = decisive.also;
    also.extend(unowned(alloc));
    Diagnosis { since, also, ..decisive }
}

/// The alloc failed, and all its volumes are free: only the reason remains to be shown.
fn failed(facts: &Facts, alloc: &AllocStatus) -> Finding {
    if let Some(refusal) = alloc.last_refusal.as_ref().filter(|refusal| is_of_claim(refusal)) {
        // The volume may be gone with the alloc.
        let volume = refusal.volume.as_ref().and_then(|id| facts.volume(id)?.as_ref().ok());
        let (since, message) = (ago(refusal.at, facts.now), &refusal.message);
        let sentence =
            format!("it failed, and the last request of it was refused {since} ago: {message}");
        let finding = last_refusal(facts, volume.map(|volume| &volume.plugin), refusal);
        return Finding { sentence, ..finding }.shown_by(alloc.note.clone());
    }
    let why = alloc.note.as_deref().unwrap_or("its runner did not say why");
    let sentence =
        format!("it failed: {why}; all its volumes are free, and there is nothing to do");
    Finding::new(Cause::Nothing, Actor::NOBODY, sentence)
}

/// The owner is gone: says who may take the alloc over.
fn unowned(alloc: &AllocStatus) -> Option<String> {
    let (owner, since) = (alloc.owner.as_ref()?, alloc.unowned_since?);
    Some(format!(
        "unowned: its owner {owner} has no lease since {since}; it runs on, and `berth alloc adopt \
         {} NEW-OWNER{}` gives it to another owner",
        hint::quoted(owner.as_str()),
        hint::namespace_option(&alloc.namespace)
    ))
}

/// The claim service did not answer whether the alloc exists. If a volume has the name, the volume
/// is diagnosed instead.
fn not_answered(facts: &Facts, problem: &Problem) -> Option<Finding> {
    let id = facts.names.volume.as_ref();
    let is_volume_known = id.is_some_and(|id| {
        facts.volume(id).is_some_and(|answer| !answer.as_ref().is_err_and(is_none))
    });
    (!is_volume_known).then(|| service::away(facts, CLAIM.name, problem))
}

/// The state of a claim, under its alloc's name.
fn of_claim(case: &Case<'_>) -> String {
    format!("volume {} {}", case.claim.volume, claim::state(case))
}

/// The alloc's other claims, one line each.
fn others(facts: &Facts, alloc: &AllocStatus, decisive: &Case<'_>) -> Vec<String> {
    let others = alloc.claims.iter().filter(|claim| claim.volume != decisive.claim.volume);
    let describe = |claim| {
        let case = Case { facts, claim };
        format!("{}: {}", of_claim(&case), claim::find(&case).sentence)
    };
    others.map(describe).collect()
}

/// The first volume that a live alloc requests and has no claim on.
fn lacking(facts: &Facts, alloc: &AllocStatus) -> Option<Finding> {
    if alloc.state != AllocState::Live {
        return None;
    }
    let requests = alloc.volumes.iter().filter_map(|request| request.volume(alloc.index).ok());
    let services = [CLAIM.name, PLUGIN_REGISTRY.name];
    let has = |id: &VolumeId| alloc.claims.iter().any(|claim| claim.volume == *id);
    let id = requests.into_iter().find(|id| !has(id))?;
    if let Some(finding) = service::wrong_clock(facts, &services) {
        return Some(finding);
    }
    let key = VolumeKey::new(facts.namespace.clone(), id.clone());
    if facts.volumes.get(&key).is_some_and(|answer| answer.as_ref().is_err_and(is_none)) {
        let sentence = format!("volume {id} that it asks for is not registered");
        let finding = Finding::new(Cause::Refused, Actor::You, sentence);
        return Some(finding.next("berth volume list").next(format!(
            "berth alloc status {}{}",
            hint::quoted(alloc.id.as_str()),
            hint::namespace_option(&facts.namespace)
        )));
    }
    let places = match facts.placements.get(&(key, Some(alloc.node.clone()))) {
        Some(Ok(places)) => places,
        Some(Err(problem)) if is_unreadable(problem) => return Some(unreadable_record(problem)),
        Some(Err(problem)) => return Some(service::away(facts, CLAIM.name, problem)),
        None => {
            let sentence = format!("it has no claim on volume {id}, and no more is known of it");
            let finding = Finding::new(Cause::UnderWay, Actor::NOBODY, sentence);
            return Some(finding.next(next::why_volume(&id, &facts.namespace)));
        }
    };
    let obstacle = places.iter().flat_map(|place| &place.obstacles).next();
    Some(match obstacle {
        Some(obstacle) => refused(facts, alloc, &id, obstacle),
        None => not_asked_for(facts, alloc, &id),
    })
}

/// A claim would be refused now.
fn refused(facts: &Facts, alloc: &AllocStatus, id: &VolumeId, obstacle: &Obstacle) -> Finding {
    let node = facts.nodes.get(&alloc.node).and_then(|node| node.as_ref().ok());
    let trouble = node.and_then(|node| node::trouble(facts, node));
    if let Some(finding) = trouble.filter(|finding| node::stops_claims(finding.cause)) {
        return finding;
    }
    let sentence =
        format!("volume {id} cannot be claimed on node {} now: {}", alloc.node, obstacle.message);
    let volume = facts.volume(id).and_then(|volume| volume.as_ref().ok());
    let is_of_half = matches!(obstacle.code, Code::PluginUnhealthy | Code::SharedNodeId);
    let half = node.zip(volume).filter(|_| is_of_half);
    let half = half.and_then(|(node, volume)| node::unhealthy_half(node, &volume.plugin));
    if let Some(half) = half {
        return instance_down(half).next(next::why_volume(id, &facts.namespace));
    }
    if let Some(volume) = volume.filter(|_| obstacle.code == Code::Held) {
        let AllocStatus { id: waiter, node, index, volumes, .. } = alloc;
        let is_for =
            |request: &&VolumeRequest| request.volume(*index).is_ok_and(|volume| volume == *id);
        let reads = volumes.iter().filter(is_for).all(|request| request.read_only);
        let mode = if reads { Mode::Read } else { Mode::Write };
        let waiter = Waiter { alloc: waiter, node, mode, waits_for: &obstacle.message };
        let access = volume.in_use.map(|used| used.access);
        if let Some(finding) = claim::behind_holder(facts, access, &volume.claims, &waiter) {
            return finding.next(next::why_volume(id, &facts.namespace));
        }
    }
    let actor = if obstacle.retryable { Actor::NOBODY } else { Actor::You };
    Finding::new(Cause::Refused, actor, sentence)
        .shown_by([format!(
            "`berth volume placement {}` says {}: {}",
            hint::volume_source(&VolumeKey::new(facts.namespace.clone(), id.clone())),
            obstacle.code,
            obstacle.message
        )])
        .next(next::why_volume(id, &facts.namespace))
        .next(format!("berth explain {}", obstacle.code))
}

/// A claim would be granted, but no program requests it; or the last request was refused.
fn not_asked_for(facts: &Facts, alloc: &AllocStatus, id: &VolumeId) -> Finding {
    let volume = facts.volume(id).and_then(|volume| volume.as_ref().ok());
    let refusal = alloc.last_refusal.as_ref();
    let refusal = refusal.filter(|refusal| {
        is_of_claim(refusal) && refusal.volume.as_ref().is_none_or(|volume| volume == id)
    });
    if let Some((volume, refusal)) = volume.zip(refusal) {
        return last_refusal(facts, Some(&volume.plugin), refusal).next(next::stop_alloc(
            &alloc.id,
            &facts.namespace,
            "if it does not run",
        ));
    }
    let agent = facts.agents.get(&alloc.node).and_then(|agent| agent.as_ref().ok());
    let mut failures = agent.into_iter().flat_map(|agent| &agent.failures);
    let is_for_alloc = |failure: &&berth_contract::message::agent::FailureStatus| {
        (&failure.namespace, &failure.volume, &failure.alloc) == (&alloc.namespace, id, &alloc.id)
    };
    let failure = failures.find(is_for_alloc);
    let sentence = match failure {
        Some(failure) => format!("volume {id} was refused the last time: {}", failure.failure),
        None => format!("nobody has asked node {} to mount volume {id} for it", alloc.node),
    };
    let cause = if failure.is_some() { Cause::Refused } else { Cause::NotAskedFor };
    let evidence =
        failure.map(|failure| format!("the agent of {}: {} tries", alloc.node, failure.tries));
    let namespace = hint::namespace_option(&facts.namespace);
    Finding::new(cause, Actor::You, sentence)
        .shown_by(evidence)
        .next(format!("berth events --alloc {}{namespace}", hint::quoted(alloc.id.as_str())))
        .next(next::stop_alloc(&alloc.id, &facts.namespace, "if it does not run"))
}
