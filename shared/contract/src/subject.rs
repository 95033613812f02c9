//! Subjects of events (blueprint 3), and what is common to those of requests.
//!
//! **Owns** `berth.v1.event.…`. The subject of a request is in its verb's row
//! ([`verb`](crate::verb)). The [actor](crate::actor) is put behind every subject when it is sent,
//! and filters cover every actor. A namespaced request names the namespace before it, so that
//! permissions can be given per namespace. A call to a plugin's controller names the plugin, and
//! the bus finds the node by queue group. A call to the controller beside a volume names its
//! node, too.

use std::fmt;

use berth_domain::{AllocId, Namespace, PluginId, VolumeId};

use crate::actor::{ANY, Actor};
use crate::token::encode;

/// What a request's subject asks for, without its ids, such as `claim.take` or `agent.mount`: the
/// noun and the verb, in words that are ours. None when it is no request of Berth's.
pub fn step(subject: &str) -> Option<(&str, &str)> {
    let mut tokens = subject.strip_prefix("berth.v1.")?.split('.');
    let noun = tokens.next()?;
    let verb = match noun {
        // The second token is the id of the node or plugin that answers.
        "agent" | "controller" => tokens.nth(1),
        "event" => None,
        _ => tokens.next(),
    }?;
    match (noun, verb) {
        // `agent.<node>.controller.<plugin>.<rpc>`
        ("agent", "controller") => Some((verb, tokens.nth(1)?)),
        known => Some(known),
    }
}

/// The queue group in which the hosts of a plugin's controller share its calls.
pub fn controller_queue(plugin: &PluginId) -> String {
    encode(plugin)
}

/// The subject of an event, before its sender. `<by>` is an actor, two tokens; each other
/// placeholder is one.
pub const EVENT_FORM: &str = "berth.v1.event.<ns>.<kind>.<id>.<alloc>.<by>";

/// What an event is about: the placeholders of [`EVENT_FORM`], with `_` for what it is not about.
/// Plugins and nodes are in no namespace.
///
/// Every event has each token, so that a reader of an alloc's events, or of those that it wants
/// itself, has one filter.
#[derive(Debug, Clone, Copy)]
pub struct EventSubject<'a> {
    /// In which namespace.
    pub namespace: Option<&'a Namespace>,
    /// The noun.
    pub kind: &'a str,
    /// The id of the thing itself.
    pub id: Option<&'a str>,
    /// For which alloc.
    pub alloc: Option<&'a AllocId>,
    /// Who wants it: the tokens of an actor.
    pub by: Option<&'a str>,
}

impl fmt::Display for EventSubject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.map_or_else(|| NONE.to_owned(), encode_namespace);
        let id = self.id.map_or_else(|| NONE.to_owned(), encode);
        let alloc = self.alloc.map_or_else(|| NONE.to_owned(), encode);
        // A record that was written by hand may have any text there.
        let by = self.by.filter(|by| Actor::is_tokens(by)).unwrap_or("_._");
        let mut subject = EVENT_FORM.to_owned();
        for (placeholder, token) in [
            ("<ns>", namespace.as_str()),
            ("<kind>", self.kind),
            ("<id>", id.as_str()),
            ("<alloc>", alloc.as_str()),
            ("<by>", by),
        ] {
            subject = subject.replace(placeholder, token);
        }
        f.write_str(&subject)
    }
}

/// Stands for what an event is not about.
const NONE: &str = "_";

/// A namespace that is called `_` must not have the events of plugins and nodes.
fn encode_namespace(namespace: &Namespace) -> String {
    match encode(namespace) {
        token if token == NONE => "=5F".to_owned(),
        token => token,
    }
}

/// The noun of refused requests. The id in their subject is that of a volume.
pub const REFUSED: &str = "request";

/// Covers the refused requests about a volume, or an alloc, or both.
pub fn refusal_filter(
    of: EventsOf<'_>,
    volume: Option<&VolumeId>,
    alloc: Option<&AllocId>,
) -> String {
    let alloc = alloc.map_or_else(|| "*".to_owned(), encode);
    let of_volume = any_event(of, Some(REFUSED), volume.map(VolumeId::as_str));
    format!("{of_volume}.{alloc}.>")
}

