//! The streams: each is there, its copies are current, and its settings are as expected.
//!
//! How often the server syncs its disk (`sync_interval`) is in no answer to a client.

use std::collections::BTreeSet;

use berth_bus::StreamReport;

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
    let most = facts.copies_max();
    ailments.extend(known.iter().filter(|stream| stream.copies < most).map(|stream| {
        let (name, copies) = (&stream.name, stream.copies);
        Ailment::warning(
            format!("stream {name}"),
            format!("it has {copies} of the {most} copies that other streams have"),
        )
        .next(format!("nats stream edit {name} --replicas {most}"))
    }));
    if most == 1 && facts.server.cluster.is_some() {
        let what = "each stream has one copy, although the server is in a cluster: the loss of one \
                    host is the loss of the records";
        ailments.push(
            Ailment::warning("every stream", what)
                .next("nats stream edit KV_berth-volumes --replicas 3   # and so for each stream")
                .next("grep replicas /etc/berth/*.toml   # where the services run"),
        );
    }
    let copies: BTreeSet<String> = known.iter().map(|one| one.copies.to_string()).collect();
    let copies = copies.into_iter().collect::<Vec<_>>().join(" or ");
    let copies = if copies.is_empty() { "not known".to_owned() } else { copies };
    let summary = format!("{} of {}, copies: {copies}", known.len(), facts.streams.len());
    Examined::new(summary, ailments)
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
        ailments.push(Ailment::warning(&place, what).next(format!("nats stream edit {name}")));
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
