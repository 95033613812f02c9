//! The streams: each is there, its copies are current, and its settings are as expected.
//!
//! How often the server syncs its disk (`sync_interval`) is in no answer to a client.

use std::collections::BTreeSet;

use berth_bus::StreamReport;
use berth_bus::replication::{CopiesReport, StreamCopies};
use berth_contract::stream::stream_owner;

use super::{Ailment, Examined, SystemFacts};

pub fn examine(facts: &SystemFacts) -> Examined {
    let (mut ailments, mut known) = (Vec::new(), Vec::new());
    for (name, answer) in &facts.streams {
        match answer {
            Ok(Some(stream)) => {
                known.push(stream);
                ailments.extend(examine_stream(stream));
            }
            Ok(None) => ailments.push(missing(name)),
            Err(problem) => ailments.push(unanswered(name, &problem.message)),
        }
    }
    ailments.extend(facts.copies.iter().flat_map(CopiesReport::short).filter_map(short));
    let copies: BTreeSet<String> = known.iter().map(|one| one.copies.to_string()).collect();
    let copies = copies.into_iter().collect::<Vec<_>>().join(" or ");
    let copies = if copies.is_empty() { "not known".to_owned() } else { copies };
    let summary = format!("{} of {}, copies: {copies}", known.len(), facts.streams.len());
    Examined::new(summary, ailments)
}

/// A stream that the cluster would give more copies.
fn short(stream: &StreamCopies) -> Option<Ailment> {
    let StreamCopies { stream, wanted, copies, .. } = stream;
    let copies = (*copies)?;
    let what = format!(
        "it has {copies} of the {wanted} copies that the cluster has room for: the loss of a host \
         may be the loss of its records"
    );
    Some(Ailment::warning(format!("stream {stream}"), what).next("berth bus copies --raise"))
}

fn examine_stream(stream: &StreamReport) -> Vec<Ailment> {
    let StreamReport { name, behind, drift, .. } = stream;
    let place = format!("stream {name}");
    let mut ailments = Vec::new();
    if !behind.is_empty() {
        let what = format!("not every copy is current: {}", behind.join(", "));
        ailments.push(
            Ailment::warning(&place, what)
                .next(format!("nats stream info {name}"))
                .next("systemctl restart nats-server   # on the host of a server that stays away"),
        );
    }
    for setting in drift {
        let what = format!("a setting is not as expected: {setting}");
        let is_words = setting.field == "description" || setting.field.starts_with("metadata.");
        let next = match stream_owner(name).filter(|_| is_words) {
            Some(owner) => format!(
                "systemctl restart {}   # it corrects this at its start, if its identity has the \
                 right: docs/install.md, New identities",
                owner.name
            ),
            None => format!("nats stream edit {name}"),
        };
        ailments.push(Ailment::warning(&place, what).next(next));
    }
    ailments
}

fn missing(name: &str) -> Ailment {
    Ailment::fault(
        format!("stream {name}"),
        "it does not exist: its service never ran, or it was deleted",
    )
    .next("nats stream ls --all")
    .next(
        "journalctl -u berth-claim -u berth-plugin-registry -n 50   # they say BERTH0011 for \
               a lost bucket: docs/backup.md",
    )
}

fn unanswered(name: &str, why: &str) -> Ailment {
    Ailment::fault(format!("stream {name}"), "its leader does not answer, or it has none")
        .shown_by(why)
        .next(format!("nats stream info {name}"))
        .next("nats server report jetstream   # with the system account: which servers are there")
}