/// The events of all claims in a namespace.
pub fn claim_events(namespace: &Namespace) -> String {
    event_filter(EventsOf::Namespace(namespace), Some("claim"), None)
}

/// Covers the events that are about an alloc, of any kind.
pub fn alloc_filter(of: EventsOf<'_>, alloc: &AllocId) -> String {
    format!("{}.{}.>", any_event(of, None, None), encode(alloc))
}

/// Covers the events that an actor wants, of any kind.
pub fn wanted_filter(of: EventsOf<'_>, by: &Actor) -> String {
    format!("{}.*.{}.{ANY}", any_event(of, None, None), by.tokens())
}

/// What of an event's subject its sender's right depends on: how many tokens, the kind, and the
/// kind of the sender. nats-server allows all events of a family, or none. None when it is no
/// event.
pub fn event_family(subject: &str) -> Option<(usize, &str, &str)> {
    let mut tokens = subject.strip_prefix("berth.v1.event.")?.split('.');
    let (_namespace, kind) = (tokens.next()?, tokens.next()?);
    let rest: Vec<&str> = tokens.collect();
    let sender = rest.len().checked_sub(2).and_then(|at| rest.get(at))?;
    Some((rest.len(), kind, sender))
}

/// Whose events a filter covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventsOf<'a> {
    /// Things in no namespace: plugins and nodes.
    None,
    /// Things in this one.
    Namespace(&'a Namespace),
    /// All things.
    All,
}

/// Covers the events of a kind and of an id; of all of them when none is given. Events of an
/// earlier version, whose subjects have fewer tokens, are covered, too.
pub fn event_filter(of: EventsOf<'_>, kind: Option<&str>, id: Option<&str>) -> String {
    let any = any_event(of, kind, id);
    let any = if id.is_some() { any.as_str() } else { any.trim_end_matches(".*") };
    format!("{any}.>")
}

fn any_event(of: EventsOf<'_>, kind: Option<&str>, id: Option<&str>) -> String {
    let namespace = match of {
        EventsOf::None => NONE.to_owned(),
        EventsOf::Namespace(namespace) => encode_namespace(namespace),
        EventsOf::All => "*".to_owned(),
    };
    let id = id.map_or_else(|| "*".to_owned(), encode);
    format!("berth.v1.event.{namespace}.{}.{id}", kind.unwrap_or("*"))
}

/// Prefix of the inboxes of the identity with this public key, in which it gets its replies.
///
/// Each identity has a prefix of its own and may subscribe to no other, so that only the receiver
/// of a reply can read it.
pub fn inbox_prefix(public_key: &str) -> String {
    format!("_INBOX.{public_key}")
}

/// Covers the inboxes of every identity. Who may publish there needs an inbox's whole name, and so
/// can only answer what it was asked: our clients' inboxes end in 22 random characters.
pub const ANY_INBOX: &str = "_INBOX.>";

/// Every event: for `nats sub`, and to filter by hand.
pub const ALL_EVENTS: &str = "berth.v1.event.>";

#[cfg(test)]
mod tests {
    use berth_domain::NodeId;
    use proptest::prelude::*;

    use super::*;
    use crate::verb::{self, PluginOnNode, Verb as _};

    #[test]
    fn a_step_has_no_id_in_it() {
        let node = NodeId::new("n1.example").unwrap();
        let plugin = PluginId::new("ebs.csi.aws.com").unwrap();
        let in_namespace = verb::NodeAndNamespace::any_of(node.clone());
        let on_node = PluginOnNode { plugin: plugin.clone(), node: node.clone() };
        let subjects = [
            (verb::ClaimTake::subject(&Namespace::default()), Some(("claim", "take"))),
            (verb::NodeReport::subject(&()), Some(("node", "report"))),
            (verb::AgentMount::subject(&in_namespace), Some(("agent", "mount"))),
            (verb::ControllerPublish::subject(&plugin), Some(("controller", "publish"))),
            (verb::ControllerPublishOnNode::subject(&on_node), Some(("controller", "publish"))),
            (verb::SecretOpen::subject(&node), Some(("secret", "open"))),
            (subject(None, "node", "n1"), None),
            ("$JS.API.INFO".to_owned(), None),
        ];
        for (subject, expected) in subjects {
            assert_eq!(step(&subject), expected, "{subject}");
        }
    }

