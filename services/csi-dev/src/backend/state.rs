//! What a backend remembers of a volume's use.
//!
//! Owns: [`State`], where a volume is attached, staged and published; what it is, is
//! [`Meta`](super::Meta). Promises: values only; the rules read them, the calls change them.
//! Never: reads or writes a file, or knows whether a mount is really there.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::capability::Capability;

/// Where a volume is in use.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct State {
    /// How often it was attached so far. Numbers attachments, so that an old publish context is
    /// told from a current one.
    #[serde(default)]
    pub attached_so_far: u64,
    /// By node id.
    #[serde(default)]
    pub attachments: BTreeMap<String, Attachment>,
    /// By node id; nodes where nothing is staged or published are absent.
    #[serde(default)]
    pub nodes: BTreeMap<String, NodeUse>,
}

/// A volume's attachment to a node, between `ControllerPublishVolume` and its negation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attachment {
    pub capability: Capability,
    /// Whether this node may only read.
    pub readonly: bool,
    /// Which attachment of the volume this is, counted from 1.
    pub number: u64,
}

/// A volume's use on one node.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct NodeUse {
    /// Where it is staged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<Staged>,
    /// By target path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub published: BTreeMap<String, Published>,
    /// Whether all of this is from before the node was fenced: it is there, and cannot write.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// The loop device that was bound to its image here, as `/dev/loop7`. After a reboot it may be
    /// another image's: only the kernel knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Read-only loop devices, by the target each was published at as a block device.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub readonly_devices: BTreeMap<String, String>,
}

/// A volume staged on a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Staged {
    /// The staging path, as the CO wrote it.
    pub path: String,
    pub capability: Capability,
    /// False from before the first to after the last change of the mount table. A call that was
    /// killed leaves false behind: the mount may be there, or half there, or gone.
    pub settled: bool,
}

/// A volume published at one target on a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Published {
    pub capability: Capability,
    pub readonly: bool,
    /// See [`Staged::settled`].
    pub settled: bool,
}

impl NodeUse {
    /// All loop devices that are noted here.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.device.iter().chain(self.readonly_devices.values()).map(String::as_str)
    }
}

impl State {
    /// The volume's use on `node`, if any.
    pub fn on(&self, node: &str) -> Option<&NodeUse> {
        self.nodes.get(node)
    }

    /// Where it is staged on `node`, if it is or may be.
    pub fn staged_on(&self, node: &str) -> Option<&Staged> {
        self.on(node)?.staged.as_ref()
    }

    /// The targets on `node` where it is or may be published.
    pub fn targets_on(&self, node: &str) -> Vec<String> {
        self.on(node).map(|on| on.published.keys().cloned().collect()).unwrap_or_default()
    }

    /// Notes the stage on `node`, in place of an earlier one.
    pub fn stage(&mut self, node: &str, staged: Staged) {
        let on = self.nodes.entry(node.to_owned()).or_default();
        (on.staged, on.cut) = (Some(staged), false);
    }

    /// Forgets the stage on `node`.
    pub fn unstage(&mut self, node: &str) {
        self.change(node, |on| on.staged = None);
    }

    /// Notes the publication at `target` on `node`, in place of an earlier one.
    pub fn publish(&mut self, node: &str, target: &str, published: Published) {
        let on = self.nodes.entry(node.to_owned()).or_default();
        on.published.insert(target.to_owned(), published);
        on.cut = false;
    }

    /// Notes that the publication at `target` on `node` is being undone, if there is one. What is
    /// [`NodeUse::cut`] off stays so.
    pub fn begin_unpublish(&mut self, node: &str, target: &str) -> bool {
        let published = self.nodes.get_mut(node).and_then(|on| on.published.get_mut(target));
        published.map(|published| published.settled = false).is_some()
    }

    /// Notes that the stage on `node` is being undone. What is [`NodeUse::cut`] off
    /// stays so.
    pub fn begin_unstage(&mut self, node: &str) {
        if let Some(staged) = self.nodes.get_mut(node).and_then(|on| on.staged.as_mut()) {
            staged.settled = false;
        }
    }

    /// Notes that the node can write by nothing that it has. Whether that is news.
    pub fn cut_off(&mut self, node: &str) -> bool {
        self.nodes.get_mut(node).is_some_and(|on| !std::mem::replace(&mut on.cut, true))
    }

    /// Whether the node can write by nothing that it has.
    pub fn is_cut(&self, node: &str) -> bool {
        self.on(node).is_some_and(|on| on.cut)
    }

    /// Forgets the publication at `target` on `node`.
    pub fn unpublish(&mut self, node: &str, target: &str) {
        self.change(node, |on| {
            on.published.remove(target);
            on.readonly_devices.remove(target);
        });
    }

    /// Notes, or forgets, the loop device on `node`.
    pub fn set_device(&mut self, node: &str, device: Option<String>) {
        match device {
            Some(device) => {
                self.nodes.entry(node.to_owned()).or_default().device = Some(device);
            }
            None => self.change(node, |on| on.device = None),
        }
    }

    /// Notes the loop device that only reads for the publication at `target` on `node`.
    pub fn set_readonly_device(&mut self, node: &str, target: &str, device: String) {
        let on = self.nodes.entry(node.to_owned()).or_default();
        on.readonly_devices.insert(target.to_owned(), device);
    }

    /// The loop device noted on `node`.
    pub fn device_on(&self, node: &str) -> Option<&str> {
        self.on(node)?.device.as_deref()
    }

    /// All loop devices that are noted, on any node.
    pub fn devices(&self) -> BTreeSet<&str> {
        self.nodes.values().flat_map(NodeUse::devices).collect()
    }

    /// Whether anything says that it is attached, staged or published anywhere.
    pub fn is_in_use(&self) -> bool {
        !self.attachments.is_empty() || !self.nodes.is_empty()
    }

    /// Changes what is noted about `node`, and forgets the node once nothing is.
    fn change(&mut self, node: &str, change: impl FnOnce(&mut NodeUse)) {
        if let Some(on) = self.nodes.get_mut(node) {
            change(on);
            if *on == (NodeUse { cut: on.cut, ..NodeUse::default() }) {
                self.nodes.remove(node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::AccessMode;

    /// Seen: a node was fenced, its mount was taken down there, and meanwhile another node was
    /// refused the volume.
    #[test]
    fn what_is_cut_off_stays_so_while_it_is_undone() {
        let capability = Capability::mount(AccessMode::SingleNodeWriter);
        let mut state = State::default();
        let staged =
            Staged { path: "/s".to_owned(), capability: capability.clone(), settled: true };
        state.stage("n1", staged);
        state.publish("n1", "/t", Published { capability, readonly: false, settled: true });
        assert!(state.cut_off("n1"));
        assert!(state.begin_unpublish("n1", "/t") && state.is_cut("n1"));
        assert!(!state.begin_unpublish("n1", "/u"), "nothing is there");
        state.unpublish("n1", "/t");
        state.begin_unstage("n1");
        assert!(state.is_cut("n1"));
        state.unstage("n1");
        assert!(!state.is_in_use());
    }
}
