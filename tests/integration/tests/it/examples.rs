//! H8: the examples of the JSON Schema are requests that running services take.
//!
//! What an example names need not exist, so that any answer will do but a refusal of its form.

use std::fs;
use std::time::Duration;

use berth_access::Role;
use berth_bus::{Bus, Call, RequestError};
use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::service::{self, NODE_AGENT};
use berth_contract::verb::{self, Row};
use berth_domain::NodeId;
use berth_harness::root::or_skip;
use berth_integration::{Options, PLUGIN, System};
use berth_service::clock;
use serde_json::Value;

/// How long an example may wait for what does not come.
const PATIENCE: Duration = Duration::from_secs(2);

/// The schema, with the ids of this system's plugin and node in its examples.
fn schema() -> Value {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/contract.schema.json");
    let mut text = fs::read_to_string(file).unwrap();
    for (example, here) in [("ebs.csi.aws.com", PLUGIN), ("host.example", "n1")] {
        let as_token = |id: &str| id.replace('.', "=2E");
        text = text.replace(example, here).replace(&as_token(example), &as_token(here));
    }
    serde_json::from_str(&text).unwrap()
}

/// The examples that the schema has for a verb. Verbs with one type take different calls of it.
fn examples<'a>(schema: &'a Value, row: &Row) -> Vec<&'a Value> {
    let is_taken = |example: &&Value| match example["call"].as_str() {
        Some(call) => match row.step.trim_end_matches("-on-node") {
            "controller.provision" => call.starts_with("controller."),
            step => call == step,
        },
        None => true,
    };
    let all = schema["$defs"][verb::definition(row.request)]["examples"].as_array().unwrap();
    all.iter().filter(is_taken).collect()
}

/// The connection of a program that sends the verb.
async fn sender(row: &Row, system: &System) -> Bus {
    let service = service::ALL.into_iter().find(|one| row.is_sent_by(*one));
    let actor = match service.filter(|_| !row.is_for_clients()) {
        Some(NODE_AGENT) => Actor::Node(NodeId::new("n1").unwrap()),
        Some(service) => Actor::service(service),
        None => Actor::user("anna"),
    };
    // The bus of this system asks for no identity.
    system.connect_as(&Role::Claim, actor).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_example_of_a_request_is_refused_for_its_form() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, plain: true, ..Options::default() }).await;
    let schema = schema();
    let (mut sent, mut refused) = (0, Vec::new());
    for row in verb::ALL {
        let ids = [("<ns>", "team=20a"), ("<node>", "n1"), ("<plugin>", "dev=2Eberth")];
        let fill = |subject: String, (name, id): &(&str, &str)| subject.replace(name, id);
        let subject = ids.iter().fold(row.subject.to_owned(), fill);
        let examples = examples(&schema, row);
        assert!(!examples.is_empty(), "{} has no example", row.step);
        let bus = sender(row, &system).await;
        for example in examples {
            let call = Call::within(clock::begin_trace(), PATIENCE);
            let answer = bus.request::<Value>(&subject, example, &call).await;
            sent += 1;
            if let Err(RequestError::Problem(problem)) = answer
                && (problem.code == Code::BadInput || !row.may_fail_with(problem.code))
            {
                refused.push(format!("{}: {problem}\n{example:#}", row.step));
            }
        }
    }
    assert!(sent > verb::ALL.len(), "{sent}");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
