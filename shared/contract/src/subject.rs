//! Subjects of events (blueprint 3), and what is common to those of requests.
//!
//! **Owns** `berth.v1.event.…`. The subject of a request is in its verb's row
//! ([`verb`](crate::verb)). The [actor](crate::actor) is put behind every subject when it is sent,
//! and filters cover every actor. A namespaced request names the namespace before it, so that
//! permissions can be given per namespace. A call to a plugin's controller names the plugin, and
//! the bus finds the node by queue group. A call to the controller beside a volume names its
//! node, too.

use berth_domain::{AllocId, Namespace, PluginId, VolumeId};

use crate::actor::ANY;
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

/// `berth.v1.event.<ns>.<kind>.<id>`; plugins and nodes are in no namespace: `_`.
pub fn event(namespace: Option<&Namespace>, kind: &str, id: &str) -> String {
    let namespace = namespace.map_or_else(|| NO_NAMESPACE.to_owned(), encode_namespace);
    format!("berth.v1.event.{namespace}.{kind}.{}", encode(id))
}

/// Stands for the namespace in the subject of an event of no namespace.
const NO_NAMESPACE: &str = "_";

/// A namespace that is called `_` must not have the events of plugins and nodes.
fn encode_namespace(namespace: &Namespace) -> String {
    match encode(namespace) {
        token if token == NO_NAMESPACE => "=5F".to_owned(),
        token => token,
    }
}

/// The noun of refused requests.
const REFUSED: &str = "request";

/// `berth.v1.event.<ns>.request.<volume>.<alloc>`: a refused request, with `_` for an id that the
/// request does not name. The newest refusal of a volume, or of an alloc, is one read.
pub fn refusal_event(
    namespace: Option<&Namespace>,
    volume: Option<&VolumeId>,
    alloc: Option<&AllocId>,
) -> String {
    let volume = volume.map_or("_", VolumeId::as_str);
    let alloc = alloc.map_or_else(|| "_".to_owned(), encode);
    format!("{}.{alloc}", event(namespace, REFUSED, volume))
}

/// Covers the refused requests about a volume, or an alloc, or both.
pub fn refusal_filter(
    of: EventsOf<'_>,
    volume: Option<&VolumeId>,
    alloc: Option<&AllocId>,
) -> String {
    let alloc = alloc.map_or_else(|| "*".to_owned(), encode);
    let of_volume = any_event(of, Some(REFUSED), volume.map(VolumeId::as_str));
    format!("{of_volume}.{alloc}.{ANY}")
}

/// The events of all claims in a namespace.
pub fn claim_events(namespace: &Namespace) -> String {
    format!("berth.v1.event.{}.claim.*.{ANY}", encode_namespace(namespace))
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

/// Covers the events of a kind and of an id; of all of them when none is given. Refused requests
/// about an id have a [filter of their own](refusal_filter).
pub fn event_filter(of: EventsOf<'_>, kind: Option<&str>, id: Option<&str>) -> String {
    let any = any_event(of, kind, id);
    match (any.strip_suffix("*.*"), any.strip_suffix('*'), id) {
        (Some(all), _, None) => format!("{all}>"),
        (None, Some(of_kind), None) => format!("{of_kind}>"),
        _ => format!("{any}.{ANY}"),
    }
}

fn any_event(of: EventsOf<'_>, kind: Option<&str>, id: Option<&str>) -> String {
    let namespace = match of {
        EventsOf::None => NO_NAMESPACE.to_owned(),
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
            (event(None, "node", "n1"), None),
            ("$JS.API.INFO".to_owned(), None),
        ];
        for (subject, expected) in subjects {
            assert_eq!(step(&subject), expected, "{subject}");
        }
    }

    #[test]
    fn subjects_as_a_person_sees_them() {
        let namespace = Namespace::default();
        assert_eq!(event(Some(&namespace), "claim", "data"), "berth.v1.event.default.claim.data");
        assert_eq!(event(None, "node", "n1"), "berth.v1.event._.node.n1");
        let underscore = Namespace::new("_").unwrap();
        assert_eq!(event(Some(&underscore), "node", "n1"), "berth.v1.event.=5F.node.n1");
        let of_underscore = event_filter(EventsOf::Namespace(&underscore), None, None);
        assert_eq!(of_underscore, "berth.v1.event.=5F.>");
        assert_eq!(claim_events(&underscore), "berth.v1.event.=5F.claim.*.*.*");
        assert_eq!(claim_events(&namespace), "berth.v1.event.default.claim.*.*.*");
        let of = EventsOf::Namespace(&namespace);
        assert_eq!(event_filter(of, None, Some("a.b")), "berth.v1.event.default.*.a=2Eb.*.*");
        assert_eq!(event_filter(EventsOf::None, Some("node"), None), "berth.v1.event._.node.>");
        assert_eq!(event_filter(of, None, None), "berth.v1.event.default.>");
        assert_eq!(event_filter(EventsOf::All, None, None), "berth.v1.event.*.>");
        let (volume, alloc) = (VolumeId::new("a.b").unwrap(), AllocId::new("web-1").unwrap());
        let refused = refusal_event(Some(&namespace), Some(&volume), Some(&alloc));
        assert_eq!(refused, "berth.v1.event.default.request.a=2Eb.web-1");
        let unnamed = refusal_event(None, None, None);
        assert_eq!(unnamed, "berth.v1.event._.request._._");
        let of_volume = refusal_filter(of, Some(&volume), None);
        assert_eq!(of_volume, "berth.v1.event.default.request.a=2Eb.*.*.*");
        let of_alloc = refusal_filter(EventsOf::All, None, Some(&alloc));
        assert_eq!(of_alloc, "berth.v1.event.*.request.*.web-1.*.*");
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
