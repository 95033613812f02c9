//! What an identity may send and receive on the bus.
//!
//! **Owns** the form of permissions. nats-server enforces them: they are part of the user's token.
//!
//! **Promises** that they follow from the table of verbs, the buckets and the streams alone: a new
//! verb is allowed to its senders, and to nobody else.
//!
//! **Never** lets anyone but services and an admin make a consumer. The server sends what a consumer
//! delivers to any subject that its maker chose, in nobody's name.

use std::time::Duration;

use berth_contract::actor::{self, Actor};
use berth_contract::bucket::{self, BUCKETS, LEASES, SECRETS};
use berth_contract::service::{
    CLAIM, CONTROLLER, DOCKER, GC, NODE_AGENT, PLUGIN_REGISTRY, ServiceName, VOLUMEWATCHER,
};
use berth_contract::stream::EVENTS;
use berth_contract::subject::{ALL_EVENTS, controller_queue};
use berth_contract::token::encode;
use berth_contract::verb::{ALL, Capability, Part, Sender};
use berth_domain::limits::WAIT_MAX;
use berth_domain::{NodeId, PluginId};
use serde_json::{Map, Value, json};

use crate::role::{Grants, Role};

/// What a user may publish and subscribe to. A denial wins over what is allowed; what is in neither
/// list is denied. A subscription with a queue group is written `SUBJECT QUEUE`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Subjects that the user may publish to.
    pub publish_allow: Vec<String>,
    /// Subjects that the user may not publish to.
    pub publish_deny: Vec<String>,
    /// Subjects that the user may subscribe to.
    pub subscribe_allow: Vec<String>,
    /// Subjects that the user may not subscribe to.
    pub subscribe_deny: Vec<String>,
    /// How many replies to a request that the user received it may publish, and for how long.
    pub responses: Option<(i64, Duration)>,
}

/// How long a service may take to answer: the longest wait of a caller, and a moment.
const ANSWER_WITHIN: Duration = WAIT_MAX.saturating_add(Duration::from_secs(60));
/// The queue group of endpoints without one of their own.
const QUEUE: &str = "q";
/// Asks every server of the account for its state: how many there are.
const SERVERS: &str = "$SYS.REQ.ACCOUNT.PING.STATZ";

/// What a role may do, without the inbox of its identity.
pub fn derive_permissions(role: &Role) -> Permissions {
    let mut found = Permissions::default();
    let actor = role.actor();
    match role {
        Role::Claim => service(&mut found, &actor, CLAIM),
        Role::PluginRegistry => service(&mut found, &actor, PLUGIN_REGISTRY),
        Role::Volumewatcher => service(&mut found, &actor, VOLUMEWATCHER),
        Role::Gc => service(&mut found, &actor, GC),
        Role::Node { node, controllers } => agent(&mut found, &actor, node, controllers),
        Role::Docker { node } => {
            found.send_as(&actor, DOCKER, Some(node));
            found.be_monitored(DOCKER);
        }
        Role::User { grants, .. } => user(&mut found, &actor, grants),
        Role::Admin { .. } => {
            found.publish_allow.push(">".to_owned());
            found.subscribe_allow.push(">".to_owned());
        }
        Role::Inspect { .. } => inspect(&mut found),
    }
    found
}

fn service(found: &mut Permissions, actor: &Actor, name: ServiceName) {
    found.send_as(actor, name, None);
    found.answer(ALL.iter().filter(|row| row.service == name).map(|row| row.subject_for(&[])));
    found.be_monitored(name);
    found.publish_events(actor);
    found.publish_allow.extend([SERVERS.to_owned(), "$JS.API.INFO".to_owned()]);
    for bucket in bucket::ALL.iter().chain([&BUCKETS]) {
        found.describe_stream(&format!("KV_{}", bucket.name));
        // Secrets are sealed for the claim service, and still nobody else reads them.
        if bucket.name != SECRETS.name || name == CLAIM {
            found.read_stream(&format!("KV_{}", bucket.name));
        }
        if bucket.writer == name.short() {
            found.publish_allow.push(format!("$KV.{}.>", bucket.name));
            found.publish_allow.push(format!("$JS.API.STREAM.PURGE.KV_{}", bucket.name));
        }
    }
    // Whichever of them starts first makes a bucket, and records its birth.
    found.publish_allow.push(format!("$KV.{}.>", BUCKETS.name));
    found.publish_allow.extend(name.lease.map(|key| format!("$KV.{}.{key}", LEASES.name)));
    found.read_stream(EVENTS.name);
}

