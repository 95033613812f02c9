//! The roles of identities, and what users are granted.
//!
//! **Owns** the list of roles, the capabilities of users, and how they are written on a command
//! line and shown in words. **Promises** that all faults of an input are reported together.
//!
//! **Never** names a subject: see [`crate::permissions`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::actor::Actor;
use crate::service::{CLAIM, GC, PLUGIN_REGISTRY, VOLUMEWATCHER};
use crate::verb::Capability;
use berth_domain::{Namespace, NodeId, PluginId};
use serde::{Deserialize, Serialize};

/// Who an identity is on the bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Role {
    /// The claim service.
    Claim,
    /// The plugin registry.
    PluginRegistry,
    /// The volume watcher.
    Volumewatcher,
    /// The collector.
    Gc,
    /// The agent of a node.
    Node {
        /// The node.
        node: NodeId,
        /// The plugins whose controllers the node may host.
        controllers: Vec<PluginId>,
    },
    /// The Docker volume plugin of a node.
    Docker {
        /// The node.
        node: NodeId,
        /// The namespaces that it serves to its host's containers. Identities of older versions do
        /// not say: they have all.
        #[serde(default = "every_namespace")]
        namespaces: BTreeSet<Namespace>,
    },
    /// A person or program with the capabilities of [`Grants`].
    User {
        /// The user's name.
        name: String,
        /// What the user may do.
        grants: Grants,
    },
    /// An operator with all rights, also over the streams.
    Admin {
        /// The operator's name.
        name: String,
    },
    /// A reader of buckets and events that sends no request to a service.
    Inspect {
        /// The reader's name.
        name: String,
    },
}

fn every_namespace() -> BTreeSet<Namespace> {
    BTreeSet::from([Namespace::wildcard()])
}

/// The roles of services.
pub const SERVICES: [Role; 4] = [Role::Claim, Role::PluginRegistry, Role::Volumewatcher, Role::Gc];

impl Role {
    /// The word for the role, which begins the names of its identities.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::PluginRegistry => "plugin-registry",
            Self::Volumewatcher => "volumewatcher",
            Self::Gc => "gc",
            Self::Node { .. } => "node",
            Self::Docker { .. } => "docker",
            Self::User { .. } => "user",
            Self::Admin { .. } => "admin",
            Self::Inspect { .. } => "inspect",
        }
    }

    /// Who the identity is in the subjects that it sends to.
    pub fn actor(&self) -> Actor {
        match self {
            Self::Claim => Actor::service(CLAIM),
            Self::PluginRegistry => Actor::service(PLUGIN_REGISTRY),
            Self::Volumewatcher => Actor::service(VOLUMEWATCHER),
            Self::Gc => Actor::service(GC),
            Self::Node { node, .. } => Actor::Node(node.clone()),
            Self::Docker { node, .. } => Actor::Docker(node.clone()),
            Self::User { name, .. } | Self::Admin { name } | Self::Inspect { name } => {
                Actor::user(name)
            }
        }
    }

    /// The name of an identity with this role: `node/n1`, `user/alice`. That of a service is
    /// `claim`, or `claim/NAME` where several have identities of their own.
    pub fn identity_name(&self, service: Option<&str>) -> String {
        let kind = self.kind();
        match self {
            Self::Claim | Self::PluginRegistry | Self::Volumewatcher | Self::Gc => {
                service.map_or_else(|| kind.to_owned(), |name| format!("{kind}/{name}"))
            }
            Self::Node { node, .. } | Self::Docker { node, .. } => format!("{kind}/{node}"),
            Self::User { name, .. } | Self::Admin { name } | Self::Inspect { name } => {
                format!("{kind}/{name}")
            }
        }
    }

    /// What an identity with this role may do, in words, a line for each right.
    pub fn describe(&self) -> Vec<String> {
        let line = |text: &str| vec![text.to_owned()];
        match self {
            Self::Claim => {
                line("runs the claim service: writes volumes, claims, allocs, classes and secrets")
            }
            Self::PluginRegistry => line("runs the plugin registry: writes plugins and nodes"),
            Self::Volumewatcher => line(
                "runs the volume watcher: drives the release of volumes, and their changes at the \
                 storage",
            ),
            Self::Gc => {
                line("runs the collector: asks for the release of what is of no use any more")
            }
            Self::Node { node, controllers } => {
                let hosts = match controllers.as_slice() {
                    [] => "hosts no controllers".to_owned(),
                    some => {
                        let names: Vec<&str> = some.iter().map(PluginId::as_str).collect();
                        format!("hosts the controllers of {}", names.join(", "))
                    }
                };
                vec![format!("runs the agent of node {node}, and of no other"), hosts]
            }
            Self::Docker { node, namespaces } => {
                let scope = if namespaces.iter().any(Namespace::is_wildcard) {
                    "in all namespaces".to_owned()
                } else {
                    let names: Vec<&str> = namespaces.iter().map(Namespace::as_str).collect();
                    format!("in namespace {}", names.join(", "))
                };
                vec![
                    format!("runs the Docker volume plugin of node {node}, and of no other"),
                    format!("{scope}: see and create volumes, mount them, delete what it created"),
                ]
            }
            Self::User { grants, .. } => grants.describe(),
            Self::Admin { .. } => line("may do everything, also change streams and buckets"),
            Self::Inspect { .. } => line("reads buckets and events, and sends no request"),
        }
    }
}