    #[test]
    fn events_of_one_family_need_one_right() {
        let signed = |kind: &str, id: &str, actor: Actor| actor.sign(&subject(None, kind, id));
        let node = |id: &str| Actor::Node(NodeId::new(id).unwrap());
        let (one, other) = (signed("node", "n1", node("n1")), signed("node", "n2", node("n2")));
        assert_eq!(event_family(&one), event_family(&other));
        assert_ne!(event_family(&one), event_family(&signed("plugin", "p", node("n1"))));
        assert_ne!(event_family(&one), event_family(&signed("node", "n1", Actor::user("n1"))));
        // An older version's subjects have fewer tokens.
        let older = event_family("berth.v1.event._.node.n1.node.n1");
        assert!(older.is_some() && older != event_family(&one), "{older:?}");
        for no_event in
            ["berth.v1.claim.take.default.node.n1", "berth.v1.event", "berth.v1.event.a"]
        {
            assert_eq!(event_family(no_event), None, "{no_event}");
        }
    }

    fn subject(namespace: Option<&Namespace>, kind: &str, id: &str) -> String {
        let id = Some(id);
        EventSubject { namespace, kind, id, alloc: None, by: None }.to_string()
    }

    #[test]
    fn subjects_as_a_person_sees_them() {
        let namespace = Namespace::default();
        let (volume, alloc) = (VolumeId::new("a.b").unwrap(), AllocId::new("web-1").unwrap());
        let of_claim = EventSubject {
            namespace: Some(&namespace),
            kind: "claim",
            id: Some(volume.as_str()),
            alloc: Some(&alloc),
            by: Some("user.anna=40x"),
        };
        let seen = of_claim.to_string();
        assert_eq!(seen, "berth.v1.event.default.claim.a=2Eb.web-1.user.anna=40x");
        for odd in ["anna", "user.a.b", "user.*", "user.a b", "", "wizard.anna"] {
            let seen = EventSubject { by: Some(odd), ..of_claim }.to_string();
            assert!(seen.ends_with(".web-1._._"), "{seen}");
        }
        assert_eq!(subject(None, "node", "n1"), "berth.v1.event._.node.n1._._._");
        let underscore = Namespace::new("_").unwrap();
        let seen = subject(Some(&underscore), "node", "n1");
        assert_eq!(seen, "berth.v1.event.=5F.node.n1._._._");
        let of_underscore = event_filter(EventsOf::Namespace(&underscore), None, None);
        assert_eq!(of_underscore, "berth.v1.event.=5F.>");
        assert_eq!(claim_events(&namespace), "berth.v1.event.default.claim.>");
        let of = EventsOf::Namespace(&namespace);
        assert_eq!(event_filter(of, None, Some("a.b")), "berth.v1.event.default.*.a=2Eb.>");
        assert_eq!(event_filter(EventsOf::None, Some("node"), None), "berth.v1.event._.node.>");
        assert_eq!(event_filter(of, None, None), "berth.v1.event.default.>");
        assert_eq!(event_filter(EventsOf::All, None, None), "berth.v1.event.>");
        let of_volume = refusal_filter(of, Some(&volume), None);
        assert_eq!(of_volume, "berth.v1.event.default.request.a=2Eb.*.>");
        let of_alloc = refusal_filter(EventsOf::All, None, Some(&alloc));
        assert_eq!(of_alloc, "berth.v1.event.*.request.*.web-1.>");
        assert_eq!(alloc_filter(of, &alloc), "berth.v1.event.default.*.*.web-1.>");
        let anna = wanted_filter(of, &Actor::user("anna"));
        assert_eq!(anna, "berth.v1.event.default.*.*.*.user.anna.*.*");
    }

    proptest! {
        #[test]
        fn a_namespace_survives_the_subject(id in "\\PC{1,64}") {
            let namespace = Namespace::new(id).unwrap();
            let subject = verb::VolumeList::subject(&namespace);
            prop_assert_eq!(subject.split('.').count(), 5);
            prop_assert_eq!(verb::VolumeList::read(&subject), Some(namespace));
        }
    }
}
