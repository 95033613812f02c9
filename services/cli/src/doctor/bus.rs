//! The server of this connection.

use berth_contract::problem::Problem;

use super::facts::SystemFacts;
use super::finding::{DoctorFinding, Examined};

const PLACE: &str = "nats-server";

pub fn examine(facts: &SystemFacts) -> Examined {
    let server = &facts.server;
    let cluster = server.cluster.as_ref().map(|name| format!(", cluster {name}"));
    let cluster = cluster.unwrap_or_default();
    // A server that is too old was refused at the connection.
    let summary = format!("nats-server {} ({}){cluster}", server.version, server.name);
    if server.jetstream {
        return Examined::new(format!("{summary}, JetStream is on"), Vec::new());
    }
    let sentence = format!("JetStream is off at server {}, so no record can be read", server.name);
    let fault = DoctorFinding::fault(PLACE, sentence)
        .next("nats server report jetstream   # with the system account: where it is on")
        .next("grep -A4 jetstream /etc/berth/nats.conf   # on the host of nats-server");
    Examined::new(summary, vec![fault])
}

/// The bus cannot be reached.
pub fn away(problem: &Problem, has_expired: bool) -> Examined {
    let fault = if has_expired {
        // Starting a server does not help: a server, or this process, refuses what has expired.
        let repeat = "berth doctor   # again, once what has expired is renewed";
        Some(DoctorFinding::fault("the bus", problem.message.clone()).next(repeat))
    } else {
        DoctorFinding::from_finding("the bus", berth_explain::bus_away("the bus", problem).finding)
    };
    Examined::new("not connected; nothing else can be checked", fault.into_iter().collect())
}
