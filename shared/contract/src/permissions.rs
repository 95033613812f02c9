//! What an identity may send and receive on the bus.
//!
//! **Owns** the form of permissions. nats-server enforces them: they are part of the user's token.
//!
//! **Promises** that they follow from the table of verbs, the buckets and the streams alone: a new
//! verb is allowed to its senders alone.
//!
//! **Never** gives a node, Docker's plugin or a user without the operator's rights anything that
//! nats-server answers itself, or a reply to a subject of the asker's choice. Such a message is
//! published without the asker's permissions: at the key of a record, or in the name of another.
//! Services, inspectors and operators have such rights, and must be trusted with the records.

mod missing;

use std::collections::BTreeSet;

use crate::actor::{self, Actor};
use crate::bucket::{self, BUCKETS, LEASES, SECRETS};
use crate::service::{
    CLAIM, CONTROLLER, DOCKER, GC, NODE_AGENT, PLUGIN_REGISTRY, READERS, ServiceName, VOLUMEWATCHER,
};
use crate::stream::{EVENTS, stream_owner};
use crate::subject::{ALL_EVENTS, ANY_INBOX, EventsOf, controller_queue, event_filter};
use crate::verb::{ALL, Capability, Sender, SubjectPart};
use berth_domain::{Namespace, NodeId, PluginId};
use serde_json::{Map, Value, json};

use crate::role::{Grants, Role};
pub use missing::{MissingRight, name_publish, name_subscription};

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
}

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
        Role::Docker { node, namespaces } => docker(&mut found, &actor, node, namespaces),
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
    found.reply_to_inboxes();
    found.publish_events(actor, name);
    found.publish_allow.extend([SERVERS.to_owned(), "$JS.API.INFO".to_owned()]);
    for bucket in bucket::ALL.iter().chain([&BUCKETS]) {
        found.describe_stream(&format!("KV_{}", bucket.name));
        // Secrets are sealed for the claim service, which is still the only reader.
        if bucket.name != SECRETS.name || name == CLAIM {
            found.read_stream(&format!("KV_{}", bucket.name));
        }
        if bucket.writer == name.short() {
            found.publish_allow.push(format!("$KV.{}.>", bucket.name));
            found.publish_allow.push(format!("$JS.API.STREAM.PURGE.KV_{}", bucket.name));
        }
    }
    let streams = bucket::ALL.iter().chain([&BUCKETS]).map(|spec| format!("KV_{}", spec.name));
    // Corrects the description and metadata of its own streams after an upgrade.
    for stream in streams.chain([EVENTS.name.to_owned()]) {
        if stream_owner(&stream) == Some(name) {
            found.publish_allow.push(format!("$JS.API.STREAM.UPDATE.{stream}"));
        }
    }
    // Whichever of them starts first makes a bucket, and records its birth.
    found.publish_allow.push(format!("$KV.{}.>", BUCKETS.name));
    found.publish_allow.extend(name.lease.map(|key| format!("$KV.{}.{key}", LEASES.name)));
    found.read_stream(EVENTS.name);
    if name == CLAIM {
        // Which versions run decides which records may be written.
        found.publish_allow.extend(READERS.map(|one| format!("$SRV.PING.{}", one.name)));
    }
}

fn agent(found: &mut Permissions, actor: &Actor, node: &NodeId, controllers: &[PluginId]) {
    found.send_as(actor, NODE_AGENT, Some(node));
    let own = ALL.iter().filter(|row| row.service == NODE_AGENT);
    found.answer(own.map(|row| row.subject_for(&[SubjectPart::Node(node)])));
    for plugin in controllers {
        let own = [SubjectPart::Node(node), SubjectPart::Plugin(plugin)];
        let shown = ALL.iter().filter(|row| row.is_sent_by(CONTROLLER));
        found.publish_allow.extend(shown.map(|row| actor.sign(&row.subject_for(&own))));
        for row in ALL.iter().filter(|row| row.service == CONTROLLER) {
            let subject = row.subject_for(&own);
            let is_shared = !row.subject.contains("<node>");
            let queue = if is_shared { controller_queue(plugin) } else { QUEUE.to_owned() };
            found.answer_in(&queue, &subject);
        }
    }
    found.be_monitored(NODE_AGENT);
    found.be_monitored(CONTROLLER);
    found.reply_to_inboxes();
}

