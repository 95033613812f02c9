//! The bus, and the services of Berth that must answer.

use berth_contract::code::Code;
use berth_contract::message::claim::{ClaimStatus, ClaimWait};
use berth_contract::problem::Problem;
use berth_contract::service::{CLAIM, PLUGIN_REGISTRY, VOLUMEWATCHER};
use berth_domain::limits::CLOCK_MARGIN;
use berth_domain::volume::{CallKind, State};

use crate::cause::{Actor, Cause};
use crate::facts::Facts;
use crate::finding::{Diagnosis, Finding};
use crate::record::{NOT_KNOWN, is_none};
use crate::{next, rights};

/// The diagnosis of a name if the bus cannot be reached.
pub fn bus_away(name: &str, problem: &Problem) -> Diagnosis {
    let finding = Finding::new(Cause::BusAway, Actor::You, problem.message.clone())
        .next("nats server check connection")
        .next(next::start_service("nats-server", "the host of nats-server"));
    Diagnosis::new(name, NOT_KNOWN, finding)
}

/// The diagnosis if nothing has the name, and a service that might know it did not answer.
pub fn unanswered(facts: &Facts) -> Option<Diagnosis> {
    let of_claim = facts.volumes.values().filter_map(|answer| answer.as_ref().err());
    let of_claim = of_claim.chain(facts.allocs.values().filter_map(|answer| answer.as_ref().err()));
    let of_nodes = facts.nodes.values().filter_map(|answer| answer.as_ref().err());
    let of_nodes =
        of_nodes.chain(facts.plugins.values().filter_map(|answer| answer.as_ref().err()));
    let claim = of_claim.map(|problem| (CLAIM.name, problem));
    let registry = of_nodes.map(|problem| (PLUGIN_REGISTRY.name, problem));
    let unanswered = claim.chain(registry).filter(|(_, problem)| !is_none(problem));
    // A service that does not answer hides more than a missing right of the caller does.
    let (service, problem) =
        unanswered.min_by_key(|(_, problem)| problem.code == Code::NotAllowed)?;
    let names = &facts.names;
    let name = names.volume.as_ref().map(ToString::to_string);
    let name = name.or_else(|| names.node.as_ref().map(ToString::to_string)).unwrap_or_default();
    Some(Diagnosis::new(name, NOT_KNOWN, away(facts, service, problem)))
}

/// A service that did not answer, or could not read the bus.
pub fn away(facts: &Facts, service: &str, problem: &Problem) -> Finding {
    if let Some(finding) = rights::find_unserved(facts, service, problem) {
        return finding.shown_by([problem.to_string()]);
    }
    let answers = facts.services.get(service).is_some_and(Result::is_ok);
    let finding = match problem.code {
        // The caller may not ask the service, which may be well.
        Code::NotAllowed => Finding::new(
            Cause::RightMissing,
            Actor::You,
            format!("these credentials may not read it from {service}"),
        )
        .next("berth doctor   # what these credentials may do")
        .next(format!("berth explain {}", problem.code)),
        Code::BusUnavailable => Finding::new(
            Cause::BusAway,
            Actor::You,
            "nats-server cannot read or store: it has no leader, or a server is away",
        )
        .next("nats server report jetstream   # with the system account: which servers are there")
        .next("nats stream info KV_berth-volumes"),
        // It answers. Nothing says which of the clocks is wrong, if none was measured.
        Code::Late => wrong_clock(facts, &[CLAIM.name, PLUGIN_REGISTRY.name]).unwrap_or_else(|| {
            let sentence = format!(
                "{service} says that requests reach it after their deadlines: its clock, or that \
                 of this host, is wrong"
            );
            Finding::new(Cause::ClockWrong, Actor::You, sentence)
                .next(next::set_clock("this host, and the hosts of that service"))
                .next("berth doctor   # whose clock it is")
        }),
        Code::NoResponder | Code::NoAnswer if !answers => Finding::new(
            Cause::ServiceAway,
            Actor::You,
            format!("no {service} answers, so nothing can be claimed or released"),
        )
        .next(format!("nats micro ping {service}"))
        .next(next::start_service(service, "a host where it is to run")),
        code => Finding::new(
            Cause::ServiceAway,
            Actor::You,
            format!("{service} is there and does not say it: {}", problem.message),
        )
        .next(format!("berth explain {code}"))
        .next(format!("nats micro info {service}")),
    };
    finding.shown_by([problem.to_string()])
}