fn agent(found: &mut Permissions, actor: &Actor, node: &NodeId, controllers: &[PluginId]) {
    found.send_as(actor, NODE_AGENT, Some(node));
    let own = ALL.iter().filter(|row| row.service == NODE_AGENT);
    found.answer(own.map(|row| row.subject_for(&[Part::Node(node)])));
    for plugin in controllers {
        for row in ALL.iter().filter(|row| row.service == CONTROLLER) {
            let subject = row.subject_for(&[Part::Node(node), Part::Plugin(plugin)]);
            let is_shared = !row.subject.contains("<node>");
            let queue = if is_shared { controller_queue(plugin) } else { QUEUE.to_owned() };
            found.answer_in(&queue, &subject);
        }
    }
    found.be_monitored(NODE_AGENT);
    found.be_monitored(CONTROLLER);
    found.publish_events(actor);
    found.publish_allow.push(format!("$KV.{}.node.{}", LEASES.name, encode(node)));
    for bucket in [&LEASES, &BUCKETS] {
        found.describe_stream(&format!("KV_{}", bucket.name));
        found.get_from_stream(&format!("KV_{}", bucket.name));
    }
    found.describe_stream(EVENTS.name);
}

fn user(found: &mut Permissions, actor: &Actor, grants: &Grants) {
    for capability in Capability::ALL {
        for row in ALL.iter().filter(|row| row.senders.contains(&Sender::Holder(capability))) {
            if !capability.is_of_namespace() {
                if grants.covers(capability) {
                    found.publish_allow.push(actor.sign(&row.subject_for(&[])));
                }
                continue;
            }
            for namespace in grants.holders_of(capability) {
                let subject = row.subject_for(&[Part::Namespace(&namespace)]);
                found.publish_allow.push(actor.sign(&subject));
            }
        }
    }
    for namespace in grants.holders_of(Capability::Read) {
        let token = Part::Namespace(&namespace).token();
        found.subscribe_allow.push(format!("berth.v1.event.{token}.>"));
    }
    if grants.holders_of(Capability::Read).next().is_some() {
        found.publish_allow.extend(["$SRV.PING", "$SRV.PING.>", "$SRV.INFO.>"].map(str::to_owned));
    }
    if grants.covers(Capability::Operator) {
        found.publish_allow.extend(["$SRV.STATS.>", SERVERS, "$JS.API.INFO"].map(str::to_owned));
        for bucket in bucket::ALL.iter().chain([&BUCKETS]) {
            found.describe_stream(&format!("KV_{}", bucket.name));
        }
        found.describe_stream(EVENTS.name);
    }
}

fn inspect(found: &mut Permissions) {
    found.publish_allow.extend(
        ["$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$SRV.PING", "$SRV.*.>"]
            .map(str::to_owned),
    );
    for bucket in bucket::ALL.iter().chain([&BUCKETS]).filter(|one| one.name != SECRETS.name) {
        found.describe_stream(&format!("KV_{}", bucket.name));
        found.get_from_stream(&format!("KV_{}", bucket.name));
    }
    found.describe_stream(EVENTS.name);
    found.get_from_stream(EVENTS.name);
    found.subscribe_allow.push(ALL_EVENTS.to_owned());
}

impl Permissions {
    /// Every verb that this service of ours sends. An agent names no other node than its own.
    fn send_as(&mut self, actor: &Actor, name: ServiceName, node: Option<&NodeId>) {
        let own: Vec<Part<'_>> = node.map(Part::Node).into_iter().collect();
        let rows = ALL.iter().filter(|row| row.is_sent_by(name));
        self.publish_allow.extend(rows.map(|row| actor.sign(&row.subject_for(&own))));
    }

    fn answer(&mut self, subjects: impl Iterator<Item = String>) {
        for subject in subjects {
            self.answer_in(QUEUE, &subject);
        }
    }

    /// Answers as one of a queue group only: nobody listens beside it.
    fn answer_in(&mut self, queue: &str, subject: &str) {
        self.subscribe_allow.push(format!("{subject}.{} {queue}", actor::ANY));
        self.responses = Some((1, ANSWER_WITHIN));
    }

