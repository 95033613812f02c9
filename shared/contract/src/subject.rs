//! Subjects (blueprint 3), written and read here only.
//!
//! **Owns** `berth.v1.…`. A namespaced request ends in the namespace, so that permissions can be
//! given per namespace; a call to a plugin's controller names the plugin, and the bus finds the
//! node by queue group; one to the controller beside a volume names its node, too.
//!
//! **Promises** a constructor and a parser for each subject with an id in it, with round-trip
//! tests.

use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeId};

use crate::token::{decode, encode};

/// Requests about things in a namespace: `berth.v1.<noun>.<verb>.<ns>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespaced {
    /// Register or update a volume.
    VolumeRegister,
    /// Deregister a volume.
    VolumeDeregister,
    /// Detach a volume from a node by hand.
    VolumeDetach,
    /// One volume with its claims and health.
    VolumeStatus,
    /// Volumes, as stubs.
    VolumeList,
    /// Which nodes could host some volumes.
    VolumePlacement,
    /// Take a claim.
    ClaimTake,
    /// Give a claim up.
    ClaimRelease,
    /// Record what came of a call and learn the next one.
    ClaimCheckpoint,
    /// Record what a node does with a granted claim.
    ClaimObserve,
    /// Claims of a volume, of an alloc, or all.
    ClaimStatus,
    /// Register an alloc.
    AllocRegister,
    /// Say that an alloc has ended.
    AllocStop,
    /// One alloc with its claims.
    AllocStatus,
    /// Allocs.
    AllocList,
    /// Remove the record of an alloc that has ended.
    AllocForget,
}

impl Namespaced {
    /// Noun and verb.
    pub const fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::VolumeRegister => ("volume", "register"),
            Self::VolumeDeregister => ("volume", "deregister"),
            Self::VolumeDetach => ("volume", "detach"),
            Self::VolumeStatus => ("volume", "status"),
            Self::VolumeList => ("volume", "list"),
            Self::VolumePlacement => ("volume", "placement"),
            Self::ClaimTake => ("claim", "take"),
            Self::ClaimRelease => ("claim", "release"),
            Self::ClaimCheckpoint => ("claim", "checkpoint"),
            Self::ClaimObserve => ("claim", "observe"),
            Self::ClaimStatus => ("claim", "status"),
            Self::AllocRegister => ("alloc", "register"),
            Self::AllocStop => ("alloc", "stop"),
            Self::AllocStatus => ("alloc", "status"),
            Self::AllocList => ("alloc", "list"),
            Self::AllocForget => ("alloc", "forget"),
        }
    }

    /// The endpoint's name in `nats micro`: `volume-register`.
    pub fn endpoint(self) -> String {
        joined(self.parts(), '-')
    }

    /// The name in errors and traces: `volume.register`.
    pub fn step(self) -> String {
        joined(self.parts(), '.')
    }

    /// Where to send the request.
    pub fn subject(self, namespace: &Namespace) -> String {
        format!("berth.v1.{}.{}", self.step(), encode(namespace))
    }

    /// Where to listen, for all namespaces.
    pub fn all(self) -> String {
        format!("berth.v1.{}.*", self.step())
    }

    /// The namespace a request came for; the default one when it came to the endpoint's subject as
    /// it is listed, which is where `nats micro req` sends.
    pub fn namespace(self, subject: &str) -> Option<Namespace> {
        let token = subject.strip_prefix(&format!("berth.v1.{}.", self.step()))?;
        if token == "*" {
            return Some(Namespace::default());
        }
        Namespace::new(decode(token).ok()?).ok()
    }
}

/// Requests to the plugin registry and the collector: `berth.v1.<noun>.<verb>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Global {
    /// One plugin, or all.
    PluginStatus,
    /// A job that provides a plugin says how many instances it is to have.
    PluginExpect,
    /// Remove what is left of a plugin that nobody runs and nobody uses.
    PluginDelete,
    /// One node, or all.
    NodeStatus,
    /// An agent says what its node is and which plugin instances it has.
    NodeReport,
    /// A node leaves for good, and takes its instances with it.
    NodeLeave,
    /// Somebody says that nothing on a node can write any more (rule 12).
    NodeGone,
    /// Collect now.
    GcForce,
    /// The key that secrets are to be sealed for.
    SecretKey,
}

