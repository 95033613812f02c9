//! `berth search` finds what begins with a text, and nothing that the caller may not list.

use berth_access::{Grants, Role};
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_harness::process::binary;
use berth_harness::root::or_skip;
use berth_integration::{Options, PLUGIN, System};
use serde_json::{Value, json};
use tokio::process::Command;

/// More volumes than a search shows.
const MANY: usize = 21;

/// A user who may read `team-a`, and plugins and nodes if that is wanted.
fn reader(name: &str, sees_plugins_and_nodes: bool) -> Role {
    let grants = Grants::parse_namespaces(&["team-a=read"]).unwrap();
    let (plugin_read, node_read) = (sees_plugins_and_nodes, sees_plugins_and_nodes);
    Role::User { name: name.to_owned(), grants: Grants { plugin_read, node_read, ..grants } }
}

async fn register(system: &System, namespace: &str, volume: &str) {
    let subject = verb::VolumeRegister::subject(&Namespace::new(namespace).unwrap());
    let document = json!({"id": volume, "plugin": PLUGIN, "external_id": volume,
        "capability": [{"access": "single-node-writer"}]});
    system.provision(volume);
    system.persist::<Value>(&subject, &document).await.unwrap();
}

/// An alloc that asks for no volume.
async fn place(system: &System, namespace: &str, alloc: &str) {
    let subject = verb::AllocRegister::subject(&Namespace::new(namespace).unwrap());
    let placed = json!({"id": alloc, "node": "n1", "volumes": []});
    system.persist::<Value>(&subject, &placed).await.unwrap();
}

/// What the search prints; none if it is refused.
async fn search(system: &System, user: &Role, namespace: &str, args: &[&str]) -> Option<Value> {
    let mut berth = system.identify_as(user, Command::new(binary("berth")));
    berth.args(["--json", "--timeout", "20s", "--namespace", namespace, "search"]).args(args);
    let ran = berth.kill_on_drop(true).output().await.unwrap();
    let printed: Value = serde_json::from_slice(&ran.stdout).unwrap();
    if ran.status.success() {
        return Some(printed);
    }
    assert_eq!(printed["error"]["code"], "BERTH0010", "{ran:?}");
    None
}

/// The matches of a search, without their states.
fn matches(answer: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let found = answer["matches"].as_array().unwrap().iter();
    found.map(|found| (text(&found["kind"]), text(&found["id"]))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(kind, id)| ((*kind).to_owned(), (*id).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_finds_what_the_caller_may_list_and_names_what_it_may_not() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    for (namespace, name) in [("team-a", "n-ours"), ("team-b", "n-theirs")] {
        register(&system, namespace, name).await;
        place(&system, namespace, name).await;
    }
    for class in ["n-fast", "slow"] {
        system.class(class, json!({})).await.unwrap();
    }

    // A reader of one namespace finds nothing of another, and no plugin or node.
    let anna = reader("anna", false);
    let answer = search(&system, &anna, "team-a", &["n"]).await.unwrap();
    let ours = [("volumes", "n-ours"), ("allocs", "n-ours"), ("classes", "n-fast")];
    assert_eq!(matches(&answer), pairs(&ours), "{answer}");
    assert_eq!(answer["not_allowed"], json!(["plugins", "nodes"]), "{answer}");
    assert_eq!(answer["more"], json!([]), "{answer}");
    assert!(!answer.to_string().contains("theirs"), "{answer}");
    for namespace in ["team-b", "*"] {
        assert_eq!(search(&system, &anna, namespace, &["n"]).await, None);
    }
    assert_eq!(search(&system, &anna, "team-a", &["n", "--in", "nodes,plugins"]).await, None);

    // With the rights to see plugins and nodes, these are found as well, and of another namespace
    // they alone.
    let carl = reader("carl", true);
    let answer = search(&system, &carl, "team-a", &["n"]).await.unwrap();
    let [volume, alloc, class] = ours;
    assert_eq!(matches(&answer), pairs(&[volume, alloc, ("nodes", "n1"), class]), "{answer}");
    assert_eq!(answer["not_allowed"], json!([]), "{answer}");
    let answer = search(&system, &carl, "team-b", &["n"]).await.unwrap();
    assert_eq!(matches(&answer), pairs(&[("nodes", "n1")]), "{answer}");
    let hidden = json!(["volumes", "allocs", "snapshots", "classes"]);
    assert_eq!(answer["not_allowed"], hidden, "{answer}");
    let answer = search(&system, &carl, "team-a", &[PLUGIN, "--in", "plugins"]).await.unwrap();
    assert_eq!(matches(&answer), pairs(&[("plugins", PLUGIN)]), "{answer}");

    // Of each kind the first 20 are shown, and the answer says that there are more.
    for number in 0..MANY {
        register(&system, "team-a", &format!("m-{number:02}")).await;
    }
    let answer = search(&system, &anna, "team-a", &["m-", "--in", "volumes,allocs"]).await.unwrap();
    let found = matches(&answer);
    assert_eq!((found.len(), found[19].1.as_str()), (20, "m-19"), "{answer}");
    assert_eq!(answer["more"], json!(["volumes"]), "{answer}");
    assert_eq!(answer["not_allowed"], json!([]), "{answer}");
}
