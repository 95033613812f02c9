//! The verbs: every request that Berth's services answer, declared once in [`table`].
//!
//! **Owns** one row a verb. The endpoints, their descriptions in `nats micro info`, the pages and
//! the lists that tests go by are made from the rows.
//!
//! **Promises** that both sides of a request agree with its row, because neither compiles
//! otherwise. A service registers a handler for a verb (`Service::on` of the bus), which gets the
//! verb's request and must return its reply. A caller asks by the verb
//! (`Bus::ask_service`), sends its request and gets its reply.
//!
//! A verb is a type without values, named by its path: `verb::ClaimTake`.

mod address;
mod call;
mod errors;
mod sender;
mod table;

use std::collections::BTreeMap;
use std::fmt;

use berth_domain::NodeId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::code::Code;
use crate::decode::{Decode, Unknown};
use crate::service::{self, PAGE, ServiceName};
pub use address::{Address, NodeAndNamespace, PluginOnNode, SubjectPart};
pub use sender::{Capability, Sender};
pub use table::*;

/// A request that a service answers. Implemented by the types of [`table`] only.
pub trait Verb: fmt::Debug + Send + Sync + 'static {
    /// The ids in the subject.
    type To: Address;
    /// What the caller sends.
    type Request: fmt::Debug + Serialize + Decode + Send + Sync;
    /// What the service returns when it did what was asked.
    type Reply: fmt::Debug + Serialize + DeserializeOwned + Send + 'static;
    /// Everything else that the table says of it.
    const ROW: Row;
    /// Its name in errors and traces, such as `claim.take`.
    const STEP: &'static str = Self::ROW.step;

    /// The subject for these ids: callers send there, and an agent listens there.
    fn subject(to: &Self::To) -> String {
        to.fill(Self::ROW.subject)
    }

    /// The subject for all ids, with wildcards: the claim service listens there.
    fn wildcard_subject() -> String {
        address::wildcards(Self::ROW.subject)
    }

    /// The subject for one node and all other ids: the node's agent listens there.
    fn subject_of_node(node: &NodeId) -> String {
        Self::ROW.subject_of_node(node)
    }

    /// The ids in a subject; none when it is no subject of this verb.
    fn read(subject: &str) -> Option<Self::To> {
        Self::To::read(Self::ROW.subject, subject)
    }
}

/// One row of the table, without its types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Its name in errors and traces, unique among all: `claim.take`, `agent.mount`.
    pub step: &'static str,
    /// Its endpoint's name, unique within the service: `claim-take`, `mount`.
    pub endpoint: &'static str,
    /// Its subject, with placeholders for ids: `berth.v1.claim.take.<ns>`.
    pub subject: &'static str,
    /// The service that answers.
    pub service: ServiceName,
    /// Who may send it.
    pub senders: &'static [Sender],
    /// What it does to the records.
    pub effect: Effect,
    /// The errors that are peculiar to it, in groups. [`COMMON_ERRORS`] come beside them.
    errors: &'static [&'static [Code]],
    /// What it does, in a line.
    pub description: &'static str,
    /// The request's type, below [`message`](crate::message): `claim::Take`.
    pub request: &'static str,
    /// The reply's type.
    pub reply: &'static str,
}

/// What a verb does to the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing.
    Read,
    /// It changes something.
    Change,
    /// It writes records and calls no plugin, so it is answered within moments. A client sends it
    /// again before the deadline when no answer came, because the replica may have been killed.
    BriefChange,
    /// It says how its sender is. It is taken also after its deadline: a host whose clock is wrong
    /// must be heard, and a late report does no harm.
    Report,
}

/// The name of a message's type in `docs/contract.schema.json`: `claim.Take` for `claim::Take`.
pub fn definition(type_name: &str) -> String {
    type_name.split('<').next().unwrap_or(type_name).replace("::", ".")
}

/// The errors that any verb may be answered with.
pub const COMMON_ERRORS: &[Code] = &[
    Code::BadInput,
    Code::Late,
    Code::NoResponder,
    Code::NoAnswer,
    Code::BusUnavailable,
    Code::NewerRecord,
    Code::Internal,
    Code::Overloaded,
    Code::NotAllowed,
    Code::BucketLost,
    Code::DamagedRecord,
    Code::Busy,
];

impl Row {
    /// Whether it changes nothing.
    pub const fn only_reads(&self) -> bool {
        matches!(self.effect, Effect::Read)
    }

