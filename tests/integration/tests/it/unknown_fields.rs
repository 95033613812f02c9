//! Unknown fields in every request of the contract, at every level.

use std::fs;

use berth_contract::bucket;
use berth_contract::code::Code;
use berth_contract::decode::Unknown;
use berth_contract::message::alloc::AllocStatus;
use berth_contract::service::CONTROLLER;
use berth_contract::verb::{self, Row, Verb as _};
use berth_domain::Namespace;
use berth_harness::root::or_skip;
use berth_integration::{Options, System};
use serde_json::{Value, json};

use crate::widened::widened;

/// The example request of the contract's reference for a verb.
fn sample(row: &Row) -> Value {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/contract/tests/it");
    if row.step == "volume.register" {
        let text = fs::read_to_string(format!("{dir}/volume.json")).unwrap();
        return serde_json::from_str(&text).unwrap();
    }
    let anchor = row.anchor().replace("-on-node", "");
    let file = format!("{dir}/snapshots/it__messages__request-{anchor}.snap");
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    serde_json::from_str(text.splitn(3, "---\n").nth(2).unwrap()).unwrap()
}

/// The subject at which the system answers a verb.
fn subject(row: &Row) -> String {
    let ids = [("<ns>", "default"), ("<node>", "n1"), ("<plugin>", "dev=2Eberth")];
    ids.iter().fold(row.subject.to_owned(), |subject, (name, id)| subject.replace(name, id))
}

async fn newest(system: &System) -> Vec<u64> {
    let mut heads = Vec::new();
    for spec in [&bucket::VOLUMES, &bucket::ALLOCS, &bucket::SECRETS, &bucket::PLUGINS] {
        heads.push(system.bus.bucket(spec, 1).await.unwrap().head(">").await.unwrap());
    }
    heads
}

/// Each verb of the contract, at its real service.
#[tokio::test(flavor = "multi_thread")]
async fn only_requests_that_change_something_are_refused_for_an_unknown_field() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let (changing, others): (Vec<Row>, Vec<Row>) =
        verb::ALL.iter().partition(|row| row.unknown() == Unknown::Fault);
    assert!(changing.len() > 15 && others.len() > 10, "{} {}", changing.len(), others.len());
    let before = newest(&system).await;
    let mut levels = 0;
    for row in &changing {
        for (path, request) in widened(&sample(row)) {
            let answer = system.ask::<Value>(&subject(row), &request).await;
            let problem = answer.expect_err(&format!("{} took {path}", row.step));
            let step = row.step;
            assert_eq!(problem.code, Code::BadInput, "{step} with {path}: {problem}");
            let is_named = problem.faults.iter().any(|fault| fault.path == path);
            assert!(is_named, "{step} with {path}: {problem}");
            levels += 1;
        }
    }
    assert!(levels > changing.len(), "also fields of fields: {levels}");
    assert_eq!(newest(&system).await, before, "nothing was written");
    for row in &others {
        for (path, request) in widened(&sample(row)) {
            if let Err(problem) = system.ask::<Value>(&subject(row), &request).await {
                let step = row.step;
                let is_named = problem.faults.iter().any(|fault| fault.path == path);
                assert!(!is_named, "{step} with {path}: {problem}");
                let is_served = row.service == CONTROLLER || problem.code != Code::NoResponder;
                assert!(is_served, "{step}: {problem}");
            }
        }
    }
}

/// A misspelt field: the alloc would be registered for writing.
#[tokio::test(flavor = "multi_thread")]
async fn a_misspelt_read_only_registers_no_writer() {
    let system = System::shared();
    let register = verb::AllocRegister::subject(&Namespace::default());
    let volumes = json!([{"source": "data", "readonly": true}, {"source": "d", "mod": 1}]);
    let document = json!({"id": "misspelt", "node": "n1", "volumes": volumes, "notes": "x"});
    let problem = system.ask::<AllocStatus>(&register, &document).await.unwrap_err();
    let paths: Vec<&str> = problem.faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, ["volumes[0].readonly", "volumes[1].mod", "notes"], "{problem}");
    assert!(problem.faults[0].problem.contains("read_only"), "{problem}");
    let status = verb::AllocStatus::subject(&Namespace::default());
    let problem = system.ask::<AllocStatus>(&status, &json!({"id": "misspelt"})).await.unwrap_err();
    assert_eq!(problem.code, Code::NoSuchAlloc);
}
