//! Clocks: of this host, of the services and of the nodes. Calls end at deadlines that hosts
//! compare with their clocks.

use berth_contract::message::registry::NodeStatus;
use berth_domain::limits::CLOCK_SKEW_REPORTED_MS;

use super::facts::SystemFacts;
use super::finding::{DoctorFinding, Examined, Verdict};
use berth_explain::{is_wrong_skew, next, words_of_skew, wrong_node_clock};

/// One measured clock.
struct Clock {
    place: String,
    skew_ms: i64,
}

pub fn examine(facts: &SystemFacts) -> Examined {
    let mut clocks: Vec<Clock> = Vec::new();
    let streams = facts.streams.values().filter_map(|stream| stream.as_ref().ok()?.as_ref());
    // The exchange with the shortest round trip has the smallest error.
    let own_skew =
        streams.filter_map(|stream| stream.clock_skew_ms).min_by_key(|ms| ms.unsigned_abs());
    clocks.extend(own_skew.map(|skew_ms| Clock { place: "this host".to_owned(), skew_ms }));
    for (service, replica) in facts.all_replicas() {
        let place = || format!("{service} {}", replica.name());
        clocks.extend(replica.clock_skew_ms().map(|skew_ms| Clock { place: place(), skew_ms }));
    }
    let mut findings: Vec<DoctorFinding> = clocks.iter().filter_map(judge).collect();
    match &facts.registry {
        Ok(registry) => {
            // The record of a host that is gone keeps the last measurement.
            let is_measured = |node: &&NodeStatus| {
                let answers = matches!(facts.why.agents.get(&node.id), Some(Ok(_)));
                node.gone.is_none() || answers
            };
            for node in registry.nodes.iter().filter(is_measured) {
                let place = format!("node {}", node.id);
                let clock = Clock { place, skew_ms: node.clock_skew_ms };
                let wrong = wrong_node_clock(node);
                let wrong =
                    wrong.and_then(|wrong| DoctorFinding::from_finding(&clock.place, wrong));
                findings.extend(wrong.or_else(|| judge(&clock)));
                clocks.push(clock);
            }
        }
        Err(problem) => {
            findings.push(DoctorFinding::not_checked("the clocks of the nodes", problem));
        }
    }
    let farthest = clocks.iter().max_by_key(|clock| clock.skew_ms.unsigned_abs());
    let summary = match farthest {
        None => "none is measured yet".to_owned(),
        Some(Clock { place, skew_ms }) => {
            format!(
                "{} measured, at most {} ms off ({place})",
                clocks.len(),
                skew_ms.unsigned_abs()
            )
        }
    };
    Examined::new(summary, findings)
}

fn judge(clock: &Clock) -> Option<DoctorFinding> {
    let Clock { place, skew_ms } = clock;
    let severity = if is_wrong_skew(*skew_ms) {
        Verdict::Fault
    } else if skew_ms.unsigned_abs() > CLOCK_SKEW_REPORTED_MS {
        Verdict::Warning
    } else {
        return None;
    };
    let skew = words_of_skew(*skew_ms);
    let sentence =
        format!("the clock of {place} is {skew} nats-server's: set the wrong one of the two");
    Some(DoctorFinding::new(severity, place, sentence).next(next::set_clock(place)))
}
