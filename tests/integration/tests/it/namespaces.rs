//! Namespaces are a boundary: a user with every right in one namespace can neither read nor change
//! anything of another.

use std::process::Output;

use berth_access::{Grants, Role};
use berth_contract::verb::{self, Verb as _};
use berth_domain::{Namespace, NodeId};
use berth_harness::process::binary;
use berth_harness::root::or_skip;
use berth_integration::{Options, PLUGIN, System};
use serde_json::{Value, json};
use tokio::process::Command;

/// Names that only the other namespace has.
const FOREIGN: [&str; 3] = ["theirs", "their-alloc", "their-note"];

/// Registers and mounts a volume in a namespace.
async fn mount(system: &System, namespace: &str, volume: &str, alloc: &str, note: &str) {
    let namespace = Namespace::new(namespace).unwrap();
    system.provision(volume);
    let document = json!({"id": volume, "plugin": PLUGIN,
        "capability": [{"access": "single-node-writer"}]});
    let register = verb::VolumeRegister::subject(&namespace);
    system.persist::<Value>(&register, &document).await.unwrap();
    let placed = json!({"id": alloc, "node": "n1", "volumes": [{"source": volume}], "note": note});
    let register = verb::AllocRegister::subject(&namespace);
    system.persist::<Value>(&register, &placed).await.unwrap();
    let mount = json!({"namespace": namespace, "alloc": alloc, "volume": volume, "wait": false});
    let agent = verb::NodeAndNamespace::any_of(NodeId::new("n1").unwrap());
    let to = verb::AgentMount::subject(&agent);
    system.persist::<Value>(&to, &mount).await.unwrap();
}

/// A user with every right in `team-a`.
fn anna() -> Role {
    let grants = Grants::parse_namespaces(&["team-a=read,write,mount"]).unwrap();
    Role::User { name: "anna".to_owned(), grants }
}

async fn run(system: &System, namespace: &str, args: &[&str]) -> Output {
    let mut berth = system.identify_as(&anna(), Command::new(binary("berth")));
    berth.args(["--timeout", "20s", "--namespace", namespace]).args(args);
    berth.kill_on_drop(true).output().await.unwrap()
}

/// The output about an id, without what differs from one request to the next.
fn output_about(id: &str, finished: &Output) -> String {
    let output = text(finished).replace(id, "ID");
    output.lines().filter(|line| !line.contains("trace:")).collect()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// The records of both namespaces, as an operator sees them, without fields that change by
/// themselves.
async fn all_records(system: &System) -> Vec<String> {
    let mut records = Vec::new();
    for list in ["volume", "alloc", "claim"] {
        let mut berth = system.berth();
        let ran = berth.args(["--json", "--namespace", "*", list, "list"]).output().await.unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let listed: Value = serde_json::from_slice(&ran.stdout).unwrap();
        for record in listed[format!("{list}s")].as_array().unwrap() {
            let fields = ["namespace", "id", "volume", "alloc", "state", "writers", "releasing"];
            records.push(format!("{list} {:?}", fields.map(|field| &record[field])));
        }
    }
    records
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_one_namespace_meets_nothing_of_another() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    mount(&system, "team-a", "ours", "our-alloc", "our-note").await;
    mount(&system, "team-b", "theirs", "their-alloc", "their-note").await;
    let before = all_records(&system).await;
    assert_eq!(before.len(), 6, "{before:?}");

    let document = system.dir().join("theirs.toml");
    let toml = format!(
        "id = 'theirs'\nplugin = '{PLUGIN}'\n[[capability]]\naccess = 'multi-node-reader-only'\n"
    );
    std::fs::write(&document, toml).unwrap();
    let document = document.to_str().unwrap();
    let reads: [&[&str]; 8] = [
        &["volume", "list"],
        &["alloc", "list"],
        &["claim", "list"],
        &["events"],
        &["volume", "status", "theirs"],
        &["alloc", "status", "their-alloc"],
        &["why", "theirs"],
        &["trace", "theirs/their-alloc"],
    ];
    let changes: [&[&str]; 6] = [
        &["volume", "register", document],
        &["volume", "deregister", "theirs", "--force"],
        &["volume", "detach", "theirs", "n1"],
        &["volume", "republish", "theirs", "--node", "n1"],
        &["alloc", "stop", "their-alloc"],
        &["run", "--node", "n1", "--alloc", "new", "--volume", "theirs", "--", "true"],
    ];
    for args in reads.iter().chain(&changes) {
        let ran = run(&system, "team-b", args).await;
        let output = text(&ran);
        assert!(
            output.contains("BERTH0010") && !output.contains("their-note"),
            "{args:?}: {output}"
        );
        // `why` succeeds, and explains why nothing is known.
        let is_refused = !ran.status.success() && ran.stdout.is_empty();
        assert!(is_refused || args[0] == "why", "{args:?}: {output}");
    }
    for args in &reads[..4] {
        let ran = run(&system, "*", args).await;
        let output = text(&ran);
        assert!(!ran.status.success() && output.contains("BERTH0010"), "{args:?}: {output}");
        let ran = run(&system, "team-a", args).await;
        let output = text(&ran);
        assert!(ran.status.success() && output.contains("ours"), "{args:?}: {output}");
        let leaked = FOREIGN.iter().find(|word| output.contains(**word));
        assert_eq!(leaked, None, "{args:?}: {output}");
    }
    // An id of another namespace is answered like an id that does not exist.
    for args in [["volume", "status"], ["alloc", "status"]] {
        let foreign = if args[0] == "volume" { "theirs" } else { "their-alloc" };
        let of_foreign = run(&system, "team-a", &[&args[..], &[foreign]].concat()).await;
        let of_none = run(&system, "team-a", &[&args[..], &["nothing"]].concat()).await;
        assert!(!of_foreign.status.success(), "{of_foreign:?}");
        assert_eq!(output_about(foreign, &of_foreign), output_about("nothing", &of_none));
    }
    assert_eq!(all_records(&system).await, before, "nothing has changed");
}