/// The longest name of a service's identity, a user, an operator or a reader, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// Returns the name if an identity may have it.
pub fn check_name(name: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_alphanumeric() || "-_.@+".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_allowed) {
        return Err(format!(
            "{name:?} is no name; write letters, digits, - _ . @ +, up to {NAME_BYTES_MAX} bytes"
        ));
    }
    Ok(name.to_owned())
}

const fn describe(capability: Capability) -> &'static str {
    match capability {
        Capability::List => "list volumes and allocs, without details",
        Capability::Read => "see volumes, claims, allocs and events",
        Capability::Write => {
            "see, register, create, change, delete and deregister volumes, and their snapshots"
        }
        Capability::Mount => "see all, register and stop allocs, and mount volumes",
        Capability::PluginRead => "see plugins and their instances",
        Capability::NodeRead => "see nodes",
        Capability::Operator => {
            "declare nodes gone, detach, collect, stop plugins, define classes, list and adopt \
             what plugins have"
        }
    }
}

/// What a user is granted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grants {
    /// The capabilities in each namespace. `*` is a grant of its own: requests about all of them.
    pub namespaces: BTreeMap<Namespace, BTreeSet<Capability>>,
    /// See plugins and their instances.
    #[serde(default)]
    pub plugin_read: bool,
    /// See nodes.
    #[serde(default)]
    pub node_read: bool,
    /// Declare nodes gone, detach volumes, collect garbage, stop plugins, define classes, list and
    /// adopt what plugins have.
    #[serde(default)]
    pub operator: bool,
}

/// A fault in the text of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantFault {
    /// The text as it was given.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for GrantFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.text, self.problem)
    }
}

/// The form of a grant, for messages.
pub const GRANT_FORM: &str = "write NAMESPACE=CAPABILITY,…, such as team-a=read,mount; the \
                              capabilities are list, read, write and mount; '*' is for all \
                              namespaces";

impl Grants {
    /// Reads `team-a=read,mount` and the like. Returns all faults, if there is one.
    pub fn parse_namespaces<T: AsRef<str>>(texts: &[T]) -> Result<Self, Vec<GrantFault>> {
        let mut namespaces: BTreeMap<Namespace, BTreeSet<Capability>> = BTreeMap::new();
        let mut faults = Vec::new();
        for text in texts.iter().map(AsRef::as_ref) {
            let mut problems = Vec::new();
            let (namespace, words) = text.split_once('=').unwrap_or((text, ""));
            let capabilities = parse_capabilities(words, &mut problems);
            match Namespace::new(namespace) {
                Err(fault) => problems.push(format!("the namespace {fault}")),
                Ok(namespace) if namespaces.contains_key(&namespace) => {
                    problems.push(format!("the namespace {namespace} has a grant already"));
                }
                Ok(namespace) => {
                    namespaces.insert(namespace, capabilities);
                }
            }
            let text = text.to_owned();
            faults.extend(
                problems.into_iter().map(|problem| GrantFault { text: text.clone(), problem }),
            );
        }
        if faults.is_empty() { Ok(Self { namespaces, ..Self::default() }) } else { Err(faults) }
    }

    /// Whether a capability that is not of a namespace is granted. An operator sees everything.
    pub fn covers(&self, capability: Capability) -> bool {
        match capability {
            Capability::PluginRead => self.plugin_read || self.operator,
            Capability::NodeRead => self.node_read || self.operator,
            Capability::Operator => self.operator,
            Capability::List | Capability::Read | Capability::Write | Capability::Mount => false,
        }
    }

    /// The namespaces in which this is granted; `*` stands for all. A user who may write or mount
    /// may also read, and who may read may also list.
    pub fn holders_of(&self, capability: Capability) -> impl Iterator<Item = Namespace> {
        let all = Namespace::wildcard();
        let is_held = move |given: &BTreeSet<Capability>| match capability {
            Capability::List => !given.is_empty(),
            Capability::Read => given.iter().any(|given| *given != Capability::List),
            other => given.contains(&other),
        };
        let sees_all = self.operator && [Capability::List, Capability::Read].contains(&capability);
        let everywhere = sees_all || self.namespaces.get(&all).is_some_and(is_held);
        let some = self.namespaces.iter().filter(move |(_, given)| !everywhere && is_held(given));
        some.map(|(namespace, _)| namespace.clone()).chain(everywhere.then_some(all))
    }