fn docker(found: &mut Permissions, actor: &Actor, node: &NodeId, namespaces: &BTreeSet<Namespace>) {
    let all = Namespace::wildcard();
    let covered =
        if namespaces.contains(&all) { BTreeSet::from([all]) } else { namespaces.clone() };
    for namespace in &covered {
        let places = [SubjectPart::Node(node), SubjectPart::Namespace(namespace)];
        found.send_at(actor, DOCKER, &places);
    }
    found.be_monitored(DOCKER);
    found.reply_to_inboxes();
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
                let subject = row.subject_for(&[SubjectPart::Namespace(&namespace)]);
                found.publish_allow.push(actor.sign(&subject));
            }
        }
    }
    for namespace in grants.holders_of(Capability::Read) {
        // Events of the namespace `_` have another token: `_` has those of plugins and nodes.
        let of = EventsOf::Namespace(&namespace);
        let of = if namespace.is_wildcard() { EventsOf::All } else { of };
        found.subscribe_allow.push(event_filter(of, None, None));
    }
    if grants.holders_of(Capability::List).next().is_some() {
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
        let own: Vec<SubjectPart<'_>> = node.map(SubjectPart::Node).into_iter().collect();
        self.send_at(actor, name, &own);
    }

    /// Every verb that this service of ours sends, about these places.
    fn send_at(&mut self, actor: &Actor, name: ServiceName, places: &[SubjectPart<'_>]) {
        let rows = ALL.iter().filter(|row| row.is_sent_by(name));
        self.publish_allow.extend(rows.map(|row| actor.sign(&row.subject_for(places))));
    }

    fn answer(&mut self, subjects: impl Iterator<Item = String>) {
        for subject in subjects {
            self.answer_in(QUEUE, &subject);
        }
    }

    /// Answers as a member of a queue group only, so that no identity can listen beside it.
    fn answer_in(&mut self, queue: &str, subject: &str) {
        self.subscribe_allow.push(format!("{subject}.{} {queue}", actor::ANY));
    }

    /// Replies to every inbox. `allow_responses` of nats-server would do less and allow more: it
    /// is forgotten with the connection, and an accomplice could have any subject replied to.
    fn reply_to_inboxes(&mut self) {
        self.publish_allow.push(ANY_INBOX.to_owned());
    }

    /// Answers `nats micro`.
    fn be_monitored(&mut self, name: ServiceName) {
        for question in ["PING", "INFO", "STATS"] {
            let all = format!("$SRV.{question}");
            let (ours, each) = (format!("{all}.{}", name.name), format!("{all}.{}.*", name.name));
            for subject in [all, ours, each] {
                add_once(&mut self.subscribe_allow, subject);
            }
        }
    }

    /// Its own events, and those that the registry puts into the stream for agents.
    fn publish_events(&mut self, actor: &Actor, name: ServiceName) {
        let of_agents = (name == PLUGIN_REGISTRY).then(|| "node.*".to_owned());
        for sender in std::iter::once(actor.tokens()).chain(of_agents) {
            self.publish_allow.push(format!("berth.v1.event.*.*.*.*.*.*.{sender}"));
            // The last version's, whose programs may run beside this one's for an upgrade.
            self.publish_allow.push(format!("berth.v1.event.*.*.*.{sender}"));
            self.publish_allow.push(format!("berth.v1.event.*.request.*.*.{sender}"));
        }
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
        ]);
        add_once(&mut self.publish_allow, "$JS.FC.>".to_owned());
    }

    fn describe_stream(&mut self, stream: &str) {
        add_once(&mut self.publish_allow, format!("$JS.API.STREAM.INFO.{stream}"));
    }

    fn get_from_stream(&mut self, stream: &str) {
        self.publish_allow.extend([
            format!("$JS.API.STREAM.MSG.GET.{stream}"),
            format!("$JS.API.DIRECT.GET.{stream}"),
            format!("$JS.API.DIRECT.GET.{stream}.>"),
        ]);
    }

    /// Adds the identity's own inboxes, and their bare prefix to publish to: a process asks there
    /// whether the server has read all that it sent.
    #[must_use]
    pub fn with_inbox(mut self, prefix: &str) -> Self {
        add_once(&mut self.publish_allow, prefix.to_owned());
        add_once(&mut self.subscribe_allow, format!("{prefix}.>"));
        self
    }

    /// The claims of a user's token. An empty list would allow everything, so a user without any
    /// subject gets a denial of all.
    pub fn claims(&self) -> Map<String, Value> {
        let mut claims = Map::new();
        claims.insert("pub".to_owned(), side(&self.publish_allow, &self.publish_deny));
        claims.insert("sub".to_owned(), side(&self.subscribe_allow, &self.subscribe_deny));
        claims
    }
}

