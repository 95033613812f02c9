//! Who sends a request or an event: the last two tokens of its subject (G1).
//!
//! nats-server lets an identity publish only to subjects that end in its own actor, so the actor of
//! a message that arrived is proved. Without access control it is what the sender says of itself.
//!
//! **Promises** that an actor survives the subject and back, and that two actors never have the
//! same tokens.

use std::fmt;

use berth_domain::NodeId;

use crate::service::ServiceName;
use crate::token::{decode, encode};

/// Covers every actor, at the end of a subject to listen at.
pub const ANY: &str = "*.*";

/// The sender of a request or an event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Actor {
    /// One of the services that have no node of their own: `service.claim`.
    Service(String),
    /// The agent of a node: `node.n1`.
    Node(NodeId),
    /// Docker's volume plugin on a node: `docker.n1`.
    Docker(NodeId),
    /// A person or a program: `user.anna`.
    User(String),
}

impl Actor {
    /// This service, whatever replica.
    pub fn service(name: ServiceName) -> Self {
        Self::Service(name.short().to_owned())
    }

    /// A person or a program. An empty name has no token, and becomes `unnamed`.
    pub fn user(name: &str) -> Self {
        Self::User(if name.is_empty() { "unnamed" } else { name }.to_owned())
    }

    /// The node that the actor acts for. It may speak of this node only.
    pub const fn node(&self) -> Option<&NodeId> {
        match self {
            Self::Node(node) | Self::Docker(node) => Some(node),
            Self::Service(_) | Self::User(_) => None,
        }
    }

    /// The two tokens.
    pub fn tokens(&self) -> String {
        let (kind, name) = self.parts();
        format!("{kind}.{}", encode(name))
    }

    /// A subject with its actor at the end.
    pub fn sign(&self, subject: &str) -> String {
        format!("{subject}.{}", self.tokens())
    }

    /// Parts a subject into what was asked and who asked. The actor is none where a person sent to
    /// the subject as it is listed, with its wildcards (`nats micro req`).
    pub fn split(subject: &str) -> (&str, Option<Self>) {
        let mut from_end = subject.rsplitn(3, '.');
        let (name, kind, asked) = (from_end.next(), from_end.next(), from_end.next());
        match (asked, kind, name) {
            (Some(asked), Some(kind), Some(name)) => (asked, Self::read(kind, name)),
            _ => (subject, None),
        }
    }

    /// Whether a text is the two tokens of an actor.
    pub fn is_tokens(text: &str) -> bool {
        let parts = text.split_once('.');
        parts.is_some_and(|(kind, name)| !name.contains('.') && Self::read(kind, name).is_some())
    }

    fn read(kind: &str, name: &str) -> Option<Self> {
        let name = decode(name).ok()?;
        Some(match kind {
            "service" => Self::Service(name),
            "node" => Self::Node(NodeId::new(name).ok()?),
            "docker" => Self::Docker(NodeId::new(name).ok()?),
            "user" => Self::User(name),
            _ => return None,
        })
    }

    fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Service(name) => ("service", name),
            Self::Node(node) => ("node", node.as_str()),
            Self::Docker(node) => ("docker", node.as_str()),
            Self::User(name) => ("user", name),
        }
    }
}

/// For people: `node n1`.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = self.parts();
        write!(f, "{kind} {name}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_sender_is_at_the_end() {
        let node = NodeId::new("host.example").unwrap();
        let signed = Actor::Node(node.clone()).sign("berth.v1.node.report");
        assert_eq!(signed, "berth.v1.node.report.node.host=2Eexample");
        let (asked, actor) = Actor::split(&signed);
        assert_eq!((asked, actor), ("berth.v1.node.report", Some(Actor::Node(node))));
        assert_eq!(Actor::split("berth.v1.gc.force.*.*"), ("berth.v1.gc.force", None));
        assert_eq!(Actor::split("a.b"), ("a.b", None));
        assert_eq!(
            Actor::service(crate::service::PLUGIN_REGISTRY).tokens(),
            "service.plugin-registry"
        );
    }

    proptest! {
        #[test]
        fn a_name_survives_the_subject(name in "\\PC{1,40}") {
            let actor = Actor::user(&name);
            let signed = actor.sign("a.b");
            prop_assert_eq!(Actor::split(&signed), ("a.b", Some(actor)));
        }
    }
}
