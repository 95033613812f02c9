//! The rights of each role, in the words of the design.
//!
//! **Never** calls the code that derives permissions, because this is a second opinion on it. From
//! the table of verbs it takes which roles send a verb and which service answers it, and nothing
//! else.

use berth_access::{Grants, Role};
use berth_contract::service::{CONTROLLER, DOCKER, NODE_AGENT};
use berth_contract::verb::{Capability, Row, Sender};
use berth_domain::{Namespace, NodeId, PluginId};

/// The node of the agent and of Docker's plugin that are tried.
pub const OWN_NODE: &str = "n1=2Eexample";
/// Another node.
pub const OTHER_NODE: &str = "n2";
/// The plugin whose controllers the agent may host.
pub const HOSTED: &str = "ebs=2Ecsi=2Eaws=2Ecom";
/// A plugin whose controllers it may not host.
pub const NOT_HOSTED: &str = "nfs";
/// The token of the namespace `*`.
pub const EVERYWHERE: &str = "=2A";

/// An identity that is tried.
pub struct Who {
    pub role: Role,
    /// Its actor, as written at the end of a subject.
    pub signature: &'static str,
    pub kind: Kind,
}

/// A capability, and the token of the namespace in which it is held; `*` means all namespaces.
type Held = (Capability, &'static str);

/// The kind of identity in the design.
pub enum Kind {
    /// A service without a node: `claim`.
    Service(&'static str),
    /// An agent of [`OWN_NODE`], which may host [`HOSTED`].
    Agent,
    /// Docker's volume plugin on [`OWN_NODE`].
    Docker,
    /// A user with these capabilities.
    User(Vec<Held>),
    /// A reader of streams.
    Inspect,
    /// An operator with all rights.
    Admin,
}

/// The effect of an attempt, if it was allowed.
pub enum Meaning {
    /// A request about this namespace, node and plugin, with this actor at its end.
    Request {
        row: &'static Row,
        namespace: Option<&'static str>,
        node: Option<&'static str>,
        plugin: Option<&'static str>,
        signature: &'static str,
    },
    /// Receives the requests of a verb for these nodes and plugins; `*` means all.
    Endpoint {
        row: &'static Row,
        node: Option<&'static str>,
        plugin: Option<&'static str>,
        queue: Option<&'static str>,
    },
    /// An event with this actor at its end, in the form that events have.
    Event { signature: &'static str },
    /// Receives the events of a namespace; `*` means all namespaces.
    Events { namespace: &'static str },
    /// A record in a bucket.
    Record { bucket: &'static str, key: &'static str },
    /// A call about a stream.
    Stream { stream: &'static str, call: StreamCall },
    /// A request to the server.
    Server(ServerCall),
    /// A request to services that are monitored.
    Survey {
        question: &'static str,
        is_of_one: bool,
        /// The service whose replicas all answer.
        all_of: Option<&'static str>,
    },
    /// Receives monitoring requests of this service, or of all services.
    Monitored { service: Option<&'static str> },
    /// A reply to an inbox without a request.
    Reply,
    /// Receives replies.
    Replies { are_own: bool },
    /// A subject that only an admin uses.
    Nothing,
}

/// The kind of call about a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum StreamCall {
    /// Its state and configuration.
    Describe,
    /// To read a message.
    Get,
    /// To follow it with a consumer.
    Follow,
    /// To make it.
    Make,
    /// To remove old messages.
    Purge,
    /// To change its settings.
    Change,
    /// To delete it, and everything else.
    Manage,
}

/// The kind of request to the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ServerCall {
    /// What the account uses.
    Account,
    /// Which servers there are.
    Servers,
    /// The list of streams.
    Streams,
    /// Flow control of a consumer's deliveries.
    FlowControl,
}

/// Every identity that is tried.
pub fn everyone() -> Vec<Who> {
    let node = NodeId::new("n1.example").unwrap();
    let controllers = vec![PluginId::new("ebs.csi.aws.com").unwrap()];
    let service = |role, signature, name| Who { role, signature, kind: Kind::Service(name) };
    let mut everyone = vec![
        service(Role::Claim, "service.claim", "claim"),
        service(Role::PluginRegistry, "service.plugin-registry", "plugin-registry"),
        service(Role::Volumewatcher, "service.volumewatcher", "volumewatcher"),
        service(Role::Gc, "service.gc", "gc"),
        Who {
            role: Role::Node { node: node.clone(), controllers },
            signature: "node.n1=2Eexample",
            kind: Kind::Agent,
        },
        Who {
            role: Role::Docker {
                node,
                namespaces: ["team-a"].map(|name| Namespace::new(name).unwrap()).into(),
            },
            signature: "docker.n1=2Eexample",
            kind: Kind::Docker,
        },
        Who {
            role: Role::Inspect { name: "dashboard".to_owned() },
            signature: "user.dashboard",
            kind: Kind::Inspect,
        },
        Who {
            role: Role::Admin { name: "root".to_owned() },
            signature: "user.root",
            kind: Kind::Admin,
        },
    ];
    let users: [(&str, &str, &[Held]); 11] = [
        ("lister", "user.lister", &[(Capability::List, "team-a")]),
        ("reader", "user.reader", &[(Capability::Read, "team-a")]),
        ("writer", "user.writer", &[(Capability::Write, "team-a")]),
        ("mounter", "user.mounter", &[(Capability::Mount, "team-a")]),
        ("plugins", "user.plugins", &[(Capability::PluginRead, "*")]),
        ("nodes", "user.nodes", &[(Capability::NodeRead, "*")]),
        ("oncall", "user.oncall", &[(Capability::Operator, "*")]),
        ("auditor", "user.auditor", &[(Capability::Read, "*")]),
        ("rollout", "user.rollout", &[(Capability::Write, "*"), (Capability::Mount, "team-a")]),
        ("underscore", "user.underscore", &[(Capability::Read, "_")]),
        ("nobody", "user.nobody", &[]),
    ];
    for (name, signature, given) in users {
        let texts = given.iter().filter(|(capability, _)| capability.is_of_namespace());
        let texts: Vec<String> =
            texts.map(|(capability, namespace)| format!("{namespace}={capability}")).collect();
        let mut grants = Grants::parse_namespaces(&texts).unwrap();
        let has = |wanted| given.iter().any(|(capability, _)| *capability == wanted);
        grants.plugin_read = has(Capability::PluginRead);
        grants.node_read = has(Capability::NodeRead);
        grants.operator = has(Capability::Operator);
        let role = Role::User { name: name.to_owned(), grants };
        everyone.push(Who { role, signature, kind: Kind::User(given.to_vec()) });
    }
    everyone
}

/// The service that writes a bucket. The registry writes the leases of nodes, a leader writes its
/// own lease, and a service that makes a bucket writes the record of it.
const WRITERS: [(&str, &str); 5] = [
    ("berth-volumes", "claim"),
    ("berth-allocs", "claim"),
    ("berth-secrets", "claim"),
    ("berth-plugins", "plugin-registry"),
    ("berth-nodes", "plugin-registry"),
];

/// Whether the design allows it.
pub fn allows(who: &Who, meaning: &Meaning) -> bool {
    // Only an admin sends in the name of another actor.
    let is_signed = match meaning {
        Meaning::Request { signature, .. } => *signature == who.signature,
        // The registry puts the events of agents into the stream.
        Meaning::Event { signature } => {
            let tells = matches!(who.kind, Kind::Service("plugin-registry"));
            let is_of_node = signature.starts_with("node.") && signature.split('.').count() == 2;
            *signature == who.signature || (tells && is_of_node)
        }
        _ => true,
    };
    let is_own = matches!(meaning, Meaning::Replies { are_own: true });
    match &who.kind {
        Kind::Admin => true,
        _ if is_own => true,
        _ if !is_signed => false,
        Kind::Service(name) => allows_service(name, meaning),
        Kind::Agent => allows_agent(meaning),
        Kind::Docker => allows_docker(meaning),
        Kind::User(given) => allows_user(given, meaning),
        Kind::Inspect => allows_inspect(meaning),
    }
}

/// A service sends its verbs about everything, and answers its own verbs together with its
/// replicas.
fn allows_service(name: &str, meaning: &Meaning) -> bool {
    let full_name = format!("berth-{name}");
    match meaning {
        Meaning::Request { row, .. } => row
            .senders
            .iter()
            .any(|sender| matches!(sender, Sender::Service(one) if one.name == full_name)),
        Meaning::Endpoint { row, queue, .. } => {
            row.service.name == full_name && *queue == Some("q")
        }
        Meaning::Event { .. } | Meaning::Reply => true,
        Meaning::Record { bucket, key } => {
            let is_lease = *bucket == "berth-leases"
                && match name {
                    "gc" => *key == "leader.gc",
                    "plugin-registry" => ["node.n1=2Eexample", "node.n2"].contains(key),
                    _ => false,
                };
            is_lease || *bucket == "berth-buckets" || WRITERS.contains(&(*bucket, name))
        }
        Meaning::Stream { stream, call } => {
            let is_open = *stream != "KV_berth-secrets" || name == "claim";
            let bucket = stream.trim_start_matches("KV_");
            match call {
                _ if *stream == "KV_other" => false,
                StreamCall::Describe => true,
                StreamCall::Get | StreamCall::Follow | StreamCall::Make => is_open,
                StreamCall::Purge => WRITERS.contains(&(bucket, name)),
                // A service corrects the description of its own streams.
                StreamCall::Change => match *stream {
                    "KV_berth-buckets" => name == "claim",
                    "KV_berth-leases" | "BERTH_EVENTS" => name == "plugin-registry",
                    _ => WRITERS.contains(&(bucket, name)),
                },
                StreamCall::Manage => false,
            }
        }
        Meaning::Server(call) => *call != ServerCall::Streams,
        Meaning::Monitored { service } => service.is_none_or(|name| name == full_name),
        // The claim service reads which schemas all replicas can read, before it writes newer
        // records.
        Meaning::Survey { question: "PING", all_of: Some(service), .. } => {
            let readers =
                ["berth-claim", "berth-plugin-registry", "berth-volumewatcher", "berth-gc"];
            name == "claim" && readers.contains(service)
        }
        _ => false,
    }
}

/// An agent acts for its node in all namespaces, shows its node's services, and hosts the allowed
/// plugins. It replies to inboxes, and uses no streams.
fn allows_agent(meaning: &Meaning) -> bool {
    match meaning {
        Meaning::Request { row, node, plugin, .. } => {
            let is_here = node.is_none_or(|node| node == OWN_NODE);
            let shows = row.senders.contains(&Sender::Service(CONTROLLER));
            let is_hosted = shows && *plugin == Some(HOSTED);
            is_here && (is_hosted || row.senders.contains(&Sender::Service(NODE_AGENT)))
        }
        Meaning::Endpoint { row, node, plugin, queue } => {
            let is_here = node.is_none_or(|node| node == OWN_NODE);
            let is_of_agent = row.service.name == NODE_AGENT.name;
            let is_hosted = row.service.name == CONTROLLER.name && *plugin == Some(HOSTED);
            // The controllers of a plugin share its calls, except for calls that name their node.
            let expected = if is_hosted && node.is_none() { HOSTED } else { "q" };
            is_here && (is_of_agent || is_hosted) && *queue == Some(expected)
        }
        Meaning::Reply => true,
        Meaning::Monitored { service } => {
            service.is_none_or(|name| [NODE_AGENT.name, CONTROLLER.name].contains(&name))
        }
        _ => false,
    }
}

/// Docker's plugin sends the verbs that it needs in its namespaces, and mounts on its own host.
fn allows_docker(meaning: &Meaning) -> bool {
    match meaning {
        Meaning::Request { row, node, namespace, .. } => {
            row.senders.contains(&Sender::Service(DOCKER))
                && *namespace == Some("team-a")
                && node.is_none_or(|node| node == OWN_NODE)
        }
        Meaning::Reply => true,
        Meaning::Monitored { service } => service.is_none_or(|name| name == DOCKER.name),
        _ => false,
    }
}

/// A reader reads buckets and events, but no secrets, and sends no request.
fn allows_inspect(meaning: &Meaning) -> bool {
    match meaning {
        Meaning::Stream { stream, call } => {
            !["KV_berth-secrets", "KV_other"].contains(stream)
                && [StreamCall::Describe, StreamCall::Get].contains(call)
        }
        Meaning::Events { .. } => true,
        Meaning::Server(call) => [ServerCall::Account, ServerCall::Streams].contains(call),
        Meaning::Survey { question, is_of_one, .. } => *is_of_one || *question == "PING",
        _ => false,
    }
}

/// A user sends the verbs of each capability, in the namespaces where it is held.
fn allows_user(held: &[Held], meaning: &Meaning) -> bool {
    let holds = |wanted, namespace| holds(held, wanted, namespace);
    match meaning {
        Meaning::Request { row, namespace, .. } => row
            .senders
            .iter()
            .any(|sender| matches!(sender, Sender::Holder(wanted) if holds(*wanted, *namespace))),
        Meaning::Events { namespace } => {
            // Plugins and nodes are in no namespace: a reader of all namespaces sees these, too.
            let token =
                if ["*", NO_NAMESPACE].contains(namespace) { EVERYWHERE } else { namespace };
            // The namespace that is called `_` has another token in events.
            holds(Capability::Read, Some(if token == "=5F" { "_" } else { token }))
        }
        Meaning::Survey { question, is_of_one, .. } => match *question {
            "PING" => holds(Capability::List, None),
            "INFO" => *is_of_one && holds(Capability::List, None),
            "STATS" => *is_of_one && holds(Capability::Operator, None),
            _ => false,
        },
        Meaning::Stream { stream, call } => {
            let is_ours = *stream != "KV_other";
            is_ours && *call == StreamCall::Describe && holds(Capability::Operator, None)
        }
        Meaning::Server(call) => {
            [ServerCall::Account, ServerCall::Servers].contains(call)
                && holds(Capability::Operator, None)
        }
        _ => false,
    }
}

/// Stands for the namespace of plugins and nodes in the subjects of events.
pub const NO_NAMESPACE: &str = "_";

/// Whether a capability is held in a namespace; in any namespace if the verb has none.
fn holds(held: &[Held], wanted: Capability, namespace: Option<&str>) -> bool {
    held.iter().any(|(capability, place)| {
        let is_implied = match capability {
            Capability::Read => wanted == Capability::List,
            Capability::Write | Capability::Mount => {
                [Capability::List, Capability::Read].contains(&wanted)
            }
            Capability::Operator => {
                [Capability::List, Capability::Read, Capability::PluginRead, Capability::NodeRead]
                    .contains(&wanted)
            }
            _ => false,
        };
        let is_there = *place == "*" || namespace.is_none_or(|namespace| namespace == *place);
        (*capability == wanted || is_implied) && is_there
    })
}