    /// Whether nothing is granted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The capabilities in this namespace, as granted for it by name.
    pub fn namespace(&self, namespace: &Namespace) -> impl Iterator<Item = Capability> {
        self.namespaces.get(namespace).into_iter().flatten().copied()
    }

    fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (namespace, capabilities) in &self.namespaces {
            let scope = match namespace.as_str() {
                "*" => "in all namespaces".to_owned(),
                name => format!("in namespace {name}"),
            };
            let does: Vec<&str> = capabilities.iter().map(|right| describe(*right)).collect();
            lines.push(format!("{scope}: {}", does.join("; ")));
        }
        let fleet = [
            (self.plugin_read, "of the fleet: see plugins and their instances"),
            (self.node_read, "of the fleet: see nodes"),
            (
                self.operator,
                "as operator: see everything, declare nodes gone, detach, collect, stop plugins, \
                 define classes, list and adopt what plugins have",
            ),
        ];
        lines.extend(
            fleet.iter().filter(|(granted, _)| *granted).map(|(_, line)| (*line).to_owned()),
        );
        lines
    }
}

fn parse_capabilities(words: &str, problems: &mut Vec<String>) -> BTreeSet<Capability> {
    let mut capabilities = BTreeSet::new();
    if words.is_empty() {
        problems.push("names no capability".to_owned());
        return capabilities;
    }
    for word in words.split(',').map(str::trim) {
        let is_named =
            |capability: &Capability| capability.is_of_namespace() && capability.name() == word;
        match Capability::ALL.into_iter().find(is_named) {
            Some(capability) => {
                capabilities.insert(capability);
            }
            None => problems.push(format!("{word:?} is no capability")),
        }
    }
    capabilities
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_read() {
        let grants = Grants::parse_namespaces(&["team-a=read,mount", "*=read"]).unwrap();
        let team = Namespace::new("team-a").unwrap();
        assert_eq!(
            grants.namespace(&team).collect::<Vec<_>>(),
            [Capability::Read, Capability::Mount]
        );
        assert_eq!(grants.namespace(&Namespace::wildcard()).count(), 1);
        assert_eq!(grants.namespace(&Namespace::default()).count(), 0);
        assert!(!grants.is_empty());
    }

    #[test]
    fn every_fault_is_reported_at_once() {
        let texts = ["a=read", "team-b", "c=reed,mount,", "=write", "a=mount", "d="];
        let faults = Grants::parse_namespaces(&texts).unwrap_err();
        let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let expected = [
            r#""team-b": names no capability"#,
            r#""c=reed,mount,": "reed" is no capability"#,
            r#""c=reed,mount,": "" is no capability"#,
            r#""=write": the namespace is empty; an id has 1 to 256 bytes"#,
            r#""a=mount": the namespace a has a grant already"#,
            r#""d=": names no capability"#,
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_role_survives_its_record() {
        let node = NodeId::new("n1").unwrap();
        let controllers = vec![PluginId::new("ebs.csi.aws.com").unwrap()];
        let mut grants = Grants::parse_namespaces(&["*=read,write"]).unwrap();
        grants.operator = true;
        let name = "alice".to_owned();
        for role in SERVICES.into_iter().chain([
            Role::Node { node: node.clone(), controllers },
            Role::Docker { node, namespaces: BTreeSet::from([Namespace::default()]) },
            Role::User { name: name.clone(), grants },
            Role::Admin { name: name.clone() },
            Role::Inspect { name },
        ]) {
            let text = serde_json::to_string(&role).unwrap();
            assert_eq!(serde_json::from_str::<Role>(&text).unwrap(), role, "{text}");
            assert!(!role.describe().is_empty(), "{text}");
        }
    }

    #[test]
    fn identities_of_different_roles_have_different_names() {
        assert_eq!(Role::Claim.identity_name(None), "claim");
        assert_eq!(Role::Claim.identity_name(Some("a")), "claim/a");
        let node = NodeId::new("n1").unwrap();
        let agent = Role::Node { node: node.clone(), controllers: Vec::new() };
        assert_eq!(agent.identity_name(None), "node/n1");
        let docker = r#"{"kind":"docker","node":"n1"}"#;
        let docker: Role = serde_json::from_str(docker).unwrap();
        assert_eq!(docker.identity_name(None), "docker/n1");
        // The last release did not record namespaces, and its identities have all.
        assert_eq!(docker, Role::Docker { node, namespaces: every_namespace() });
    }

    #[test]
    fn names_have_no_slashes_or_blanks() {
        for name in ["alice", "a.b@c+d_e-1", "Ánna"] {
            assert_eq!(check_name(name), Ok(name.to_owned()));
        }
        for name in ["", "a b", "a/b", "a\n", "*", &"x".repeat(129)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
