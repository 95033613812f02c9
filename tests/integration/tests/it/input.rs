//! Bad input on the bus: every fault is named at once, and nothing is written.

use berth_contract::code::Code;
use berth_contract::message::volume::Volumes;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_integration::{Options, System};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_a_request_is_named_and_nothing_is_written() {
    let system = System::start(Options { nodes: 0, ..Options::default() }).await;
    let namespace = Namespace::default();
    let register = verb::VolumeRegister::subject(&namespace);

    let bad = json!({"id": "", "plugin": 7, "capability": [{"access": "all"}], "colour": "red"});
    let problem = system.ask::<Value>(&register, &bad).await.unwrap_err();
    assert_eq!(problem.code, Code::BadInput, "{problem}");
    let paths: Vec<&str> = problem.faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, ["id", "plugin", "capability[0].access", "colour"]);

    // A read ignores unknown fields.
    let list = verb::VolumeList::subject(&namespace);
    let listed: Volumes = system.ask(&list, &json!({"newer": true})).await.unwrap();
    assert!(listed.volumes.is_empty());

    let take = verb::ClaimTake::subject(&namespace);
    let problem = system.ask::<Value>(&take, &json!({"alloc": "a\u{0}"})).await.unwrap_err();
    let paths: Vec<&str> = problem.faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, ["alloc", "volume", "node"]);

    for body in [json!(null), json!([]), json!("x"), json!(7), json!({"id": {"deep": [[[]]]}})] {
        for subject in [
            verb::VolumeRegister::subject(&namespace),
            verb::VolumeStatus::subject(&namespace),
            verb::ClaimTake::subject(&namespace),
            verb::ClaimCheckpoint::subject(&namespace),
            verb::AllocRegister::subject(&namespace),
            verb::AllocStop::subject(&namespace),
        ] {
            let problem = system.ask::<Value>(&subject, &body).await.unwrap_err();
            assert_eq!(problem.code, Code::BadInput, "{subject} {body}: {problem}");
        }
    }

    // A valid request for an unknown plugin is refused, and the error names the plugin.
    let good =
        json!({"id": "v", "plugin": "none", "capability": [{"access": "single-node-writer"}]});
    let problem = system.ask::<Value>(&register, &good).await.unwrap_err();
    assert_eq!(problem.code, Code::NoSuchPlugin, "{problem}");
    assert_eq!(problem.volume.as_deref(), Some("default/v"));
    let listed = system.volumes().await.unwrap();
    assert!(listed.volumes.is_empty(), "nothing was written");
}

/// An alloc whose node or volumes are missing is refused, and nothing is written. The error names
/// all of them. The caller may allow them to be registered later.
#[tokio::test(flavor = "multi_thread")]
async fn an_alloc_is_refused_with_all_that_is_missing_unless_it_may_come() {
    let system = System::shared();
    let namespace = Namespace::default();
    let register = verb::AllocRegister::subject(&namespace);
    system.volume("there", &["single-node-writer"]).await;
    let volumes = json!([{"source": "no"}, {"source": "there"}, {"source": "nor"}]);
    let alloc = |id: &str, node: &str, allow: bool| {
        let mut body = json!({"id": id, "node": node, "volumes": volumes});
        body["allow_missing"] = json!(allow);
        body
    };
    let paths = |problem: &Problem| -> Vec<String> {
        problem.faults.iter().map(|fault| fault.path.clone()).collect()
    };
    let refused =
        system.ask::<Value>(&register, &alloc("incomplete", "n9", false)).await.unwrap_err();
    assert_eq!((refused.code, refused.retryable), (Code::NoSuchNode, false), "{refused}");
    assert_eq!(paths(&refused), ["node", "volumes[0].source", "volumes[2].source"]);
    for missing in ["node n9", "volume no ", "volume nor "] {
        assert!(refused.message.contains(missing), "{refused}");
    }
    let volumes_only =
        system.ask::<Value>(&register, &alloc("incomplete", "n1", false)).await.unwrap_err();
    assert_eq!(volumes_only.code, Code::NoSuchVolume, "{volumes_only}");
    assert_eq!(paths(&volumes_only), ["volumes[0].source", "volumes[2].source"]);
    let status = verb::AllocStatus::subject(&namespace);
    let absent = system.ask::<Value>(&status, &json!({"id": "incomplete"})).await.unwrap_err();
    assert_eq!(absent.code, Code::NoSuchAlloc, "nothing was written: {absent}");

    let _: Value = system.ask(&register, &alloc("incomplete", "n1", true)).await.unwrap();
    // A registered alloc stays registered.
    let _: Value = system.ask(&register, &alloc("incomplete", "n1", false)).await.unwrap();
    system.stop("incomplete").await;
}