fn add_once(subjects: &mut Vec<String>, subject: String) {
    if !subjects.contains(&subject) {
        subjects.push(subject);
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
    use super::missing::overlaps as overlap;
    use super::*;
    use crate::verb::Row;

    #[test]
    fn a_user_without_subjects_is_denied_all_of_them() {
        let claims = Value::Object(Permissions::default().claims());
        assert_eq!(claims, json!({ "pub": { "deny": [">"] }, "sub": { "deny": [">"] } }));
    }

    #[test]
    fn lists_are_written_as_the_server_reads_them() {
        let permissions = Permissions {
            publish_allow: vec!["a.b".to_owned()],
            publish_deny: vec!["a.c".to_owned()],
            subscribe_allow: vec!["s q".to_owned()],
            subscribe_deny: Vec::new(),
        };
        let claims =
            Value::Object(permissions.with_inbox("_INBOX.U").with_inbox("_INBOX.U").claims());
        let expected = json!({
            "pub": { "allow": ["a.b", "_INBOX.U"], "deny": ["a.c"] },
            "sub": { "allow": ["s q", "_INBOX.U.>"] },
        });
        assert_eq!(claims, expected);
    }

    fn team_a() -> BTreeSet<Namespace> {
        BTreeSet::from([Namespace::new("team-a").unwrap()])
    }

    /// Whoever steals the identity of a Docker host reaches the namespaces that it serves.
    #[test]
    fn dockers_plugin_sends_nothing_about_other_namespaces_or_nodes() {
        let node = NodeId::new("n1").unwrap();
        let of = |names: &[&str]| {
            let namespaces = names.iter().map(|name| Namespace::new(*name).unwrap()).collect();
            derive_permissions(&Role::Docker { node: node.clone(), namespaces }).publish_allow
        };
        let two = of(&["team-a", "team-b"]);
        let rows = ALL.iter().filter(|row| row.is_sent_by(DOCKER)).count();
        // Beside the replies.
        assert_eq!(two.len(), 2 * rows + 1);
        for row in ALL.iter().filter(|row| row.is_sent_by(DOCKER)) {
            let about = |namespace: &str, node: &str| {
                let (namespace, node) =
                    (Namespace::new(namespace).unwrap(), NodeId::new(node).unwrap());
                let places = [SubjectPart::Namespace(&namespace), SubjectPart::Node(&node)];
                let subject =
                    Actor::Docker(NodeId::new("n1").unwrap()).sign(&row.subject_for(&places));
                two.iter().any(|allowed| overlap(allowed, &subject))
            };
            assert!(about("team-a", "n1") && about("team-b", "n1"), "{}", row.step);
            assert!(!about("team-c", "n1"), "{}", row.step);
            let names_node = row.subject.contains("<node>");
            assert_eq!(about("team-a", "n2"), !names_node, "{}", row.step);
        }
        let every = of(&["*", "team-a"]);
        assert_eq!(every, of(&["*"]));
        assert!(every.contains(&"berth.v1.volume.delete.*.docker.n1".to_owned()), "{every:?}");
        assert_eq!(of(&[]), [ANY_INBOX]);
    }

    /// Every role but an admin's; users with every single capability, and with all of them.
    fn roles() -> Vec<Role> {
        let node = NodeId::new("n1").unwrap();
        let controllers = vec![PluginId::new("ebs.csi.aws.com").unwrap()];
        let user = |texts: &[&str], is_of_fleet: bool| {
            let mut grants = Grants::parse_namespaces(texts).unwrap();
            (grants.plugin_read, grants.node_read) = (is_of_fleet, is_of_fleet);
            grants.operator = is_of_fleet;
            Role::User { name: "anna".to_owned(), grants }
        };
        let mut roles = crate::role::SERVICES.to_vec();
        roles.extend([
            Role::Node { node: node.clone(), controllers },
            Role::Docker { node, namespaces: team_a() },
            Role::Inspect { name: "anna".to_owned() },
            user(&["team-a=list"], false),
            user(&["team-a=read"], false),
            user(&["team-a=write"], false),
            user(&["team-a=mount"], false),
            user(&[], true),
            user(&["*=read,write,mount"], true),
        ]);
        roles
    }

    #[test]
    fn only_services_make_consumers_and_only_an_admin_removes_streams() {
        let of_consumers = ["CONSUMER.CREATE.>", "CONSUMER.DURABLE.CREATE.>"];
        let of_streams = [
            "STREAM.DELETE.>",
            "STREAM.MSG.DELETE.>",
            "STREAM.SNAPSHOT.>",
            "STREAM.RESTORE.>",
            "STREAM.LEADER.>",
            "STREAM.PEER.>",
            "META.>",
            "SERVER.>",
            "ACCOUNT.>",
            "CONSUMER.DURABLE.>",
        ];
        for role in roles() {
            let is_service = crate::role::SERVICES.contains(&role);
            let permissions = derive_permissions(&role).with_inbox("_INBOX.U");
            let may = |call: &str| {
                let call = format!("$JS.API.{call}");
                permissions.publish_allow.iter().any(|allowed| overlap(allowed, &call))
            };
            assert_eq!(of_consumers.into_iter().any(may), is_service, "{role:?}");
            assert_eq!(of_streams.into_iter().find(|call| may(call)), None, "{role:?}");
            // A service changes the streams that it owns, and no other.
            let others = bucket::ALL.iter().chain([&BUCKETS]).filter(|spec| {
                let owner = stream_owner(&format!("KV_{}", spec.name));
                owner.map(Actor::service) != Some(role.actor())
            });
            for spec in others {
                assert!(!may(&format!("STREAM.UPDATE.KV_{}", spec.name)), "{role:?}");
            }
        }
    }

    /// Who may change volumes at their storage, define classes, and call a plugin for it.
    #[test]
    fn the_storage_is_changed_by_those_who_are_meant_to() {
        let may_send = |role: &Role| -> Vec<&str> {
            let permissions = derive_permissions(role);
            let sends = |row: &&Row| {
                let subject = role.actor().sign(&row.subject_for(&[]));
                permissions.publish_allow.iter().any(|allowed| overlap(allowed, &subject))
            };
            let is_of_storage = |step: &str| {
                let nouns = ["snapshot.", "class.", "volume.", "plugin.capacity"];
                let steps = ["agent.expand", "controller.provision", "controller.query"];
                let verbs = ["create", "delete", "expand", "modify", "external", "checkpoint"];
                let is_old =
                    step.starts_with("volume.") && !verbs.iter().any(|of| step.ends_with(of));
                !is_old && nouns.iter().chain(&steps).any(|of| step.starts_with(of))
            };
            let steps = ALL.iter().filter(sends).map(|row| row.step);
            steps.filter(|step| is_of_storage(step)).collect()
        };
        let user = |text: &str| {
            let grants = Grants::parse_namespaces(&[text]).unwrap();
            may_send(&Role::User { name: "anna".to_owned(), grants })
        };
        assert_eq!(user("team-a=list"), [""; 0]);
        let reads = ["snapshot.list", "class.list"];
        assert_eq!(user("team-a=read"), reads);
        assert_eq!(user("team-a=mount"), reads);
        let writes = [
            "volume.create",
            "volume.delete",
            "volume.expand",
            "volume.modify",
            "snapshot.create",
            "snapshot.delete",
            "snapshot.list",
            "class.list",
        ];
        assert_eq!(user("team-a=write"), writes);
        let operator = Grants { operator: true, ..Grants::default() };
        let operator = Role::User { name: "anna".to_owned(), grants: operator };
        let operates = [
            "volume.external",
            "plugin.capacity",
            "snapshot.adopt",
            "snapshot.list",
            "class.put",
            "class.delete",
            "class.list",
        ];
        assert_eq!(may_send(&operator), operates);
        let node = NodeId::new("n1").unwrap();
        let docker = Role::Docker { node: node.clone(), namespaces: team_a() };
        assert_eq!(may_send(&docker), ["volume.create", "volume.delete", "class.list"]);
        let drives = [
            "volume.checkpoint",
            "agent.expand",
            "controller.provision",
            "controller.provision-on-node",
        ];
        assert_eq!(may_send(&Role::Volumewatcher), drives);
        assert_eq!(may_send(&Role::Claim), ["controller.query", "controller.query-on-node"]);
        for role in [Role::Gc, Role::PluginRegistry, Role::Node { node, controllers: Vec::new() }] {
            assert_eq!(may_send(&role), [""; 0], "{role:?}");
        }
    }

    /// A list has names, states and places; the details are read by other verbs.
    #[test]
    fn who_may_list_sends_lists_and_hears_no_events() {
        let of = |text: &str| {
            let grants = Grants::parse_namespaces(&[text]).unwrap();
            let permissions = derive_permissions(&Role::User { name: "anna".to_owned(), grants });
            let publish: BTreeSet<String> = permissions.publish_allow.into_iter().collect();
            (publish, permissions.subscribe_allow)
        };
        let (lists, events) = of("team-a=list");
        let requests = lists.iter().filter(|subject| subject.starts_with("berth."));
        let expected =
            ["berth.v1.alloc.list.team-a.user.anna", "berth.v1.volume.list.team-a.user.anna"];
        assert_eq!(requests.collect::<Vec<_>>(), expected);
        assert_eq!(events, [""; 0]);
        for other in ["read", "write", "mount"] {
            assert!(of(&format!("team-a={other}")).0.is_superset(&lists), "{other}");
        }
    }

    #[test]
    fn a_listener_is_always_one_of_a_queue_group() {
        for role in roles() {
            for allowed in derive_permissions(&role).with_inbox("_INBOX.U").subscribe_allow {
                let (subject, queue) = match allowed.split_once(' ') {
                    Some((subject, queue)) => (subject, Some(queue)),
                    None => (allowed.as_str(), None),
                };
                let own = if let Role::Node { .. } = role { "berth-controller" } else { "" };
                for row in ALL {
                    let all = format!("{}.{}", row.subject_for(&[]), actor::ANY);
                    if overlap(subject, &all) {
                        assert!(queue.is_some(), "{role:?} hears all of {}: {allowed}", row.step);
                        let (name, kind) = (row.service.name, role.kind());
                        let is_own = name == format!("berth-{kind}")
                            || (kind == "node" && name == "berth-node-agent")
                            || name == own;
                        assert!(is_own, "{role:?} hears {}", row.step);
                    }
                }
            }
        }
    }

    #[test]
    fn nobody_publishes_with_the_actor_of_another() {
        for role in roles() {
            let end = format!(".{}", role.actor().tokens());
            let permissions = derive_permissions(&role).with_inbox("_INBOX.U");
            for allowed in &permissions.publish_allow {
                // The registry puts the events of agents into the stream, and compares the sender.
                let is_told = role == Role::PluginRegistry
                    && allowed.starts_with("berth.v1.event.")
                    && allowed.ends_with(".node.*");
                let is_signed = allowed.ends_with(&end) || is_told;
                assert!(is_signed || !overlap(allowed, "berth.>"), "{role:?}: {allowed}");
            }
        }
    }

    /// Whoever steals such an identity can reach nothing but the services, in its own name.
    #[test]
    fn nodes_and_users_send_requests_of_their_own_and_nothing_else() {
        let is_trusted = |role: &Role| match role {
            Role::User { grants, .. } => grants.operator,
            role => crate::role::SERVICES.contains(role) || matches!(role, Role::Inspect { .. }),
        };
        for role in roles().into_iter().filter(|role| !is_trusted(role)) {
            let end = format!(".{}", role.actor().tokens());
            let permissions = derive_permissions(&role).with_inbox("_INBOX.U");
            for allowed in &permissions.publish_allow {
                let is_request = allowed.starts_with("berth.v1.") && allowed.ends_with(&end);
                let is_inbox = allowed == ANY_INBOX || allowed == "_INBOX.U";
                // Answered by services, which reply to inboxes only.
                let is_survey = allowed.starts_with("$SRV.");
                assert!(is_request || is_inbox || is_survey, "{role:?}: {allowed}");
                assert!(!overlap(allowed, ALL_EVENTS), "{role:?} writes a stream: {allowed}");
            }
        }
    }
}
