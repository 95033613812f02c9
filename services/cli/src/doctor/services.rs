//! The services: each has a replica, all have one version, and none fails at its work.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::service::{CLAIM, GC, PLUGIN_REGISTRY, ServiceName, VOLUMEWATCHER};
use berth_contract::verb;
use berth_contract::verb::Verb as _;

use super::facts::SystemFacts;
use super::finding::{DoctorFinding, Examined, Verdict};
use super::replica::{EndpointStats, Replica};
use crate::span::ago;
use berth_explain::next;

/// Services without which something does not work, what does not work, and how bad that is.
const NEEDED: [(ServiceName, &str, Verdict); 4] = [
    (CLAIM, "nothing can be claimed or released", Verdict::Fault),
    (
        PLUGIN_REGISTRY,
        "nodes and plugins are not known, and nothing can be mounted",
        Verdict::Fault,
    ),
    (VOLUMEWATCHER, "no release goes on", Verdict::Fault),
    (GC, "claims of allocs that nobody stopped, and old records, stay", Verdict::Warning),
];

/// An error counts for this long.
const ERROR_RECENT_FOR: Duration = Duration::from_secs(300);

/// Codes of faults of a service itself. Other errors answer a request: a volume that is held is no
/// fault.
const OWN_ERRORS: [Code; 4] =
    [Code::Internal, Code::BusUnavailable, Code::Overloaded, Code::BucketLost];

pub fn examine(facts: &SystemFacts) -> Examined {
    let (mut findings, mut counts, mut denied) = (Vec::new(), Vec::new(), None);
    for (service, lost, severity) in NEEDED {
        let name = service.name;
        match facts.replicas.get(name) {
            None => {}
            Some(Ok(replicas)) if !replicas.is_empty() => {
                counts.push(format!("{} {}", name.trim_start_matches("berth-"), replicas.len()));
                if replicas.len() == 1 && facts.copies_max() > 1 {
                    let sentence = "one replica runs, although the streams have several copies: \
                                the loss of its host stops it";
                    let finding = DoctorFinding::warning(name, sentence);
                    findings.push(finding.next(next::start_service(name, "a second host")));
                }
            }
            Some(Ok(_)) => findings.push(
                DoctorFinding::new(severity, name, format!("no {name} answers, so {lost}"))
                    .next(format!("nats micro ping {name}"))
                    .next(next::start_service(name, "a host where it is to run")),
            ),
            Some(Err(problem)) if problem.code == Code::NotAllowed => denied = Some(problem),
            Some(Err(problem)) => findings.push(
                DoctorFinding::new(severity, name, format!("{name} is there and does not answer"))
                    .shown_by(problem.message.clone())
                    .next(format!("nats micro info {name}"))
                    .next(next::start_service(name, "its host")),
            ),
        }
    }
    let is_denied = denied.is_some();
    findings.extend(denied.map(|problem| DoctorFinding::not_checked("the services", problem)));
    findings.extend(no_collector_leads(facts));
    for (service, replica) in facts.all_replicas() {
        findings.extend(troubled_endpoint(facts, service, replica));
    }
    let versions: BTreeSet<&str> =
        facts.all_replicas().map(|(_, one)| one.version.as_str()).collect();
    findings.extend(mixed_versions(facts, &versions));
    let versions = versions.into_iter().collect::<Vec<_>>().join(", ");
    let summary = if is_denied {
        "not checked".to_owned()
    } else if counts.is_empty() {
        "none answers".to_owned()
    } else {
        format!("{}; version {versions}", counts.join(", "))
    };
    Examined::new(summary, findings)
}

/// The finding if collectors run and none of them holds the lease.
fn no_collector_leads(facts: &SystemFacts) -> Option<DoctorFinding> {
    let replicas = facts.replicas.get(GC.name)?.as_ref().ok()?;
    let leads = |one: &Replica| {
        one.endpoints.iter().any(|endpoint| endpoint.name == verb::GcForce::ROW.endpoint)
    };
    let none = !replicas.is_empty() && !replicas.iter().any(leads);
    none.then(|| {
        DoctorFinding::warning(GC.name, "no replica leads, so nothing is collected")
            .next("nats kv get berth-leases leader.gc   # who holds the lease, if anybody")
            .next(format!("journalctl -u {} -n 50   # on a host where it runs", GC.name))
    })
}

fn troubled_endpoint(
    facts: &SystemFacts,
    service: &'static str,
    replica: &Replica,
) -> Option<DoctorFinding> {
    let place = format!("{service} {}", replica.name());
    let info = format!("nats micro stats {service} {}", replica.id);
    let full = |stats: &EndpointStats| Some((stats.describe_full()?, stats.data.busiest.clone()));
    if let Some((what, busiest)) = replica.endpoints.iter().find_map(full) {
        let finding = DoctorFinding::warning(place, what).next(info);
        return Some(match busiest {
            Some(stats) => finding.shown_by(format!("{} has {}", stats.sender, stats.requests)),
            None => finding,
        });
    }
    let fails = replica.endpoints.iter().filter_map(|endpoint| {
        let at =
            endpoint.data.last_error_at.filter(|at| facts.now.since(*at) < ERROR_RECENT_FOR)?;
        endpoint.last_code().filter(|code| OWN_ERRORS.contains(code))?;
        Some((at, endpoint))
    });
    let (at, endpoint) = fails.max_by_key(|(at, _)| *at)?;
    let sentence = format!("endpoint {} failed {} ago", endpoint.name, ago(at, facts.now));
    Some(DoctorFinding::warning(place, sentence).shown_by(endpoint.last_error.clone()).next(info))
}

fn mixed_versions(facts: &SystemFacts, versions: &BTreeSet<&str>) -> Option<DoctorFinding> {
    let own = facts.own_version.as_str();
    let is_mixed = versions.len() > 1 || versions.iter().any(|version| *version != own);
    is_mixed.then(|| {
        let list = versions.iter().copied().collect::<Vec<_>>().join(", ");
        let of = |version: &&str| {
            let has = |(_, one): &(_, &Replica)| one.version == **version;
            let mut names: Vec<String> = facts
                .all_replicas()
                .filter(has)
                .map(|(service, one)| format!("{service} {}", one.name()))
                .collect();
            let more = names.len().saturating_sub(5);
            names.truncate(5);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{version}: {}{more}", names.join(", "))
        };
        let sentence = format!("versions differ: {list} run, and this berth is {own}");
        let mut warning = DoctorFinding::warning("services and agents", sentence);
        warning.evidence = versions.iter().map(of).collect();
        warning.next("nats micro ls   # upgrade what is older, one host at a time")
    })
}