impl Global {
    /// Noun and verb.
    pub const fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::PluginStatus => ("plugin", "status"),
            Self::PluginExpect => ("plugin", "expect"),
            Self::PluginDelete => ("plugin", "delete"),
            Self::NodeStatus => ("node", "status"),
            Self::NodeReport => ("node", "report"),
            Self::NodeLeave => ("node", "leave"),
            Self::NodeGone => ("node", "gone"),
            Self::GcForce => ("gc", "force"),
            Self::SecretKey => ("secret", "key"),
        }
    }

    /// The endpoint's name in `nats micro`: `node-report`.
    pub fn endpoint(self) -> String {
        joined(self.parts(), '-')
    }

    /// The name in errors and traces: `node.report`.
    pub fn step(self) -> String {
        joined(self.parts(), '.')
    }

    /// Where to send the request, and to listen.
    pub fn subject(self) -> String {
        format!("berth.v1.{}", self.step())
    }
}

fn joined((noun, verb): (&str, &str), by: char) -> String {
    format!("{noun}{by}{verb}")
}

/// What a node's agent does: `berth.v1.agent.<node>.<verb>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentVerb {
    /// Claim a volume for an alloc and mount it.
    Mount,
    /// Unpublish, and unstage when it is the last on the node.
    Detach,
    /// Take dead mounts down and bring them back.
    Republish,
    /// Take mounts down that no claim covers.
    Unmount,
    /// What is mounted, journalled and hosted here.
    Status,
    /// Each plugin instance, its process, and where it comes from.
    Plugins,
    /// End the process of a plugin that the agent runs.
    PluginStop,
    /// Run a plugin again that was stopped.
    PluginStart,
}

impl AgentVerb {
    /// The name, also as endpoint.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mount => "mount",
            Self::Detach => "detach",
            Self::Republish => "republish",
            Self::Unmount => "unmount",
            Self::Status => "status",
            Self::Plugins => "plugins",
            Self::PluginStop => "plugin-stop",
            Self::PluginStart => "plugin-start",
        }
    }

    /// Where to send the request, and for the agent to listen.
    pub fn subject(self, node: &NodeId) -> String {
        format!("berth.v1.agent.{}.{}", encode(node), self.as_str())
    }
}

/// `berth.v1.secret.open.<node>`: an agent asks for the secrets of a plugin call it is to make. The
/// subject names the asking node, so that only that node's identity may be allowed to ask there.
pub fn secret_open(node: &NodeId) -> String {
    format!("{SECRET_OPEN}.{}", encode(node))
}

/// The node that asks.
pub fn secret_open_node(subject: &str) -> Option<NodeId> {
    let token = subject.strip_prefix(SECRET_OPEN)?.strip_prefix('.')?;
    NodeId::new(decode(token).ok()?).ok()
}

/// The claim service's endpoint for it, and the name in errors and traces.
pub const SECRET_OPEN_STEP: &str = "secret.open";
const SECRET_OPEN: &str = "berth.v1.secret.open";
/// Where the claim service listens for it.
pub const SECRET_OPEN_ALL: &str = "berth.v1.secret.open.*";

/// What a request's subject asks for, without its ids, such as `claim.take` or `agent.mount`: the
/// noun and the verb, in words that are ours. None when it is no request of Berth's.
pub fn step(subject: &str) -> Option<(&str, &str)> {
    let mut tokens = subject.strip_prefix("berth.v1.")?.split('.');
    let noun = tokens.next()?;
    let verb = match noun {
        // The second token is the id of whoever is asked.
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

/// What a plugin's controller does: `berth.v1.controller.<plugin>.<rpc>`, in the plugin's queue
/// group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllerRpc {
    /// `ControllerPublishVolume`.
    Publish,
    /// `ControllerUnpublishVolume`.
    Unpublish,
    /// `ValidateVolumeCapabilities`.
    Validate,
}

impl ControllerRpc {
    /// The name, also as endpoint.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Unpublish => "unpublish",
            Self::Validate => "validate",
        }
    }

    /// Where to send the request, and for hosts of the controller to listen.
    pub fn subject(self, plugin: &PluginId) -> String {
        format!("berth.v1.controller.{}.{}", encode(plugin), self.as_str())
    }

    /// Where to send it so that the controller on this node gets it and no other: a plugin's
    /// controllers may each know the volumes of their own node only.
    pub fn subject_on(self, plugin: &PluginId, node: &NodeId) -> String {
        let (node, plugin) = (encode(node), encode(plugin));
        format!("berth.v1.agent.{node}.controller.{plugin}.{}", self.as_str())
    }
}

/// The queue group in which the hosts of a plugin's controller share its calls.
pub fn controller_queue(plugin: &PluginId) -> String {
    encode(plugin)
}

/// `berth.v1.event.<ns>.<kind>.<id>`; plugins and nodes are in no namespace: `_`.
pub fn event(namespace: Option<&Namespace>, kind: &str, id: &str) -> String {
    let namespace = namespace.map_or_else(|| "_".to_owned(), encode);
    format!("berth.v1.event.{namespace}.{kind}.{}", encode(id))
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
    format!("{}.{alloc}", any_event(of, Some(REFUSED), volume.map(VolumeId::as_str)))
}

