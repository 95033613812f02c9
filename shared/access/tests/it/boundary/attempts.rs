//! Every subject of the contract, and the meaning of a message or a subscription there.

use berth_contract::{bucket, stream, verb};

use super::design::{
    EVERYWHERE, HOSTED, Meaning, NO_NAMESPACE, NOT_HOSTED, OTHER_NODE, OWN_NODE, ServerCall,
    StreamCall,
};

/// A message or a subscription.
pub struct Attempt {
    pub subject: String,
    pub act: Act,
    pub meaning: Meaning,
}

/// The action at the subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Publish,
    /// A subscription, in a queue group if one is named.
    Subscribe(Option<&'static str>),
}

/// The actors that are tried: one of each kind for each role, and similar ones. The server accepts
/// no wildcards from a publisher.
const SIGNATURES: [&str; 14] = [
    "service.claim",
    "service.plugin-registry",
    "service.volumewatcher",
    "service.gc",
    "service.docker",
    "node.n1=2Eexample",
    "node.n2",
    "docker.n1=2Eexample",
    "docker.n2",
    "user.reader",
    "user.root",
    // A subject that ends one token too early, or too late.
    "user",
    "node.n1=2Eexample.more",
    // Case matters.
    "node.N1=2Eexample",
];

const BUCKETS: [(&str, &[&str]); 7] = [
    ("berth-volumes", &["team-a.data.spec", "team-a.data.claim.web-1", "=handle.nfs.x"]),
    ("berth-allocs", &["team-a.web-1"]),
    ("berth-secrets", &["team-a.data.1"]),
    ("berth-plugins", &["nfs.instance.n1=2Eexample.node", "nfs.job.team-a.j"]),
    ("berth-nodes", &["n1=2Eexample", "n2"]),
    (
        "berth-leases",
        &["node.n1=2Eexample", "node.n2", "leader.gc", "node.n1=2Eexample.more", "node"],
    ),
    ("berth-buckets", &["berth-volumes", "berth-leases"]),
];

/// The streams by name, and a foreign one.
const STREAMS: [&str; 9] = [
    "KV_berth-volumes",
    "KV_berth-allocs",
    "KV_berth-secrets",
    "KV_berth-plugins",
    "KV_berth-nodes",
    "KV_berth-leases",
    "KV_berth-buckets",
    "BERTH_EVENTS",
    "KV_other",
];

/// The subjects at which nats-server takes calls about a stream.
const STREAM_CALLS: [(&str, StreamCall); 31] = [
    ("$JS.API.STREAM.INFO.{}", StreamCall::Describe),
    ("$JS.API.STREAM.MSG.GET.{}", StreamCall::Get),
    ("$JS.API.DIRECT.GET.{}", StreamCall::Get),
    ("$JS.API.DIRECT.GET.{}.$KV.some.key", StreamCall::Get),
    ("$JS.API.STREAM.CREATE.{}", StreamCall::Make),
    ("$JS.API.CONSUMER.CREATE.{}.name", StreamCall::Follow),
    ("$JS.API.CONSUMER.CREATE.{}.name.$KV.some.key", StreamCall::Follow),
    ("$JS.API.CONSUMER.DELETE.{}.name", StreamCall::Follow),
    ("$JS.ACK.{}.name.1.1.1.1.0", StreamCall::Follow),
    ("$JS.ACK.domain.account.{}.name.1.1.1.1.0", StreamCall::Follow),
    ("$JS.API.STREAM.PURGE.{}", StreamCall::Purge),
    ("$JS.API.STREAM.UPDATE.{}", StreamCall::Change),
    ("$JS.API.STREAM.DELETE.{}", StreamCall::Manage),
    ("$JS.API.STREAM.MSG.DELETE.{}", StreamCall::Manage),
    ("$JS.API.STREAM.SNAPSHOT.{}", StreamCall::Manage),
    ("$JS.API.STREAM.RESTORE.{}", StreamCall::Manage),
    ("$JS.API.STREAM.LEADER.STEPDOWN.{}", StreamCall::Manage),
    ("$JS.API.STREAM.PEER.REMOVE.{}", StreamCall::Manage),
    ("$JS.API.CONSUMER.CREATE.{}", StreamCall::Manage),
    ("$JS.API.CONSUMER.DURABLE.CREATE.{}.name", StreamCall::Manage),
    ("$JS.API.CONSUMER.INFO.{}.name", StreamCall::Manage),
    ("$JS.API.CONSUMER.NAMES.{}", StreamCall::Manage),
    ("$JS.API.CONSUMER.LIST.{}", StreamCall::Manage),
    ("$JS.API.CONSUMER.MSG.NEXT.{}.name", StreamCall::Manage),
    ("$JS.API.CONSUMER.PAUSE.{}.name", StreamCall::Manage),
    ("$JS.API.CONSUMER.UNPIN.{}.name", StreamCall::Manage),
    ("$JS.API.CONSUMER.RESET.{}.name", StreamCall::Manage),
    ("$JS.API.CONSUMER.LEADER.STEPDOWN.{}.name", StreamCall::Manage),
    ("$JS.API.STREAM.INFO.{}.more", StreamCall::Manage),
    ("$JS.SNAPSHOT.ACK.{}.x", StreamCall::Manage),
    ("$JS.SNAPSHOT.RESTORE.{}.x", StreamCall::Manage),
];

