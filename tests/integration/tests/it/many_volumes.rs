//! Several volumes in one request (A3, A5): all or none for what is wrong in the request, and for
//! the rest each its own answer.

use std::fs;
use std::process::Output;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::many::{DeregisterAnswers, RegisterAnswers};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, System};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);

async fn berth(system: &System, args: &[&str]) -> Output {
    let mut command = system.berth();
    command.args(["--nats", &system.url()]).args(args).kill_on_drop(true);
    tokio::time::timeout(SOON, command.output()).await.unwrap().unwrap()
}

fn document(id: &str) -> Value {
    json!({"id": id, "plugin": PLUGIN, "capability": [{"access": "single-node-writer"}]})
}

async fn register(system: &System, volumes: Value) -> Result<RegisterAnswers, Problem> {
    let subject = verb::VolumeRegisterMany::subject(&Namespace::default());
    system.ask(&subject, &json!({ "volumes": volumes })).await
}

async fn deregister(system: &System, volumes: Value) -> Result<DeregisterAnswers, Problem> {
    let subject = verb::VolumeDeregisterMany::subject(&Namespace::default());
    system.ask(&subject, &json!({ "volumes": volumes })).await
}

async fn count_volumes(system: &System) -> usize {
    system.volumes().await.unwrap().volumes.len()
}

fn paths(problem: &Problem) -> Vec<&str> {
    problem.faults.iter().map(|fault| fault.path.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_in_one_document_keeps_all_of_them_and_all_faults_come_at_once() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.provision("a");
    let elsewhere = json!({"id": "b", "plugin": "no.such", "namespace": "elsewhere",
        "capability": [{"access": "single-node-writer"}], "secrets": {"password": "hunter2"}});
    let faulty = json!({"id": "c", "plugin": PLUGIN, "capability": []});
    let refused = register(&system, json!([document("a"), elsewhere, faulty])).await.unwrap_err();
    assert_eq!(refused.code, Code::BadInput, "{refused}");
    assert_eq!(
        paths(&refused),
        ["volumes[2].capability", "volumes[1].namespace", "volumes[1].plugin"]
    );
    assert!(!format!("{refused:?}").contains("hunter2"));
    assert_eq!(count_volumes(&system).await, 0, "nothing was written");

    // A plugin that is not there is told for all, and may come: the request may be repeated.
    let unready = json!({"id": "b", "plugin": "no.such",
        "capability": [{"access": "single-node-writer"}]});
    let refused = register(&system, json!([document("a"), unready])).await.unwrap_err();
    assert_eq!((refused.code, refused.retryable), (Code::NoSuchPlugin, true), "{refused}");
    assert_eq!(paths(&refused), ["volumes[1].plugin"]);
    let twice = register(&system, json!([document("a"), document("a")])).await.unwrap_err();
    assert_eq!(paths(&twice), ["volumes[1].id"]);
    assert_eq!(count_volumes(&system).await, 0, "nothing was written");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_volume_of_a_request_has_its_own_answer() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.provision("a");
    system.provision("c");
    let all = json!([document("a"), document("b"), document("c")]);
    let answers = register(&system, all.clone()).await.unwrap().answers;
    let ids: Vec<&str> = answers.iter().map(|answer| answer.id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "c"]);
    assert!(answers[0].registered.as_ref().unwrap().changed, "{answers:?}");
    assert!(answers[2].registered.as_ref().unwrap().changed, "{answers:?}");
    let refused = answers[1].error.as_ref().unwrap();
    assert!(refused.message.contains("NOT_FOUND"), "the plugin's own error: {refused}");
    assert_eq!(refused.step.as_deref(), Some("volume.register"));
    // The history has each refusal, as of a request of its own.
    wait::until("the refusal is an event", SOON, || async {
        let events = berth(&system, &["--json", "events", "--volume", "b"]).await;
        let events = String::from_utf8_lossy(&events.stdout).into_owned();
        if events.contains("request.refused") { Ok(()) } else { Err(events) }
    })
    .await;
    system.provision("b");
    let again = register(&system, all).await.unwrap().answers;
    let changed: Vec<bool> =
        again.iter().map(|answer| answer.registered.as_ref().unwrap().changed).collect();
    assert_eq!(changed, [false, true, false]);

    system.run("holder", 0, "b").await;
    let volumes = json!([{"id": "a"}, {"id": "b"}, {"id": "none"}, {"id": "c"}]);
    let answers = deregister(&system, volumes).await.unwrap().answers;
    assert!(answers[0].deregistered.as_ref().unwrap().gone, "{answers:?}");
    assert!(answers[3].deregistered.as_ref().unwrap().gone, "{answers:?}");
    let refused = answers[1].error.as_ref().unwrap();
    assert_eq!(refused.code, Code::ClaimsLive, "{refused}");
    assert!(refused.message.contains("alloc holder on node n1"), "{refused}");
    assert_eq!(answers[2].error.as_ref().unwrap().code, Code::NoSuchVolume);
    let closing = deregister(&system, json!([{"id": "b", "force": true}])).await.unwrap().answers;
    assert!(!closing[0].deregistered.as_ref().unwrap().gone, "{closing:?}");
    system.stop("holder").await;
    system.freed("b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_takes_several_files_and_several_volumes() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let dir = tempfile::tempdir().unwrap();
    let write = |id: &str, rest: &str| {
        let file = dir.path().join(format!("{id}.toml"));
        let text = format!(
            "id = \"{id}\"\nplugin = \"{PLUGIN}\"\n{rest}\n[[capability]]\n\
             access = \"single-node-writer\"\n"
        );
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (a, b) = (write("a", ""), write("b", ""));
    let faulty = write("c", "colour = 1");
    let refused = berth(&system, &["volume", "register", &a, &faulty, "no-such-file"]).await;
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(64), "{stderr}");
    assert!(stderr.contains(&format!("{faulty}:3: colour:")), "{stderr}");
    assert!(stderr.contains("no-such-file cannot be read"), "{stderr}");
    assert_eq!(count_volumes(&system).await, 0, "nothing was written");

    system.provision("a");
    let some = ["--timeout", "2s", "volume", "register", &a, &b];
    let done = berth(&system, &some).await;
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success(), "{stderr}");
    assert!(String::from_utf8_lossy(&done.stdout).contains("volume default/a registered"));
    assert!(stderr.contains("NOT_FOUND"), "{stderr}");
    system.provision("b");
    let done = berth(&system, &["--json", "volume", "register", &a, &b]).await;
    let answers: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(answers["answers"][1]["changed"], true, "{answers}");

    let gone = berth(&system, &["volume", "deregister", "a", "b"]).await;
    assert!(gone.status.success(), "{gone:?}");
    let text = String::from_utf8_lossy(&gone.stdout);
    assert_eq!(text, "volume a is deregistered\nvolume b is deregistered\n");
}
