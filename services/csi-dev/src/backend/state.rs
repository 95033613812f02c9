//! The recorded use of a volume.
//!
//! Owns: [`VolumeState`]: where a volume is attached, staged and published. The volume's properties
//! are in [`VolumeMeta`](super::VolumeMeta). Promises: has no side effects. Never: reads or writes
//! a file, or asks the kernel.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::capability::Capability;

/// Where a volume is in use.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct VolumeState {
    /// Counts attachments, so that an old publish context differs from the current one.
    #[serde(default)]
    pub attached_so_far: u64,
    /// By node id.
    #[serde(default)]
    pub attachments: BTreeMap<String, Attachment>,
    /// By node id. A node without stage and publication is absent.
    #[serde(default)]
    pub nodes: BTreeMap<String, NodeUse>,
}

/// An attachment, from `ControllerPublishVolume` to `ControllerUnpublishVolume`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attachment {
    pub capability: Capability,
    pub readonly: bool,
    /// Counts the attachments of the volume from 1.
    pub number: u64,
}

/// A volume's use on one node.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct NodeUse {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<StagedVolume>,
    /// By target path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub published: BTreeMap<String, PublishedVolume>,
    /// Whether the node was fenced since: the mounts exist but cannot write.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// The loop device of its image, as `/dev/loop7`. After a reboot the device may belong to
    /// another image; only the kernel can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Read-only loop devices, by the target where each is published as a block device.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub readonly_devices: BTreeMap<String, String>,
}

/// A volume staged on a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StagedVolume {
    /// The staging path, as the CO wrote it.
    pub path: String,
    pub capability: Capability,
    /// False while the mount table is being changed. A killed call leaves false: the mount may
    /// exist, exist in part, or not exist.
    pub settled: bool,
}

/// A volume published at one target on a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PublishedVolume {
    pub capability: Capability,
    pub readonly: bool,
    /// See [`StagedVolume::settled`].
    pub settled: bool,
}

impl NodeUse {
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.device.iter().chain(self.readonly_devices.values()).map(String::as_str)
    }
}

impl VolumeState {
    pub fn on(&self, node: &str) -> Option<&NodeUse> {
        self.nodes.get(node)
    }

    /// The stage on `node`, settled or not.
    pub fn staged_on(&self, node: &str) -> Option<&StagedVolume> {
        self.on(node)?.staged.as_ref()
    }

    /// The targets on `node`, settled or not.
    pub fn targets_on(&self, node: &str) -> Vec<String> {
        self.on(node).map(|on| on.published.keys().cloned().collect()).unwrap_or_default()
    }

    /// Records the stage on `node`. Replaces an earlier one.
    pub fn stage(&mut self, node: &str, staged: StagedVolume) {
        let on = self.nodes.entry(node.to_owned()).or_default();
        (on.staged, on.cut) = (Some(staged), false);
    }

    pub fn unstage(&mut self, node: &str) {
        self.change(node, |on| on.staged = None);
    }

    /// Records the publication at `target` on `node`. Replaces an earlier one.
    pub fn publish(&mut self, node: &str, target: &str, published: PublishedVolume) {
        let on = self.nodes.entry(node.to_owned()).or_default();
        on.published.insert(target.to_owned(), published);
        on.cut = false;
    }

    /// Marks the publication at `target` as unsettled, if there is one. [`NodeUse::cut`] is kept.
    pub fn begin_unpublish(&mut self, node: &str, target: &str) -> bool {
        let published = self.nodes.get_mut(node).and_then(|on| on.published.get_mut(target));
        published.map(|published| published.settled = false).is_some()
    }

    /// Marks the stage as unsettled. [`NodeUse::cut`] is kept.
    pub fn begin_unstage(&mut self, node: &str) {
        if let Some(staged) = self.nodes.get_mut(node).and_then(|on| on.staged.as_mut()) {
            staged.settled = false;
        }
    }

    /// Marks all uses on a fenced node. True if the mark is new.
    pub fn cut_off(&mut self, node: &str) -> bool {
        self.nodes.get_mut(node).is_some_and(|on| !std::mem::replace(&mut on.cut, true))
    }

    pub fn is_cut(&self, node: &str) -> bool {
        self.on(node).is_some_and(|on| on.cut)
    }

    pub fn unpublish(&mut self, node: &str, target: &str) {
        self.change(node, |on| {
            on.published.remove(target);
            on.readonly_devices.remove(target);
        });
    }

    pub fn set_device(&mut self, node: &str, device: Option<String>) {
        match device {
            Some(device) => {
                self.nodes.entry(node.to_owned()).or_default().device = Some(device);
            }
            None => self.change(node, |on| on.device = None),
        }
    }

    pub fn set_readonly_device(&mut self, node: &str, target: &str, device: String) {
        let on = self.nodes.entry(node.to_owned()).or_default();
        on.readonly_devices.insert(target.to_owned(), device);
    }

    pub fn device_on(&self, node: &str) -> Option<&str> {
        self.on(node)?.device.as_deref()
    }

    /// The recorded loop devices of all nodes.
    pub fn devices(&self) -> BTreeSet<&str> {
        self.nodes.values().flat_map(NodeUse::devices).collect()
    }

    pub fn is_in_use(&self) -> bool {
        !self.attachments.is_empty() || !self.nodes.is_empty()
    }

    /// Changes the use on `node`, and removes an empty one.
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

    /// Found by chaos: a node was fenced, its mount was being undone, and meanwhile another node
    /// was refused the volume.
    #[test]
    fn what_is_cut_off_stays_so_while_it_is_undone() {
        let capability = Capability::mount(AccessMode::SingleNodeWriter);
        let mut state = VolumeState::default();
        let staged =
            StagedVolume { path: "/s".to_owned(), capability: capability.clone(), settled: true };
        state.stage("n1", staged);
        state.publish("n1", "/t", PublishedVolume { capability, readonly: false, settled: true });
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