/// Every attempt, for an identity with this actor and these inboxes.
pub fn list(signature: &'static str, inbox: &str) -> Vec<Attempt> {
    check_names();
    let mut attempts = Attempts(Vec::new());
    attempts.send_requests(signature);
    attempts.serve_endpoints();
    attempts.use_events(signature);
    attempts.write_records();
    attempts.call_streams();
    attempts.ask_servers();
    attempts.monitor();
    attempts.take_replies(inbox);
    attempts.subscribe_to_everything();
    attempts.0
}

/// Each bucket and stream of the contract must be tried.
fn check_names() {
    let buckets = bucket::ALL.iter().chain([&bucket::BUCKETS]).map(|spec| spec.name);
    assert_eq!(buckets.collect::<Vec<_>>(), BUCKETS.map(|(name, _)| name));
    let streams = BUCKETS.iter().map(|(name, _)| format!("KV_{name}"));
    let streams: Vec<String> = streams.chain([stream::EVENTS.name.to_owned()]).collect();
    assert_eq!(streams, STREAMS[..STREAMS.len() - 1]);
}

struct Attempts(Vec<Attempt>);

impl Attempts {
    fn publish(&mut self, subject: impl Into<String>, meaning: Meaning) {
        self.0.push(Attempt { subject: subject.into(), act: Act::Publish, meaning });
    }

    fn subscribe(
        &mut self,
        subject: impl Into<String>,
        queue: Option<&'static str>,
        meaning: Meaning,
    ) {
        self.0.push(Attempt { subject: subject.into(), act: Act::Subscribe(queue), meaning });
    }

    fn send_requests(&mut self, own: &'static str) {
        for row in verb::ALL {
            let namespaces = ["team-a", "team-b", EVERYWHERE, "_"];
            for namespace in choices(row.subject, "<ns>", &namespaces) {
                for node in choices(row.subject, "<node>", &[OWN_NODE, OTHER_NODE]) {
                    for plugin in choices(row.subject, "<plugin>", &[HOSTED, NOT_HOSTED]) {
                        let subject = fill(row.subject, namespace, node, plugin);
                        let foreign = SIGNATURES.into_iter().filter(|signature| *signature != own);
                        for signature in foreign.chain([own]) {
                            let meaning =
                                Meaning::Request { row, namespace, node, plugin, signature };
                            self.publish(format!("{subject}.{signature}"), meaning);
                        }
                        self.publish(subject, Meaning::Nothing);
                    }
                }
            }
        }
    }