    /// Its subject with these ids, and with a wildcard for each other one; without the actor.
    pub fn subject_for(&self, parts: &[SubjectPart<'_>]) -> String {
        address::fill_parts(self.subject, parts)
    }

    /// The subject for one node and all other ids.
    pub fn subject_of_node(&self, node: &NodeId) -> String {
        address::wildcards(&node.fill(self.subject))
    }

    /// Whether people and programs send it, and not only services of ours.
    pub fn is_for_clients(&self) -> bool {
        self.senders.iter().any(|sender| matches!(sender, Sender::Holder(_)))
    }

    /// Whether this service of ours sends it.
    pub fn is_sent_by(&self, service: ServiceName) -> bool {
        self.senders.contains(&Sender::Service(service))
    }

    /// Who may send it, for people.
    pub fn senders_in_words(&self) -> String {
        self.senders.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// What becomes of a field that the service does not know. A client's change is refused for
    /// one: an ignored typing error in `read_only` would grant write access. Versions of our
    /// services are mixed during an upgrade: a newer agent's report reaches an older registry. What
    /// an older service must not ignore needs a new verb, not a new field.
    pub fn unknown(&self) -> Unknown {
        if self.is_for_clients() && self.effect != Effect::Read {
            Unknown::Fault
        } else {
            Unknown::Ignore
        }
    }

    /// Whether it is read from a service of which any replica's answer is as good as another's.
    pub fn any_replica_answers(&self) -> bool {
        self.only_reads() && self.is_for_clients() && self.has_replicas()
    }

    /// Whether the replicas of a service take it in turn, so that another one may answer if it is
    /// sent again. Of the collectors one works, and a plugin's controllers are not alike.
    pub fn has_replicas(&self) -> bool {
        [service::CLAIM, service::PLUGIN_REGISTRY].contains(&self.service)
    }

    /// Whether the table says that it may be answered with this error.
    pub fn may_fail_with(&self, code: Code) -> bool {
        COMMON_ERRORS.contains(&code) || self.errors().any(|own| own == code)
    }

    /// The errors that are peculiar to it.
    pub fn errors(&self) -> impl Iterator<Item = Code> {
        self.errors.iter().copied().flatten().copied()
    }

    /// Where the reference explains it: `claim-take`, the anchor on [`PAGE`].
    pub fn anchor(&self) -> String {
        self.step.replace('.', "-")
    }

    /// Facts for people who look with `nats micro info`.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let fact = |name: &str, value: String| (name.to_owned(), value);
        BTreeMap::from([
            fact("request", definition(self.request)),
            fact("reply", definition(self.reply)),
            fact("reference", format!("{PAGE}#{}", self.anchor())),
        ])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use berth_domain::{Namespace, PluginId};

    use super::*;
    use crate::actor::Actor;

    #[test]
    fn names_are_short_and_unique_and_follow_from_the_subject() {
        let (mut names, mut steps) = (BTreeSet::new(), BTreeSet::new());
        for row in ALL {
            assert!(row.endpoint.len() <= 20, "{}", row.endpoint);
            assert!(names.insert((row.service.name, row.endpoint)), "{row:?}");
            assert!(steps.insert(row.step), "{row:?}");
            let (noun, verb) = row.step.split_once('.').unwrap();
            let is_named_with_noun = row.endpoint == format!("{noun}-{verb}");
            assert!(row.endpoint == verb || is_named_with_noun, "{row:?}");
            let asked = crate::subject::step(row.subject).unwrap();
            assert_eq!(asked, (noun, verb.trim_end_matches("-on-node")), "{row:?}");
            assert!(row.errors().all(|code| !COMMON_ERRORS.contains(&code)), "{row:?}");
        }
    }

    #[test]
    fn a_subject_has_the_form_of_its_verb() {
        let node = NodeId::new("host.example").unwrap();
        let plugin = PluginId::new("ebs.csi.aws.com").unwrap();
        let namespace = Namespace::new("take").unwrap();
        let parts = [
            SubjectPart::Namespace(&namespace),
            SubjectPart::Node(&node),
            SubjectPart::Plugin(&plugin),
        ];
        for row in ALL {
            let subject = Actor::user("anna").sign(&row.subject_for(&parts));
            assert_eq!(form_of(&subject), Some(row.subject), "{subject}");
        }
        assert_eq!(form_of("$JS.API.STREAM.INFO.x"), None);
    }

    #[test]
    fn an_endpoint_names_the_definitions_of_the_schema() {
        let facts = ClaimTake::ROW.metadata();
        assert_eq!((&*facts["request"], &*facts["reply"]), ("claim.Take", "claim.Grant"));
        assert!(ALL.iter().all(|row| row.metadata().values().all(|fact| !fact.contains("::"))));
    }

    #[test]
    fn each_verb_has_its_subject() {
        let namespace = Namespace::default();
        assert_eq!(ClaimTake::subject(&namespace), "berth.v1.claim.take.default");
        assert_eq!(ClaimTake::wildcard_subject(), "berth.v1.claim.take.*");
        assert_eq!(ClaimTake::read("berth.v1.claim.take.default"), Some(namespace.clone()));
        assert_eq!(ClaimTake::read("berth.v1.claim.release.default"), None);
        // `nats micro req` sends to the subject that an endpoint lists.
        assert_eq!(ClaimTake::read(&ClaimTake::wildcard_subject()), Some(namespace));
        assert_eq!(NodeReport::subject(&()), "berth.v1.node.report");
        let node = NodeId::new("host.example").unwrap();
        let to = NodeAndNamespace::any_of(node.clone());
        assert_eq!(AgentMount::subject(&to), "berth.v1.agent.host=2Eexample.mount.=2A");
        assert_eq!(AgentMount::subject_of_node(&node), "berth.v1.agent.host=2Eexample.mount.*");
        assert_eq!(AgentMount::read(&AgentMount::subject(&to)), Some(to));
        assert_eq!(SecretOpen::subject(&node), "berth.v1.secret.open.host=2Eexample");
        assert_eq!(SecretOpen::read(&SecretOpen::subject(&node)), Some(node.clone()));
        assert_eq!(SecretOpen::read(&SecretOpen::wildcard_subject()), None, "`*` is no node");
        let plugin = PluginId::new("ebs.csi.aws.com").unwrap();
        let publish = "berth.v1.controller.ebs=2Ecsi=2Eaws=2Ecom.publish";
        assert_eq!(ControllerPublish::subject(&plugin), publish);
        let on_node = PluginOnNode { plugin, node };
        let publish = "berth.v1.agent.host=2Eexample.controller.ebs=2Ecsi=2Eaws=2Ecom.publish";
        assert_eq!(ControllerPublishOnNode::subject(&on_node), publish);
        assert_eq!(ControllerPublishOnNode::read(publish), Some(on_node));
    }
}
