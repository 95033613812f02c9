//! The facts about this host that the agent reports.
//!
//! **Never** fails: what a host does not say is left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use berth_domain::NodeId;

/// The node and the host behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The node.
    pub node: NodeId,
    /// Changes with each boot: mounts of another boot are gone.
    pub boot_id: String,
    /// What the node says of itself, for people and for placement.
    pub attributes: BTreeMap<String, String>,
}

impl Host {
    /// This host, as the node.
    pub fn read(node: NodeId) -> Self {
        let named = |name: &str, path| Some((name.to_owned(), kernel_says(path)?));
        let attributes =
            [named("hostname", "hostname"), named("kernel", "osrelease")].into_iter().flatten();
        let boot_id = berth_host::read_boot_id().unwrap_or_else(|_| "unknown".to_owned());
        Self { node, boot_id, attributes: attributes.collect() }
    }
}

fn kernel_says(name: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_says_which_boot_this_is() {
        let host = Host::read(NodeId::new("n1").unwrap());
        assert_eq!(host.boot_id.len(), 36, "{host:?}");
        assert!(host.attributes.contains_key("kernel"), "{host:?}");
    }
}