/// The events of all claims in a namespace.
pub fn claim_events(namespace: &Namespace) -> String {
    format!("berth.v1.event.{}.claim.*", encode(namespace))
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
        _ => any,
    }
}

fn any_event(of: EventsOf<'_>, kind: Option<&str>, id: Option<&str>) -> String {
    let namespace = match of {
        EventsOf::None => "_".to_owned(),
        EventsOf::Namespace(namespace) => encode(namespace),
        EventsOf::All => "*".to_owned(),
    };
    let id = id.map_or_else(|| "*".to_owned(), encode);
    format!("berth.v1.event.{namespace}.{}.{id}", kind.unwrap_or("*"))
}

/// Every event: for `nats sub`, and to filter by hand.
pub const ALL_EVENTS: &str = "berth.v1.event.>";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_step_has_no_id_in_it() {
        let node = NodeId::new("n1.example").unwrap();
        let plugin = PluginId::new("ebs.csi.aws.com").unwrap();
        let subjects = [
            (Namespaced::ClaimTake.subject(&Namespace::default()), Some(("claim", "take"))),
            (Global::NodeReport.subject(), Some(("node", "report"))),
            (AgentVerb::Mount.subject(&node), Some(("agent", "mount"))),
            (ControllerRpc::Publish.subject(&plugin), Some(("controller", "publish"))),
            (ControllerRpc::Publish.subject_on(&plugin, &node), Some(("controller", "publish"))),
            (secret_open(&node), Some(("secret", "open"))),
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
        let take = Namespaced::ClaimTake;
        assert_eq!(take.subject(&namespace), "berth.v1.claim.take.default");
        assert_eq!(take.all(), "berth.v1.claim.take.*");
        assert_eq!(take.endpoint(), "claim-take");
        assert_eq!(take.namespace(&take.all()), Some(namespace.clone()));
        assert_eq!(Global::NodeReport.subject(), "berth.v1.node.report");
        let node = NodeId::new("host.example").unwrap();
        assert_eq!(AgentVerb::Mount.subject(&node), "berth.v1.agent.host=2Eexample.mount");
        let plugin = PluginId::new("ebs.csi.aws.com").unwrap();
        let publish = ControllerRpc::Publish.subject(&plugin);
        assert_eq!(publish, "berth.v1.controller.ebs=2Ecsi=2Eaws=2Ecom.publish");
        assert_eq!(event(Some(&namespace), "claim", "data"), "berth.v1.event.default.claim.data");
        assert_eq!(secret_open(&node), "berth.v1.secret.open.host=2Eexample");
        assert_eq!(secret_open_node(&secret_open(&node)), Some(node.clone()));
        assert_eq!(event(None, "node", "n1"), "berth.v1.event._.node.n1");
        assert_eq!(claim_events(&namespace), "berth.v1.event.default.claim.*");
        let of = EventsOf::Namespace(&namespace);
        assert_eq!(event_filter(of, None, Some("a.b")), "berth.v1.event.default.*.a=2Eb");
        assert_eq!(event_filter(EventsOf::None, Some("node"), None), "berth.v1.event._.node.>");
        assert_eq!(event_filter(of, None, None), "berth.v1.event.default.>");
        assert_eq!(event_filter(EventsOf::All, None, None), "berth.v1.event.*.>");
        let (volume, alloc) = (VolumeId::new("a.b").unwrap(), AllocId::new("web-1").unwrap());
        let refused = refusal_event(Some(&namespace), Some(&volume), Some(&alloc));
        assert_eq!(refused, "berth.v1.event.default.request.a=2Eb.web-1");
        let unnamed = refusal_event(None, None, None);
        assert_eq!(unnamed, "berth.v1.event._.request._._");
        let of_volume = refusal_filter(of, Some(&volume), None);
        assert_eq!(of_volume, "berth.v1.event.default.request.a=2Eb.*");
        let of_alloc = refusal_filter(EventsOf::All, None, Some(&alloc));
        assert_eq!(of_alloc, "berth.v1.event.*.request.*.web-1");
    }

    proptest! {
        #[test]
        fn a_namespace_survives_the_subject(id in "\\PC{1,64}") {
            let namespace = Namespace::new(id).unwrap();
            for request in [Namespaced::VolumeList, Namespaced::ClaimTake] {
                let subject = request.subject(&namespace);
                prop_assert_eq!(subject.split('.').count(), 5);
                prop_assert_eq!(request.namespace(&subject), Some(namespace.clone()));
            }
        }
    }
}
