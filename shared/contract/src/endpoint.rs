//! Every endpoint of every service: who answers, where, what it is asked and what it answers.
//!
//! **Owns** what `nats micro info` shows of an endpoint and what `docs/contract.md` explains of it;
//! services take their endpoints from here. A verb that is missing in these tables does not
//! compile, and neither does a message that cannot be read or a verb without a [kind](VerbKind).
//!
//! **Never** makes a subject by itself: that is [`subject`](crate::subject)'s.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::decode::{Decode, Unknown};
use crate::message::{agent, alloc, call, claim, collect, plugin, registry, secret, volume};
use crate::service::{self, PAGE, ServiceName};
use crate::subject::{
    AgentVerb, ControllerRpc, Global, Namespaced, SECRET_OPEN_ALL, SECRET_OPEN_STEP,
};

/// What a request does. It decides what becomes of a field that the service does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerbKind {
    /// It changes nothing. An unknown field is ignored, and any replica may answer.
    Read,
    /// It changes something. An unknown field is a fault, and nothing is written: an ignored typing
    /// error in `read_only` would grant write access.
    Change,
    /// Our own processes send it to each other, and versions are mixed during an upgrade. An
    /// unknown field is ignored, so that a newer agent's report reaches an older registry. What an
    /// older process must not ignore needs a new verb, not a new field.
    Peer,
}

impl VerbKind {
    /// What becomes of an unknown field.
    pub const fn unknown(self) -> Unknown {
        match self {
            Self::Change => Unknown::Fault,
            Self::Read | Self::Peer => Unknown::Ignore,
        }
    }
}

/// One endpoint, as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Who answers.
    pub service: ServiceName,
    /// Its name, unique within the service: `claim-take`, `mount`.
    pub name: String,
    /// Its name in errors and traces, unique among all: `claim.take`, `agent.mount`.
    pub step: String,
    /// Its subject, with placeholders for ids: `berth.v1.claim.take.<ns>`.
    pub subject: String,
    /// What becomes of fields that the service does not know.
    pub kind: VerbKind,
    /// What it does, in a line.
    pub description: &'static str,
    /// The request's type, below [`message`](crate::message): `claim::Take`.
    pub request: &'static str,
    /// The reply's type.
    pub reply: &'static str,
}

impl Endpoint {
    /// Every endpoint, by service.
    pub fn all() -> Vec<Self> {
        let namespaced = NAMESPACED.iter().map(|verb| Self::from(*verb));
        let global = GLOBAL.iter().map(|verb| Self::from(*verb));
        let agent = AGENT.iter().map(|verb| Self::from(*verb));
        let controller = CONTROLLER.iter().map(|rpc| Self::from(*rpc));
        let on_node = CONTROLLER.iter().map(|rpc| Self::on_node(*rpc));
        let controller = controller.chain(on_node);
        let secret_open = std::iter::once(Self::secret_open());
        namespaced.chain(global).chain(secret_open).chain(agent).chain(controller).collect()
    }

    /// A controller's call at the subject where only the one on a certain node gets it.
    pub fn on_node(rpc: ControllerRpc) -> Self {
        let any = Self::from(rpc);
        Self {
            name: format!("{}-on-node", any.name),
            step: format!("{}-on-node", any.step),
            subject: format!("berth.v1.agent.<node>.controller.<plugin>.{}", any.name),
            ..any
        }
    }

    /// `secret.open`: its subject names the node that asks.
    pub fn secret_open() -> Self {
        let open = exchange::<secret::Open, secret::Sealed>(
            VerbKind::Peer,
            "For agents: a volume's secrets for a plugin call, sealed for the node that asks",
            "secret::Open",
            "secret::Sealed",
        );
        let Exchange { kind, description, request, reply } = open;
        let step = SECRET_OPEN_STEP.to_owned();
        let (service, name) = (service::CLAIM, step.replace('.', "-"));
        let subject = SECRET_OPEN_ALL.replace('*', "<node>");
        Self { service, name, step, subject, kind, description, request, reply }
    }

    /// Where the reference explains it: `claim-take`, the anchor on [`PAGE`].
    pub fn anchor(&self) -> String {
        self.step.replace('.', "-")
    }

    /// Facts for people who look with `nats micro info`.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let fact = |name: &str, value: String| (name.to_owned(), value);
        BTreeMap::from([
            fact("request", self.request.to_owned()),
            fact("reply", self.reply.to_owned()),
            fact("reference", format!("{PAGE}#{}", self.anchor())),
        ])
    }
}

/// What an endpoint does, is asked and answers.
struct Exchange {
    kind: VerbKind,
    description: &'static str,
    request: &'static str,
    reply: &'static str,
}

/// An exchange whose request and reply are messages that can be read.
#[expect(clippy::extra_unused_type_parameters, reason = "they are here to be held to their bounds")]
const fn exchange<Request, Reply>(
    kind: VerbKind,
    description: &'static str,
    request: &'static str,
    reply: &'static str,
) -> Exchange
where
    Request: Decode,
    Reply: Serialize + DeserializeOwned,
{
    Exchange { kind, description, request, reply }
}

