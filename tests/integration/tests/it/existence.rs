//! An identity without a capability for a name does not learn whether the name exists. Each verb is
//! sent with an existing name and with a missing one, and the answers are the same.

use std::time::Duration;

use berth_access::{Grants, Role};
use berth_bus::{Bus, Call, RequestError};
use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::service::{DOCKER, NODE_AGENT};
use berth_contract::verb::{self, Capability, Row, Sender, Verb as _};
use berth_domain::{Namespace, NodeId, PluginId};
use berth_harness::root::or_skip;
use berth_integration::{Options, PLUGIN, System};
use berth_service::clock;
use serde_json::{Map, Value, json};

/// Deadline of each request.
const DEADLINE: Duration = Duration::from_secs(5);

/// Names that a request is about.
#[derive(Debug, Clone, Copy)]
struct Names {
    alloc: &'static str,
    volume: &'static str,
    class: &'static str,
    owner: &'static str,
}

/// Names that do not exist.
const MISSING: Names =
    Names { alloc: "qalloc", volume: "qvolume", class: "qclass", owner: "qowner" };
/// In namespace `default`, on node `n1`. The alloc is live and has the volume mounted.
const LIVE: Names = Names { alloc: "xalloc", volume: "xvolume", class: "xclass", owner: "xowner" };

/// What an identity asks about: first missing names, then existing names that it has no capability
/// for.
const NAMES: [Names; 5] = [
    MISSING,
    LIVE,
    // The alloc has ended.
    Names { alloc: "xended", ..LIVE },
    Names { alloc: "xalloc", ..MISSING },
    Names { volume: "xvolume", ..MISSING },
];

/// A missing class, and one that only namespace `team-b` may use.
const CLASSES: [Names; 2] = [MISSING, Names { class: "yclass", ..MISSING }];

/// An identity, and the requests that it sends.
struct Requester {
    name: &'static str,
    bus: Bus,
    namespace: &'static str,
    /// The node in its requests.
    node: &'static str,
    /// The names in its requests; the first are missing.
    names: &'static [Names],
    /// Whether it sends this verb.
    sends: fn(&Row) -> bool,
    /// Whether the bus refuses all its requests.
    is_denied: bool,
}

impl Requester {
    fn subject(&self, row: &Row) -> String {
        let subject = row.subject.replace("<ns>", self.namespace).replace("<node>", self.node);
        let plugin = PluginId::new(PLUGIN).unwrap();
        subject.replace("<plugin>", &berth_contract::token::encode(plugin.as_str()))
    }

    /// The answer without traces, times, revisions and names, which always differ.
    async fn ask(&self, row: &Row, names: Names) -> Value {
        let body = body(row.step, names, self.namespace, self.node);
        let call = Call::within(clock::begin_trace(), DEADLINE);
        let answer = match self.bus.request::<Value>(&self.subject(row), &body, &call).await {
            Ok(answer) => json!({ "ok": answer }),
            Err(RequestError::Problem(problem)) => serde_json::to_value(&problem).unwrap(),
            Err(error) => json!({"code": error.reason(), "message": error.to_string()}),
        };
        normalize(&answer, names)
    }
}

fn normalize(answer: &Value, names: Names) -> Value {
    match answer {
        Value::Object(fields) => {
            let varying =
                ["trace", "since", "at", "until", "expires", "clock", "clock_skew_ms", "end"];
            let varies = |name: &str| {
                varying.contains(&name) || name.ends_with("index") || name.ends_with("revision")
            };
            let kept = fields.iter().filter(|(name, _)| !varies(name));
            let kept: Map<_, _> =
                kept.map(|(name, value)| (name.clone(), normalize(value, names))).collect();
            Value::Object(kept)
        }
        Value::Array(items) => items.iter().map(|item| normalize(item, names)).collect(),
        Value::String(text) => {
            let Names { alloc, volume, class, owner } = names;
            let mut text = text.clone();
            for name in [alloc, volume, class, owner] {
                // Only whole words: a name may be part of another word.
                let words: Vec<_> = text
                    .split_inclusive(|c: char| !c.is_alphanumeric())
                    .map(|word| {
                        let rest = word.strip_prefix(name);
                        let is_name =
                            rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
                        if is_name { format!("<>{}", rest.unwrap()) } else { word.to_owned() }
                    })
                    .collect();
                text = words.concat();
            }
            Value::String(text)
        }
        other => other.clone(),
    }
}