/// The fault of the services that the claim needs: a right, no replica, or a wrong clock.
pub fn in_the_way(facts: &Facts, claim: &ClaimStatus) -> Option<Finding> {
    missing_right(facts, claim)
        .or_else(|| wrong_clock(facts, &[CLAIM.name, VOLUMEWATCHER.name]))
        .or_else(|| no_release_watcher(facts, claim))
}

/// A service whose clock is too wrong for the deadlines of calls.
pub fn wrong_clock(facts: &Facts, services: &[&'static str]) -> Option<Finding> {
    let (service, skew_ms) = services.iter().find_map(|name| {
        let skew_ms = facts.services.get(name)?.as_ref().ok()?.clock_skew_ms?;
        is_wrong(skew_ms).then_some((name, skew_ms))
    })?;
    Some(
        Finding::new(
            Cause::ClockWrong,
            Actor::You,
            format!(
                "the clock of {service} is {} nats-server's, and calls end at \
                 deadlines that are compared by clocks",
                skew(skew_ms)
            ),
        )
        .shown_by([format!("nats micro info {service}: clock_skew_ms {skew_ms}")])
        .next(next::set_clock("the host of that service"))
        .next(format!("nats micro info {service}")),
    )
}

/// Whether a clock with this skew is too wrong for the deadlines of calls.
pub fn is_wrong(skew_ms: i64) -> bool {
    u128::from(skew_ms.unsigned_abs()) > CLOCK_MARGIN.as_millis()
}

/// `600.0 s ahead of`
pub fn skew(skew_ms: i64) -> String {
    let direction = if skew_ms < 0 { "behind" } else { "ahead of" };
    let tenths = (skew_ms.unsigned_abs() + 50) / 100;
    format!("{}.{} s {direction}", tenths / 10, tenths % 10)
}

/// No volumewatcher makes the calls of a change of the storage; `what` is the change.
pub fn no_watcher(facts: &Facts, what: &str) -> Option<Finding> {
    let problem = facts.service_away(VOLUMEWATCHER.name)?;
    let sentence =
        format!("{what}: no berth-volumewatcher answers, and it makes each call of the storage");
    let finding = Finding::new(Cause::NobodyWorks, Actor::You, sentence);
    Some(start_watcher(finding, problem))
}

fn start_watcher(finding: Finding, problem: &Problem) -> Finding {
    finding
        .shown_by([format!("nats micro ping {}: {}", VOLUMEWATCHER.name, problem.message)])
        .next(next::start_service(VOLUMEWATCHER.name, "a host where it is to run"))
        .next(format!("nats micro ping {}", VOLUMEWATCHER.name))
}

/// A right that the claim's next step needs.
fn missing_right(facts: &Facts, claim: &ClaimStatus) -> Option<Finding> {
    let find = |needed: &[_], what| rights::find_missing(facts, needed, what);
    match claim.state {
        State::Publishing if !is_release(claim) => {
            find(&rights::OF_PUBLISH, "the volume is being attached")
        }
        _ if is_release(claim) => find(&rights::OF_RELEASE, "the claim is being released"),
        _ => None,
    }
}

/// Whether the volumewatcher makes the claim's next call.
fn is_release(claim: &ClaimStatus) -> bool {
    match claim.state {
        State::Unpublishing | State::NodeDetached => true,
        State::Taken => claim.step == Some(CallKind::NodeDetach),
        // Its alloc has ended.
        State::Waiting | State::Publishing => claim.wait == Some(ClaimWait::Release),
    }
}

/// No volumewatcher answers, which makes the calls of each release.
pub fn no_watcher_of_release(facts: &Facts) -> Option<Finding> {
    let problem = facts.service_away(VOLUMEWATCHER.name)?;
    let told = "no berth-volumewatcher answers, and it makes each call of a release";
    Some(start_watcher(Finding::new(Cause::NobodyWorks, Actor::You, told), problem))
}

/// A release without a volumewatcher to make its calls.
fn no_release_watcher(facts: &Facts, claim: &ClaimStatus) -> Option<Finding> {
    let under_way = claim.attempt.as_ref().is_some_and(|attempt| facts.now <= attempt.ends());
    if !is_release(claim) || under_way {
        return None;
    }
    let finding = no_watcher_of_release(facts)?;
    Some(finding.shown_by([format!(
        "the claim of {} waits for {}",
        claim.alloc,
        claim.waits_for.as_deref().unwrap_or("its release")
    )]))
}
