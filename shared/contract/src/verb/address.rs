//! The ids in a verb's subject: `<ns>`, `<node>`, `<plugin>`.

use std::fmt;

use berth_domain::{Namespace, NodeId, PluginId};

use crate::subject::controller_queue;
use crate::token::{decode, encode};

const NAMESPACE: &str = "<ns>";
const NODE: &str = "<node>";
const PLUGIN: &str = "<plugin>";

/// The ids that a verb's subject holds. A subject without ids has `()`.
pub trait Address: fmt::Debug + Clone + Send + Sync + Sized + 'static {
    /// Puts them in the place of the placeholders.
    fn fill(&self, form: &str) -> String;
    /// Takes them from a subject of this form; none when it has another form.
    fn read(form: &str, subject: &str) -> Option<Self>;

    /// The node among them.
    fn node(&self) -> Option<&NodeId> {
        None
    }

    /// The namespace among them.
    fn namespace(&self) -> Option<&Namespace> {
        None
    }

    /// The queue group of the subject's listeners, if it has one of its own.
    fn queue_group(&self) -> Option<String> {
        None
    }
}

impl Address for () {
    fn fill(&self, form: &str) -> String {
        form.to_owned()
    }

    fn read(form: &str, subject: &str) -> Option<Self> {
        (form == subject).then_some(())
    }
}

impl Address for Namespace {
    fn fill(&self, form: &str) -> String {
        form.replace(NAMESPACE, &encode(self))
    }

    /// The default namespace when the request came to the endpoint's subject as it is listed, which
    /// is where `nats micro req` sends.
    fn read(form: &str, subject: &str) -> Option<Self> {
        match token(form, subject, NAMESPACE)? {
            "*" => Some(Self::default()),
            token => Self::new(decode(token).ok()?).ok(),
        }
    }

    fn namespace(&self) -> Option<&Namespace> {
        Some(self)
    }
}

impl Address for NodeId {
    fn fill(&self, form: &str) -> String {
        form.replace(NODE, &encode(self))
    }

    fn read(form: &str, subject: &str) -> Option<Self> {
        Self::new(decode(token(form, subject, NODE)?).ok()?).ok()
    }

    fn node(&self) -> Option<&NodeId> {
        Some(self)
    }
}

impl Address for PluginId {
    fn fill(&self, form: &str) -> String {
        form.replace(PLUGIN, &encode(self))
    }

    fn read(form: &str, subject: &str) -> Option<Self> {
        Self::new(decode(token(form, subject, PLUGIN)?).ok()?).ok()
    }

    fn queue_group(&self) -> Option<String> {
        Some(controller_queue(self))
    }
}

/// The controller of a plugin beside a node. A plugin's controllers may each know the volumes of
/// their own node only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginOnNode {
    /// The plugin.
    pub plugin: PluginId,
    /// The node.
    pub node: NodeId,
}

/// A node, and the namespace that the request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAndNamespace {
    /// The node.
    pub node: NodeId,
    /// The namespace.
    pub namespace: Namespace,
}

impl NodeAndNamespace {
    /// The node, and all namespaces.
    pub fn any_of(node: NodeId) -> Self {
        Self { node, namespace: Namespace::wildcard() }
    }
}

impl Address for NodeAndNamespace {
    fn fill(&self, form: &str) -> String {
        self.namespace.fill(&self.node.fill(form))
    }

    fn read(form: &str, subject: &str) -> Option<Self> {
        let node = NodeId::new(decode(token(form, subject, NODE)?).ok()?).ok()?;
        Some(Self { node, namespace: Namespace::read(form, subject)? })
    }

    fn node(&self) -> Option<&NodeId> {
        Some(&self.node)
    }

    fn namespace(&self) -> Option<&Namespace> {
        Some(&self.namespace)
    }
}

impl Address for PluginOnNode {
    fn fill(&self, form: &str) -> String {
        self.plugin.fill(&self.node.fill(form))
    }

    fn read(form: &str, subject: &str) -> Option<Self> {
        let node = NodeId::new(decode(token(form, subject, NODE)?).ok()?).ok()?;
        let plugin = PluginId::new(decode(token(form, subject, PLUGIN)?).ok()?).ok()?;
        Some(Self { plugin, node })
    }
}

/// An id in a subject, of which a permission is made.
#[derive(Debug, Clone, Copy)]
pub enum SubjectPart<'a> {
    /// This namespace; all of them for `*`.
    Namespace(&'a Namespace),
    /// This node.
    Node(&'a NodeId),
    /// This plugin.
    Plugin(&'a PluginId),
}

impl SubjectPart<'_> {
    /// Its token.
    pub fn token(self) -> String {
        match self {
            Self::Namespace(all) if all.is_wildcard() => "*".to_owned(),
            Self::Namespace(namespace) => encode(namespace),
            Self::Node(node) => encode(node),
            Self::Plugin(plugin) => encode(plugin),
        }
    }

    const fn placeholder(self) -> &'static str {
        match self {
            Self::Namespace(_) => NAMESPACE,
            Self::Node(_) => NODE,
            Self::Plugin(_) => PLUGIN,
        }
    }
}

/// The form with these ids, and a wildcard for each other one.
pub(super) fn fill_parts(form: &str, parts: &[SubjectPart<'_>]) -> String {
    let filled = parts
        .iter()
        .fold(form.to_owned(), |form, part| form.replace(part.placeholder(), &part.token()));
    wildcards(&filled)
}

/// The form with a wildcard for each id.
pub(super) fn wildcards(form: &str) -> String {
    form.replace(NAMESPACE, "*").replace(NODE, "*").replace(PLUGIN, "*")
}

/// The token of a subject at the place of this placeholder of the form.
fn token<'a>(form: &str, subject: &'a str, placeholder: &str) -> Option<&'a str> {
    let (mut found, mut tokens) = (None, subject.split('.'));
    for expected in form.split('.') {
        let token = tokens.next()?;
        if expected == placeholder {
            found = Some(token);
        } else if expected != token && !expected.starts_with('<') {
            return None;
        }
    }
    found.filter(|_| tokens.next().is_none())
}