/// A verb's request with these names.
fn body(step: &str, names: Names, namespace: &str, node: &str) -> Value {
    let Names { alloc, volume, class, owner } = names;
    let register =
        json!({"id": alloc, "node": node, "volumes": [{"alias": "v", "source": volume}]});
    let ended = json!({"id": alloc, "state": "complete"});
    let document = json!({
        "id": volume, "plugin": PLUGIN, "external_id": "no-such-thing",
        "capability": [{"access": "single-node-writer"}],
    });
    let mount = json!({"state": "mounted", "since": clock::now()});
    match step {
        "agent.mount" => json!({"namespace": namespace, "alloc": alloc, "volume": volume}),
        "agent.mount-all" => json!({"namespace": namespace, "alloc": alloc}),
        "agent.guard" => json!({
            "namespace": namespace, "alloc": alloc, "owner": owner, "guard": {"lock": "x"},
        }),
        "alloc.register" => register,
        "alloc.register-many" => json!({"allocs": [register]}),
        "alloc.stop" => ended,
        "alloc.stop-many" => json!({"stops": [ended]}),
        "alloc.stop-owned" => json!({"owner": owner, "state": "complete"}),
        "alloc.adopt" => json!({"from": owner, "owner": "mallory", "ids": [alloc]}),
        "alloc.wait" => json!({"id": alloc, "until": "free", "wait_ms": 1}),
        "alloc.status" => json!({"id": alloc}),
        "alloc.list" => json!({"prefix": alloc, "node": node, "owner": owner}),
        "node.report" => json!({
            "node": node, "version": "1", "boot_id": "b", "clock": clock::now(),
            "unaccounted": [{
                "namespace": namespace, "volume": volume, "alloc": alloc, "path": "/p",
                "plugin": PLUGIN, "external_id": volume,
            }],
        }),
        "node.tell" => json!({"events": [{
            "traceparent": clock::begin_trace(),
            "event": {
                "event": "volume.mounted", "at": clock::now(), "service": NODE_AGENT.name,
                "namespace": namespace, "volume": volume, "alloc": alloc, "node": node,
            },
        }]}),
        "owner.hold" => json!({"owner": owner, "holder": "p", "ttl_s": 5}),
        "owner.yield" => json!({"owner": owner, "holder": "p"}),
        "owner.list" => json!({"prefix": owner}),
        "claim.take" => json!({"alloc": alloc, "volume": volume, "node": node, "wait": true}),
        "claim.recover" => json!({
            "alloc": alloc, "volume": volume, "node": node, "plugin": PLUGIN,
            "external_id": volume, "mode": "write", "access": "single-node-writer",
            "attachment": "file-system",
        }),
        "claim.release" => json!({"alloc": alloc, "volume": volume, "reason": "asked"}),
        "claim.observe" => {
            json!({"alloc": alloc, "volume": volume, "epoch": 1, "mount": mount})
        }
        "claim.status" => json!({"volume": volume, "alloc": alloc, "node": node}),
        "class.list" => json!({"id": class}),
        "history.list" => json!({"volumes": [volume], "allocs": [alloc]}),
        "secret.open" => json!({
            "namespace": "default", "volume": volume, "secrets": "x", "to": "X",
        }),
        "snapshot.create" => json!({"volumes": [volume], "snapshot": "s"}),
        "snapshot.delete" => json!({"volume": volume, "snapshot": "s"}),
        "snapshot.list" => json!({"volume": volume}),
        "volume.create" => json!({"id": volume, "class": class, "size": "1MiB"}),
        "volume.delete" | "volume.deregister" | "volume.status" => json!({"id": volume}),
        "volume.expand" => json!({"id": volume, "size": "3MiB"}),
        "volume.list" => json!({"prefix": volume}),
        "volume.modify" => json!({"id": volume, "parameters": {"tier": "x"}}),
        "volume.placement" => json!({"volumes": [{"source": volume}]}),
        "volume.place-many" => json!({"placements": [{"volumes": [{"source": volume}]}]}),
        "volume.register" => document,
        "volume.register-many" => json!({"volumes": [document]}),
        "volume.deregister-many" => json!({"volumes": [{"id": volume}]}),
        // Verbs of operators and services only: the bus refuses them.
        _ => json!({"id": volume, "volume": volume, "alloc": alloc}),
    }
}

fn is_sent_by(row: &Row, sender: Sender) -> bool {
    row.senders.contains(&sender)
}

fn sends_capability(row: &Row) -> bool {
    let of_namespace = |sender: &Sender| match sender {
        Sender::Holder(capability) => capability.is_of_namespace(),
        Sender::Service(_) => false,
    };
    row.subject.contains("<ns>") && row.senders.iter().any(of_namespace)
}

fn sends_lists(row: &Row) -> bool {
    is_sent_by(row, Sender::Holder(Capability::List))
}

/// The verbs that show details, or change anything.
fn sends_more_than_lists(row: &Row) -> bool {
    sends_capability(row) && !sends_lists(row)
}

/// Without the history: it shows a user its own refused requests.
fn sends_in_own_namespace(row: &Row) -> bool {
    sends_capability(row) && !sends_history(row)
}

fn sends_history(row: &Row) -> bool {
    row.step == verb::HistoryList::STEP
}

/// Verbs about the node's own lease and rights.
const OF_OWN_NODE: &[&str] = &["node.hold", "node.yield", "node.host"];

fn sends_as_agent(row: &Row) -> bool {
    is_sent_by(row, Sender::Service(NODE_AGENT)) && !OF_OWN_NODE.contains(&row.step)
}

/// Docker's plugin may list volumes and classes of its namespaces. The id of an alloc that it
/// registers begins with `docker/`.
fn sends_as_docker(row: &Row) -> bool {
    let of_volumes = row.step.starts_with("volume.") || row.step.starts_with("class.");
    is_sent_by(row, Sender::Service(DOCKER)) && !of_volumes
}