    fn serve_endpoints(&mut self) {
        for row in verb::ALL {
            for namespace in choices(row.subject, "<ns>", &["*", "team-a"]) {
                for node in choices(row.subject, "<node>", &[OWN_NODE, OTHER_NODE, "*"]) {
                    for plugin in choices(row.subject, "<plugin>", &[HOSTED, NOT_HOSTED, "*"]) {
                        let subject = fill(row.subject, namespace, node, plugin);
                        let queues = [None, Some("q"), Some(HOSTED), Some(NOT_HOSTED), Some("r")];
                        for queue in queues {
                            let meaning = Meaning::Endpoint { row, node, plugin, queue };
                            self.subscribe(format!("{subject}.*.*"), queue, meaning);
                            self.subscribe(format!("{subject}.>"), queue, Meaning::Nothing);
                        }
                        self.subscribe(subject, Some("q"), Meaning::Nothing);
                    }
                }
            }
        }
    }

    fn use_events(&mut self, own: &'static str) {
        let things = [
            "team-a.claim.data.web-1.user.anna",
            "_.node.n2._._._",
            "team-b.volume.data._.user.bob",
            "team-a.request.data.web-1.user.anna",
            // A subject of the last version.
            "team-a.claim.data",
            "_.node.n2",
            "team-b.volume.data",
            "team-a.request.data.web-1",
            "_.request._._",
        ];
        for thing in things {
            for signature in SIGNATURES.into_iter().filter(|one| *one != own).chain([own]) {
                let subject = format!("berth.v1.event.{thing}.{signature}");
                self.publish(subject, Meaning::Event { signature });
            }
            self.publish(format!("berth.v1.event.{thing}"), Meaning::Nothing);
        }
        // Subjects without the form of an event, but with the right end.
        for odd in ["team-a", "team-a.claim", "team-a.claim.data.web-1", "team-a.request.a.b.c"] {
            self.publish(format!("berth.v1.event.{odd}.{own}"), Meaning::Nothing);
        }
        self.subscribe("berth.v1.event.>", None, Meaning::Events { namespace: "*" });
        for namespace in ["*", NO_NAMESPACE, "=5F", "team-a", "team-b"] {
            for rest in [">", "claim.*.*.*", "node.n2.*.*", "request.*.*.*.*"] {
                let subject = format!("berth.v1.event.{namespace}.{rest}");
                self.subscribe(subject, None, Meaning::Events { namespace });
            }
        }
    }

    fn write_records(&mut self) {
        for (bucket, keys) in BUCKETS {
            for key in keys {
                self.publish(format!("$KV.{bucket}.{key}"), Meaning::Record { bucket, key });
            }
            self.publish(format!("$KV.{bucket}"), Meaning::Nothing);
            self.subscribe(format!("$KV.{bucket}.>"), None, Meaning::Nothing);
            self.subscribe(format!("$KV.{bucket}.>"), Some("q"), Meaning::Nothing);
        }
        self.publish("$KV.other.key", Meaning::Nothing);
    }

    fn call_streams(&mut self) {
        for stream in STREAMS {
            for (form, call) in STREAM_CALLS {
                let subject = form.replace("{}", stream);
                self.subscribe(subject.clone(), None, Meaning::Nothing);
                self.publish(subject, Meaning::Stream { stream, call });
            }
        }
    }

    fn ask_servers(&mut self) {
        for (subject, call) in [
            ("$JS.API.INFO", ServerCall::Account),
            ("$SYS.REQ.ACCOUNT.PING.STATZ", ServerCall::Servers),
            ("$JS.API.STREAM.NAMES", ServerCall::Streams),
            ("$JS.API.STREAM.LIST", ServerCall::Streams),
            ("$JS.FC.KV_berth-leases.name.x", ServerCall::FlowControl),
        ] {
            self.publish(subject, Meaning::Server(call));
        }
        for subject in [
            "$SYS.REQ.SERVER.PING",
            "$SYS.REQ.SERVER.PING.STATZ",
            "$SYS.REQ.ACCOUNT.PING.CONNZ",
            "$SYS.REQ.ACCOUNT.PING.SUBSZ",
            "$SYS.REQ.CLAIMS.UPDATE",
            "$SYS.REQ.CLAIMS.DELETE",
            "$SYS.REQ.CLAIMS.LIST",
            "$SYS.ACCOUNT.BERTH.CONNECT",
            "$JS.API.ACCOUNT.PURGE.BERTH",
            "$JS.API.META.LEADER.STEPDOWN",
            "$JS.API.SERVER.REMOVE",
            "$JS.API.STREAM.TEMPLATE.CREATE.x",
            "$JS.EVENT.ADVISORY.x",
            "$MQTT.sub.x",
            "anything",
            "berth.v2.claim.take.team-a",
        ] {
            self.publish(subject, Meaning::Nothing);
        }
    }