    /// Answers `nats micro`.
    fn be_monitored(&mut self, name: ServiceName) {
        for question in ["PING", "INFO", "STATS"] {
            let all = format!("$SRV.{question}");
            let (ours, each) = (format!("{all}.{}", name.name), format!("{all}.{}.*", name.name));
            for subject in [all, ours, each] {
                if !self.subscribe_allow.contains(&subject) {
                    self.subscribe_allow.push(subject);
                }
            }
        }
        self.responses = Some((1, ANSWER_WITHIN));
    }

    fn publish_events(&mut self, actor: &Actor) {
        self.publish_allow.push(actor.sign("berth.v1.event.*.*.*"));
        self.publish_allow.push(actor.sign("berth.v1.event.*.request.*.*"));
    }

    /// Follows and reads a stream, and makes it where it is missing.
    fn read_stream(&mut self, stream: &str) {
        self.describe_stream(stream);
        self.get_from_stream(stream);
        self.publish_allow.extend([
            format!("$JS.API.STREAM.CREATE.{stream}"),
            format!("$JS.API.CONSUMER.CREATE.{stream}.>"),
            format!("$JS.API.CONSUMER.DELETE.{stream}.*"),
            format!("$JS.ACK.{stream}.>"),
            format!("$JS.ACK.*.*.{stream}.>"),
            "$JS.FC.>".to_owned(),
        ]);
    }

    fn describe_stream(&mut self, stream: &str) {
        let subject = format!("$JS.API.STREAM.INFO.{stream}");
        if !self.publish_allow.contains(&subject) {
            self.publish_allow.push(subject);
        }
    }

    fn get_from_stream(&mut self, stream: &str) {
        self.publish_allow.extend([
            format!("$JS.API.STREAM.MSG.GET.{stream}"),
            format!("$JS.API.DIRECT.GET.{stream}"),
            format!("$JS.API.DIRECT.GET.{stream}.>"),
        ]);
    }

    /// Adds the identity's own inbox.
    #[must_use]
    pub fn with_inbox(mut self, prefix: &str) -> Self {
        let inbox = format!("{prefix}.>");
        // To publish there is how a process asks whether the server has read all it sent.
        for allowed in [&mut self.publish_allow, &mut self.subscribe_allow] {
            if !allowed.contains(&inbox) {
                allowed.push(inbox.clone());
            }
        }
        self
    }

    /// The claims of a user's token. An empty list would allow everything, so a user without any
    /// subject gets a denial of all.
    pub(crate) fn claims(&self) -> Map<String, Value> {
        let mut claims = Map::new();
        claims.insert("pub".to_owned(), side(&self.publish_allow, &self.publish_deny));
        claims.insert("sub".to_owned(), side(&self.subscribe_allow, &self.subscribe_deny));
        if let Some((max, span)) = self.responses {
            let ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
            claims.insert("resp".to_owned(), json!({ "max": max, "ttl": ns }));
        }
        claims
    }
}

fn side(allow: &[String], deny: &[String]) -> Value {
    if allow.is_empty() {
        return json!({ "deny": [">"] });
    }
    let mut side = Map::new();
    side.insert("allow".to_owned(), json!(allow));
    if !deny.is_empty() {
        side.insert("deny".to_owned(), json!(deny));
    }
    Value::Object(side)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_subjects_is_denied_all_of_them() {
        let claims = Value::Object(Permissions::default().claims());
        assert_eq!(claims, json!({ "pub": { "deny": [">"] }, "sub": { "deny": [">"] } }));
    }

    #[test]
    fn lists_and_replies_are_written_as_the_server_reads_them() {
        let permissions = Permissions {
            publish_allow: vec!["a.b".to_owned()],
            publish_deny: vec!["a.c".to_owned()],
            subscribe_allow: vec!["s q".to_owned()],
            subscribe_deny: Vec::new(),
            responses: Some((1, Duration::from_secs(2))),
        };
        let claims =
            Value::Object(permissions.with_inbox("_INBOX_U").with_inbox("_INBOX_U").claims());
        let expected = json!({
            "pub": { "allow": ["a.b", "_INBOX_U.>"], "deny": ["a.c"] },
            "sub": { "allow": ["s q", "_INBOX_U.>"] },
            "resp": { "max": 1, "ttl": 2_000_000_000_u64 },
        });
        assert_eq!(claims, expected);
    }
}
