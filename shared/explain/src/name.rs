//! The things that a name may mean.

use berth_domain::{AllocId, NodeId, PluginId, SnapshotId, VolumeId};

use crate::facts::{Names, SnapshotName};

/// Everything that the name may mean: a thing of each kind, or only of the kind before the first
/// slash.
pub fn names(text: &str) -> Names {
    let (kind, id) = match text.split_once('/') {
        Some((kind @ ("volume" | "alloc" | "node" | "plugin" | "snapshot"), id)) => {
            (Some(kind), id)
        }
        _ => (None, text),
    };
    let may_be = |name: &str| kind.is_none_or(|kind| kind == name);
    Names {
        volume: VolumeId::new(id).ok().filter(|_| may_be("volume")),
        alloc: AllocId::new(id).ok().filter(|_| may_be("alloc")),
        node: NodeId::new(id).ok().filter(|_| may_be("node")),
        plugin: PluginId::new(id).ok().filter(|_| may_be("plugin")),
        snapshot: snapshot(id).filter(|_| may_be("snapshot")),
    }
}

/// `VOLUME@SNAPSHOT`
fn snapshot(text: &str) -> Option<SnapshotName> {
    let (volume, id) = text.rsplit_once('@')?;
    Some(SnapshotName { volume: VolumeId::new(volume).ok()?, snapshot: SnapshotId::new(id).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_before_the_slash_rules_the_others_out() {
        let any_kind = names("data");
        assert!(any_kind.volume.is_some() && any_kind.alloc.is_some());
        assert!(any_kind.node.is_some() && any_kind.plugin.is_some());
        let only_node = names("node/n1");
        assert_eq!(only_node, Names { node: NodeId::new("n1").ok(), ..Names::default() });
        // An id may contain a slash.
        let path = names("team/data");
        assert_eq!(path.volume, VolumeId::new("team/data").ok());
        assert_eq!(names(""), Names::default());
        let snapshot = names("data@monday").snapshot.unwrap();
        assert_eq!((snapshot.volume.as_str(), snapshot.snapshot.as_str()), ("data", "monday"));
        let only_snapshot = names("snapshot/data@monday");
        assert_eq!(only_snapshot, Names { snapshot: Some(snapshot), ..Names::default() });
        assert_eq!(names("volume/data@monday").snapshot, None);
    }
}