    fn monitor(&mut self) {
        let services = [
            "berth-claim",
            "berth-plugin-registry",
            "berth-volumewatcher",
            "berth-gc",
            "berth-node-agent",
            "berth-controller",
            "berth-docker",
        ];
        for question in ["PING", "INFO", "STATS"] {
            let every_service = format!("$SRV.{question}");
            self.publish(
                every_service.clone(),
                Meaning::Survey { question, is_of_one: false, all_of: None },
            );
            self.subscribe(every_service.clone(), None, Meaning::Monitored { service: None });
            for service in services {
                let one_instance = format!("{every_service}.{service}.id");
                for (subject, all_of) in
                    [(format!("{every_service}.{service}"), Some(service)), (one_instance, None)]
                {
                    let meaning = Meaning::Survey { question, is_of_one: true, all_of };
                    self.publish(subject.clone(), meaning);
                    let meaning = Meaning::Monitored { service: Some(service) };
                    self.subscribe(subject, None, meaning);
                }
            }
            self.subscribe(format!("{every_service}.>"), None, Meaning::Nothing);
            self.subscribe(format!("{every_service}.*"), None, Meaning::Nothing);
        }
    }

    fn take_replies(&mut self, own: &str) {
        let other_inbox = format!("_INBOX.U{}", "A".repeat(55));
        for (prefix, are_own) in [(own, true), (&other_inbox, false), ("_INBOX", false)] {
            self.subscribe(format!("{prefix}.>"), None, Meaning::Replies { are_own });
            self.subscribe(format!("{prefix}.x.*"), None, Meaning::Replies { are_own });
            for inbox in [format!("{prefix}.x"), format!("{prefix}.x.y")] {
                self.publish(inbox, Meaning::Reply);
            }
        }
        self.subscribe("_INBOX.*.>", None, Meaning::Nothing);
        // No process listens there: a publisher uses it to learn that the server has processed its
        // messages.
        self.publish(own.to_owned(), Meaning::Replies { are_own: true });
        self.subscribe(own.to_owned(), None, Meaning::Nothing);
        self.publish(other_inbox, Meaning::Reply);
    }

    fn subscribe_to_everything(&mut self) {
        for subject in [
            ">",
            "*",
            "*.>",
            "berth.>",
            "berth.v1.>",
            "berth.v1.*.*.*.*.*",
            "berth.v1.agent.>",
            "berth.v1.controller.>",
            "berth.v1.claim.>",
            "berth.v1.secret.>",
            "$KV.>",
            "$JS.>",
            "$JS.API.>",
            "$JS.EVENT.>",
            "$JS.ACK.>",
            "$SRV.>",
            "$SYS.>",
            "$SYS.ACCOUNT.>",
        ] {
            for queue in [None, Some("q")] {
                self.subscribe(subject, queue, Meaning::Nothing);
            }
        }
    }
}

/// The tokens to put in place of a placeholder; one empty choice if there is none.
fn choices(form: &str, placeholder: &str, tokens: &[&'static str]) -> Vec<Option<&'static str>> {
    if form.contains(placeholder) { tokens.iter().copied().map(Some).collect() } else { vec![None] }
}

fn fill(form: &str, namespace: Option<&str>, node: Option<&str>, plugin: Option<&str>) -> String {
    let filled = form.replace("<ns>", namespace.unwrap_or_default());
    let filled = filled.replace("<node>", node.unwrap_or_default());
    filled.replace("<plugin>", plugin.unwrap_or_default())
}