/// The verbs that show which classes exist.
fn sends_of_classes(row: &Row) -> bool {
    ["class.list", "volume.create"].contains(&row.step)
}

fn node(id: &str) -> NodeId {
    NodeId::new(id).unwrap()
}

async fn requesters(system: &System) -> Vec<Requester> {
    // No agent runs as `n9`: it would report again at once.
    let agent = Role::Node { node: node("n9"), controllers: vec![PluginId::new(PLUGIN).unwrap()] };
    let docker = Role::Docker { node: node("n2"), namespaces: [Namespace::default()].into() };
    let grants = Grants::parse_namespaces(&["team-a=read,write,mount"]).unwrap();
    let user = Role::User { name: "mallory".to_owned(), grants };
    let grants = Grants::parse_namespaces(&["team-a=list"]).unwrap();
    let lister = Role::User { name: "lena".to_owned(), grants };
    let inspector = Role::Inspect { name: "eve".to_owned() };
    let requester = async |name, (role, actor): (&Role, Actor), namespace| Requester {
        name,
        bus: system.connect_as(role, actor).await,
        namespace,
        node: "n2",
        names: &NAMES,
        sends: |_| true,
        is_denied: false,
    };
    let as_agent = (&agent, Actor::Node(node("n9")));
    let as_docker = || (&docker, Actor::Docker(node("n2")));
    let as_user = || (&user, Actor::user("mallory"));
    let as_lister = || (&lister, Actor::user("lena"));
    let of_docker = |row: &Row| is_sent_by(row, Sender::Service(DOCKER));
    let (default, classes) = ("default", CLASSES.as_slice());
    vec![
        Requester {
            node: "n9",
            sends: sends_as_agent,
            ..requester("node", as_agent, default).await
        },
        Requester { sends: sends_as_docker, ..requester("docker", as_docker(), default).await },
        Requester {
            names: classes,
            sends: sends_of_classes,
            ..requester("docker of classes", as_docker(), default).await
        },
        Requester {
            sends: of_docker,
            is_denied: true,
            ..requester("docker elsewhere", as_docker(), "team-b").await
        },
        // First, because each refused request of this user is an event.
        Requester {
            sends: sends_history,
            ..requester("user of events", as_user(), "team-a").await
        },
        Requester {
            names: classes,
            sends: sends_of_classes,
            ..requester("user of classes", as_user(), "team-a").await
        },
        Requester { sends: sends_in_own_namespace, ..requester("user", as_user(), "team-a").await },
        Requester {
            sends: sends_capability,
            is_denied: true,
            ..requester("user elsewhere", as_user(), default).await
        },
        Requester { sends: sends_lists, ..requester("lister", as_lister(), "team-a").await },
        Requester {
            sends: sends_more_than_lists,
            is_denied: true,
            ..requester("lister of details", as_lister(), "team-a").await
        },
        Requester {
            is_denied: true,
            ..requester("inspector", (&inspector, Actor::user("eve")), default).await
        },
    ]
}

/// The requests whose answers differ, with both answers.
async fn compare(requester: &Requester) -> Vec<String> {
    let mut differences = Vec::new();
    for row in verb::ALL.iter().filter(|row| (requester.sends)(row)) {
        let missing = requester.ask(row, requester.names[0]).await;
        let code = missing["code"].as_str().unwrap_or_default();
        // Otherwise all answers would be the same for another reason.
        let is_bad_input = code == Code::BadInput.as_str();
        if is_bad_input || (code == "not_allowed") != requester.is_denied {
            let name = requester.name;
            differences.push(format!("{name} {}: unexpected answer: {missing}", row.step));
        }
        for names in &requester.names[1..] {
            let existing = requester.ask(row, *names).await;
            if existing != missing {
                let request = (requester.name, row.step, names.alloc, names.volume, names.class);
                differences
                    .push(format!("{request:?}\n  missing:  {missing}\n  existing: {existing}"));
            }
        }
    }
    differences
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_without_capability_is_answered_as_an_unknown_one() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.class("xclass", json!({"namespaces": ["default"]})).await.unwrap();
    system.class("yclass", json!({"namespaces": ["team-b"]})).await.unwrap();
    system.volume("xvolume", &["multi-node-multi-writer"]).await;
    system.run("xended", 0, "xvolume").await;
    system.stop("xended").await;
    system.freed("xvolume").await;
    system.run("xalloc", 0, "xvolume").await;
    let owner = json!({"owner": "xowner", "holder": "p", "ttl_s": 60});
    let hold = verb::OwnerHold::subject(&Namespace::default());
    system.ask::<Value>(&hold, &owner).await.unwrap();

    let mut differences = Vec::new();
    for requester in requesters(&system).await {
        differences.extend(compare(&requester).await);
    }
    assert!(differences.is_empty(), "the answers show what exists:\n{}", differences.join("\n"));

    // No request has changed the mounted volume.
    assert_eq!(system.claims("xvolume").await.claims.len(), 1);
    system.stop("xalloc").await;
    system.settle("xvolume").await;
}