macro_rules! exchanges {
    ($all:ident, $of:ident, $verbs:ident {
        $($kind:ident $verb:ident($request:ty) -> $reply:ty: $description:literal;)*
    }) => {
        const $all: &[$verbs] = &[$($verbs::$verb),*];

        const fn $of(verb: $verbs) -> Exchange {
            match verb {
                $($verbs::$verb => exchange::<$request, $reply>(
                    VerbKind::$kind,
                    $description,
                    stringify!($request),
                    stringify!($reply),
                ),)*
            }
        }
    };
}

exchanges! { NAMESPACED, namespaced, Namespaced {
    Change VolumeRegister(volume::Register) -> volume::Registered:
        "Register a volume, or change it: the volume's document";
    Change VolumeDeregister(volume::Deregister) -> volume::Deregistered:
        "Deregister a volume; by force once its claims are released: id, force, reason";
    Change VolumeDetach(volume::Detach) -> volume::Detached:
        "Release a node's claims on a volume whose allocs have ended: id, node, reason";
    Read VolumeStatus(volume::Status) -> volume::VolumeStatus:
        "Show one volume with its claims and its health: id";
    Read VolumeList(volume::List) -> volume::Volumes:
        "List volumes, one short line each: prefix, plugin, node, state";
    Read VolumePlacement(volume::Placement) -> volume::Placements:
        "Show which nodes could host these volumes now, and why the others cannot: volumes, index";
    Change ClaimTake(claim::Take) -> claim::Grant:
        "Take a claim on a volume for an alloc: alloc, volume, node, mode, wait";
    Change ClaimRelease(claim::Release) -> claim::Released:
        "Give a claim up: alloc, volume, epoch, reason";
    Peer ClaimCheckpoint(claim::Checkpoint) -> claim::Checkpointed:
        "For volumewatchers: record what came of a call, learn the next call";
    Peer ClaimObserve(claim::Observe) -> claim::Observed:
        "For agents: record what the node does with a granted claim";
    Read ClaimStatus(claim::Status) -> claim::Claims:
        "Show claims and what each waits for: prefix, volume, alloc, node, plugin, state";
    Change AllocRegister(alloc::Register) -> alloc::AllocStatus:
        "Say that an alloc is placed on a node: id, node, volumes";
    Change AllocStop(alloc::Stop) -> alloc::AllocStatus:
        "Say that an alloc has ended, so that its claims are released: id, state, note";
    Read AllocStatus(alloc::Status) -> alloc::AllocStatus:
        "Show one alloc with its claims: id";
    Read AllocList(alloc::List) -> alloc::Allocs:
        "List allocs, one short line each: prefix, node, state";
    Change AllocForget(alloc::Forget) -> alloc::Forgotten:
        "Remove the record of an alloc that ended before a time and has no claim: id, before";
}}

exchanges! { GLOBAL, global, Global {
    Read PluginStatus(registry::PluginQuery) -> registry::Plugins:
        "Show plugins and the health of each instance; one, or by prefix, node, type: id";
    Change PluginExpect(registry::Expect) -> registry::Expected:
        "Say how many instances of a plugin a job is to have: plugin, job, controllers, nodes";
    Change PluginDelete(registry::Delete) -> registry::Deleted:
        "Remove what is left of a plugin that nobody runs or uses: id";
    Read NodeStatus(registry::NodeQuery) -> registry::Nodes:
        "Show nodes, whether their agents are there, and their plugins; all of them, or one: id";
    Peer NodeReport(registry::Report) -> registry::Reported:
        "For agents: all there is to know of a node and its plugin instances";
    Change NodeLeave(registry::Leave) -> registry::Left:
        "Forget a node that is gone for good, and its plugin instances: node";
    Change NodeGone(registry::Gone) -> registry::Declared:
        "Say that nothing on a node can write any more, so that its claims are released by that: \
         node, kind, by, note";
    Change GcForce(collect::Force) -> collect::Sweep:
        "Collect now; says what was collected, what was kept, and why";
    Read SecretKey(secret::Key) -> secret::PublicKey:
        "Show the public key that a volume's secrets are to be sealed for";
}}

exchanges! { AGENT, agent_verb, AgentVerb {
    Change Mount(agent::Mount) -> agent::Mounted:
        "Claim a volume for an alloc of this node, and mount it: alloc, volume, alias, path, wait";
    Peer Detach(call::Call) -> call::Called:
        "For volumewatchers: take the volume down for an alloc; wholly, after the last";
    Change Republish(agent::Republish) -> agent::Republished:
        "Take dead mounts of a volume down and bring them back at the same paths: alloc, or all";
    Change Unmount(agent::Unmount) -> agent::Unmounted:
        "Take mounts of a volume down that no claim covers: volume, alloc, or all of them";
    Read Status(agent::Status) -> agent::AgentStatus:
        "Show what is mounted on this node, for whom, and which controllers it serves";
    Read Plugins(plugin::Query) -> plugin::Here:
        "Show each plugin instance of this node, its process, and files that are no plugin";
    Change PluginStop(plugin::Stop) -> plugin::Ordered:
        "End the process of a plugin that the agent runs: plugin, instance, even_with_mounts, by";
    Change PluginStart(plugin::Start) -> plugin::Ordered:
        "Run a plugin again that was stopped: plugin, instance";
}}

