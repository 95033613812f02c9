//! The streams: each is there, its copies are current, and its settings are as expected.
//!
//! How often the server syncs its disk (`sync_interval`) is in no answer to a client.

use std::collections::{BTreeMap, BTreeSet};

use berth_bus::replication::{CopiesReport, StreamCopies};
use berth_bus::{StaleCopy, StreamReport};
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::stream::stream_owner;

use super::facts::SystemFacts;
use super::finding::{DoctorFinding, Examined};

/// The most processes whose failing writes are named.
const SHOWN_MAX: usize = 5;

pub fn examine(facts: &SystemFacts) -> Examined {
    let (mut findings, mut known) = (Vec::new(), Vec::new());
    let (mut denied, mut unanswered) = (None, Vec::new());
    for (name, answer) in &facts.streams {
        match answer {
            Ok(Some(stream)) => {
                known.push(stream);
                findings.extend(drifted(stream));
            }
            Ok(None) => findings.push(missing(name)),
            Err(problem) if problem.code == Code::NotAllowed => denied = Some(problem),
            Err(problem) => unanswered.push((name, problem)),
        }
    }
    findings.extend(denied.map(|problem| DoctorFinding::not_checked("all streams", problem)));
    findings.extend(tell_unanswered(&unanswered));
    findings.extend(stale_copies(&known));
    findings.extend(stores_nothing(facts));
    findings.extend(facts.copies.iter().flat_map(CopiesReport::short).filter_map(short));
    let copies: BTreeSet<String> = known.iter().map(|stream| stream.copies.to_string()).collect();
    let copies = copies.into_iter().collect::<Vec<_>>().join(" or ");
    let copies = if copies.is_empty() { "not known".to_owned() } else { copies };
    let summary = format!("{} of {}, copies: {copies}", known.len(), facts.streams.len());
    Examined::new(summary, findings)
}

/// The finding for a stream that should have more copies.
fn short(stream: &StreamCopies) -> Option<DoctorFinding> {
    let StreamCopies { stream, wanted, copies, .. } = stream;
    let copies = (*copies)?;
    let sentence = format!(
        "it has {copies} of the {wanted} copies that the cluster has room for: the loss of a host \
         may be the loss of its records"
    );
    Some(
        DoctorFinding::warning(format!("stream {stream}"), sentence)
            .next("berth bus copies --raise"),
    )
}

/// Copies that are not current, by server: a server that is away is one finding.
fn stale_copies(streams: &[&StreamReport]) -> Vec<DoctorFinding> {
    let mut by_server: BTreeMap<&str, Vec<(&str, Option<u64>)>> = BTreeMap::new();
    for stream in streams {
        for StaleCopy { server, lag } in &stream.behind {
            by_server.entry(server).or_default().push((&stream.name, *lag));
        }
    }
    let found = by_server.into_iter().map(|(server, stale)| {
        let count = stale.len();
        let is_away = stale.iter().any(|(_, lag)| lag.is_none());
        let sentence = if is_away {
            format!("server {server} is away: its copies of {count} streams are not current")
        } else {
            format!("the copies of {count} streams at server {server} are not current")
        };
        let lags = stale.iter().map(|(stream, lag)| match lag {
            Some(lag) => format!("{stream}: {lag} messages behind"),
            None => format!("{stream}: away"),
        });
        let mut finding = DoctorFinding::warning(format!("server {server}"), sentence);
        finding.evidence = lags.collect();
        finding
            .next(
                "nats server report jetstream   # with the system account: which servers are there",
            )
            .next(format!(
                "systemctl restart nats-server   # on the host of {server}, if it stays so"
            ))
    });
    found.collect()
}

/// Processes whose writes are not stored: one finding, because one server stores them.
fn stores_nothing(facts: &SystemFacts) -> Option<DoctorFinding> {
    let faults = facts.all_replicas().flat_map(|(service, one)| {
        one.store_faults.iter().map(move |fault| format!("{service} {}: {fault}", one.name()))
    });
    let evidence: Vec<String> = faults.take(SHOWN_MAX).collect();
    if evidence.is_empty() {
        return None;
    }
    let mut finding = DoctorFinding::fault("nats-server", berth_explain::STORES_NOTHING);
    finding.evidence = evidence;
    let next = berth_explain::next::after_full_store();
    Some(next.into_iter().fold(finding, DoctorFinding::next))
}

fn drifted(stream: &StreamReport) -> Vec<DoctorFinding> {
    let StreamReport { name, drift, .. } = stream;
    let place = format!("stream {name}");
    let mut findings = Vec::new();
    for setting in drift {
        let sentence = format!("a setting is not as expected: {setting}");
        let is_words = setting.field == "description" || setting.field.starts_with("metadata.");
        let next = match stream_owner(name).filter(|_| is_words) {
            Some(owner) => format!(
                "systemctl restart {}   # it corrects this at its start, if its identity has the \
                 right: docs/install.md, New identities",
                owner.name
            ),
            None => format!("nats stream edit {name}"),
        };
        findings.push(DoctorFinding::warning(&place, sentence).next(next));
    }
    findings
}

fn missing(name: &str) -> DoctorFinding {
    DoctorFinding::fault(
        format!("stream {name}"),
        "it does not exist: its service never ran, or it was deleted",
    )
    .next("nats stream ls --all")
    .next(
        "journalctl -u berth-claim -u berth-plugin-registry -n 50   # they say BERTH0011 for \
               a lost bucket: docs/backup.md",
    )
}

/// Streams whose leaders do not answer: one finding for all, because the reason is the same.
fn tell_unanswered(streams: &[(&String, &Problem)]) -> Option<DoctorFinding> {
    let (first, problem) = streams.first()?;
    let names: Vec<&str> = streams.iter().map(|(name, _)| name.as_str()).collect();
    let sentence = match names.len() {
        1 => "its leader does not answer, or it has none".to_owned(),
        many => format!("the leaders of {many} streams do not answer, or they have none"),
    };
    let word = if names.len() == 1 { "stream" } else { "streams" };
    let finding = DoctorFinding::fault(format!("{word} {}", names.join(", ")), sentence)
        .shown_by(problem.message.clone())
        .next(format!("nats stream info {first}"));
    Some(
        finding.next(
            "nats server report jetstream   # with the system account: which servers are there",
        ),
    )
}