exchanges! { CONTROLLER, controller, ControllerRpc {
    Peer Publish(call::Call) -> call::Called:
        "For berth-claim: ControllerPublishVolume, attach a volume to a node";
    Peer Unpublish(call::Call) -> call::Called:
        "For volumewatchers: ControllerUnpublishVolume, detach a volume from a node";
    Peer Validate(call::Validate) -> call::Validated:
        "For berth-claim: ValidateVolumeCapabilities, can the volume be used so";
}}

impl Namespaced {
    /// Whether it changes nothing: then any replica's answer is as good as another's.
    pub const fn only_reads(self) -> bool {
        matches!(namespaced(self).kind, VerbKind::Read)
    }

    /// Whether it is a change that only writes records, within moments: no plugin is called.
    pub const fn is_brief(self) -> bool {
        matches!(self, Self::AllocRegister | Self::AllocStop | Self::ClaimRelease)
    }
}

impl Global {
    /// Whether it changes nothing: then any replica's answer is as good as another's.
    pub const fn only_reads(self) -> bool {
        matches!(global(self).kind, VerbKind::Read)
    }
}

impl From<Namespaced> for Endpoint {
    fn from(verb: Namespaced) -> Self {
        let Exchange { kind, description, request, reply } = namespaced(verb);
        let (service, name, step) = (service::CLAIM, verb.endpoint(), verb.step());
        let subject = verb.all().replace('*', "<ns>");
        Self { service, name, step, subject, kind, description, request, reply }
    }
}

impl From<Global> for Endpoint {
    fn from(verb: Global) -> Self {
        let Exchange { kind, description, request, reply } = global(verb);
        let service = match verb {
            Global::PluginStatus
            | Global::PluginExpect
            | Global::PluginDelete
            | Global::NodeStatus
            | Global::NodeReport
            | Global::NodeLeave
            | Global::NodeGone => service::PLUGIN_REGISTRY,
            Global::GcForce => service::GC,
            Global::SecretKey => service::CLAIM,
        };
        let (name, step, subject) = (verb.endpoint(), verb.step(), verb.subject());
        Self { service, name, step, subject, kind, description, request, reply }
    }
}

impl From<AgentVerb> for Endpoint {
    fn from(verb: AgentVerb) -> Self {
        let Exchange { kind, description, request, reply } = agent_verb(verb);
        let (service, name) = (service::NODE_AGENT, verb.as_str().to_owned());
        let step = format!("agent.{name}");
        let subject = format!("berth.v1.agent.<node>.{name}");
        Self { service, name, step, subject, kind, description, request, reply }
    }
}

impl From<ControllerRpc> for Endpoint {
    fn from(rpc: ControllerRpc) -> Self {
        let Exchange { kind, description, request, reply } = controller(rpc);
        let (service, name) = (service::CONTROLLER, rpc.as_str().to_owned());
        let step = format!("controller.{name}");
        let subject = format!("berth.v1.controller.<plugin>.{name}");
        Self { service, name, step, subject, kind, description, request, reply }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use berth_domain::{NodeId, PluginId};

    use super::*;

    #[test]
    fn names_are_short_and_unique_within_a_service_and_steps_among_all() {
        let (mut names, mut steps) = (BTreeSet::new(), BTreeSet::new());
        for endpoint in Endpoint::all() {
            assert!(endpoint.name.len() <= 20, "{}", endpoint.name);
            assert!(names.insert((endpoint.service.name, endpoint.name.clone())));
            assert!(steps.insert(endpoint.step));
        }
    }

    /// The placeholders stand where the subjects have their ids.
    #[test]
    fn subjects_are_those_that_are_asked() {
        let (node, plugin) = (NodeId::new("n1").unwrap(), PluginId::new("p1").unwrap());
        for verb in AGENT {
            let subject = Endpoint::from(*verb).subject.replace("<node>", "n1");
            assert_eq!(subject, verb.subject(&node));
        }
        for rpc in CONTROLLER {
            let subject = Endpoint::from(*rpc).subject.replace("<plugin>", "p1");
            assert_eq!(subject, rpc.subject(&plugin));
            let on_node = Endpoint::on_node(*rpc).subject.replace("<node>", "n1");
            assert_eq!(on_node.replace("<plugin>", "p1"), rpc.subject_on(&plugin, &node));
        }
        for verb in NAMESPACED {
            let subject = Endpoint::from(*verb).subject.replace("<ns>", "default");
            assert_eq!(subject, verb.subject(&berth_domain::Namespace::default()));
        }
    }
}
